/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over one array: body for one vec_<isa>.h. Several accumulators hide the latency of the addition. */
#include "kernels/kernels.h"
#include <math.h>

double VEC_KERNEL(sum_squares_f32)(const float *x, int64_t count) {
    vec_double a = vec_double_zero(), b = vec_double_zero();
    int64_t i = 0;
    for (; i + 2 * VEC <= count; i += 2 * VEC) {
        a = vec_double_add_square(a, vec_load(x + i));
        b = vec_double_add_square(b, vec_load(x + i + VEC));
    }
    for (; i < count; i += VEC)
        a = vec_double_add_square(a, vec_load_n(x + i, count - i < VEC ? (int)(count - i) : VEC));
    return vec_double_sum(a) + vec_double_sum(b);
}

float VEC_KERNEL(dot_f32)(const float *x, const float *y, int64_t count) {
    vec a = vec_zero(), b = vec_zero();
    int64_t i = 0;
    for (; i + 2 * VEC <= count; i += 2 * VEC) {
        a = vec_fma(vec_load(x + i), vec_load(y + i), a);
        b = vec_fma(vec_load(x + i + VEC), vec_load(y + i + VEC), b);
    }
    for (; i < count; i += VEC) {
        int n = count - i < VEC ? (int)(count - i) : VEC;
        a = vec_fma(vec_load_n(x + i, n), vec_load_n(y + i, n), a);
    }
    return vec_sum(vec_add(a, b));
}

float VEC_KERNEL(max_abs_f32)(const float *x, int64_t count) {
    vec a = vec_zero(), b = vec_zero(), nan = vec_zero(); /* nan: lanes that met a NaN */
    int64_t i = 0;
    for (; i + 2 * VEC <= count; i += 2 * VEC) {
        vec u = vec_load(x + i), v = vec_load(x + i + VEC);
        a = vec_max(vec_abs(u), a);
        b = vec_max(vec_abs(v), b);
        nan = vec_select(vec_unordered(u, v), vec_set(1), nan);
    }
    for (; i < count; i += VEC) {
        vec u = vec_load_n(x + i, count - i < VEC ? (int)(count - i) : VEC);
        a = vec_max(vec_abs(u), a);
        nan = vec_select(vec_unordered(u, u), vec_set(1), nan);
    }
    return vec_sum(nan) > 0 ? NAN : vec_reduce_max(vec_max(a, b));
}

/* Lanes that are infinite or NaN. */
VEC_INLINE vec_mask nonfinite(vec v) {
    return vec_not_less(vec_abs(v), vec_set(INFINITY));
}

int64_t VEC_KERNEL(first_nonfinite_f32)(const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + 4 * VEC <= count; i += 4 * VEC) {
        vec_mask a = vec_or(nonfinite(vec_load(x + i)), nonfinite(vec_load(x + i + VEC)));
        vec_mask b = vec_or(nonfinite(vec_load(x + i + 2 * VEC)), nonfinite(vec_load(x + i + 3 * VEC)));
        if (vec_bits(vec_or(a, b))) break;
    }
    for (; i < count; i += VEC) {
        unsigned found = vec_bits(nonfinite(vec_load_n(x + i, count - i < VEC ? (int)(count - i) : VEC)));
        if (found) return i + __builtin_ctz(found);
    }
    return -1;
}
