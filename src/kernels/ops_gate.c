/* SPDX-License-Identifier: Apache-2.0 */
/* The gate operators: rows are dealt out to the team. Logits that are weights get their gradient
 * from one sum per thread, and these are added in the order of the threads. */
#include "kernels/gate.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"
#include <string.h>

/* An exponential and a division an element: about four times the work of plain copying. */
static int team_of(const sluice__gating *g) {
    return sluice__team(4 * g->rows * g->heads * g->head_dim);
}

void sluice__gating_forward(const sluice__gating *g, float *y, int64_t y_stride, const float *x,
                            int64_t x_stride, const float *logits, int64_t logits_stride) {
    SLUICE__SPAN_FLOATS("gate forward", g->rows * g->heads * (2 * g->head_dim + g->width));
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(
        team_of(g), g->rows, 1,
        k->gate_f32(g, y, y_stride, x, x_stride, logits, logits_stride, range.begin, range.end));
}

void sluice__gating_backward(const sluice__gating *g, float *dx, int64_t dx_stride, float *dlogits,
                             int64_t dlogits_stride, const float *dy, int64_t dy_stride,
                             const float *x, int64_t x_stride, const float *logits,
                             int64_t logits_stride) {
    SLUICE__SPAN_FLOATS("gate backward", g->rows * g->heads * (3 * g->head_dim + 2 * g->width));
    const sluice__kernels *k = sluice__kernels_now();
    int64_t count = (int64_t)g->heads * g->width;
    int threads = team_of(g);
    float *parts = g->input_none && threads > 1 ? sluice__scratch((size_t)(threads * count)) : NULL;
    if (g->input_none && !parts) threads = 1; /* alone, or no memory for more than one sum */
    if (parts) memset(parts, 0, (size_t)(threads * count) * sizeof *parts);
    SLUICE__SPLIT(threads, g->rows, 1,
                  k->gate_backward_f32(g, dx, dx_stride,
                                       parts ? parts + omp_get_thread_num() * count : dlogits,
                                       dlogits_stride, dy, dy_stride, x, x_stride, logits,
                                       logits_stride, range.begin, range.end));
    for (int i = 0; parts && i < threads; i++) k->add_f32(dlogits, parts + i * count, count);
}
