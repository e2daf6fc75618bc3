/* SPDX-License-Identifier: Apache-2.0 */
/* The loss head works through blocks of tokens: logits of the block, their softmax and gradient in place, then the two
 * gradient products, so that memory for logits does not grow with the batch. */
#include "layers/head.h"
#include "kernels/ops.h"

void sluice__head_logits(const sluice__pass *pass, const float *x, sluice__logits which, float *logits) {
    const sluice__weights *w = sluice__model_weights(pass->ws->model);
    int64_t width = pass->config->hidden_size, vocab = pass->config->vocab_size;
    if (which == SLUICE__LOGITS_ALL) {
        sluice__stack_forward(logits, vocab, x, width, w->head, NULL, pass->rows);
    } else if (which == SLUICE__LOGITS_LAST) {
        const float *last = x + (pass->seq_len - 1) * width;
        sluice__stack_forward(logits, vocab, last, pass->seq_len * width, w->head, NULL, pass->batch);
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
        sluice__stack_forward(ws->logits, vocab, block, width, w->head, NULL, n);
        sluice__softmax_nll(ws->logits, labels + r, nll + r, NULL, n, vocab, dx ? loss_scale : 0.0f);
        if (!dx) continue;
        sluice__linear_backward_weight(ws->grads.lm_head, NULL, ws->logits, vocab, block, width, n, vocab, width);
        sluice__linear_backward_input(dx + r * width, width, ws->logits, vocab, w->lm_head, n, vocab, width, false);
    }
    count(labels, nll, pass->rows, loss);
}
