/* SPDX-License-Identifier: Apache-2.0 */
/* Products with panels of quantised rows (quant_linear.h): body for one vec_<isa>.h and, behind it, the integer operations
 * of the same instruction set: ivec, ivec_load, ivec_splat, ivec_and, ivec_or, ivec_shift_right16/left16, ivec_zero,
 * ivec_to_float, ivec_of_bytes (unsigned bytes to lanes), ivec_of_signed_bytes, ivec_bits (bytes of 16 where bits are set),
 * ivec_dot4 (acc + 4 unsigned codes times 4 signed bytes), ivec_dot4_centred (codes - 128), DOT_CENTRED.
 *
 * A tile of inputs passes over VEC rows of a panel: the codes of one part are unpacked once into eight registers and serve
 * all rows of the tile. The offset of a type's codes is put into the sum at its start. */
#include "kernels/kernels.h"
#include "kernels/quant_linear.h"

enum { PART = SLUICE__PART, PANEL = SLUICE__PANEL, GROUP_BYTES = 64, HALVES = PANEL / VEC };

/* Codes and scales of one part of VEC rows. */
typedef struct weights {
    ivec code[8];
    vec scale[2], shift;
} weights;

/* Facts of a type; all are constants after inlining. */
VEC_INLINE int code_bytes_of(sluice__quant t) {
    return GROUP_BYTES * (t == SLUICE__QUANT_Q8_0   ? 8
                          : t == SLUICE__QUANT_Q6_K ? 6
                          : t == SLUICE__QUANT_Q5_0 || t == SLUICE__QUANT_Q5_1 || t == SLUICE__QUANT_Q5_K ? 5
                                                                                                          : 4);
}
VEC_INLINE bool is_minimum(sluice__quant t) {
    return t == SLUICE__QUANT_Q4_1 || t == SLUICE__QUANT_Q5_1 || t == SLUICE__QUANT_Q4_K || t == SLUICE__QUANT_Q5_K;
}
VEC_INLINE int scale_bytes_of(sluice__quant t) {
    return t == SLUICE__QUANT_Q6_K                              ? 2 * PANEL + 16 * PANEL
           : t == SLUICE__QUANT_Q4_K || t == SLUICE__QUANT_Q5_K ? 4 * PANEL + 16 * PANEL
           : is_minimum(t)                                      ? 4 * PANEL
                                                                : 2 * PANEL;
}
VEC_INLINE int offset_of(sluice__quant t) {
    return t == SLUICE__QUANT_Q8_0   ? DOT_CENTRED ? 0 : 128
           : t == SLUICE__QUANT_Q6_K ? 32
           : t == SLUICE__QUANT_Q5_0 ? 16
           : t == SLUICE__QUANT_Q4_0 ? 8
                                     : 0;
}

VEC_INLINE void load_codes(weights *w, sluice__quant t, const unsigned char *at, int half) {
    at += half * GROUP_BYTES / HALVES;
    if (t == SLUICE__QUANT_Q8_0) {
        for (int g = 0; g < 8; g++) w->code[g] = ivec_load(at + g * GROUP_BYTES);
        return;
    }
    const ivec low = ivec_splat(0x0f);
    for (int g = 0; g < 4; g++) {
        ivec both = ivec_load(at + g * GROUP_BYTES);
        w->code[g] = ivec_and(both, low);
        w->code[g + 4] = ivec_and(ivec_shift_right16(both, 4), low);
    }
    if (t == SLUICE__QUANT_Q6_K) {
        const ivec two = ivec_splat(0x30);
        for (int h = 0; h < 2; h++) {
            ivec b = ivec_load(at + (4 + h) * GROUP_BYTES);
            w->code[4 * h] = ivec_or(w->code[4 * h], ivec_and(ivec_shift_left16(b, 4), two));
            w->code[4 * h + 1] = ivec_or(w->code[4 * h + 1], ivec_and(ivec_shift_left16(b, 2), two));
            w->code[4 * h + 2] = ivec_or(w->code[4 * h + 2], ivec_and(b, two));
            w->code[4 * h + 3] = ivec_or(w->code[4 * h + 3], ivec_and(ivec_shift_right16(b, 2), two));
        }
    } else if (code_bytes_of(t) > 4 * GROUP_BYTES) {
        const unsigned char *bits = at - half * GROUP_BYTES / HALVES + 4 * GROUP_BYTES + half * 8 / HALVES;
        for (int g = 0; g < 8; g++) w->code[g] = ivec_or(w->code[g], ivec_bits(bits + 8 * g));
    }
}

