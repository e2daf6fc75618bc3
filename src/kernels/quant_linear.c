/* SPDX-License-Identifier: Apache-2.0 */
/* References of the two kernels, and the operator on top of them: inputs are rounded once, then threads share out panels of
 * sixteen rows of W. */
#include "kernels/quant_linear.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"
#include <math.h>
#include <string.h>

enum { PANEL = SLUICE__PANEL, PART = SLUICE__PART, ROW_BYTES = SLUICE__QUANT_ROW_BYTES };

/* Where the pieces of one part of a tile of T rows lie. */
typedef struct tile_part {
    int8_t *code;
    float *scale, *scaled_sum;
    int32_t *minus_sum, *minus_halves;
} tile_part;

static tile_part part_of(unsigned char *at, int64_t tile) {
    tile_part p = {.code = (int8_t *)at};
    p.scale = (float *)(void *)(at + tile * PART);
    p.scaled_sum = p.scale + tile;
    p.minus_sum = (int32_t *)(void *)(p.scaled_sum + tile);
    p.minus_halves = p.minus_sum + tile;
    return p;
}

/* The largest magnitude; NaN when there is one. */
static float magnitude(const float *x) {
    float most = 0;
    for (int i = 0; i < PART && !isnan(most); i++)
        if (!(fabsf(x[i]) <= most)) most = fabsf(x[i]);
    return most;
}

static void round_part(const tile_part *p, int64_t row, const float *x) {
    float most = magnitude(x), inverse = most > 0 ? 127 / most : 0;
    int32_t half[2] = {0, 0};
    bool usable = most <= 3e38f;
    for (int i = 0; i < PART; i++) {
        int code = usable ? (int)lrintf(x[i] * inverse) : 0;
        p->code[row * PART + i] = (int8_t)code;
        half[i / 16] += code;
    }
    p->scale[row] = most / 127;
    p->minus_sum[row] = -half[0] - half[1];
    p->minus_halves[2 * row] = -half[0];
    p->minus_halves[2 * row + 1] = -half[1];
    p->scaled_sum[row] = p->scale[row] * (float)(half[0] + half[1]);
}

void sluice_quant_input_ref(void *out, const float *x, int64_t x_stride, int64_t rows, int64_t columns) {
    unsigned char *at = out;
    for (int64_t r = 0, tile; r < rows; r += tile) {
        tile = sluice__quant_tile(rows - r);
        memset(at, 0, (size_t)(columns / PART * tile * ROW_BYTES));
        for (int64_t c = 0; c < columns; c += PART, at += tile * ROW_BYTES) {
            tile_part p = part_of(at, tile);
            for (int64_t i = 0; i < tile && r + i < rows; i++) round_part(&p, i, x + (r + i) * x_stride + c);
        }
    }
}

/* Row i of a tile times part c of a row of W. */
static double dot_part(const unsigned char *tile_at, int64_t tile, int64_t i, const sluice__quant_part *part, int64_t c) {
    const unsigned char *at = tile_at + c * tile * ROW_BYTES;
    const signed char *code = (const signed char *)at + i * PART;
    int32_t half[2] = {0, 0}, total = 0;
    float scale;
    memcpy(&scale, at + tile * PART + i * 4, sizeof scale);
    for (int j = 0; j < PART; j++) {
        half[j / 16] += code[j] * (part->code[j] - part->offset);
        total += code[j];
    }
    return scale * ((double)half[0] * part->scale[0] + (double)half[1] * part->scale[1] + (double)total * part->shift);
}

static float dot_row(const unsigned char *tile_at, int64_t tile, int64_t i, const sluice__quant_matrix *w, int64_t row) {
    int values = sluice__quant_values(w->type), bytes = sluice__quant_bytes(w->type);
    const unsigned char *block = w->blocks + row * sluice__quant_row_bytes(w->type, w->columns);
    double sum = 0;
    for (int64_t c = 0; c < w->columns; c += values, block += bytes) {
        sluice__quant_part parts[8];
        sluice__quant_open(parts, w->type, block);
        for (int j = 0; j < values / PART; j++) sum += dot_part(tile_at, tile, i, &parts[j], c / PART + j);
    }
    return (float)sum;
}

