/* SPDX-License-Identifier: Apache-2.0 */
/* Growing buffers of a thread for operators that need working memory: kept between calls, freed when the thread
 * ends. An operator that starts a team takes one on the calling thread, before the team, and deals it out. */
#ifndef SLUICE_KERNELS_SCRATCH_H
#define SLUICE_KERNELS_SCRATCH_H
#include <stddef.h>

/* At least `count` floats, 64-byte aligned, contents undefined, valid until the next call on this thread. NULL when
 * they cannot be had. Not to be held across a call of another operator, products of floats (sluice__gemm_f32) excepted. */
float *sluice__scratch(size_t count);
/* Another buffer, of products of floats alone. */
float *sluice__product_scratch(size_t count);
#endif
