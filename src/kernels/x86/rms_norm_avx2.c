/* SPDX-License-Identifier: Apache-2.0 */
/* simd/rms_norm.h for AVX2. */
#include "kernels/x86/vec_avx2.h"
#include "kernels/simd/rms_norm.h"
