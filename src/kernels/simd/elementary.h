/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary functions over arrays: body for one vec_<isa>.h. */
#include "kernels/kernels.h"

void VEC_KERNEL(exp_f32)(float *y, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) vec_store(y + i, vec_exp(vec_load(x + i)));
    if (i < count) vec_store_n(y + i, vec_exp(vec_load_n(x + i, (int)(count - i))), (int)(count - i));
}

void VEC_KERNEL(sigmoid_f32)(float *y, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) vec_store(y + i, vec_sigmoid(vec_load(x + i)));
    if (i < count) vec_store_n(y + i, vec_sigmoid(vec_load_n(x + i, (int)(count - i))), (int)(count - i));
}

void VEC_KERNEL(tanh_f32)(float *y, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) vec_store(y + i, vec_tanh(vec_load(x + i)));
    if (i < count) vec_store_n(y + i, vec_tanh(vec_load_n(x + i, (int)(count - i))), (int)(count - i));
}

void VEC_KERNEL(erf_f32)(float *y, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) vec_store(y + i, vec_erf(vec_load(x + i)));
    if (i < count) vec_store_n(y + i, vec_erf(vec_load_n(x + i, (int)(count - i))), (int)(count - i));
}
