/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a product will pack soon, asked for line by line while it still multiplies, so that packing does not wait.
 * Written in the words of x86/vec_<isa>.h. */
#ifndef SLUICE_KERNELS_SIMD_AHEAD_H
#define SLUICE_KERNELS_SIMD_AHEAD_H

enum { LINE = 64 /* bytes of a line of the caches */ };

/* What is left: `rows` pieces of `lines`, `skip` bytes between them; `left` lines of the piece at `at`. */
typedef struct ahead {
    const char *at;
    int64_t left, lines, skip, rows;
} ahead;

/* `rows` (0 or less: nothing) pieces of `bytes`, `stride` bytes from one to the next. */
VEC_INLINE ahead ahead_of(const char *at, int64_t rows, int64_t bytes, int64_t stride) {
    int64_t lines = (bytes + LINE - 1) / LINE;
    return (ahead){.at = at, .left = lines, .lines = lines, .skip = stride - lines * LINE, .rows = rows};
}

/* One line more into the second cache. */
VEC_INLINE void fetch(ahead *f) {
    if (f->rows <= 0) return;
    vec_fetch(f->at);
    f->at += LINE;
    if (--f->left) return;
    f->at += f->skip;
    f->left = f->lines;
    f->rows--;
}
#endif