void sluice_quant_linear_ref(float *y, int64_t y_stride, const void *x, int64_t rows, const sluice__quant_matrix *w,
                             int64_t begin, int64_t end, void *scratch) {
    (void)scratch;
    const unsigned char *at = x;
    int64_t last = end * PANEL < w->rows ? end * PANEL : w->rows;
    for (int64_t r = 0, tile; r < rows; r += tile) {
        tile = sluice__quant_tile(rows - r);
        for (int64_t i = 0; i < tile && r + i < rows; i++)
            for (int64_t o = begin * PANEL; o < last; o++) y[(r + i) * y_stride + o] = dot_row(at, tile, i, w, o);
        at += tile * (w->columns / PART) * ROW_BYTES;
    }
}

/* ---- the operator ---- */

static int64_t panels_of(const sluice__quant_matrix *w) { return (w->rows + PANEL - 1) / PANEL; }

typedef struct call {
    float *y;
    int64_t y_stride;
    const unsigned char *x;
    int64_t rows;
    const sluice__quant_matrix *w;
    int matrices;
    unsigned char *scratch; /* of all threads; NULL for 2 to 8 rows */
} call;

/* Panels begin..end-1 of all matrices in a row. */
static void run_panels(const call *c, sluice__range range) {
    const sluice__kernels *k = sluice__kernels_now();
    int64_t before = 0;
    float *y = c->y;
    void *scratch = c->scratch ? c->scratch + omp_get_thread_num() * sluice__quant_scratch_bytes(c->w->columns) : NULL;
    for (int i = 0; i < c->matrices; i++) {
        int64_t begin = range.begin - before, end = range.end - before, panels = panels_of(&c->w[i]);
        begin = begin < 0 ? 0 : begin;
        end = end > panels ? panels : end;
        if (begin < end) k->quant_linear(y, c->y_stride, c->x, c->rows, &c->w[i], begin, end, scratch);
        before += panels;
        y += c->w[i].rows;
    }
}

static void round_inputs(unsigned char *to, const float *x, int64_t x_stride, int64_t rows, int64_t columns) {
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * columns), rows, SLUICE__TILE_ROWS,
                  k->quant_input(to + sluice__quant_input_bytes(range.begin, columns), x + range.begin * x_stride,
                                 x_stride, range.end - range.begin, columns));
}

/* Rows whose rounded inputs fit the scratch that can be had, in front of `panels` bytes. */
static unsigned char *new_scratch(int64_t *rows, int64_t columns, size_t panels) {
    for (;; *rows = (*rows / 2 + SLUICE__TILE_ROWS - 1) / SLUICE__TILE_ROWS * SLUICE__TILE_ROWS) {
        size_t bytes = panels + sluice__quant_input_bytes(*rows, columns);
        void *buffer = sluice__scratch((bytes + sizeof(float) - 1) / sizeof(float));
        if (buffer || *rows <= SLUICE__TILE_ROWS) return buffer;
    }
}

void sluice__quant_linear_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride,
                                  const sluice__quant_matrix *w, int matrices, int64_t rows) {
    int64_t columns = w->columns, panels = 0, at_once = rows, outputs = 0, bytes = 0;
    for (int i = 0; i < matrices; i++) {
        panels += panels_of(&w[i]);
        outputs += w[i].rows;
        bytes += w[i].rows * sluice__quant_row_bytes(w[i].type, columns);
    }
    SLUICE__SPAN(.name = "x W^T, W in blocks", .flops = 2.0 * (double)rows * (double)outputs * (double)columns,
                 .bytes = (double)bytes + 4.0 * (double)rows * (double)(columns + outputs), .m = rows, .n = outputs,
                 .k = columns);
    int threads = sluice__team(panels * PANEL * columns / 4 * (rows > 4 ? 4 : 1));
    size_t own = rows == 1 || rows > SLUICE__DIRECT_ROWS ? (size_t)threads * (size_t)sluice__quant_scratch_bytes(columns) : 0;
    unsigned char *buffer = new_scratch(&at_once, columns, own);
    for (int64_t r = 0; r < rows; r += at_once) {
        int64_t n = rows - r < at_once ? rows - r : at_once;
        if (!buffer) { /* not even one tile: say so in a way that no caller overlooks */
            for (int64_t i = 0; i < n; i++)
                for (int64_t o = 0; o < outputs; o++) y[(r + i) * y_stride + o] = NAN;
            continue;
        }
        round_inputs(buffer + own, x + r * x_stride, x_stride, n, columns);
        const call c = {y + r * y_stride, y_stride, buffer + own, n, w, matrices, own ? buffer : NULL};
        SLUICE__SPLIT(threads, panels, 1, run_panels(&c, range));
    }
}
