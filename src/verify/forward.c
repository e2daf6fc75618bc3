/* SPDX-License-Identifier: Apache-2.0 */
/* One forward pass that records, under the golden's names, what the golden has. */
#include "base/memory.h"
#include "layers/transformer.h"
#include "verify/cases.h"
#include <stdio.h>
#include <string.h>

typedef struct recorder {
    const sluice__safetensors *golden;
    sluice__results *results;
} recorder;

static const char *golden_prefix(sluice__probe_point point) {
    switch (point) {
    case SLUICE__PROBE_RESID_FFN: return "hidden";
    case SLUICE__PROBE_FIRST_SHARE: return "first_token_share";
    case SLUICE__PROBE_SINK_SHARE: return "sink_share";
    case SLUICE__PROBE_GATE: return "gate";
    case SLUICE__PROBE_SDPA: return "attn_out_pre_gate";
    case SLUICE__PROBE_ATTN_PROBS: return "attn_probs";
    default: return NULL;
    }
}

/* out [B,T] = mean over heads of share [B,H,T] */
static void mean_over_heads(float *out, const float *share, int64_t batch, int64_t heads, int64_t tokens) {
    for (int64_t b = 0; b < batch; b++)
        for (int64_t t = 0; t < tokens; t++) {
            double sum = 0;
            for (int64_t h = 0; h < heads; h++) sum += share[(b * heads + h) * tokens + t];
            out[b * tokens + t] = (float)(sum / (double)heads);
        }
}

static sluice_status record(void *user, const sluice__probe_event *e, sluice_error *err) {
    recorder *r = user;
    char name[64];
    snprintf(name, sizeof name, "%s.%d", golden_prefix(e->point), e->layer);
    if (!sluice__safetensors_find(r->golden, name)) return SLUICE_OK;
    float *data;
    if (e->point == SLUICE__PROBE_FIRST_SHARE || e->point == SLUICE__PROBE_SINK_SHARE) {
        SLUICE__TRY(sluice__results_add(r->results, name, 2, (int64_t[]){e->shape[0], e->shape[2]}, &data, err));
        mean_over_heads(data, e->data, e->shape[0], e->shape[1], e->shape[2]);
        return SLUICE_OK;
    }
    int ndim = e->ndim;
    if (e->point == SLUICE__PROBE_GATE && e->shape[3] == 1) ndim = 3;
    SLUICE__TRY(sluice__results_add(r->results, name, ndim, e->shape, &data, err));
    memcpy(data, e->data, (size_t)r->results->items[r->results->count - 1].count * sizeof *data);
    return SLUICE_OK;
}

/* Points for which the golden has a tensor of layer 0 or any other layer. */
static uint32_t wanted_points(const sluice__safetensors *golden) {
    uint32_t wants = 0;
    for (int point = 0; point < SLUICE__PROBE_POINTS; point++) {
        const char *prefix = golden_prefix((sluice__probe_point)point);
        for (int i = 0; prefix && i < sluice__safetensors_count(golden); i++) {
            const char *name = sluice__safetensors_at(golden, i)->name;
            if (!strncmp(name, prefix, strlen(prefix)) && name[strlen(prefix)] == '.') wants |= 1u << point;
        }
    }
    return wants;
}

static sluice_status check_memory(const sluice_model *model, const sluice__verify_input *in, sluice_error *err) {
    int64_t need = sluice__workspace_bytes(sluice_model_config(model), in->batch, in->seq_len, SLUICE__INFER);
    need += (int64_t)in->batch * in->seq_len * sluice_model_config(model)->vocab_size * (int64_t)sizeof(float);
    int64_t have = sluice__mem_available();
    if (need <= have) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_MEMORY, "a pass over %d x %d tokens needs %lld bytes, %lld can be had",
                        in->batch, in->seq_len, (long long)need, (long long)have);
}

sluice_status sluice__verify_forward(const sluice__verify_run *run, const sluice_model *model,
                                     const sluice__safetensors *golden, const sluice__verify_input *in,
                                     sluice__results *results) {
    SLUICE__TRY(check_memory(model, in, run->err));
    sluice__workspace *ws;
    SLUICE__TRY(sluice__workspace_new(&ws, model, in->batch, in->seq_len, SLUICE__INFER, run->err));
    recorder r = {golden, results};
    sluice__probe probe = {&r, wanted_points(golden), record};
    sluice__input input = {in->batch, in->seq_len, in->ids, NULL, in->positions, in->key_start};
    float *logits = NULL;
    sluice_status st = SLUICE_OK;
    if (sluice__safetensors_find(golden, "logits"))
        st = sluice__results_add(results, "logits", 3,
                                 (int64_t[]){in->batch, in->seq_len, sluice_model_config(model)->vocab_size},
                                 &logits, run->err);
    if (st == SLUICE_OK)
        st = sluice__forward(model, ws, &input, NULL, &probe, logits ? SLUICE__LOGITS_ALL : SLUICE__LOGITS_NONE,
                             logits, run->err);
    sluice__workspace_free(ws);
    return st;
}