/* `at`: the scales of the block; j: the part in it. */
VEC_INLINE void load_scales(weights *w, sluice__quant t, const unsigned char *at, int j, int half) {
    vec d = vec_load_half(at + 2 * VEC * half);
    if (t == SLUICE__QUANT_Q6_K) {
        const unsigned char *s = at + (2 + 2 * j) * PANEL + VEC * half;
        w->scale[0] = vec_mul(d, ivec_to_float(ivec_of_signed_bytes(s)));
        w->scale[1] = vec_mul(d, ivec_to_float(ivec_of_signed_bytes(s + PANEL)));
    } else if (t == SLUICE__QUANT_Q4_K || t == SLUICE__QUANT_Q5_K) {
        const unsigned char *s = at + (4 + 2 * j) * PANEL + VEC * half;
        vec least = vec_load_half(at + 2 * PANEL + 2 * VEC * half);
        w->scale[0] = vec_mul(d, ivec_to_float(ivec_of_bytes(s)));
        w->shift = vec_neg(vec_mul(least, ivec_to_float(ivec_of_bytes(s + PANEL))));
    } else {
        w->scale[0] = d;
        if (is_minimum(t)) w->shift = vec_load_half(at + 2 * PANEL + 2 * VEC * half);
    }
}

VEC_INLINE ivec dot_groups(ivec acc, const weights *w, sluice__quant t, const unsigned char *x, int first, int count) {
    for (int g = first; g < first + count; g++)
        acc = t == SLUICE__QUANT_Q8_0 && DOT_CENTRED ? ivec_dot4_centred(acc, w->code[g], x + 4 * g)
                                                     : ivec_dot4(acc, w->code[g], x + 4 * g);
    return acc;
}

/* One part of row m of a tile of T rows at x. */
VEC_INLINE vec dot_part(vec sum, const weights *w, sluice__quant t, const unsigned char *x, int T, int m) {
    const unsigned char *code = x + m * PART, *facts = x + T * PART + 4 * m;
    vec scale = vec_set_at(facts);
    if (t == SLUICE__QUANT_Q6_K) {
        const unsigned char *halves = x + T * (PART + 12) + 8 * m;
        ivec a = dot_groups(ivec_scaled(halves, -32), w, t, code, 0, 4);
        ivec b = dot_groups(ivec_scaled(halves + 4, -32), w, t, code, 4, 4);
        vec both = vec_fma(ivec_to_float(b), w->scale[1], vec_mul(ivec_to_float(a), w->scale[0]));
        return vec_fma(both, scale, sum);
    }
    ivec start = offset_of(t) ? ivec_scaled(facts + 8 * T, -offset_of(t)) : ivec_zero();
    ivec acc = dot_groups(start, w, t, code, 0, 8);
    sum = vec_fma(ivec_to_float(acc), vec_mul(scale, w->scale[0]), sum);
    return is_minimum(t) ? vec_fma(vec_set_at(facts + 4 * T), w->shift, sum) : sum;
}

/* Rows first .. first + M - 1 of a tile of T rows times VEC rows of a panel. */
VEC_INLINE void tile_product(float *y, int64_t y_stride, int outputs, const unsigned char *x, const unsigned char *codes,
                             const unsigned char *scales, int64_t parts, sluice__quant t, int half, int T, int first,
                             int M) {
    const int per_block = sluice__quant_is_k(t) ? 8 : 1;
    vec sum[16];
    for (int m = 0; m < M; m++) sum[m] = vec_zero();
    for (int64_t p = 0; p < parts; p += per_block, scales += scale_bytes_of(t))
        for (int j = 0; j < per_block; j++, codes += code_bytes_of(t), x += T * SLUICE__QUANT_ROW_BYTES) {
            weights w;
            load_codes(&w, t, codes, half);
            load_scales(&w, t, scales, j, half);
            for (int m = 0; m < M; m++) sum[m] = dot_part(sum[m], &w, t, x, T, first + m);
        }
    for (int m = 0; m < M; m++) vec_store_n(y + (first + m) * y_stride, sum[m], outputs);
}

/* All rows of a tile times one panel. */
VEC_INLINE void panel_product(float *y, int64_t y_stride, int64_t outputs, const unsigned char *x,
                              const unsigned char *panel, int64_t parts, sluice__quant t, int T) {
    const unsigned char *scales = panel + parts * code_bytes_of(t);
    for (int half = 0; half < HALVES; half++) {
        int64_t left = outputs - half * VEC;
        if (left <= 0) break;
        for (int first = 0; first < T; first += QUANT_ROWS)
            tile_product(y + half * VEC, y_stride, left < VEC ? (int)left : VEC, x, panel, scales, parts, t, half, T,
                         first, T < QUANT_ROWS ? T : QUANT_ROWS);
    }
}

