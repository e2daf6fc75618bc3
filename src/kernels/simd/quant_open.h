/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the blocks of VEC rows side by side: row r of them is lane r, codes become unsigned bytes (signed ones of Q8_0 where
 * DOT_CENTRED), scales floats. Sixteen bytes of every row are transposed as four words a row, which is all that the order of
 * codes in a file asks for. Of K blocks, two parts come out of the same bytes, so they are opened in pairs.
 *
 * Behind vec_<isa>.h the including file defines: ivec, ivec_splat, ivec_and, ivec_or, ivec_xor, ivec_shift_right16,
 * ivec_shift_left16 (by a number of bits that may vary), ivec_byte and ivec_signed_byte (byte n of each lane as an integer),
 * ivec_rows (16 bytes of VEC rows), ivec_words (4 bytes), ivec_low_halves, ivec_high_halves (16-bit floats in the lower or
 * upper half of each lane), ivec_spread (byte n of each lane four times), ivec_words_splat, ivec_fifth (16 more where any of
 * some bits is set). */
#include "kernels/quant_linear.h"

/* Codes and scales of one part of VEC rows. */
typedef struct weights {
    ivec code[8];
    vec scale[2], shift;
} weights;

/* What the parts of a K block have in common. */
typedef struct k_block {
    vec d, least;
    ivec scale[4], minimum[2], high[8];
} k_block;

/* Facts of a type; all are constants after inlining. */
VEC_INLINE bool is_k(sluice__quant t) {
    return t == SLUICE__QUANT_Q4_K || t == SLUICE__QUANT_Q5_K || t == SLUICE__QUANT_Q6_K;
}
VEC_INLINE bool has_minimum(sluice__quant t) {
    return t == SLUICE__QUANT_Q4_1 || t == SLUICE__QUANT_Q5_1 || t == SLUICE__QUANT_Q4_K || t == SLUICE__QUANT_Q5_K;
}
VEC_INLINE int block_bytes(sluice__quant t) {
    switch (t) {
#define SLUICE_X(name, values, bytes)                                                                                  \
    case SLUICE__QUANT_##name: return bytes;
        SLUICE__QUANT_LIST(SLUICE_X)
#undef SLUICE_X
    default: return 0;
    }
}

VEC_INLINE void rows_of_32(ivec *out, const unsigned char *p, int64_t stride) {
    ivec_rows(out, p, stride);
    ivec_rows(out + 4, p + 16, stride);
}

VEC_INLINE void add_fifth_bits(weights *w, ivec bits) {
    for (int g = 0; g < 8; g++)
        w->code[g] = ivec_fifth(w->code[g], ivec_spread(bits, g / 2), ivec_words_splat(g % 2 ? 0x80402010u : 0x08040201u));
}

/* A block of 32. */
VEC_INLINE void open_block(weights *w, sluice__quant t, const unsigned char *p, int64_t stride) {
    const bool fifth = t == SLUICE__QUANT_Q5_0 || t == SLUICE__QUANT_Q5_1;
    const ivec low = ivec_splat(0x0f);
    ivec head = ivec_words(p, stride);
    w->scale[0] = ivec_low_halves(head);
    if (has_minimum(t)) w->shift = ivec_high_halves(head);
    p += has_minimum(t) ? 4 : 2;
    if (t == SLUICE__QUANT_Q8_0) {
        rows_of_32(w->code, p, stride);
        for (int g = 0; g < 8 && !DOT_CENTRED; g++) w->code[g] = ivec_xor(w->code[g], ivec_splat((char)0x80));
        return;
    }
    ivec_rows(w->code, p + (fifth ? 4 : 0), stride);
    for (int g = 0; g < 4; g++) {
        w->code[g + 4] = ivec_and(ivec_shift_right16(w->code[g], 4), low);
        w->code[g] = ivec_and(w->code[g], low);
    }
    if (fifth) add_fifth_bits(w, ivec_words(p, stride));
}

/* ---- K blocks ---- */

VEC_INLINE void open_k_block(k_block *b, sluice__quant t, const unsigned char *p, int64_t stride) {
    if (t == SLUICE__QUANT_Q6_K) {
        b->d = ivec_high_halves(ivec_words(p + 206, stride)); /* the last two bytes of the block */
        ivec_rows(b->scale, p + 192, stride);
        return;
    }
    const ivec low = ivec_splat(0x0f), two = ivec_splat(0x30), six = ivec_splat(0x3f);
    ivec head[4];
    ivec_rows(head, p, stride);
    b->d = ivec_low_halves(head[0]);
    b->least = ivec_high_halves(head[0]);
    b->scale[0] = ivec_and(head[1], six);
    b->minimum[0] = ivec_and(head[2], six);
    b->scale[1] = ivec_or(ivec_and(head[3], low), ivec_and(ivec_shift_right16(head[1], 2), two));
    b->minimum[1] = ivec_or(ivec_and(ivec_shift_right16(head[3], 4), low), ivec_and(ivec_shift_right16(head[2], 2), two));
    if (t == SLUICE__QUANT_Q5_K) rows_of_32(b->high, p + 16, stride);
}

/* The bytes of pair i = 0..3. */
VEC_INLINE void open_k_pair(ivec *raw, k_block *b, sluice__quant t, const unsigned char *p, int64_t stride, int i) {
    if (t == SLUICE__QUANT_Q6_K) rows_of_32(b->high, p + 128 + i / 2 * 32, stride);
    rows_of_32(raw, p + (t == SLUICE__QUANT_Q4_K ? 16 : t == SLUICE__QUANT_Q5_K ? 48 : 0) + 32 * i, stride);
}

/* Which part of its block is the half h = 0, 1 of pair i. */
VEC_INLINE int k_part(sluice__quant t, int i, int h) { return t == SLUICE__QUANT_Q6_K ? i / 2 * 4 + i % 2 + 2 * h : 2 * i + h; }

VEC_INLINE void open_k_half(weights *w, sluice__quant t, const k_block *b, const ivec *raw, int i, int h) {
    const ivec low = ivec_splat(0x0f), two = ivec_splat(0x30);
    for (int g = 0; g < 8; g++) w->code[g] = ivec_and(h ? ivec_shift_right16(raw[g], 4) : raw[g], low);
    if (t == SLUICE__QUANT_Q6_K) {
        for (int g = 0; g < 8; g++) {
            ivec high = h ? ivec_shift_right16(b->high[g], i % 2 * 2) : ivec_shift_left16(b->high[g], 4 - i % 2 * 2);
            w->code[g] = ivec_or(w->code[g], ivec_and(high, two));
        }
        ivec scales = b->scale[i / 2 * 2 + h];
        for (int k = 0; k < 2; k++) w->scale[k] = vec_mul(b->d, ivec_to_float(ivec_signed_byte(scales, i % 2 * 2 + k)));
        return;
    }
    int at = i % 2 * 2 + h;
    for (int g = 0; g < 8 && t == SLUICE__QUANT_Q5_K; g++)
        w->code[g] = ivec_fifth(w->code[g], b->high[g], ivec_splat((char)(1 << (2 * i + h))));
    w->scale[0] = vec_mul(b->d, ivec_to_float(ivec_byte(b->scale[i / 2], at)));
    w->shift = vec_neg(vec_mul(b->least, ivec_to_float(ivec_byte(b->minimum[i / 2], at))));
}
