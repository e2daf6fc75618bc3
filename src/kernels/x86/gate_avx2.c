/* SPDX-License-Identifier: Apache-2.0 */
/* simd/gate.h for AVX2. */
#include "kernels/x86/tile_avx2.h"
#include "kernels/simd/gate.h"
