/* SPDX-License-Identifier: Apache-2.0 */
/* Products with blocks (quant_linear.h): body for one vec_<isa>.h and, behind it, the operations that quant_open.h names and
 * ivec_zero, ivec_load, ivec_store, ivec_to_float, ivec_shifted (the integer at an address, shifted left), ivec_dot (adds
 * unsigned codes of some vectors times inputs of some rows, four bytes to a lane), DOT_CENTRED (codes of Q8_0 are signed,
 * and of 16 bits in panels), ivec_dot_q8; of panels ivec_put_q8 (one group of codes of Q8_0), ivec_dot_q8_panel; and how many
 * rows of x have sums that grow in turn, because each waits for itself or because they share what is loaded: ROWS_ABREAST,
 * PANEL_ABREAST, Q8_ABREAST (of panels), MOST_ABREAST; QUANT_ROWS, Q8_ROWS (of x whose sums are held while a panel passes).
 *
 * One row of x: simd/quant_row.h. Direct: VEC rows of W are opened part by part, and all rows of x (a tile of 1 to 8) multiplied
 * with what lies in registers. The hardware does not take sixteen streams for sequential reading, so the next VEC rows, which
 * follow in memory, are prefetched into the second-level cache meanwhile, in their order. Panels: opened parts are written down
 * first, and tiles of x pass over them. The offset of a type's codes is put into the sum at its start. */
#include "kernels/kernels.h"
#include "kernels/simd/quant_open.h"

enum { PART = SLUICE__PART, PANEL = SLUICE__PANEL, GROUP_BYTES = 64, HALVES = PANEL / VEC };

/* Bits by which the offset of codes is 1 shifted left, 0 without one. */
VEC_INLINE int offset_bits(sluice__quant t) {
    return t == SLUICE__QUANT_Q8_0   ? DOT_CENTRED ? 0 : 7
           : t == SLUICE__QUANT_Q6_K ? 5
           : t == SLUICE__QUANT_Q5_0 ? 4
           : t == SLUICE__QUANT_Q4_0 ? 3
                                     : 0;
}
/* No code is larger. */
VEC_INLINE int most_of(sluice__quant t) {
    const bool five = t == SLUICE__QUANT_Q5_0 || t == SLUICE__QUANT_Q5_1 || t == SLUICE__QUANT_Q5_K;
    return t == SLUICE__QUANT_Q8_0 ? 255 : t == SLUICE__QUANT_Q6_K ? 63 : five ? 31 : 15;
}

/* What opened blocks bring into a product: H vectors of VEC rows of W, group g of the codes of vector h at g * H + h. */
typedef struct factors {
    const ivec *code;
    vec scale[2][HALVES], shift[HALVES];
} factors;

/* One part of rows m .. m + R - 1 of a tile of T rows at x, whose codes are at `code`.   w: H vectors, opened directly (H = 1)
 * or from a panel;  sum: [R][H]. */
VEC_INLINE void dot_rows(vec *sum, const factors *w, int H, bool panel, sluice__quant t, const unsigned char *code,
                         const unsigned char *x, int T, int m, int R) {
    const unsigned char *facts = x + T * PART + 4 * m, *halves = x + T * (PART + 12) + 8 * m;
    const int bits = offset_bits(t), most = most_of(t);
    ivec acc[MOST_ABREAST * HALVES], acc2[MOST_ABREAST * HALVES];
    if (t == SLUICE__QUANT_Q6_K) {
        for (int i = 0; i < R * H; i++) acc[i] = ivec_shifted(halves + i / H * 8, bits);
        ivec_dot(acc, w->code, H, code, R, 4, most);
        for (int i = 0; i < R * H; i++) acc2[i] = ivec_shifted(halves + i / H * 8 + 4, bits);
        ivec_dot(acc2, w->code + 4 * H, H, code + 16, R, 4, most);
        for (int i = 0; i < R * H; i++) {
            vec both = vec_fma(ivec_to_float(acc2[i]), w->scale[1][i % H], vec_mul(ivec_to_float(acc[i]), w->scale[0][i % H]));
            sum[i] = vec_fma(both, vec_set_at(facts + i / H * 4), sum[i]);
        }
        return;
    }
    for (int i = 0; i < R * H; i++) acc[i] = bits ? ivec_shifted(facts + 8 * T + i / H * 4, bits) : ivec_zero();
    if (t != SLUICE__QUANT_Q8_0) ivec_dot(acc, w->code, H, code, R, 8, most);
    else if (panel) ivec_dot_q8_panel(acc, w->code, H, code, R);
    else ivec_dot_q8(acc, w->code, code, R);
    for (int i = 0; i < R * H; i++) {
        vec scale = vec_mul(vec_set_at(facts + i / H * 4), w->scale[0][i % H]);
        sum[i] = vec_fma(ivec_to_float(acc[i]), scale, sum[i]);
        if (has_minimum(t)) sum[i] = vec_fma(vec_set_at(facts + 4 * T + i / H * 4), w->shift[i % H], sum[i]);
    }
}

