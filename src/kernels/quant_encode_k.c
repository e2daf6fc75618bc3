/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding into K blocks. For every part a few candidate scales around the range are tried; for the codes that a
 * candidate gives, the best scale (and minimum) is a weighted least-squares solution, and the candidate with the least
 * weighted error wins. Errors weigh with the mean square of the part plus the value's own magnitude, because products
 * with large values dominate outputs. The scales of the parts are then rounded to 6 (Q6_K: 8) bits of the block's own
 * scale, and codes are taken once more with the rounded ones. */
#include "kernels/half.h"
#include "kernels/quant.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { PART = 32, PARTS = 8, SMALL = 16 };

static void put_half(uint8_t *p, float f) {
    uint16_t h = sluice__float_to_half(f);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

static float rounded(float f) { return sluice__half_to_float(sluice__float_to_half(f)); }

static int nearest(float v, int low, int high) {
    int q = (int)lrintf(v);
    return q < low ? low : q > high ? high : q;
}

static void weights_of(float *w, const float *x, int n) {
    float squares = 0;
    for (int i = 0; i < n; i++) squares += x[i] * x[i];
    float base = sqrtf(squares / (float)n);
    for (int i = 0; i < n; i++) w[i] = base + fabsf(x[i]) + FLT_MIN;
}

/* value = scale * code - least, code 0..most, scale and least not negative. */
typedef struct line {
    float scale, least;
} line;

static double line_error(line l, const float *x, const float *w, int most) {
    double error = 0;
    float inverse = l.scale > 0 ? 1 / l.scale : 0;
    for (int i = 0; i < PART; i++) {
        float d = l.scale * (float)nearest((x[i] + l.least) * inverse, 0, most) - l.least - x[i];
        error += (double)(w[i] * d * d);
    }
    return error;
}

/* The least-squares line through (code, x) for the codes that `guess` gives. */
static line refine(line guess, const float *x, const float *w, int most) {
    double sw = 0, sc = 0, scc = 0, sx = 0, scx = 0;
    for (int i = 0; i < PART; i++) {
        double code = nearest((x[i] + guess.least) / guess.scale, 0, most), weight = w[i];
        sw += weight, sc += weight * code, scc += weight * code * code;
        sx += weight * x[i], scx += weight * code * x[i];
    }
    double det = sw * scc - sc * sc;
    if (det <= 0) return guess;
    double scale = (sw * scx - sc * sx) / det, least = (sc * scx - scc * sx) / det;
    if (least < 0) { /* a minimum above zero cannot be stored */
        least = 0;
        scale = scc > 0 ? scx / scc : 0;
    }
    return scale > 0 ? (line){(float)scale, (float)least} : guess;
}

static line fit_line(const float *x, int most) {
    float w[PART], low = 0, high = x[0];
    for (int i = 0; i < PART; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    if (high <= low) return (line){0, -low};
    weights_of(w, x, PART);
    line best = {(high - low) / (float)most, -low};
    double least_error = line_error(best, x, w, most);
    for (int step = -5; step <= 10; step++) {
        line guess = {(high - low) / ((float)most + 0.1f * (float)step), -low};
        line tried = refine(guess, x, w, most);
        double error = line_error(tried, x, w, most);
        if (error < least_error) best = tried, least_error = error;
    }
    return best;
}

static void put_k_scales(uint8_t *s, const int *scale, const int *min) {
    memset(s, 0, 12);
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        s[j + 4] = (uint8_t)(min[j] | (min[j + 4] >> 4) << 6);
        s[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

/* Codes of part j behind each other in two halves of bytes; the fifth bit is bit j of 32 bytes of their own. */
static void put_part(uint8_t *low, uint8_t *high, const int *code, int j) {
    for (int i = 0; i < PART; i++) {
        low[j / 2 * 32 + i] |= (uint8_t)((code[i] & 15) << (j % 2 ? 4 : 0));
        if (high) high[i] |= (uint8_t)((code[i] >> 4) << j);
    }
}

static void encode_q45_k(uint8_t *p, const float *x, bool fifth) {
    int most = fifth ? 31 : 15, scale[PARTS], min[PARTS];
    line lines[PARTS];
    float top = 0, top_least = 0;
    for (int j = 0; j < PARTS; j++) {
        lines[j] = fit_line(x + PART * j, most);
        top = fmaxf(top, lines[j].scale);
        top_least = fmaxf(top_least, lines[j].least);
    }
    float d = rounded(top / 63), dmin = rounded(top_least / 63);
    memset(p, 0, (size_t)sluice__quant_bytes(fifth ? SLUICE__QUANT_Q5_K : SLUICE__QUANT_Q4_K));
    put_half(p, d);
    put_half(p + 2, dmin);
    uint8_t *high = fifth ? p + 16 : NULL, *low = fifth ? p + 48 : p + 16;
    for (int j = 0; j < PARTS; j++) {
        scale[j] = d > 0 ? nearest(lines[j].scale / d, 0, 63) : 0;
        min[j] = dmin > 0 ? nearest(lines[j].least / dmin, 0, 63) : 0;
        float step = d * (float)scale[j], least = dmin * (float)min[j], inverse = step > 0 ? 1 / step : 0;
        int code[PART];
        for (int i = 0; i < PART; i++) code[i] = nearest((x[PART * j + i] + least) * inverse, 0, most);
        put_part(low, high, code, j);
    }
    put_k_scales(p + 4, scale, min);
}

/* value = scale * code, code -32..31; scale of either sign. */
static float fit_scale(const float *x) {
    float w[SMALL], most = 0, best = 0;
    for (int i = 0; i < SMALL; i++)
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
    if (most == 0) return 0;
    weights_of(w, x, SMALL);
    double gain = -1;
    for (int step = -9; step <= 9; step++) {
        float inverse = -(32 + 0.1f * (float)step) / most;
        double cx = 0, cc = 0;
        for (int i = 0; i < SMALL; i++) {
            double code = nearest(x[i] * inverse, -32, 31);
            cx += (double)w[i] * code * x[i];
            cc += (double)w[i] * code * code;
        }
        if (cc > 0 && cx * cx / cc > gain) gain = cx * cx / cc, best = (float)(cx / cc);
    }
    return best;
}

static void encode_q6_k(uint8_t *p, const float *x) {
    float scale[16], most = 0;
    for (int j = 0; j < 16; j++) {
        scale[j] = fit_scale(x + SMALL * j);
        if (fabsf(scale[j]) > fabsf(most)) most = scale[j];
    }
    float d = rounded(most / -128);
    memset(p, 0, (size_t)sluice__quant_bytes(SLUICE__QUANT_Q6_K));
    put_half(p + 208, d);
    for (int j = 0; j < 16; j++) {
        int s = d != 0 ? nearest(scale[j] / d, -128, 127) : 0;
        p[192 + j] = (uint8_t)(int8_t)s;
        float step = d * (float)s, inverse = step != 0 ? 1 / step : 0;
        int part = j / 2;
        uint8_t *low = p + part / 4 * 64 + part % 2 * 32 + j % 2 * 16, *high = p + 128 + part / 4 * 32 + j % 2 * 16;
        for (int i = 0; i < SMALL; i++) {
            int code = nearest(x[SMALL * j + i] * inverse, -32, 31) + 32;
            low[i] |= (uint8_t)((code & 15) << (part % 4 < 2 ? 0 : 4));
            high[i] |= (uint8_t)((code >> 4) << 2 * (part % 4));
        }
    }
}

void sluice__quantize_k(void *blocks, sluice__quant type, const float *x, int64_t count) {
    uint8_t *p = blocks;
    for (int64_t i = 0; i < count; i += 256, p += sluice__quant_bytes(type)) {
        if (type == SLUICE__QUANT_Q6_K) encode_q6_k(p, x + i);
        else encode_q45_k(p, x + i, type == SLUICE__QUANT_Q5_K);
    }
}
