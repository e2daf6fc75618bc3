/* SPDX-License-Identifier: Apache-2.0 */
/* The Newton-Schulz iteration x <- a x + (b s + c s s) x with s = x x^T for wide matrices; tall ones use s = x^T x
 * and multiply from the right, which is the same thing transposed and needs no transposed copy. The Gram matrix is
 * formed on the short side, so an iteration costs two long products and a short one; those that
 * are symmetric are computed up to the diagonal in panels, which saves a quarter of the work at width 512. Coefficients:
 * Jordan et al. */
#include "train/muon.h"
#include "kernels/ops.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include <math.h>
#include <string.h>

static const float A = 3.4445F, B = -4.7750F, C = 2.0315F;
static const double EPS = 1e-7;

static int64_t shorter(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t sluice__muon_scratch(int64_t rows, int64_t columns) {
    int64_t side = shorter(rows, columns);
    return 2 * rows * columns + 2 * side * side;
}

/* Rows of a panel of a symmetric product: columns behind its diagonal block are copied, not computed. */
enum { PANEL = 128, TILE = 16 };

/* m[j,i] = m[i,j] for j < i, tile by tile so that both sides stay in the cache. */
static void mirror(float *m, int64_t side) {
    for (int64_t i0 = 0; i0 < side; i0 += TILE)
        for (int64_t j0 = 0; j0 <= i0; j0 += TILE)
            for (int64_t i = i0; i < side && i < i0 + TILE; i++)
                for (int64_t j = j0; j < i && j < j0 + TILE; j++) m[j * side + i] = m[i * side + j];
}

/* gram [side,side] = x x^T for a wide x [rows,columns], x^T x for a tall one. */
static void gram_matrix(float *gram, const float *x, int64_t rows, int64_t columns) {
    bool tall = rows > columns;
    int64_t side = shorter(rows, columns), length = tall ? rows : columns;
    for (int64_t r = 0; r < side; r += PANEL) {
        int64_t n = side - r < PANEL ? side - r : PANEL;
        sluice__gemm_f32(tall, !tall, n, r + n, length, 1, x + (tall ? r : r * columns), columns, x, columns, 0,
                         gram + r * side, side);
    }
    mirror(gram, side);
}

/* p = B s + C s s for a symmetric s [side,side]. */
static void polynomial(float *p, const float *s, int64_t side) {
    memcpy(p, s, (size_t)(side * side) * sizeof *p);
    for (int64_t r = 0; r < side; r += PANEL) {
        int64_t n = side - r < PANEL ? side - r : PANEL;
        sluice__gemm_f32(false, false, n, r + n, side, C, s + r * side, side, s, side, B, p + r * side, side);
    }
    mirror(p, side);
}

/* y = a x + (polynomial p of the Gram matrix) x, or x p for a tall x. */
static void iterate(float *y, const float *x, int64_t rows, int64_t columns, float *gram, float *p) {
    bool tall = rows > columns;
    int64_t side = shorter(rows, columns);
    gram_matrix(gram, x, rows, columns);
    polynomial(p, gram, side);
    memcpy(y, x, (size_t)(rows * columns) * sizeof *y);
    if (tall) sluice__gemm_f32(false, false, rows, columns, side, 1, x, columns, p, side, A, y, columns);
    else sluice__gemm_f32(false, false, rows, columns, side, 1, p, side, x, columns, A, y, columns);
}

void sluice__orthogonalise(float *x, int64_t rows, int64_t columns, int iterations, float *scratch) {
    int64_t count = rows * columns, side = shorter(rows, columns);
    float *other = scratch, *gram = scratch + count, *p = gram + side * side, *from = x, *to = other;
    double norm = sqrt(sluice__sum_squares(x, count));
    sluice__scale(x, (float)(1 / (norm > EPS ? norm : EPS)), count);
    for (int i = 0; i < iterations; i++) {
        iterate(to, from, rows, columns, gram, p);
        float *swap = from;
        from = to;
        to = swap;
    }
    if (from != x) memcpy(x, from, (size_t)count * sizeof *x);
}

void sluice__muon_step(const sluice__muon *c, float *p, float *m, float *g, int64_t rows, int64_t columns,
                       float *scratch) {
    SLUICE__SPAN(.name = "Muon");
    int64_t count = rows * columns;
    float *u = scratch, mu = (float)c->momentum, scale = (float)c->grad_scale;
    SLUICE__SPLIT(sluice__team(4 * count), count, 16, {
        for (int64_t i = range.begin; i < range.end; i++) {
            float grad = g[i] * scale;
            m[i] += (1 - mu) * (grad - m[i]);
            u[i] = grad + mu * (m[i] - grad);
            g[i] = 0;
        }
    });
    sluice__orthogonalise(u, rows, columns, c->iterations, scratch + count);
    double r = (double)rows, n = (double)columns;
    double adjust = c->adjust == SLUICE__MUON_ORIGINAL ? sqrt(fmax(1, r / n)) : 0.2 * sqrt(fmax(r, n));
    float keep = (float)(1 - c->lr * c->weight_decay), step = (float)(c->lr * adjust);
    SLUICE__SPLIT(sluice__team(2 * count), count, 16, {
        for (int64_t i = range.begin; i < range.end; i++) p[i] = p[i] * keep - step * u[i];
    });
}
