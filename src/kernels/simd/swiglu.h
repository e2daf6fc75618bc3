/* SPDX-License-Identifier: Apache-2.0 */
/* SwiGLU on a fused [gate | up] row: body for one vec_<isa>.h. */
#include "kernels/kernels.h"

VEC_INLINE void forward_step(float *y, const float *gate, const float *up, int n) {
    vec x = vec_load_n(gate, n);
    vec_store_n(y, vec_mul(vec_silu(x, vec_sigmoid(x)), vec_load_n(up, n)), n);
}

void VEC_KERNEL(swiglu_f32)(float *y, const float *gate_up, int64_t rows, int64_t width) {
    for (int64_t r = 0; r < rows; r++, y += width, gate_up += 2 * width) {
        int64_t i = 0;
        for (; i + VEC <= width; i += VEC) forward_step(y + i, gate_up + i, gate_up + width + i, VEC);
        if (i < width) forward_step(y + i, gate_up + i, gate_up + width + i, (int)(width - i));
    }
}

VEC_INLINE void backward_step(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                              int n) {
    vec x = vec_load_n(gate, n), g = vec_load_n(dy, n), s = vec_sigmoid(x), a = vec_silu(x, s);
    vec slope = vec_fma(a, vec_sub(vec_set(1), s), s);
    vec_store_n(dgate, vec_mul(vec_mul(g, vec_load_n(up, n)), slope), n);
    vec_store_n(dup, vec_mul(g, a), n);
}

void VEC_KERNEL(swiglu_backward_f32)(float *dgate_up, const float *dy, const float *gate_up, int64_t rows,
                                     int64_t width) {
    for (int64_t r = 0; r < rows; r++, dy += width, gate_up += 2 * width, dgate_up += 2 * width) {
        int64_t i = 0;
        for (; i + VEC <= width; i += VEC)
            backward_step(dgate_up + i, dgate_up + width + i, dy + i, gate_up + i, gate_up + width + i, VEC);
        if (i < width)
            backward_step(dgate_up + i, dgate_up + width + i, dy + i, gate_up + i, gate_up + width + i,
                          (int)(width - i));
    }
}
