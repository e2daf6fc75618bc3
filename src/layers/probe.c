/* SPDX-License-Identifier: Apache-2.0 */
/* Handing activations to a probe. What is not lying around densely (gate scores, norms of strided vectors) is gathered
 * here, and only when it is wanted. */
#include "layers/probing.h"
#include "base/error.h"
#include <math.h>
#include <string.h>

sluice_status sluice__probe_emit(const sluice__pass *pass, sluice__probe_point point, int layer, const float *data,
                                 int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
    sluice__probe_event event = {
        .point = point, .layer = layer, .data = data, .ndim = d3 ? 4 : 3, .shape = {d0, d1, d2, d3}};
    return pass->probe->on(pass->probe->user, &event, pass->err);
}

sluice_status sluice__probe_stream(const sluice__pass *pass, sluice__probe_point point, int layer, const float *data) {
    if (!sluice__probe_wants(pass, point)) return SLUICE_OK;
    return sluice__probe_emit(pass, point, layer, data, pass->batch, pass->seq_len, pass->config->hidden_size, 0);
}

sluice_status sluice__probe_norms(const sluice__pass *pass, sluice__probe_point point, int layer, sluice_strided x,
                                  int heads, int head_dim) {
    if (!sluice__probe_wants(pass, point)) return SLUICE_OK;
    float *norms = sluice__probe_scratch(pass, SLUICE__PROBE_MISC, pass->rows * heads);
    if (!norms) return SLUICE_ERR_MEMORY;
    for (int64_t r = 0; r < pass->rows; r++) {
        const float *token = x.data + r / pass->seq_len * x.stride_batch + r % pass->seq_len * x.stride_token;
        for (int h = 0; h < heads; h++) {
            double sum = 0;
            for (int i = 0; i < head_dim; i++) sum += (double)token[h * head_dim + i] * token[h * head_dim + i];
            norms[r * heads + h] = (float)sqrt(sum);
        }
    }
    return sluice__probe_emit(pass, point, layer, norms, pass->batch, pass->seq_len, heads, 0);
}

sluice_status sluice__probe_gate(const sluice__pass *pass, int layer, const sluice__gating *g, const float *logits,
                                 int64_t stride) {
    if (!sluice__probe_wants(pass, SLUICE__PROBE_GATE)) return SLUICE_OK;
    float *scores = sluice__probe_scratch(pass, SLUICE__PROBE_MISC, pass->rows * sluice__gate_score_width(g));
    float *all = g->shared ? sluice__probe_scratch(pass, SLUICE__PROBE_SHARES, pass->rows * g->heads * g->width) : NULL;
    if (!scores || (g->shared && !all)) return SLUICE_ERR_MEMORY;
    sluice__gate_scores(g, scores, all, logits, stride);
    return sluice__probe_emit(pass, SLUICE__PROBE_GATE, layer, scores, pass->batch, pass->seq_len,
                              g->shared ? 1 : g->heads, g->width);
}

static sluice_status probe_experts(const sluice__pass *pass, int layer, const sluice__moe_state *s) {
    int experts = pass->config->layers[layer].moe.num_experts;
    if (sluice__probe_wants(pass, SLUICE__PROBE_ROUTER))
        SLUICE__TRY(sluice__probe_emit(pass, SLUICE__PROBE_ROUTER, layer, s->prob, pass->batch, pass->seq_len, experts,
                                       0));
    if (!sluice__probe_wants(pass, SLUICE__PROBE_EXPERTS)) return SLUICE_OK;
    float *load = sluice__probe_scratch(pass, SLUICE__PROBE_MISC, experts);
    if (!load) return SLUICE_ERR_MEMORY;
    for (int e = 0; e < experts; e++) load[e] = (float)(s->start[e + 1] - s->start[e]);
    return sluice__probe_emit(pass, SLUICE__PROBE_EXPERTS, layer, load, 1, 1, experts, 0);
}

sluice_status sluice__probe_ffn(const sluice__pass *pass, int layer, const sluice__layer_state *s) {
    const sluice_layer_spec *spec = &pass->config->layers[layer];
    if (!pass->probe) return SLUICE_OK;
    if (spec->moe.num_experts) return probe_experts(pass, layer, &s->moe);
    if (!sluice__probe_wants(pass, SLUICE__PROBE_FFN_ACT)) return SLUICE_OK;
    int64_t width = spec->intermediate_size, stride = sluice__mlp_stride(spec, width);
    const float *act = s->mlp.act;
    if (stride != width) {
        float *dense = sluice__probe_scratch(pass, SLUICE__PROBE_MISC, pass->rows * width);
        if (!dense) return SLUICE_ERR_MEMORY;
        for (int64_t r = 0; r < pass->rows; r++)
            memcpy(dense + r * width, act + r * stride, (size_t)width * sizeof *dense);
        act = dense;
    }
    return sluice__probe_emit(pass, SLUICE__PROBE_FFN_ACT, layer, act, pass->batch, pass->seq_len, (int)width, 0);
}

sluice_status sluice__probe_delta(const sluice__pass *pass, int layer, const sluice__delta_state *s) {
    int heads = pass->config->layers[layer].delta.num_value_heads;
    if (sluice__probe_wants(pass, SLUICE__PROBE_DELTA_DECAY))
        SLUICE__TRY(sluice__probe_emit(pass, SLUICE__PROBE_DELTA_DECAY, layer, s->log_decay, pass->batch, pass->seq_len,
                                       heads, 0));
    if (!sluice__probe_wants(pass, SLUICE__PROBE_DELTA_BETA)) return SLUICE_OK;
    return sluice__probe_emit(pass, SLUICE__PROBE_DELTA_BETA, layer, s->beta, pass->batch, pass->seq_len, heads, 0);
}
