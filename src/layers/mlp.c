/* SPDX-License-Identifier: Apache-2.0 */
/* SwiGLU: gate and up lie behind each other, so that one GEMM reads the input once. */
#include "layers/mlp.h"
#include "kernels/ops.h"

void sluice__mlp_forward(const sluice__pass *pass, int layer, const float *x, float *out,
                         const sluice__mlp_state *state) {
    const sluice__layer_weights *w = &sluice__model_weights(pass->ws->model)->layers[layer];
    int64_t rows = pass->rows, width = pass->config->hidden_size, inner = pass->config->layers[layer].intermediate_size;
    sluice__linear_forward(state->gate_up, 2 * inner, x, width, w->gate_up, NULL, rows, 2 * inner, width);
    sluice__swiglu_forward(state->act, state->gate_up, rows, inner);
    sluice__linear_forward(out, width, state->act, inner, w->down, NULL, rows, width, inner);
}

void sluice__mlp_backward(const sluice__pass *pass, int layer, const float *dout, const float *x, float *dx,
                          const sluice__mlp_state *state) {
    const sluice__layer_weights *w = &sluice__model_weights(pass->ws->model)->layers[layer];
    const sluice__layer_weights *g = &pass->ws->grads.layers[layer];
    const sluice__backward_state *b = &pass->ws->back;
    int64_t rows = pass->rows, width = pass->config->hidden_size, inner = pass->config->layers[layer].intermediate_size;
    sluice__linear_backward_weight(g->down, NULL, dout, width, state->act, inner, rows, width, inner);
    sluice__linear_backward_input(b->dact, inner, dout, width, w->down, rows, width, inner, false);
    sluice__swiglu_backward(b->dgate_up, b->dact, state->gate_up, rows, inner);
    sluice__linear_backward_weight(g->gate_up, NULL, b->dgate_up, 2 * inner, x, width, rows, 2 * inner, width);
    sluice__linear_backward_input(dx, width, b->dgate_up, 2 * inner, w->gate_up, rows, 2 * inner, width, false);
}
