/* SPDX-License-Identifier: Apache-2.0 */
/* simd/attention_decode.h for AVX2. */
#include "kernels/x86/tile_avx2.h"
#include "kernels/simd/tile_math.h"
#include "kernels/simd/attention_decode.h"
