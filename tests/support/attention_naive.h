/* SPDX-License-Identifier: Apache-2.0 */
/* Attention written down once more for tests, with whole matrices in double, and tensors that
 * notice what is written beside them. */
#ifndef SLUICE_TEST_ATTENTION_NAIVE_H
#define SLUICE_TEST_ATTENTION_NAIVE_H
#include "sluice/attention.h"
#include <stdbool.h>
#include <stdint.h>

/* How a tensor [batch, tokens, heads, width] lies in memory. */
typedef enum naive_layout {
    NAIVE_DENSE,      /* strides 0 */
    NAIVE_ODD,        /* gaps behind heads, tokens and batch rows, odd addresses */
    NAIVE_HEAD_MAJOR, /* [batch, heads, tokens, width] with gaps */
    NAIVE_LAYOUTS,
    NAIVE_FAR = NAIVE_LAYOUTS /* tokens a multiple of 4 KiB apart: large, so for some tests only */
} naive_layout;

typedef struct naive_tensor {
    sluice_strided view; /* as handed to the operator */
    sluice_strided at;   /* the same with all strides resolved */
    int64_t batch, tokens, heads, width;
    float *memory;
    int64_t floats; /* in memory, guards included */
} naive_tensor;

naive_tensor naive_tensor_make(naive_layout layout, int64_t batch, int64_t tokens, int64_t heads,
                               int64_t width);
void naive_tensor_free(naive_tensor *t);
float *naive_tensor_at(const naive_tensor *t, int64_t b, int64_t i, int64_t h);
/* Normal numbers of standard deviation sd; the memory around stays guard. */
void naive_tensor_fill(naive_tensor *t, uint64_t stream, float sd);
/* True when everything outside the elements is as it was made. */
bool naive_tensor_guarded(const naive_tensor *t);
/* Dense copy in double, and back. */
void naive_tensor_read(const naive_tensor *t, double *dense);
/* Largest |element - dense|; infinite when an element is not a number. */
double naive_tensor_error(const naive_tensor *t, const double *dense);
/* Root of the mean square of element - dense, relative to that of dense. */
double naive_tensor_rms_error(const naive_tensor *t, const double *dense);
int64_t naive_tensor_count(const naive_tensor *t);

/* One call in double; dense arrays as in the public header. Unused ones are NULL. */
typedef struct naive_call {
    sluice_attention_params p;
    double scale;
    double *q, *k, *v, *gate, *sinks;
    double *y, *o, *lse, *share, *probs; /* forward; probs [batch, heads, q_len, kv_len] */
    double *dy, *dq, *dk, *dv, *dgate, *dsinks;
    double most_score; /* largest |score| seen */
} naive_call;

/* Allocates every array (zeroed). free: naive_call_free. */
naive_call naive_call_make(const sluice_attention_params *p);
void naive_call_free(naive_call *c);
void naive_forward(naive_call *c);
void naive_backward(naive_call *c); /* after naive_forward */
double naive_act(sluice_gate_act act, double s);
double naive_largest(const double *x, int64_t count);
#endif
