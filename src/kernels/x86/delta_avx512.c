/* SPDX-License-Identifier: Apache-2.0 */
/* simd/delta.h for AVX-512. */
#include "kernels/x86/tile_avx512.h"
#include "kernels/simd/tile_math.h"
#include "kernels/simd/delta.h"
