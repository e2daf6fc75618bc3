/* SPDX-License-Identifier: Apache-2.0 */
/* One attention call with everything around it: operands in guarded memory, the operator's results,
 * the naive results. */
#ifndef SLUICE_TEST_ATTENTION_PROBLEM_H
#define SLUICE_TEST_ATTENTION_PROBLEM_H
#include "support/attention_naive.h"
#include "support/test_support.h"

typedef struct problem {
    sluice_attention_params p;
    naive_layout layout;
    naive_tensor q, k, v, gate, y, o, dy, dq, dk, dv, dgate;
    naive_tensor lse, share, dsinks; /* [batch, heads, 1, q_len], [1, 1, 1, heads] */
    naive_tensor sinks;
    int32_t *key_start; /* NULL unless documents */
    float sd;           /* of queries; keys, values, gates have 1 */
    naive_call want;
} problem;

/* Options beside the sizes in p (key_start and sinks are made here when asked for). */
typedef struct problem_options {
    naive_layout layout;
    bool documents, sinks;
    float sd;
    uint64_t seed;
} problem_options;

problem problem_make(const sluice_attention_params *p, const problem_options *options);
void problem_free(problem *x);
void problem_forward(problem *x);             /* the operator; fails the test on error */
void problem_backward(problem *x);            /* after problem_forward */
void problem_want(problem *x, bool backward); /* naive results */
/* Compare, and check guards. `what` names the case in messages. */
void problem_check_forward(const problem *x, const char *what);
void problem_check_backward(const problem *x, const char *what);
/* Bytes of all results one after the other (for bit comparison); free(). */
float *problem_results(const problem *x, size_t *bytes);
#endif
