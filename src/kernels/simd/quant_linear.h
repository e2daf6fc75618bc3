/* SPDX-License-Identifier: Apache-2.0 */
/* Products with blocks (quant_linear.h): body for one vec_<isa>.h and, behind it, the operations that quant_open.h names and
 * ivec_zero, ivec_load, ivec_store, ivec_to_float, ivec_shifted (the integer at an address, shifted left), ivec_dot (adds
 * unsigned codes times inputs, four bytes to a lane), ivec_dot_signed, DOT_CENTRED (codes of Q8_0 are signed).
 *
 * Direct: VEC rows of W are opened part by part, and all rows of x (a tile of 1 to 8) multiplied with what lies in registers.
 * The hardware does not take sixteen streams for sequential reading, so the next VEC rows, which follow in memory, are
 * prefetched into the second-level cache meanwhile, in their order. Panels: opened parts are written down first, and tiles
 * of x pass over them. The offset of a type's codes is put into the sum at its start. */
#include "kernels/kernels.h"
#include "kernels/simd/quant_open.h"

enum { PART = SLUICE__PART, PANEL = SLUICE__PANEL, GROUP_BYTES = 64, HALVES = PANEL / VEC, CODES_BYTES = 8 * GROUP_BYTES };

/* Bits by which the offset of codes is 1 shifted left, 0 without one. */
VEC_INLINE int offset_bits(sluice__quant t) {
    return t == SLUICE__QUANT_Q8_0   ? DOT_CENTRED ? 0 : 7
           : t == SLUICE__QUANT_Q6_K ? 5
           : t == SLUICE__QUANT_Q5_0 ? 4
           : t == SLUICE__QUANT_Q4_0 ? 3
                                     : 0;
}
/* The largest code. */
VEC_INLINE int most_of(sluice__quant t) {
    switch (t) {
    case SLUICE__QUANT_Q8_0: return 255;
    case SLUICE__QUANT_Q6_K: return 63;
    case SLUICE__QUANT_Q4_0:
    case SLUICE__QUANT_Q4_1:
    case SLUICE__QUANT_Q4_K: return 15;
    default: return 31;
    }
}

/* One part of row m of a tile of T rows. */
VEC_INLINE vec dot_part(vec sum, const weights *w, sluice__quant t, const unsigned char *x, int T, int m) {
    const unsigned char *code = x + m * PART, *facts = x + T * PART + 4 * m;
    const int bits = offset_bits(t), most = most_of(t);
    vec scale = vec_set_at(facts);
    if (t == SLUICE__QUANT_Q6_K) {
        const unsigned char *halves = x + T * (PART + 12) + 8 * m;
        ivec a = ivec_dot(ivec_shifted(halves, bits), w->code, code, 4, most);
        ivec b = ivec_dot(ivec_shifted(halves + 4, bits), w->code + 4, code + 16, 4, most);
        vec both = vec_fma(ivec_to_float(b), w->scale[1], vec_mul(ivec_to_float(a), w->scale[0]));
        return vec_fma(both, scale, sum);
    }
    ivec start = bits ? ivec_shifted(facts + 8 * T, bits) : ivec_zero();
    ivec acc = t == SLUICE__QUANT_Q8_0 && DOT_CENTRED ? ivec_dot_signed(start, w->code, code)
                                                      : ivec_dot(start, w->code, code, 8, most);
    sum = vec_fma(ivec_to_float(acc), vec_mul(scale, w->scale[0]), sum);
    return has_minimum(t) ? vec_fma(vec_set_at(facts + 4 * T), w->shift, sum) : sum;
}

VEC_INLINE void prefetch(const unsigned char *p, int bytes) {
    for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)p + i, _MM_HINT_T1);
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
            for (int m = 0; m < T; m++) sum[m] = dot_part(sum[m], &w, t, x, T, m);
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
                for (int m = 0; m < T; m++) sum[m] = dot_part(sum[m], &w, t, x + k_part(t, i, h) * part_bytes, T, m);
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

/* Rows begin..end-1 of W for up to SLUICE__DIRECT_ROWS rows of x, which are one tile. */
static void direct_rows(float *y, int64_t y_stride, const unsigned char *x, int64_t rows, const sluice__quant_matrix *w,
                        int64_t begin, int64_t end) {
    int64_t tile = sluice__quant_tile(rows), stride = sluice__quant_row_bytes(w->type, w->columns);
    int64_t blocks = w->columns / sluice__quant_values(w->type);
    direct_fn *direct = direct_of(w->type, tile);
    const unsigned char *p = w->blocks + begin * stride;
    prefetch(p, (int)(VEC * stride));
    for (int64_t r = begin; r < end; r += VEC, p += VEC * stride) {
        int n = end - r < VEC ? (int)(end - r) : VEC;
        vec total[SLUICE__DIRECT_ROWS];
        for (int m = 0; m < tile; m++) total[m] = vec_zero();
        if (n < VEC) direct_rest(total, direct, x, p, w, tile, n);
        else direct(total, x, p, stride, blocks, p + (r + 2 * VEC <= end ? VEC * stride : 0));
        for (int m = 0; m < rows; m++) vec_store_n(y + m * y_stride + r, total[m], n);
    }
}

