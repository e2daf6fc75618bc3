/* SPDX-License-Identifier: Apache-2.0 */
/* One row of x times rows of W in blocks, which decoding consists of: body for one vec_<isa>.h. Memory is the limit, so rows
 * are read as they lie, ROW_ABREAST at a time, and asked for ahead of their use: the processor's own prefetching starts anew in
 * every page. A register holds codes along the row; what belongs to them (inputs, the start of the sum, scales) is laid out in
 * the same order before, once for all rows.
 *
 * Inputs, group after group of as many blocks as fill a register with bytes of W (Q8_0: VEC / 8, of 4 bits: VEC / 4):
 *   Q8_0          codes, starts, scales
 *   Q4_0, Q4_1    codes of lower halves of bytes, of upper ones, starts (Q4_0) or scaled sums (Q4_1), scales
 *   K             codes, of lower and upper halves in turn; Q6_K starts of each; 8 scales and 8 scaled sums, or Q6_K 16 scales
 * A start is what the offset of codes adds, in the first lane of those that share a scale.
 *
 * Behind vec_<isa>.h the including file defines, besides what simd/quant_linear.h needs: row_bytes32, row_bytes16 (so many
 * bytes of each block of a group, the blocks a step apart), row_halves (a 16-bit float of each, for several lanes), row_spread
 * (lane i gets v[first + step * (i / lanes)]), row_widened, row_twice (32 bytes, again in the upper half), row_bits (the place
 * of a fifth bit), row_high (upper bits of Q6_K), row_dot (adds unsigned codes times inputs), row_dot_nibbles (two of 4 bits),
 * row_dot_signed. */
#include "kernels/kernels.h"

enum {
    ROW_ABREAST = VEC == 16 ? 4 : 1, /* rows of W that share the loads of inputs */
    ROW_AHEAD = VEC == 16 ? 4096 : 8192, /* bytes of W in front of the last of them */
    K_COLUMNS = 256,
    ROW_VECTORS = K_COLUMNS / (4 * VEC) /* of codes of a K block */
};

/* Blocks of a group. */
VEC_INLINE int row_group(sluice__quant t) { return is_k(t) ? 1 : t == SLUICE__QUANT_Q8_0 ? VEC / 8 : VEC / 4; }

/* ---- inputs ---- */

/* A part of a row of x as quant_input writes it. */
typedef struct row_part {
    int8_t code[PART];
    float scale, scaled_sum;
    int32_t minus_sum, minus_halves[2];
} row_part;

/* The part of lanes 8j.. of vector v of codes in a K block, v = 2 * strip of bytes + half. */
VEC_INLINE int k_vector_part(sluice__quant t, int v, int j) {
    int at = v / 2 * (VEC / 8) + j;
    return t == SLUICE__QUANT_Q6_K ? at / 2 * 4 + v % 2 * 2 + at % 2 : 2 * at + v % 2;
}

static unsigned char *put_k_inputs(unsigned char *to, const row_part *x, sluice__quant t) {
    int32_t starts[K_COLUMNS / 4] = {0};
    for (int v = 0; v < ROW_VECTORS; v++)
        for (int j = 0; j < VEC / 8; j++, to += PART) {
            const row_part *p = &x[k_vector_part(t, v, j)];
            memcpy(to, p->code, PART);
            for (int h = 0; h < 2; h++) starts[v * VEC + 8 * j + 4 * h] = p->minus_halves[h] * 32;
        }
    float facts[16];
    for (int i = 0; i < 8; i++) {
        facts[t == SLUICE__QUANT_Q6_K ? 2 * i : i] = x[i].scale;
        facts[t == SLUICE__QUANT_Q6_K ? 2 * i + 1 : 8 + i] = t == SLUICE__QUANT_Q6_K ? x[i].scale : x[i].scaled_sum;
    }
    if (t == SLUICE__QUANT_Q6_K) {
        memcpy(to, starts, sizeof starts);
        to += sizeof starts;
    }
    memcpy(to, facts, sizeof facts);
    return to + sizeof facts;
}

