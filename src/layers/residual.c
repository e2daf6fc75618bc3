/* SPDX-License-Identifier: Apache-2.0 */
/* Sandwich norm and clipping of a branch. The clip is hard, with derivative 1 on the closed interval. */
#include "layers/residual.h"
#include "kernels/ops.h"

/* The bound of the layer, or that of an intervention where it is tighter; 0 = none. */
static float clip_of(const sluice__pass *pass, int layer) {
    float own = pass->config->layers[layer].residual_clip, asked = pass->change ? pass->change->residual_clip : 0;
    return asked > 0 && (own <= 0 || asked < own) ? asked : own;
}

void sluice__branch_forward(const sluice__pass *pass, int layer, const float *weight,
                            const sluice__branch_state *state) {
    int64_t rows = pass->rows, width = pass->config->hidden_size;
    float clip = clip_of(pass, layer);
    if (weight)
        sluice__rms_norm_forward(state->normed, state->rstd, state->raw, weight, rows, width,
                                 (float)(pass->config->post_norm_eps > 0 ? pass->config->post_norm_eps
                                                                         : pass->config->rms_norm_eps),
                                 sluice__norm_offset(pass->config));
    if (clip > 0) sluice__clip_forward(state->out, state->normed, clip, rows * width);
}

const float *sluice__branch_backward(const sluice__pass *pass, int layer, const float *weight, float *dweight,
                                     const float *dh, const sluice__branch_state *state) {
    int64_t rows = pass->rows, width = pass->config->hidden_size;
    float clip = pass->config->layers[layer].residual_clip, *d = pass->ws->back.dbranch;
    const float *in = dh;
    if (clip > 0) {
        sluice__clip_backward(d, in, state->normed, clip, rows * width);
        in = d;
    }
    if (weight) {
        sluice__rms_norm_backward(d, dweight, in, state->raw, weight, state->rstd, rows, width,
                                  sluice__norm_offset(pass->config), false);
        in = d;
    }
    return in;
}
