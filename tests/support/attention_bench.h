/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SLUICE_TEST_ATTENTION_BENCH_H
#define SLUICE_TEST_ATTENTION_BENCH_H
/* Times the attention operator; argv[1], if there, is the number of threads. */
int attention_bench(int argc, char **argv);
#endif
