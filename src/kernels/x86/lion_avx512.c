/* SPDX-License-Identifier: Apache-2.0 */
/* simd/lion.h for AVX-512. */
#include "kernels/x86/vec_avx512.h"
#include "kernels/simd/lion.h"
