/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice bench infer`: prefill and decode of model files, and how fast that reads their weights. */
#include "cli/bench.h"
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>

/* Weights read once a step, 10^9 bytes a second. */
static double read_rate(const sluice_bench_infer_row *r, int tokens) {
    return (double)r->weight_bytes * tokens / r->decode_seconds / 1e9;
}

/* That decoding gives, all sequences together. */
static double tokens_of(const sluice_bench_infer_params *p) { return (double)p->decode * p->parallel; }

static void print_row(const sluice_bench_infer_row *r, const sluice_bench_infer_params *p) {
    printf("%s\n  %.1f M parameters, %.1f MB   load %.3f s, with the first token %.3f s\n", r->model,
           1e-6 * (double)r->parameters, 1e-6 * (double)r->weight_bytes, r->load_seconds, r->first_token_seconds);
    if (p->prefill)
        printf("  prefill %d: %.1f tok/s (median %.1f)\n", p->prefill, p->prefill / r->prefill_seconds,
               p->prefill / r->prefill_median);
    if (p->decode)
        printf("  decode %d behind %d: %.2f tok/s (median %.2f), %.1f GB/s of weights%s\n", p->decode, p->depth,
               tokens_of(p) / r->decode_seconds, tokens_of(p) / r->decode_median, read_rate(r, p->decode),
               p->parallel > 1 ? ", all sequences together" : "");
    if (r->reader_gbs > 0)
        printf("  a reader in turn with it: %.1f GB/s, of which weights are %.0f %%\n", r->reader_gbs,
               100 * read_rate(r, p->decode) / r->reader_gbs);
}

static json_t *row_json(const sluice_bench_infer_row *r, const sluice_bench_infer_params *p) {
    json_t *row = json_pack("{s:s, s:I, s:I, s:f, s:f}", "model", r->model, "parameters", (json_int_t)r->parameters,
                            "weight_bytes", (json_int_t)r->weight_bytes, "load_seconds", r->load_seconds,
                            "first_token_seconds", r->first_token_seconds);
    if (p->prefill) {
        json_object_set_new(row, "prefill_tokens", json_integer(p->prefill));
        json_object_set_new(row, "prefill_tokens_per_second", json_real(p->prefill / r->prefill_seconds));
        json_object_set_new(row, "prefill_tokens_per_second_median", json_real(p->prefill / r->prefill_median));
    }
    if (p->decode) {
        json_object_set_new(row, "decode_tokens", json_integer(p->decode));
        json_object_set_new(row, "decode_sequences", json_integer(p->parallel));
        json_object_set_new(row, "decode_depth", json_integer(p->depth));
        json_object_set_new(row, "decode_tokens_per_second", json_real(tokens_of(p) / r->decode_seconds));
        json_object_set_new(row, "decode_tokens_per_second_median", json_real(tokens_of(p) / r->decode_median));
        json_object_set_new(row, "decode_weight_gbs", json_real(read_rate(r, p->decode)));
        if (r->reader_gbs > 0) json_object_set_new(row, "reader_gbs", json_real(r->reader_gbs));
    }
    return row;
}

static void print_profiles(const sluice_bench_profile *both, const sluice_bench_infer_params *p,
                           const sluice_bench_machine *m) {
    if (p->prefill) bench_print_profile("prefill", &both[0], m);
    if (p->decode) bench_print_profile(p->parallel > 1 ? "decode, one token of every sequence" : "decode, one token", &both[1], m);
}

static void add_profiles(json_t *row, const sluice_bench_profile *both, const sluice_bench_infer_params *p,
                         const sluice_bench_machine *m) {
    if (p->prefill) json_object_set_new(row, "prefill_profile", bench_profile_json(&both[0], m));
    if (p->decode) json_object_set_new(row, "decode_profile", bench_profile_json(&both[1], m));
}

static int fail(const sluice_error *err) {
    cli_fail("bench", err);
    return err->code == SLUICE_ERR_ARGUMENT ? CLI_USAGE : CLI_FAILED;
}

int bench_infer(const sluice_bench_infer_params *p, bool as_json, sluice_error *err) {
    sluice_bench_machine m;
    sluice_bench_infer_row *rows = calloc((size_t)p->num_models + 1, sizeof *rows);
    sluice_status st = rows ? sluice_bench_infer(p, rows, err) : SLUICE_ERR_MEMORY;
    int64_t peak = sluice__mem_peak();
    if (st == SLUICE_OK) st = sluice_bench_machine_run(&m, err);
    if (st != SLUICE_OK) {
        free(rows);
        return fail(err);
    }
    json_t *list = as_json ? json_array() : NULL;
    if (!list) bench_print_machine(&m);
    for (int i = 0; i < p->num_models; i++) {
        const sluice_bench_profile *both = p->profiles ? &p->profiles[2 * i] : NULL;
        json_t *row = list ? row_json(&rows[i], p) : NULL;
        if (!row) print_row(&rows[i], p);
        if (both && row) add_profiles(row, both, p, &m);
        else if (both) print_profiles(both, p, &m);
        if (row) json_array_append_new(list, row);
    }
    free(rows);
    if (list)
        return bench_print_json(json_pack("{s:o, s:I, s:o}", "machine", bench_machine_json(&m), "peak_bytes", (json_int_t)peak,
                                          "infer", list));
    printf("memory: %.1f MB, mapped files not counted\n", 1e-6 * (double)peak);
    return CLI_OK;
}
