/* SPDX-License-Identifier: Apache-2.0 */
/* Symmetric rounding to -127..127 with one scale, largest magnitude / 127. */
#ifndef SLUICE_INSPECT_INT8_H
#define SLUICE_INSPECT_INT8_H
#include <stdint.h>

float sluice__largest_magnitude(const float *x, int64_t n);
/* Sum of (x - int8(x))^2 at the scale of `most`; 0 when that is 0. */
double sluice__int8_error(const float *x, int64_t n, float most);
#endif