/* ---- panels ---- */

VEC_INLINE int panel_part_bytes(sluice__quant t) {
    return CODES_BYTES + (has_minimum(t) || t == SLUICE__QUANT_Q6_K ? 2 : 1) * PANEL * (int)sizeof(float);
}

VEC_INLINE void put_part(unsigned char *to, const weights *w, sluice__quant t, int half) {
    float *scale = (float *)(void *)(to + CODES_BYTES) + half * VEC;
    for (int g = 0; g < 8; g++) ivec_store(to + g * GROUP_BYTES + half * GROUP_BYTES / HALVES, w->code[g]);
    vec_store(scale, w->scale[0]);
    if (t == SLUICE__QUANT_Q6_K) vec_store(scale + PANEL, w->scale[1]);
    if (has_minimum(t)) vec_store(scale + PANEL, w->shift);
}

VEC_INLINE void get_part(weights *w, const unsigned char *at, sluice__quant t, int half) {
    const float *scale = (const float *)(const void *)(at + CODES_BYTES) + half * VEC;
    for (int g = 0; g < 8; g++) w->code[g] = ivec_load(at + g * GROUP_BYTES + half * GROUP_BYTES / HALVES);
    w->scale[0] = vec_load(scale);
    if (t == SLUICE__QUANT_Q6_K) w->scale[1] = vec_load(scale + PANEL);
    if (has_minimum(t)) w->shift = vec_load(scale + PANEL);
}

/* VEC rows into one half of a panel. */
VEC_INLINE void fill_panel(unsigned char *panel, const unsigned char *p, int64_t stride, int64_t blocks, int half,
                           const unsigned char *ahead, sluice__quant t) {
    const int part = panel_part_bytes(t), bytes = block_bytes(t) * VEC;
    for (; blocks > 0; blocks--, p += block_bytes(t), ahead += bytes) {
        weights w;
        if (!is_k(t)) {
            open_block(&w, t, p, stride);
            prefetch(ahead, bytes);
            put_part(panel, &w, t, half);
            panel += part;
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
                put_part(panel + k_part(t, i, h) * part, &w, t, half);
            }
        }
        panel += 8 * part;
    }
}

/* Panels of types that differ in nothing but how they are opened are alike. */
VEC_INLINE sluice__quant panel_type(sluice__quant t) { return has_minimum(t) ? SLUICE__QUANT_Q5_1 : t; }

#define QUANT_TYPE(name, values, bytes)                                                                                \
    static void fill_##name(unsigned char *panel, const unsigned char *p, int64_t stride, int64_t blocks, int half,    \
                            const unsigned char *ahead) {                                                              \
        fill_panel(panel, p, stride, blocks, half, ahead, SLUICE__QUANT_##name);                                       \
    }
SLUICE__QUANT_LIST(QUANT_TYPE)
#undef QUANT_TYPE

typedef void fill_fn(unsigned char *panel, const unsigned char *p, int64_t stride, int64_t blocks, int half,
                     const unsigned char *ahead);
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
        fills[w->type](panel, copy, bytes, columns / values, half, copy);
        p += bytes;
        panel += columns / PART * panel_part_bytes(w->type);
    }
}

static void fill(unsigned char *panel, const sluice__quant_matrix *w, int64_t index) {
    int64_t stride = sluice__quant_row_bytes(w->type, w->columns);
    for (int half = 0; half < HALVES; half++) {
        int64_t r = index * PANEL + half * VEC, left = w->rows - r;
        const unsigned char *p = w->blocks + r * stride;
        if (left < VEC) {
            if (left > 0) fill_rest(panel, p, w, (int)left, half);
            return;
        }
        fills[w->type](panel, p, stride, w->columns / sluice__quant_values(w->type), half,
                       p + (left >= 2 * VEC ? VEC * stride : 0));
    }
}

/* Rows first .. first + M - 1 of a tile of T rows, of which `filled` are wanted, times VEC rows of a panel. */
VEC_INLINE void tile_product(float *y, int64_t y_stride, int outputs, int filled, const unsigned char *x,
                             const unsigned char *panel, int64_t parts, sluice__quant t, int half, int T, int first, int M) {
    vec sum[SLUICE__TILE_ROWS];
    for (int m = 0; m < M; m++) sum[m] = vec_zero();
    for (int64_t p = 0; p < parts; p++, panel += panel_part_bytes(t), x += T * SLUICE__QUANT_ROW_BYTES) {
        weights w;
        get_part(&w, panel, t, half);
        for (int m = 0; m < M; m++) sum[m] = dot_part(sum[m], &w, t, x, T, first + m);
    }
    for (int m = 0; m < M; m++)
        if (first + m < filled) vec_store_n(y + (first + m) * y_stride, sum[m], outputs);
}

