/* SPDX-License-Identifier: Apache-2.0 */
/* simd/delta.h for AVX2. */
#include "kernels/x86/tile_avx2.h"
#include "kernels/simd/tile_math.h"
#include "kernels/simd/delta.h"
