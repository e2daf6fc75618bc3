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

/* op(B) [k, n], packed block by block, columns before k; trans: B itself is [n, k]. size: bytes of an element. */
typedef struct streamed {
    const void *data;
    int64_t size, stride, k, n;
    bool trans;
} streamed;

/* The block, at most `width` wide, from column `column` on in the rows k..k+depth-1; where there are no more columns, the
 * first one of the next rows; nothing behind the last. */
VEC_INLINE ahead ahead_of(const streamed *b, int64_t column, int64_t k, int64_t depth, int64_t width) {
    if (column == b->n) {
        column = 0;
        k += depth;
        if (b->k - k < depth) depth = b->k - k;
    }
    if (b->n - column < width) width = b->n - column;
    int64_t first = b->trans ? column * b->stride + k : k * b->stride + column;
    int64_t lines = ((b->trans ? depth : width) * b->size + LINE - 1) / LINE;
    return (ahead){.at = (const char *)b->data + first * b->size,
                   .left = lines,
                   .lines = lines,
                   .skip = b->stride * b->size - lines * LINE,
                   .rows = depth <= 0 ? 0 : b->trans ? width : depth};
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
