/* SPDX-License-Identifier: Apache-2.0 */
/* simd/kv.h for AVX-512. */
#include "kernels/x86/vec_avx512.h"
#include "kernels/simd/kv.h"
