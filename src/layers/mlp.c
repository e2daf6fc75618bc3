/* SPDX-License-Identifier: Apache-2.0 */
/* SwiGLU: gate and up lie behind each other, so that one GEMM reads the input once. Without a gate matrix (GELU) there is
 * the up matrix alone, and gate_up of the state holds what it gives. */
#include "layers/mlp.h"
#include "layers/dense.h"
#include "layers/glu.h"

/* Rows of the matrix that reads the input. */
static int64_t inner_rows(const sluice_layer_spec *l) {
    return (l->mlp_gelu ? 1 : 2) * (int64_t)l->intermediate_size;
}

void sluice__mlp_forward(const sluice__pass *pass, int layer, const float *x, sluice__bf16 *x_half, float *out,
                         const sluice__mlp_state *state) {
    const sluice__layer_weights *w = &sluice__model_weights(pass->ws->model)->layers[layer];
    const sluice_layer_spec *l = &pass->config->layers[layer];
    int64_t rows = pass->rows, width = pass->config->hidden_size, inner = l->intermediate_size, both = inner_rows(l);
    int64_t stride = sluice__mlp_stride(l, both), act_stride = sluice__mlp_stride(l, inner);
    sluice__dense_forward(pass, state->gate_up, stride, x, width, x_half, w->stacks.gate_up, w->gate_up_bias, rows);
    if (l->mlp_gelu) sluice__gelu_forward(state->act, state->gate_up, rows * inner, false);
    else sluice__glu_forward(state->act, act_stride, state->gate_up, stride, rows, inner, l->mlp_act, l->mlp_limit);
    sluice__dense_forward(pass, out, width, state->act, act_stride, state->act_half, w->stacks.down, w->down_bias, rows);
}

void sluice__mlp_backward(const sluice__pass *pass, int layer, const float *dout, const float *x,
                          const sluice__bf16 *x_half, float *dx, const sluice__mlp_state *state) {
    const sluice__layer_weights *w = &sluice__model_weights(pass->ws->model)->layers[layer];
    const sluice__layer_weights *g = &pass->ws->grads.layers[layer];
    const sluice__backward_state *b = &pass->ws->back;
    const sluice_layer_spec *l = &pass->config->layers[layer];
    int64_t rows = pass->rows, width = pass->config->hidden_size, inner = l->intermediate_size, both = inner_rows(l);
    int64_t stride = sluice__mlp_stride(l, both), act_stride = sluice__mlp_stride(l, inner);
    sluice__dense_backward_weight(pass, g->down, NULL, dout, width, state->act, act_stride, state->act_half, rows, width,
                                  inner);
    sluice__dense_backward_input(pass, b->dact, act_stride, dout, width, w->down, rows, width, inner, false);
    if (l->mlp_gelu) sluice__gelu_backward(b->dgate_up, b->dact, state->gate_up, rows * inner, false);
    else sluice__swiglu_backward(b->dgate_up, b->dact, act_stride, state->gate_up, stride, rows, inner);
    sluice__dense_backward_weight(pass, g->gate_up, NULL, b->dgate_up, stride, x, width, x_half, rows, both, width);
    sluice__dense_backward_input(pass, dx, width, b->dgate_up, stride, w->gate_up, rows, both, width, false);
}