/* The same of all rows of a tile.   sum: [T]. */
VEC_INLINE void dot_part(vec *sum, const weights *opened, sluice__quant t, const unsigned char *x, int T) {
    factors w = {.code = opened->code};
    w.scale[0][0] = opened->scale[0];
    if (t == SLUICE__QUANT_Q6_K) w.scale[1][0] = opened->scale[1];
    if (has_minimum(t)) w.shift[0] = opened->shift;
    const int R = T < ROWS_ABREAST ? T : ROWS_ABREAST;
    for (int m = 0; m < T; m += R) dot_rows(sum + m, &w, 1, false, t, x + m * PART, x, T, m, R);
}

/* Into the second-level cache: what one part of VEC rows needs is spread over sixteen places, so the first holds too little. */
VEC_INLINE void prefetch(const unsigned char *p, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)p + i, _MM_HINT_T1);
}

/* ---- direct ---- */

/* VEC rows of W that are `stride` bytes apart, `blocks` of each; ahead: what is wanted next. Adds to total [T]. */
VEC_INLINE void direct_product(vec *total, const unsigned char *x, const unsigned char *p, int64_t stride, int64_t blocks,
                               const unsigned char *ahead, sluice__quant t, int T) {
    const int bytes = block_bytes(t) * VEC, part_bytes = T * SLUICE__QUANT_ROW_BYTES;
    vec sum[SLUICE__DIRECT_ROWS];
    for (int m = 0; m < T; m++) sum[m] = total[m];
    for (; blocks > 0; blocks--, p += block_bytes(t), ahead += bytes) {
        weights w;
        if (!is_k(t)) {
            open_block(&w, t, p, stride);
            prefetch(ahead, bytes);
            dot_part(sum, &w, t, x, T);
            x += part_bytes;
            continue;
        }
        k_block b;
        open_k_block(&b, t, p, stride);
        for (int i = 0; i < 4; i++) {
            ivec raw[8];
            open_k_pair(raw, &b, t, p, stride, i);
            prefetch(ahead + i * bytes / 4, bytes / 4);
            for (int h = 0; h < 2; h++) {
                open_k_half(&w, t, &b, raw, i, h);
                dot_part(sum, &w, t, x + k_part(t, i, h) * part_bytes, T);
            }
        }
        x += 8 * part_bytes;
    }
    for (int m = 0; m < T; m++) total[m] = sum[m];
}