VEC_INLINE void linear_of_type(float *y, int64_t y_stride, const unsigned char *x, int64_t rows,
                               const sluice__quant_matrix *w, int64_t begin, int64_t end, sluice__quant t) {
    int64_t parts = w->columns / PART, panel_bytes = sluice__quant_panel_bytes(t, w->columns);
    for (int64_t panel = begin; panel < end; panel++) {
        const unsigned char *at = x, *wp = w->panels + panel * panel_bytes;
        int64_t outputs = w->rows - panel * PANEL;
        float *yp = y + panel * PANEL;
        for (int64_t r = 0, tile; r < rows; r += tile, at += tile * parts * SLUICE__QUANT_ROW_BYTES) {
            float *to = yp + r * y_stride;
            tile = sluice__quant_tile(rows - r);
            switch (tile) {
            case 1: panel_product(to, y_stride, outputs, at, wp, parts, t, 1); break;
            case 2: panel_product(to, y_stride, outputs, at, wp, parts, t, 2); break;
            case 4: panel_product(to, y_stride, outputs, at, wp, parts, t, 4); break;
            case 8: panel_product(to, y_stride, outputs, at, wp, parts, t, 8); break;
            default: panel_product(to, y_stride, outputs, at, wp, parts, t, 16); break;
            }
        }
    }
}

#define QUANT_TYPE(name, values, bytes)                                                                                \
    static void linear_##name(float *y, int64_t y_stride, const unsigned char *x, int64_t rows,                        \
                              const sluice__quant_matrix *w, int64_t begin, int64_t end) {                             \
        linear_of_type(y, y_stride, x, rows, w, begin, end, SLUICE__QUANT_##name);                                     \
    }
SLUICE__QUANT_LIST(QUANT_TYPE)
#undef QUANT_TYPE

void QUANT_KERNEL(quant_linear)(float *y, int64_t y_stride, const void *x, int64_t rows, const sluice__quant_matrix *w,
                                int64_t begin, int64_t end) {
    switch (w->type) {
#define QUANT_TYPE(name, values, bytes)                                                                                \
    case SLUICE__QUANT_##name: linear_##name(y, y_stride, x, rows, w, begin, end); break;
        SLUICE__QUANT_LIST(QUANT_TYPE)
#undef QUANT_TYPE
    default: break;
    }
}

/* ---- inputs; 256-bit integers do for both ---- */

VEC_INLINE __m256 load8(const float *x) { return _mm256_loadu_ps(x); }

/* Largest magnitude as bits, which compare like the magnitudes and put NaN above all. */
VEC_INLINE uint32_t top_bits(const float *x) {
    const __m256i keep = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < PART; i += 8)
        top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(load8(x + i)), keep));
    __m128i half = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

VEC_INLINE int32_t sum16(__m128i code) {
    __m256i pairs = _mm256_madd_epi16(_mm256_cvtepi8_epi16(code), _mm256_set1_epi16(1));
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half);
}

VEC_INLINE void put_facts(unsigned char *at, int64_t tile, int64_t row, float scale, int32_t low, int32_t high) {
    int32_t sum = low + high;
    float scaled = scale * (float)sum;
    unsigned char *facts = at + tile * PART + 4 * row, *halves = at + tile * (PART + 12) + 8 * row;
    memcpy(facts, &scale, 4);
    memcpy(facts + 4 * tile, &scaled, 4);
    memcpy(facts + 8 * tile, &sum, 4);
    memcpy(halves, &low, 4);
    memcpy(halves + 4, &high, 4);
}

VEC_INLINE void round_part(unsigned char *at, int64_t tile, int64_t row, const float *x) {
    uint32_t bits = top_bits(x);
    float most;
    memcpy(&most, &bits, 4);
    float inverse = most > 0 ? 127 / most : 0;
    __m256i code = _mm256_setzero_si256();
    if (most <= 3e38f) {
        __m256 factor = _mm256_set1_ps(inverse);
        __m256i v[4];
        for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(load8(x + 8 * i), factor));
        code = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
        code = _mm256_permutevar8x32_epi32(code, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    _mm256_storeu_si256((__m256i *)(void *)(at + row * PART), code);
    put_facts(at, tile, row, most / 127, sum16(_mm256_castsi256_si128(code)), sum16(_mm256_extracti128_si256(code, 1)));
}

void QUANT_KERNEL(quant_input)(void *out, const float *x, int64_t x_stride, int64_t rows, int64_t columns) {
    unsigned char *at = out;
    for (int64_t r = 0, tile; r < rows; r += tile) {
        tile = sluice__quant_tile(rows - r);
        for (int64_t c = 0; c < columns; c += PART, at += tile * SLUICE__QUANT_ROW_BYTES)
            for (int64_t i = 0; i < tile; i++) round_part(at, tile, i, x + (r + i) * x_stride + c);
    }
}
