/* SPDX-License-Identifier: Apache-2.0 */
/* All maps are computed and most are then left out: simple, and the subject of a comparison rather than of speed.
 * Backward chooses again from the same logits. */
#include "layers/switch_head.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "layers/topk.h"
#include <string.h>

enum { MOST_MAPS = 64 };

/* score [maps] = sigmoid(logits), 0 for those that are not chosen. */
static void scores(const sluice__switch *s, const sluice__kernels *k, float *score, const float *logits) {
    int32_t choice[MOST_MAPS];
    bool kept[MOST_MAPS] = {false};
    k->sigmoid_f32(score, logits, s->maps);
    sluice__topk(choice, score, s->maps, s->top);
    for (int j = 0; j < s->top; j++) kept[choice[j]] = true;
    for (int m = 0; m < s->maps; m++)
        if (!kept[m]) score[m] = 0;
}

static void head_forward(const sluice__switch *s, const sluice__kernels *k, float *y, const float *x,
                         const float *logits) {
    float score[MOST_MAPS];
    int64_t map = (int64_t)s->heads * s->head_dim;
    scores(s, k, score, logits);
    memset(y, 0, (size_t)s->head_dim * sizeof *y);
    for (int m = 0; m < s->maps; m++)
        if (score[m] != 0) k->axpy_f32(y, score[m], x + m * map, s->head_dim);
}

void sluice__switch_forward(const sluice__switch *s, float *y, const float *x, const float *logits) {
    SLUICE__SPAN(.name = "switch heads");
    const sluice__kernels *k = sluice__kernels_now();
    int64_t width = (int64_t)s->heads * s->head_dim;
    SLUICE__SPLIT(sluice__team(s->rows * width * s->maps), s->rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++)
            for (int h = 0; h < s->heads; h++)
                head_forward(s, k, y + r * width + h * s->head_dim, x + r * s->stride + h * s->head_dim,
                             logits + r * s->stride + h * s->maps);
    });
}

static void head_backward(const sluice__switch *s, const sluice__kernels *k, float *dx, float *dlogits,
                          const float *dy, const float *x, const float *logits, bool accumulate) {
    float score[MOST_MAPS];
    int64_t map = (int64_t)s->heads * s->head_dim;
    scores(s, k, score, logits);
    for (int m = 0; m < s->maps; m++) {
        float *to = dx + m * map, d = 0;
        if (score[m] != 0) {
            memcpy(to, dy, (size_t)s->head_dim * sizeof *to);
            k->scale_f32(to, score[m], s->head_dim);
            d = k->dot_f32(x + m * map, dy, s->head_dim) * score[m] * (1 - score[m]);
        } else {
            memset(to, 0, (size_t)s->head_dim * sizeof *to); /* not chosen: no gradient either */
        }
        dlogits[m] = accumulate ? dlogits[m] + d : d;
    }
}

void sluice__switch_backward(const sluice__switch *s, float *dx, float *dlogits, const float *dy, const float *x,
                             const float *logits, bool accumulate) {
    SLUICE__SPAN(.name = "switch heads");
    const sluice__kernels *k = sluice__kernels_now();
    int64_t width = (int64_t)s->heads * s->head_dim;
    SLUICE__SPLIT(sluice__team(s->rows * width * s->maps), s->rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++)
            for (int h = 0; h < s->heads; h++) {
                int64_t maps = r * s->stride + h * s->head_dim;
                int64_t router = r * s->stride + h * s->maps;
                head_backward(s, k, dx + maps, dlogits + router, dy + r * width + h * s->head_dim, x + maps,
                              logits + router, accumulate);
            }
    });
}