#define DIRECT(name, T)                                                                                                \
    static void direct_##name##_##T(vec *total, const unsigned char *x, const unsigned char *p, int64_t stride,        \
                                    int64_t blocks, const unsigned char *ahead) {                                      \
        direct_product(total, x, p, stride, blocks, ahead, SLUICE__QUANT_##name, T);                                   \
    }
#define QUANT_TYPE(name, values, bytes) DIRECT(name, 1) DIRECT(name, 2) DIRECT(name, 4) DIRECT(name, 8)
SLUICE__QUANT_LIST(QUANT_TYPE)
#undef QUANT_TYPE
#undef DIRECT

typedef void direct_fn(vec *total, const unsigned char *x, const unsigned char *p, int64_t stride, int64_t blocks,
                       const unsigned char *ahead);

static direct_fn *direct_of(sluice__quant type, int64_t tile) {
    static direct_fn *const all[SLUICE__QUANTS][4] = {
#define QUANT_TYPE(name, values, bytes) {direct_##name##_1, direct_##name##_2, direct_##name##_4, direct_##name##_8},
        SLUICE__QUANT_LIST(QUANT_TYPE)
#undef QUANT_TYPE
    };
    return all[type][tile == 1 ? 0 : tile == 2 ? 1 : tile == 4 ? 2 : 3];
}

/* Fewer than VEC rows, which end the matrix: some columns at a time, copied to where VEC rows may be read. */
enum { CHUNK = 256, CHUNK_BYTES = CHUNK / 32 * 34 };

static void copy_chunk(unsigned char *to, const unsigned char *p, int64_t stride, int rows, int64_t bytes) {
    for (int r = 0; r < VEC; r++) memcpy(to + r * bytes, p + (r < rows ? r : rows - 1) * stride, (size_t)bytes);
}

static void direct_rest(vec *total, direct_fn *direct, const unsigned char *x, const unsigned char *p,
                        const sluice__quant_matrix *w, int64_t tile, int rows) {
    unsigned char copy[VEC * CHUNK_BYTES];
    int64_t stride = sluice__quant_row_bytes(w->type, w->columns), values = sluice__quant_values(w->type);
    for (int64_t c = 0; c < w->columns; c += CHUNK) {
        int64_t columns = w->columns - c < CHUNK ? w->columns - c : CHUNK, bytes = sluice__quant_row_bytes(w->type, columns);
        copy_chunk(copy, p, stride, rows, bytes);
        direct(total, x, copy, bytes, columns / values, copy);
        p += bytes;
        x += columns / PART * tile * SLUICE__QUANT_ROW_BYTES;
    }
}

/* VEC rows of `bytes` each group, that are prefetched ahead: one group is too few where it is small, because its last row
 * is wanted as early as its first. */
static int64_t groups_ahead(int64_t bytes) {
    int64_t groups = ((64 << 10) + bytes - 1) / bytes;
    return groups < 4 ? groups : 4;
}

/* Rows begin..end-1 of W for up to SLUICE__DIRECT_ROWS rows of x, which are one tile. */
static void direct_rows(float *y, int64_t y_stride, const unsigned char *x, int64_t rows, const sluice__quant_matrix *w,
                        int64_t begin, int64_t end) {
    int64_t tile = sluice__quant_tile(rows), stride = sluice__quant_row_bytes(w->type, w->columns);
    int64_t blocks = w->columns / sluice__quant_values(w->type), ahead = groups_ahead(VEC * stride) * VEC;
    direct_fn *direct = direct_of(w->type, tile);
    const unsigned char *p = w->blocks + begin * stride;
    prefetch(p, (end - begin < ahead ? end - begin : ahead) * stride);
    for (int64_t r = begin; r < end; r += VEC, p += VEC * stride) {
        int n = end - r < VEC ? (int)(end - r) : VEC;
        vec total[SLUICE__DIRECT_ROWS];
        for (int m = 0; m < tile; m++) total[m] = vec_zero();
        if (n < VEC) direct_rest(total, direct, x, p, w, tile, n);
        else direct(total, x, p, stride, blocks, p + (r + ahead + VEC <= end ? ahead * stride : 0));
        for (int m = 0; m < rows; m++) vec_store_n(y + m * y_stride + r, total[m], n);
    }
}

#include "kernels/simd/quant_row.h"

/* ---- panels ---- */

/* Whether panels hold codes in 16 bits, and so have rows of x for them. */
VEC_INLINE bool is_wide(sluice__quant t) { return DOT_CENTRED && t == SLUICE__QUANT_Q8_0; }
VEC_INLINE int codes_bytes(sluice__quant t) { return 8 * GROUP_BYTES * (is_wide(t) ? 2 : 1); }
VEC_INLINE int panel_part_bytes(sluice__quant t) {
    return codes_bytes(t) + (has_minimum(t) || t == SLUICE__QUANT_Q6_K ? 2 : 1) * PANEL * (int)sizeof(float);
}

VEC_INLINE void put_part(unsigned char *to, const weights *w, sluice__quant t, int half) {
    float *scale = (float *)(void *)(to + codes_bytes(t)) + half * VEC;
    for (int g = 0; g < 8; g++) {
        unsigned char *group = to + g * GROUP_BYTES + half * GROUP_BYTES / HALVES;
        if (t == SLUICE__QUANT_Q8_0) ivec_put_q8(group, w->code[g]);
        else ivec_store(group, w->code[g]);
    }
    vec_store(scale, w->scale[0]);
    if (t == SLUICE__QUANT_Q6_K) vec_store(scale + PANEL, w->scale[1]);
    if (has_minimum(t)) vec_store(scale + PANEL, w->shift);
}

VEC_INLINE factors panel_factors(const unsigned char *at, sluice__quant t) {
    const float *scale = (const float *)(const void *)(at + codes_bytes(t));
    factors w = {.code = (const ivec *)(const void *)at};
    for (int h = 0; h < HALVES; h++) {
        w.scale[0][h] = vec_load(scale + h * VEC);
        if (t == SLUICE__QUANT_Q6_K) w.scale[1][h] = vec_load(scale + PANEL + h * VEC);
        if (has_minimum(t)) w.shift[h] = vec_load(scale + PANEL + h * VEC);
    }
    return w;
}

/* VEC rows into one half of a panel. */
VEC_INLINE void fill_panel(unsigned char *panel, const unsigned char *p, int64_t stride, int64_t blocks, int half,
                           sluice__quant t) {
    const int part = panel_part_bytes(t);
    for (; blocks > 0; blocks--, p += block_bytes(t)) {
        weights w;
        if (!is_k(t)) {
            open_block(&w, t, p, stride);
            put_part(panel, &w, t, half);
            panel += part;
            continue;
        }
        k_block b;
        open_k_block(&b, t, p, stride);
        for (int i = 0; i < 4; i++) {
            ivec raw[8];
            open_k_pair(raw, &b, t, p, stride, i);
            for (int h = 0; h < 2; h++) {
                open_k_half(&w, t, &b, raw, i, h);
                put_part(panel + k_part(t, i, h) * part, &w, t, half);
            }
        }
        panel += 8 * part;
    }
}

#define QUANT_TYPE(name, values, bytes)                                                                                \
    static void fill_##name(unsigned char *panel, const unsigned char *p, int64_t stride, int64_t blocks, int half) {  \
        fill_panel(panel, p, stride, blocks, half, SLUICE__QUANT_##name);                                              \
    }
SLUICE__QUANT_LIST(QUANT_TYPE)
#undef QUANT_TYPE

typedef void fill_fn(unsigned char *panel, const unsigned char *p, int64_t stride, int64_t blocks, int half);
static fill_fn *const fills[SLUICE__QUANTS] = {
#define QUANT_TYPE(name, values, bytes) fill_##name,
    SLUICE__QUANT_LIST(QUANT_TYPE)
#undef QUANT_TYPE
};

static void fill_rest(unsigned char *panel, const unsigned char *p, const sluice__quant_matrix *w, int rows, int half) {
    unsigned char copy[VEC * CHUNK_BYTES];
    int64_t stride = sluice__quant_row_bytes(w->type, w->columns), values = sluice__quant_values(w->type);
    for (int64_t c = 0; c < w->columns; c += CHUNK) {
        int64_t columns = w->columns - c < CHUNK ? w->columns - c : CHUNK, bytes = sluice__quant_row_bytes(w->type, columns);
        copy_chunk(copy, p, stride, rows, bytes);
        fills[w->type](panel, copy, bytes, columns / values, half);
        p += bytes;
        panel += columns / PART * panel_part_bytes(w->type);
    }
}

static void fill(unsigned char *panel, const sluice__quant_matrix *w, int64_t index) {
    int64_t stride = sluice__quant_row_bytes(w->type, w->columns);
    for (int half = 0; half < HALVES; half++) {
        int64_t r = index * PANEL + half * VEC, left = w->rows - r;
        const unsigned char *p = w->blocks + r * stride;
        if (left >= VEC) fills[w->type](panel, p, stride, w->columns / sluice__quant_values(w->type), half);
        else if (left > 0) fill_rest(panel, p, w, (int)left, half);
    }
}

/* A panel on its way past rows of x: its products, and what to prefetch while the first tile passes. */
typedef struct passing {
    float *y;
    int64_t y_stride, outputs;
    const unsigned char *panel;
    int64_t parts;
    const unsigned char *ahead;
    int64_t ahead_bytes; /* for each part */
    const unsigned char *wide; /* the codes of x in 16 bits where the type is_wide */
} passing;

/* Codes of x in 16 bits, of a row and part: those of even columns, then the others, as ivec_put_q8 has those of W. */
VEC_INLINE void widen_codes(unsigned char *to, const unsigned char *x) {
    __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)x);
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8));
    _mm256_storeu_si256((__m256i *)(void *)(to + PART), _mm256_srai_epi16(a, 8));
}

