/* SPDX-License-Identifier: Apache-2.0 */
/* simd/gemm_wide.h for AVX-512. */
#include "kernels/x86/tile_avx512.h"
enum { HIGH = 14 };
#define TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#include "kernels/simd/gemm_wide.h"
