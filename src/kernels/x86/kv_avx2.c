/* SPDX-License-Identifier: Apache-2.0 */
/* simd/kv.h for AVX2. */
#include "kernels/x86/vec_avx2.h"
#include "kernels/simd/kv.h"
