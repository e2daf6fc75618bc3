/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `sluice bench` share. */
#ifndef SLUICE_CLI_BENCH_H
#define SLUICE_CLI_BENCH_H
#include "cli/cli.h"
#include "sluice/bench.h"

void bench_print_machine(const sluice_bench_machine *m);
json_t *bench_machine_json(const sluice_bench_machine *m); /* new reference */
/* Prints the object on standard output and frees it; an exit code. */
int bench_print_json(json_t *root);

/* The operators of one run, `of` says of what. */
void bench_print_profile(const char *of, const sluice_bench_profile *p, const sluice_bench_machine *m);
json_t *bench_profile_json(const sluice_bench_profile *p, const sluice_bench_machine *m); /* new reference */

/* `sluice bench infer`: an exit code. */
int bench_infer(const sluice_bench_infer_params *p, bool as_json, sluice_error *err);
/* `sluice bench tokenize`: the best of `repeat` times; an exit code. */
int bench_tokenize(const char *tokenizer, const char *file, int repeat, bool as_json, sluice_error *err);
#endif
