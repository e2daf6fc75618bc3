/* SPDX-License-Identifier: Apache-2.0 */
/* simd/attention_forward.h for AVX512_BF16. */
#include "kernels/x86/tile_avx512.h"
#include "kernels/simd/tile_math.h"
#include "kernels/x86/tile_pairs_avx512bf16.h"
#include "kernels/simd/attention_forward.h"