/* Blocks first..n-1 of a group; the others do not count. */
static unsigned char *put_inputs(unsigned char *to, const row_part *x, int first, int n, sluice__quant t) {
    const int group = row_group(t), lanes = VEC / group, bits = offset_bits(t);
    int8_t code[2][4 * VEC] = {{0}};
    int32_t start[VEC] = {0};
    float scale[VEC] = {0}, sum[VEC] = {0};
    for (int g = first; g < n; g++) {
        if (lanes == 8) memcpy(&code[0][PART * g], x[g].code, PART);
        else for (int h = 0; h < 2; h++) memcpy(&code[h][PART / 2 * g], x[g].code + PART / 2 * h, PART / 2);
        start[lanes * g] = bits ? x[g].minus_sum * (1 << bits) : 0;
        sum[lanes * g] = x[g].scaled_sum;
        for (int i = 0; i < lanes; i++) scale[lanes * g + i] = x[g].scale;
    }
    for (int h = 0; h < (lanes == 8 ? 1 : 2); h++, to += 4 * VEC) memcpy(to, code[h], 4 * VEC);
    if (has_minimum(t)) memcpy(to, sum, sizeof sum);
    else memcpy(to, start, sizeof start);
    memcpy(to + 4 * VEC, scale, sizeof scale);
    return to + 8 * VEC;
}

/* Where blocks do not fill groups, the last group is that of the row's last blocks, some of them once more. */
static void put_all_inputs(unsigned char *to, const row_part *x, int64_t parts, sluice__quant t) {
    int64_t p = 0;
    int group = row_group(t);
    if (is_k(t)) {
        for (; p < parts; p += 8) to = put_k_inputs(to, x + p, t);
        return;
    }
    for (; p + group <= parts; p += group) to = put_inputs(to, x + p, 0, group, t);
    if (p == 0) put_inputs(to, x, 0, (int)parts, t);
    else if (p < parts) put_inputs(to, x + parts - group, group - (int)(parts - p), group, t);
}

/* ---- products ---- */

typedef struct row_sums {
    vec products, minima;
} row_sums;

/* A group of blocks of 32. */
VEC_INLINE const unsigned char *row_blocks(row_sums *s, const unsigned char *in, const unsigned char *p, sluice__quant t) {
    const int bytes = block_bytes(t), lanes = VEC / row_group(t);
    if (t == SLUICE__QUANT_Q8_0) {
        ivec code = row_bytes32(p + 2, bytes), sum = ivec_load(in + 4 * VEC);
        sum = DOT_CENTRED ? row_dot_signed(sum, code, ivec_load(in))
                          : row_dot(sum, ivec_xor(code, ivec_splat((char)0x80)), ivec_load(in));
        vec scale = vec_mul(row_halves(p, bytes, 0, lanes), vec_load((const float *)(const void *)(in + 8 * VEC)));
        s->products = vec_fma(ivec_to_float(sum), scale, s->products);
        return in + 12 * VEC;
    }
    const ivec low = ivec_splat(0x0f);
    ivec raw = row_bytes16(p + (has_minimum(t) ? 4 : 2), bytes);
    const float *facts = (const float *)(const void *)(in + 8 * VEC);
    ivec sum = has_minimum(t) ? ivec_zero() : ivec_load(facts);
    sum = row_dot_nibbles(sum, ivec_and(raw, low), ivec_load(in), ivec_and(ivec_shift_right16(raw, 4), low),
                          ivec_load(in + 4 * VEC));
    vec scale = vec_mul(row_halves(p, bytes, 0, lanes), vec_load(facts + VEC));
    s->products = vec_fma(ivec_to_float(sum), scale, s->products);
    if (has_minimum(t)) s->minima = vec_fma(row_halves(p, bytes, 2, lanes), vec_load(facts), s->minima);
    return in + 16 * VEC;
}

/* The eight scales and minima of a block of Q4_K or Q5_K, six bits each. */
VEC_INLINE void row_scales(__m256 *scale, __m256 *minimum, const unsigned char *p) {
    uint64_t a = (uint32_t)int_at(p), b = (uint32_t)int_at(p + 4), c = (uint32_t)int_at(p + 8);
    uint64_t s = (a & 0x3f3f3f3f) | ((c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)) << 32;
    uint64_t m = (b & 0x3f3f3f3f) | ((c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)) << 32;
    *scale = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)s)));
    *minimum = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)m)));
}

