/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of this machine: kernels, matrix products, training steps, beside the peak that the same run
 * reaches. Times are the best of several, because other programs only ever make a run slower. Threads:
 * sluice_set_num_threads. */
#ifndef SLUICE_BENCH_H
#define SLUICE_BENCH_H
#include <stdbool.h>
#include <stdint.h>
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the machine can do with the threads in use. */
typedef struct sluice_bench_machine {
    int threads;
    double gemm_gflops; /* fp32 product of 2048 x 2048 x 2048, 10^9 multiplications and additions a second */
    double copy_gbs;    /* copying 256 MiB, bytes read + bytes written, 10^9 a second */
    double read_gbs;    /* reading 512 MiB: what decoding, which reads every weight once a token, cannot exceed */
} sluice_bench_machine;
sluice_status sluice_bench_machine_run(sluice_bench_machine *out, sluice_error *err);

typedef struct sluice_bench_row {
    const char *name;  /* kernel, or "m x n x k" of a product */
    const char *level; /* "ref", "avx2", "avx512"; products: what reads it ("124M qkv forward") */
    const char *unit;  /* "GB/s" or "GFLOP/s" */
    double rate, seconds; /* of the best call */
} sluice_bench_row;
typedef void (*sluice_bench_fn)(void *user, const sluice_bench_row *row);

/* Every kernel in every version this machine runs, on one thread; `seconds` of trying for each. */
sluice_status sluice_bench_kernels(double seconds, sluice_bench_fn fn, void *user, sluice_error *err);
/* The matrix products of training and decoding at the sizes of three models, on all threads in use. */
sluice_status sluice_bench_products(double seconds, sluice_bench_fn fn, void *user, sluice_error *err);

/* Where the time of a run goes: what one operator of the library (a product of one shape, a norm, attention...) takes. */
typedef struct sluice_bench_operator {
    const char *name;  /* "x W^T", "attention forward" */
    int64_t m, n, k;   /* of products; 0 elsewhere, and for the shapes that found no place of their own */
    double calls, seconds; /* in one run */
    double best; /* seconds of the fastest call; of the others, what other programs took is a part */
    double flops, bytes; /* multiplications and additions (0: memory is what counts); read and written, each operand once */
} sluice_bench_operator;
enum { SLUICE_BENCH_OPERATORS = 160 };
typedef struct sluice_bench_profile {
    double seconds; /* of the whole run, what is outside of operators included; 0: nothing was measured */
    int count;
    sluice_bench_operator operators[SLUICE_BENCH_OPERATORS]; /* most time first */
} sluice_bench_profile;

/* Training steps: forward, backward, clipping, AdamW (or Muon), on random tokens. */
typedef struct sluice_bench_train_params {
    const char *shape; /* "124M:4x64": model (124M, small, moe, d512) : windows x tokens */
    const char *gates; /* comma-separated list of none, headwise, elementwise, variants of sluice/variants.h; or "all" */
    const char *dtypes; /* comma-separated list of float32, bf16 */
    const char *optim;  /* "adamw" or "muon" */
    int steps, warmup; /* timed steps and steps before them, of every gate and dtype, in turn */
    sluice_bench_profile *profiles; /* [SLUICE_BENCH_ROWS], of the best timed step of each row; NULL: none */
} sluice_bench_train_params;
sluice_bench_train_params sluice_bench_train_default(void); /* 124M:4x64, all three gates, float32, 8 steps, 2 warmup */
/* What sluice_bench_train would refuse: words it does not know, counts, models that do not fit into memory together. */
sluice_status sluice_bench_train_check(const sluice_bench_train_params *p, sluice_error *err);

typedef struct sluice_bench_train_row {
    const char *shape, *gate, *dtype;
    int64_t parameters, tokens; /* of the model; of one step */
    double best_seconds, median_seconds;   /* of a step */
    double flops;                          /* of its matrix products, causal attention counted as half a square */
    double adamw_seconds, adamw_gbs;       /* best, of the optimizer, Muon or not; at 28 bytes a parameter */
} sluice_bench_train_row;
enum { SLUICE_BENCH_GATES = 32, SLUICE_BENCH_DTYPES = 2, SLUICE_BENCH_ROWS = 64 };
/* rows receives one entry per dtype and gate (at most SLUICE_BENCH_ROWS), *count their number; gates of one dtype are next to
 * each other. All are held in memory at once and take turns, so that a slow moment of the machine hits all of them. */
sluice_status sluice_bench_train(const sluice_bench_train_params *p, sluice_bench_train_row *rows, int *count,
                                 sluice_error *err);

/* Inference of models from files, as llama-bench measures it: a prompt of fixed random tokens into an empty session, with
 * the logits of its last token; then single tokens behind `depth` others, of one sequence or of several in one pass. */
typedef struct sluice_bench_infer_params {
    const char *const *models; /* [num_models], each what sluice_model_load takes; weights stay as stored */
    int num_models;
    int prefill, decode, depth; /* tokens; 0 leaves that measurement out */
    int parallel;               /* sequences that decode together, 1..1024, `decode` tokens each */
    int repeat;                 /* timed runs of every model, in turn, after one that is not timed */
    bool reader;                /* also read 256 MB of other memory after every fourth step of decoding */
    sluice_bench_profile *profiles; /* [2 * num_models]: of the best prompt, and of one step of the best decoding; NULL: none */
} sluice_bench_infer_params;
sluice_bench_infer_params sluice_bench_infer_default(void); /* prefill 512, decode 128, depth 0, parallel 1, repeat 5 */

typedef struct sluice_bench_infer_row {
    const char *model;     /* as given */
    int64_t parameters;
    int64_t weight_bytes;  /* of all tensors in its files */
    double load_seconds;   /* from the call to a model that can run */
    double first_token_seconds; /* from the call to the logits of a prompt of one token */
    double prefill_seconds, prefill_median; /* of the prompt; 0 where not measured */
    double decode_seconds, decode_median;   /* of all `decode` steps, each a token of every sequence; the reader's time is not in it */
    double reader_gbs; /* 10^9 bytes a second that the reader got during the best decoding; 0 without it */
} sluice_bench_infer_row;
/* rows [num_models]. */
sluice_status sluice_bench_infer(const sluice_bench_infer_params *p, sluice_bench_infer_row *rows, sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