/* All rows of a tile times one panel. */
VEC_INLINE void panel_product(float *y, int64_t y_stride, int64_t outputs, int filled, const unsigned char *x,
                              const unsigned char *panel, int64_t parts, sluice__quant t, int T) {
    for (int half = 0; half < HALVES; half++) {
        int64_t left = outputs - half * VEC;
        if (left <= 0) break;
        for (int first = 0; first < T; first += QUANT_ROWS)
            tile_product(y + half * VEC, y_stride, left < VEC ? (int)left : VEC, filled, x, panel, parts, t, half, T, first,
                         T < QUANT_ROWS ? T : QUANT_ROWS);
    }
}

/* All rows of x times one panel. */
VEC_INLINE void panel_rows(float *y, int64_t y_stride, int64_t outputs, const unsigned char *x, int64_t rows,
                           const unsigned char *panel, int64_t parts, sluice__quant t) {
    for (int64_t r = 0, tile; r < rows; r += tile) {
        tile = sluice__quant_tile(rows - r);
        int filled = rows - r < tile ? (int)(rows - r) : (int)tile;
        float *to = y + r * y_stride;
        switch (tile) {
        case 1: panel_product(to, y_stride, outputs, filled, x, panel, parts, t, 1); break;
        case 2: panel_product(to, y_stride, outputs, filled, x, panel, parts, t, 2); break;
        case 4: panel_product(to, y_stride, outputs, filled, x, panel, parts, t, 4); break;
        case 8: panel_product(to, y_stride, outputs, filled, x, panel, parts, t, 8); break;
        default: panel_product(to, y_stride, outputs, filled, x, panel, parts, t, 16); break;
        }
        x += tile * parts * SLUICE__QUANT_ROW_BYTES;
    }
}

#define PANEL_TYPE(name)                                                                                               \
    static void panel_##name(float *y, int64_t y_stride, int64_t outputs, const unsigned char *x, int64_t rows,        \
                             const unsigned char *panel, int64_t parts) {                                              \
        panel_rows(y, y_stride, outputs, x, rows, panel, parts, SLUICE__QUANT_##name);                                 \
    }
PANEL_TYPE(Q8_0) PANEL_TYPE(Q4_0) PANEL_TYPE(Q5_0) PANEL_TYPE(Q5_1) PANEL_TYPE(Q6_K)
#undef PANEL_TYPE

static void one_panel(float *y, int64_t y_stride, const unsigned char *x, int64_t rows, const unsigned char *panel,
                      const sluice__quant_matrix *w, int64_t index) {
    int64_t outputs = w->rows - index * PANEL, parts = w->columns / PART;
    switch (panel_type(w->type)) {
    case SLUICE__QUANT_Q8_0: panel_Q8_0(y, y_stride, outputs, x, rows, panel, parts); break;
    case SLUICE__QUANT_Q4_0: panel_Q4_0(y, y_stride, outputs, x, rows, panel, parts); break;
    case SLUICE__QUANT_Q5_0: panel_Q5_0(y, y_stride, outputs, x, rows, panel, parts); break;
    case SLUICE__QUANT_Q6_K: panel_Q6_K(y, y_stride, outputs, x, rows, panel, parts); break;
    default: panel_Q5_1(y, y_stride, outputs, x, rows, panel, parts); break;
    }
}

/* Rows of x whose rounded inputs stay in the second-level cache while the panels in scratch pass over them. */
static int64_t piece_rows(int64_t columns) {
    enum { PIECE_BYTES = 384 << 10 };
    int64_t rows = PIECE_BYTES / (int64_t)sluice__quant_input_bytes(1, columns) / SLUICE__TILE_ROWS * SLUICE__TILE_ROWS;
    return rows < SLUICE__TILE_ROWS ? SLUICE__TILE_ROWS : rows;
}

static void panels_of_rows(float *y, int64_t y_stride, const unsigned char *x, int64_t rows, const sluice__quant_matrix *w,
                           int64_t begin, int64_t end, unsigned char *scratch) {
    int64_t panel_bytes = w->columns / PART * panel_part_bytes(w->type), piece = piece_rows(w->columns);
    int64_t kept = sluice__quant_panels_kept(w->columns);
    for (int64_t at = begin; at < end; at += kept) {
        int64_t count = end - at < kept ? end - at : kept;
        for (int64_t r = 0; r < rows; r += piece)
            for (int64_t i = 0; i < count; i++) {
                if (r == 0) fill(scratch + i * panel_bytes, w, at + i);
                one_panel(y + r * y_stride + (at + i) * PANEL, y_stride, x + sluice__quant_input_bytes(r, w->columns),
                          rows - r < piece ? rows - r : piece, scratch + i * panel_bytes, w, at + i);
            }
    }
}

void QUANT_KERNEL(quant_linear)(float *y, int64_t y_stride, const void *x, int64_t rows, const sluice__quant_matrix *w,
                                int64_t begin, int64_t end, void *scratch) {
    int64_t last = end * PANEL < w->rows ? end * PANEL : w->rows;
    if (rows <= SLUICE__DIRECT_ROWS) direct_rows(y, y_stride, x, rows, w, begin * PANEL, last);
    else panels_of_rows(y, y_stride, x, rows, w, begin, end, scratch);
}