VEC_INLINE __m256 half_at(const unsigned char *p) { return _mm256_cvtph_ps(eight_halves(p)); }

/* A block of Q4_K or Q5_K. */
VEC_INLINE const unsigned char *row_k4(row_sums *s, const unsigned char *in, const unsigned char *p, sluice__quant t) {
    const unsigned char *facts = in + K_COLUMNS, *bytes = p + (t == SLUICE__QUANT_Q5_K ? 48 : 16);
    const ivec low = ivec_splat(0x0f), fifth = t == SLUICE__QUANT_Q5_K ? row_twice(p + 16) : low;
    __m256 scale, minimum;
    row_scales(&scale, &minimum, p + 4);
    scale = _mm256_mul_ps(_mm256_mul_ps(scale, half_at(p)), _mm256_loadu_ps((const float *)(const void *)facts));
    minimum = _mm256_mul_ps(minimum, half_at(p + 2));
    minimum = _mm256_mul_ps(minimum, _mm256_loadu_ps((const float *)(const void *)(facts + 32)));
    s->minima = vec_sub(s->minima, row_widened(minimum));
    for (int v = 0; v < ROW_VECTORS; v++) {
        ivec raw = ivec_load(bytes + v / 2 * 4 * VEC), code = ivec_and(v % 2 ? ivec_shift_right16(raw, 4) : raw, low);
        int first = k_vector_part(t, v, 0);
        if (t == SLUICE__QUANT_Q5_K) code = ivec_fifth(code, fifth, row_bits(first));
        ivec sum = row_dot(ivec_zero(), code, ivec_load(in + v * 4 * VEC));
        s->products = vec_fma(ivec_to_float(sum), row_spread(scale, first, 2, 8), s->products);
    }
    return facts + 64;
}

/* Half a block of Q6_K, n = 0, 1. */
VEC_INLINE void row_k6_half(row_sums *s, const unsigned char *in, const unsigned char *p, int n) {
    const ivec low = ivec_splat(0x0f), high = row_twice(p + 128 + 32 * n);
    const unsigned char *starts = in + K_COLUMNS, *facts = starts + K_COLUMNS;
    int64_t eight;
    memcpy(&eight, p + 192 + 8 * n, sizeof eight);
    __m256 scale = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(eight)));
    scale = _mm256_mul_ps(scale, half_at(p + 208));
    scale = _mm256_mul_ps(scale, _mm256_loadu_ps((const float *)(const void *)(facts + 32 * n)));
    for (int i = 0; i < ROW_VECTORS / 2; i++) {
        int v = n * ROW_VECTORS / 2 + i, part = k_vector_part(SLUICE__QUANT_Q6_K, v, 0) - 4 * n;
        ivec raw = ivec_load(p + v / 2 * 4 * VEC), code = ivec_and(v % 2 ? ivec_shift_right16(raw, 4) : raw, low);
        code = ivec_or(code, row_high(high, part));
        ivec sum = row_dot(ivec_load(starts + v * 4 * VEC), code, ivec_load(in + v * 4 * VEC));
        s->products = vec_fma(ivec_to_float(sum), row_spread(scale, 2 * part, 1, 4), s->products);
    }
}

VEC_INLINE const unsigned char *row_one(row_sums *s, const unsigned char *in, const unsigned char *p, sluice__quant t) {
    if (!is_k(t)) return row_blocks(s, in, p, t);
    if (t != SLUICE__QUANT_Q6_K) return row_k4(s, in, p, t);
    row_k6_half(s, in, p, 0);
    row_k6_half(s, in, p, 1);
    return in + 2 * K_COLUMNS + 64;
}

/* One group of n rows of W, which share the loads of inputs. */
VEC_INLINE const unsigned char *row_several(row_sums *s, const unsigned char *in, const unsigned char *p, int64_t stride, int n,
                                            sluice__quant t) {
    const unsigned char *next = in;
    for (int i = 0; i < n; i++) next = row_one(&s[i], in, p + i * stride, t);
    return next;
}

