/* SPDX-License-Identifier: Apache-2.0 */
/* What int8 would do to weights and to the inputs of products: the rounding that both measures share. */
#include "inspect/int8.h"
#include <math.h>

float sluice__largest_magnitude(const float *x, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

double sluice__int8_error(const float *x, int64_t n, float most) {
    double sum = 0;
    if (most == 0) return 0;
    float scale = most / 127, inverse = 127 / most;
    for (int64_t i = 0; i < n; i++) {
        float d = x[i] - nearbyintf(x[i] * inverse) * scale;
        sum += (double)d * d;
    }
    return sum;
}
