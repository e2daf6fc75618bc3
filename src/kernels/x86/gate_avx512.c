/* SPDX-License-Identifier: Apache-2.0 */
/* simd/gate.h for AVX-512. */
#include "kernels/x86/tile_avx512.h"
#include "kernels/simd/gate.h"