/* n outputs.   ahead: what is wanted next. */
VEC_INLINE void row_product(float *y, const unsigned char *in, const unsigned char *p, int64_t stride, int64_t blocks,
                            const unsigned char *ahead, int n, sluice__quant t) {
    const int group = row_group(t), bytes = group * block_bytes(t);
    row_sums s[4];
    for (int i = 0; i < n; i++) s[i] = (row_sums){vec_zero(), vec_zero()};
    int64_t left = blocks;
    for (; left >= group; left -= group, p += bytes, ahead += n * bytes) {
        prefetch(ahead, n * bytes);
        in = row_several(s, in, p, stride, n, t);
    }
    prefetch(ahead, n * left * block_bytes(t));
    if (left > 0 && blocks > group) {
        row_several(s, in, p - (group - left) * block_bytes(t), stride, n, t);
    } else if (left > 0) { /* a row shorter than a group */
        unsigned char whole[ROW_ABREAST][VEC / 4 * 32] = {{0}};
        for (int i = 0; i < n; i++) memcpy(whole[i], p + i * stride, (size_t)stride);
        row_several(s, in, whole[0], sizeof whole[0], n, t);
    }
    for (int i = 0; i < n && has_minimum(t); i++) s[i].products = vec_add(s[i].products, s[i].minima);
    if (n == 4) vec_sum4(y, s[0].products, s[1].products, s[2].products, s[3].products);
    else for (int i = 0; i < n; i++) y[i] = vec_sum(s[i].products);
}

/* Bytes that are prefetched ahead, in the order of memory: the first block of the last of ROW_ABREAST rows is wanted as early as
 * that of the first. */
VEC_INLINE int64_t row_ahead(int64_t stride) { return (ROW_ABREAST - 1) * stride + ROW_AHEAD; }

/* What to prefetch while ROW_ABREAST rows at p pass, `left` rows before the end: nothing new where that is behind it. */
VEC_INLINE const unsigned char *row_next(const unsigned char *p, int64_t stride, int64_t left) {
    return (left - ROW_ABREAST) * stride < row_ahead(stride) ? p : p + row_ahead(stride);
}

typedef void rows_fn(float *y, const unsigned char *in, const unsigned char *p, int64_t stride, int64_t rows, int64_t blocks);

#define ROWS(name)                                                                                                     \
    static void rows_##name(float *y, const unsigned char *in, const unsigned char *p, int64_t stride, int64_t rows,   \
                            int64_t blocks) {                                                                          \
        int64_t r = 0;                                                                                                 \
        for (; r + ROW_ABREAST <= rows; r += ROW_ABREAST, p += ROW_ABREAST * stride)                                   \
            row_product(y + r, in, p, stride, blocks, row_next(p, stride, rows - r), ROW_ABREAST, SLUICE__QUANT_##name);  \
        for (; r < rows; r++, p += stride) row_product(y + r, in, p, stride, blocks, p, 1, SLUICE__QUANT_##name);      \
    }
ROWS(Q8_0) ROWS(Q4_0) ROWS(Q4_1) ROWS(Q4_K) ROWS(Q5_K) ROWS(Q6_K)
#undef ROWS

/* NULL: the direct products of sixteen rows side by side are as fast. */
static rows_fn *row_products_of(sluice__quant type) {
    switch (type) {
    case SLUICE__QUANT_Q8_0: return rows_Q8_0;
    case SLUICE__QUANT_Q4_0: return rows_Q4_0;
    case SLUICE__QUANT_Q4_1: return rows_Q4_1;
    case SLUICE__QUANT_Q4_K: return rows_Q4_K;
    case SLUICE__QUANT_Q5_K: return rows_Q5_K;
    case SLUICE__QUANT_Q6_K: return rows_Q6_K;
    default: return NULL;
    }
}

/* Rows begin..end-1 of W.   x: as quant_input writes one row;  scratch: of sluice__quant_scratch_bytes. */
static void one_row(float *y, rows_fn *products, const unsigned char *x, const sluice__quant_matrix *w, int64_t begin,
                    int64_t end, unsigned char *scratch) {
    int64_t stride = sluice__quant_row_bytes(w->type, w->columns);
    const unsigned char *first = w->blocks + begin * stride;
    int64_t all = (end - begin) * stride, ahead = row_ahead(stride);
    prefetch(first, all < ahead ? all : ahead);
    put_all_inputs(scratch, (const row_part *)(const void *)x, w->columns / PART, w->type);
    products(y + begin, scratch, first, stride, end - begin, w->columns / sluice__quant_values(w->type));
}
