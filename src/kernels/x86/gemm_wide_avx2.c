/* SPDX-License-Identifier: Apache-2.0 */
/* simd/gemm_wide.h for AVX2. */
#include "kernels/x86/tile_avx2.h"
enum { HIGH = 6 };
#define TILES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#include "kernels/simd/gemm_wide.h"
