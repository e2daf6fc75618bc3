/* SPDX-License-Identifier: Apache-2.0 */
/* simd/lion.h for AVX2. */
#include "kernels/x86/vec_avx2.h"
#include "kernels/simd/lion.h"
