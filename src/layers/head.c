/* SPDX-License-Identifier: Apache-2.0 */
/* The loss head works through blocks of tokens: logits of the block, their softmax and gradient in place, then the two
 * gradient products, so that memory for logits does not grow with the batch. */
#include "layers/head.h"
#include "layers/dense.h"
#include "layers/glu.h"

/* What stands between the head's product and the logits. */
static void finish(const sluice_config *c, float *logits, int64_t rows) {
    int64_t count = rows * c->vocab_size;
    if (c->logit_scale != 0) sluice__scale(logits, c->logit_scale, count);
    if (c->logit_softcap > 0) sluice__softcap(logits, c->logit_softcap, count);
}

void sluice__head_logits(const sluice__pass *pass, const float *x, sluice__logits which, float *logits) {
    const sluice__weights *w = sluice__model_weights(pass->ws->model);
    int64_t width = pass->config->hidden_size, vocab = pass->config->vocab_size;
    if (which == SLUICE__LOGITS_ALL) {
        sluice__dense_forward(pass, logits, vocab, x, width, NULL, w->head, NULL, pass->rows);
        finish(pass->config, logits, pass->rows);
    } else if (which == SLUICE__LOGITS_LAST) {
        const float *last = x + (pass->seq_len - 1) * width;
        sluice__dense_forward(pass, logits, vocab, last, pass->seq_len * width, NULL, w->head, NULL, pass->batch);
        finish(pass->config, logits, pass->batch);
    }
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
