/* SPDX-License-Identifier: Apache-2.0 */
/* Norm operators. Rows are dealt out to the team; the weight gradient is summed per thread in scratch and combined in
 * thread order. Without memory for scratch one thread does the work, which needs none. */
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"
#include <string.h>

void sluice__rms_norm_forward(float *y, float *rstd, const float *x, const float *weight, int64_t rows, int64_t dim,
                              float eps, float offset) {
    SLUICE__SPAN_FLOATS("norm forward", 2 * rows * dim);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * dim), rows, 1,
                  k->rms_norm_f32(y + range.begin * dim, rstd ? rstd + range.begin : NULL, x + range.begin * dim,
                                  weight, range.end - range.begin, dim, eps, offset));
}

void sluice__add_rms_norm_forward(float *h, float *y, float *rstd, const float *x, const float *a,
                                  const float *weight, int64_t rows, int64_t dim, float eps, float offset) {
    SLUICE__SPAN_FLOATS("addition and norm forward", 4 * rows * dim);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * dim), rows, 1,
                  k->add_rms_norm_f32(h + range.begin * dim, y + range.begin * dim,
                                      rstd ? rstd + range.begin : NULL, x + range.begin * dim,
                                      a + range.begin * dim, weight, range.end - range.begin, dim, eps, offset));
}

/* Scratch for the weight-gradient parts of threads 1..threads-1 (thread 0 adds to the result itself), zeroed;
 * *threads drops to 1 when there is no memory. */
static float *weight_parts(int *threads, int64_t dim, const float *dweight) {
    if (!dweight || *threads == 1) return NULL;
    float *parts = sluice__scratch((size_t)(*threads - 1) * (size_t)dim);
    if (parts) memset(parts, 0, (size_t)(*threads - 1) * (size_t)dim * sizeof *parts);
    else *threads = 1;
    return parts;
}

static void combine_parts(const sluice__kernels *k, float *dweight, const float *parts, int threads, int64_t dim) {
    for (int t = 1; parts && t < threads; t++) k->add_f32(dweight, parts + (t - 1) * dim, dim);
}

static float *part_of_thread(float *dweight, float *parts, int64_t dim) {
    int t = omp_get_thread_num();
    return parts && t > 0 ? parts + (t - 1) * dim : dweight;
}

void sluice__rms_norm_backward(float *dx, float *dweight, const float *dy, const float *x, const float *weight,
                               const float *rstd, int64_t rows, int64_t dim, float offset, bool accumulate) {
    SLUICE__SPAN_FLOATS("norm backward", (accumulate ? 4 : 3) * rows * dim);
    const sluice__kernels *k = sluice__kernels_now();
    int threads = sluice__team(rows * dim);
    float *parts = weight_parts(&threads, dim, dweight);
    SLUICE__SPLIT(threads, rows, 1,
                  k->rms_norm_backward_f32(dx + range.begin * dim, part_of_thread(dweight, parts, dim),
                                           dy + range.begin * dim, x + range.begin * dim, weight,
                                           rstd + range.begin, range.end - range.begin, dim, offset, accumulate));
    combine_parts(k, dweight, parts, threads, dim);
}

void sluice__norm_rope_forward(const sluice__norm_rope *p, float *y, int64_t y_stride, float *rstd, const float *x,
                               int64_t x_stride) {
    SLUICE__SPAN_FLOATS("q, k norm and rotary forward", 2 * p->rows * p->heads * p->head_dim);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(p->rows * p->heads * p->head_dim), p->rows, 1,
                  k->norm_rope_f32(p, y, y_stride, rstd, x, x_stride, range.begin, range.end));
}

void sluice__norm_rope_backward(const sluice__norm_rope *p, float *dx, int64_t dx_stride, float *dweight,
                                const float *dy, int64_t dy_stride, const float *x, int64_t x_stride,
                                const float *rstd) {
    SLUICE__SPAN_FLOATS("q, k norm and rotary backward", (p->norm ? 3 : 2) * p->rows * p->heads * p->head_dim);
    const sluice__kernels *k = sluice__kernels_now();
    int threads = sluice__team(p->rows * p->heads * p->head_dim);
    float *parts = weight_parts(&threads, p->head_dim, dweight);
    SLUICE__SPLIT(threads, p->rows, 1,
                  k->norm_rope_backward_f32(p, dx, dx_stride, part_of_thread(dweight, parts, p->head_dim), dy,
                                            dy_stride, x, x_stride, rstd, range.begin, range.end));
    combine_parts(k, dweight, parts, threads, p->head_dim);
}