static void widen_rows(unsigned char *to, const unsigned char *x, int64_t rows, int64_t parts) {
    for (int64_t r = 0, tile; r < rows; r += tile) {
        tile = sluice__quant_tile(rows - r);
        for (int64_t p = 0; p < parts; p++, x += tile * SLUICE__QUANT_ROW_BYTES)
            for (int64_t i = 0; i < tile; i++, to += 2 * PART) widen_codes(to, x + i * PART);
    }
}

/* Rows first .. first + M - 1 of a tile of T rows at x (codes in 16 bits at wide), of which `filled` are wanted, times a panel. */
VEC_INLINE void tile_product(const passing *c, float *y, const unsigned char *x, const unsigned char *wide, int filled,
                             sluice__quant t, int T, int first, int M, int64_t ahead_bytes) {
    const unsigned char *panel = c->panel, *ahead = c->ahead;
    const int most = t == SLUICE__QUANT_Q8_0 ? Q8_ABREAST : PANEL_ABREAST, R = M < most ? M : most;
    const int row_bytes = wide ? 2 * PART : PART, step = wide ? T * 2 * PART : T * SLUICE__QUANT_ROW_BYTES;
    const unsigned char *code = (wide ? wide : x) + first * row_bytes;
    vec sum[QUANT_ROWS * HALVES];
    for (int m = 0; m < M * HALVES; m++) sum[m] = vec_zero();
    for (int64_t p = 0; p < c->parts; p++, panel += panel_part_bytes(t), x += T * SLUICE__QUANT_ROW_BYTES, code += step) {
        const factors w = panel_factors(panel, t);
        prefetch(ahead, ahead_bytes);
        ahead += ahead_bytes;
        for (int m = 0; m < M; m += R)
            dot_rows(sum + m * HALVES, &w, HALVES, true, t, code + m * row_bytes, x, T, first + m, R);
    }
    for (int m = 0; m < M && first + m < filled; m++)
        for (int h = 0; h < HALVES && h * VEC < c->outputs; h++) {
            int64_t left = c->outputs - h * VEC;
            vec_store_n(y + (first + m) * c->y_stride + h * VEC, sum[m * HALVES + h], left < VEC ? (int)left : VEC);
        }
}

