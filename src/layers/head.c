/* SPDX-License-Identifier: Apache-2.0 */
/* The loss head works through blocks of tokens: logits of the block, their softmax and gradient in place, then the two
 * gradient products, so that memory for logits does not grow with the batch. */
#include "layers/head.h"
#include "layers/dense.h"
#include "layers/glu.h"
#include <string.h>

/* What stands between the head's product and the logits. */
static void finish(const sluice_config *c, float *logits, int64_t rows) {
    int64_t count = rows * c->vocab_size;
    if (c->logit_scale != 0) sluice__scale(logits, c->logit_scale, count);
    if (c->logit_softcap > 0) sluice__softcap(logits, c->logit_softcap, count);
}

static void product(const sluice__pass *pass, float *logits, const float *x, int64_t x_stride, int64_t rows) {
    int64_t vocab = pass->config->vocab_size;
    sluice__dense_forward(pass, logits, vocab, x, x_stride, NULL, sluice__model_weights(pass->ws->model)->head, NULL, rows);
    finish(pass->config, logits, rows);
}

/* Where the logits of last token `row`, among those that are wanted, go. */
static float *place_of(const sluice__pass *pass, int64_t row) {
    for (const sluice__segment *s = pass->segments;; s++) {
        if (!s->logits) continue;
        if (row < s->in.batch) return s->logits + row * pass->config->vocab_size;
        row -= s->in.batch;
    }
}

/* x holds the `rows` last tokens that are wanted. Their logits go by way of the workspace unless they stand together. */
static void last_logits(const sluice__pass *pass, const float *x, int64_t rows) {
    int64_t width = pass->config->hidden_size, vocab = pass->config->vocab_size, together = 1, n;
    while (together < rows && place_of(pass, together) == place_of(pass, 0) + together * vocab) together++;
    if (together >= rows) {
        if (rows) product(pass, place_of(pass, 0), x, width, rows);
        return;
    }
    for (int64_t r = 0; r < rows; r += n) {
        n = rows - r < pass->ws->head_rows ? rows - r : pass->ws->head_rows;
        product(pass, pass->ws->logits, x + r * width, width, n);
        for (int64_t i = 0; i < n; i++)
            memcpy(place_of(pass, r + i), pass->ws->logits + i * vocab, (size_t)vocab * sizeof(float));
    }
}

void sluice__head_logits(const sluice__pass *pass, const float *x, sluice__logits which) {
    int64_t width = pass->config->hidden_size, wanted = 0;
    for (int i = 0; i < pass->num_segments; i++) {
        const sluice__segment *s = &pass->segments[i];
        int64_t rows = (int64_t)s->in.batch * s->in.seq_len;
        if (!s->logits || which == SLUICE__LOGITS_NONE) continue;
        wanted += s->in.batch;
        if (which == SLUICE__LOGITS_ALL) product(pass, s->logits, x + s->first * width, width, rows);
        else if (pass->read == SLUICE__READ_ALL)
            product(pass, s->logits, x + (s->first + s->in.seq_len - 1) * width, s->in.seq_len * width, s->in.batch);
    }
    if (which == SLUICE__LOGITS_LAST && pass->read == SLUICE__READ_LAST) last_logits(pass, x, wanted);
}

static void count(const int32_t *labels, const float *nll, int64_t rows, sluice__loss *loss) {
    *loss = (sluice__loss){0};
    for (int64_t r = 0; r < rows; r++) {
        if (labels[r] < 0) continue;
        loss->nll_sum += nll[r];
        loss->scored++;
    }
}

void sluice__head_loss(const sluice__pass *pass, const float *x, const int32_t *labels, float *nll, sluice__loss *loss,
                       float loss_scale, float *dx) {
    sluice__workspace *ws = pass->ws;
    const sluice__weights *w = sluice__model_weights(ws->model);
    int64_t width = pass->config->hidden_size, vocab = pass->config->vocab_size, n;
    for (int64_t r = 0; r < pass->rows; r += n) {
        n = pass->rows - r < ws->head_rows ? pass->rows - r : ws->head_rows;
        const float *block = x + r * width;
        sluice__dense_forward(pass, ws->logits, vocab, block, width, NULL, w->head, NULL, n);
        finish(pass->config, ws->logits, n);
        sluice__softmax_nll(ws->logits, labels + r, nll + r, NULL, n, vocab, dx ? loss_scale : 0.0f);
        if (!dx) continue;
        sluice__dense_backward_weight(pass, ws->grads.lm_head, NULL, ws->logits, vocab, block, width, NULL, n, vocab, width);
        sluice__dense_backward_input(pass, dx + r * width, width, ws->logits, vocab, w->lm_head, n, vocab, width, false);
    }
    count(labels, nll, pass->rows, loss);
}