/* All rows of a tile times one panel. */
VEC_INLINE void panel_product(const passing *c, float *y, const unsigned char *x, const unsigned char *wide, int filled,
                              sluice__quant t, int T, int64_t ahead_bytes) {
    const int most = t == SLUICE__QUANT_Q8_0 ? Q8_ROWS : QUANT_ROWS, M = T < most ? T : most;
    for (int first = 0; first < T; first += M) {
        tile_product(c, y, x, wide, filled, t, T, first, M, ahead_bytes);
        ahead_bytes = 0;
    }
}

/* All rows of x times one panel. */
VEC_INLINE void panel_rows(const passing *c, const unsigned char *x, int64_t rows, sluice__quant t) {
    int64_t ahead_bytes = c->ahead_bytes;
    const unsigned char *wide = is_wide(t) ? c->wide : NULL;
    for (int64_t r = 0, tile; r < rows; r += tile, ahead_bytes = 0) {
        tile = sluice__quant_tile(rows - r);
        int filled = rows - r < tile ? (int)(rows - r) : (int)tile;
        float *y = c->y + r * c->y_stride;
        switch (tile) {
        case 1: panel_product(c, y, x, wide, filled, t, 1, ahead_bytes); break;
        case 2: panel_product(c, y, x, wide, filled, t, 2, ahead_bytes); break;
        case 4: panel_product(c, y, x, wide, filled, t, 4, ahead_bytes); break;
        case 8: panel_product(c, y, x, wide, filled, t, 8, ahead_bytes); break;
        default: panel_product(c, y, x, wide, filled, t, 16, ahead_bytes); break;
        }
        x += tile * c->parts * SLUICE__QUANT_ROW_BYTES;
        if (wide) wide += tile * c->parts * 2 * PART;
    }
}

#define PANEL_TYPE(name)                                                                                               \
    static void panel_##name(const passing *c, const unsigned char *x, int64_t rows) {                                 \
        panel_rows(c, x, rows, SLUICE__QUANT_##name);                                                                  \
    }
PANEL_TYPE(Q8_0) PANEL_TYPE(Q4_0) PANEL_TYPE(Q4_1) PANEL_TYPE(Q5_0) PANEL_TYPE(Q5_1) PANEL_TYPE(Q6_K)
#undef PANEL_TYPE

/* Panels of types that differ in nothing but how they are opened are alike. */
static void one_panel(const passing *c, const unsigned char *x, int64_t rows, sluice__quant type) {
    if (type == SLUICE__QUANT_Q4_1 || type == SLUICE__QUANT_Q4_K) panel_Q4_1(c, x, rows);
    else if (has_minimum(type)) panel_Q5_1(c, x, rows);
    else if (type == SLUICE__QUANT_Q8_0) panel_Q8_0(c, x, rows);
    else if (type == SLUICE__QUANT_Q4_0) panel_Q4_0(c, x, rows);
    else if (type == SLUICE__QUANT_Q5_0) panel_Q5_0(c, x, rows);
    else panel_Q6_K(c, x, rows);
}

/* Rows of x whose rounded inputs stay in the second-level cache while the panels in scratch pass over them. */
static int64_t piece_rows(int64_t columns, bool wide) {
    enum { PIECE_BYTES = 384 << 10 };
    int64_t bytes = wide ? sluice__quant_wide_bytes(columns) : PIECE_BYTES;
    int64_t rows = bytes / (wide ? 2 * columns : (int64_t)sluice__quant_input_bytes(1, columns)) / SLUICE__TILE_ROWS;
    return rows < 1 ? SLUICE__TILE_ROWS : rows * SLUICE__TILE_ROWS;
}

static void panels_of_rows(float *y, int64_t y_stride, const unsigned char *x, int64_t rows, const sluice__quant_matrix *w,
                           int64_t begin, int64_t end, unsigned char *scratch) {
    bool wide = is_wide(w->type);
    int64_t parts = w->columns / PART, panel_bytes = parts * panel_part_bytes(w->type), piece = piece_rows(w->columns, wide);
    int64_t fitting = SLUICE__PANELS_BYTES / panel_bytes, kept = fitting < 1 ? 1 : fitting;
    int64_t stride = sluice__quant_row_bytes(w->type, w->columns);
    unsigned char *panels = scratch + sluice__quant_wide_bytes(w->columns);
    for (int64_t at = begin; at < end; at += kept) {
        int64_t count = end - at < kept ? end - at : kept;
        for (int64_t r = 0; r < rows; r += piece) {
            int64_t piece_end = rows - r < piece ? rows : r + piece;
            const unsigned char *inputs = x + sluice__quant_input_bytes(r, w->columns);
            if (wide) widen_rows(scratch, inputs, piece_end - r, parts);
            for (int64_t i = 0; i < count; i++) {
                int64_t index = at + i, next = (index + 1) * PANEL;
                const passing c = {.y = y + r * y_stride + index * PANEL, .y_stride = y_stride,
                                   .outputs = w->rows - index * PANEL, .panel = panels + i * panel_bytes, .parts = parts,
                                   .ahead = w->blocks + next * stride,
                                   .ahead_bytes = r == 0 && next + PANEL <= end * PANEL ? PANEL * stride / parts : 0,
                                   .wide = scratch};
                if (r == 0) fill(panels + i * panel_bytes, w, index);
                one_panel(&c, inputs, piece_end - r, w->type);
            }
        }
    }
}

void QUANT_KERNEL(quant_linear)(float *y, int64_t y_stride, const void *x, int64_t rows, const sluice__quant_matrix *w,
                                int64_t begin, int64_t end, void *scratch) {
    int64_t last = end * PANEL < w->rows ? end * PANEL : w->rows;
    rows_fn *products = rows == 1 ? row_products_of(w->type) : NULL;
    if (products) one_row(y, products, x, w, begin * PANEL, last, scratch);
    else if (rows <= SLUICE__DIRECT_ROWS) direct_rows(y, y_stride, x, rows, w, begin * PANEL, last);
    else panels_of_rows(y, y_stride, x, rows, w, begin, end, scratch);
}
