/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the first tensor that is not finite. Runs only when something is wrong, so it may be slow. */
#include "train/guard.h"
#include "base/error.h"
#include "kernels/ops.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* `flat` in the layout of the model, or NULL for the weights themselves. */
static void first_bad_tensor(const sluice_model *model, const float *flat, const char *what, char *out, size_t size) {
    *out = '\0';
    for (int i = 0; i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        const float *x = flat ? flat + sluice__grad_offset(model, i) : t.data;
        int64_t at = sluice__first_nonfinite(x, t.count);
        if (at < 0) continue;
        snprintf(out, size, "%s %s, element %" PRId64 " of %" PRId64 " (%g)", what, t.name, at, t.count,
                 (double)x[at]);
        return;
    }
}

void sluice__guard_weights(const sluice_model *model, char *out, size_t size) {
    first_bad_tensor(model, NULL, "weight", out, size);
}

void sluice__guard_gradients(const sluice_model *model, const float *grads, char *out, size_t size) {
    first_bad_tensor(model, grads, "gradient of", out, size);
}

typedef struct finding {
    char *out;
    size_t size;
} finding;

static const char *const point_names[SLUICE__PROBE_POINTS] = {
    [SLUICE__PROBE_EMBEDDING] = "embedding",
    [SLUICE__PROBE_ATTN_OUT] = "attention output",
    [SLUICE__PROBE_RESID_ATTN] = "residual stream after attention",
    [SLUICE__PROBE_FFN_OUT] = "MLP output",
    [SLUICE__PROBE_RESID_FFN] = "residual stream after the layer",
    [SLUICE__PROBE_SDPA] = "attention output before the gate",
    [SLUICE__PROBE_SDPA_GATED] = "attention output after the gate",
    [SLUICE__PROBE_GATE] = "gate score",
};

/* Ends the pass at the first bad value. */
static sluice_status look(void *user, const sluice__probe_event *e, sluice_error *err) {
    finding *f = user;
    int64_t count = 1;
    for (int i = 0; i < e->ndim; i++) count *= e->shape[i];
    int64_t at = sluice__first_nonfinite(e->data, count);
    if (at < 0) return SLUICE_OK;
    int64_t per_token = count / (e->shape[0] * e->shape[1]), token = at / per_token;
    char layer[32] = "";
    if (e->layer >= 0) snprintf(layer, sizeof layer, "layers.%d ", e->layer);
    snprintf(f->out, f->size, "%s%s, batch row %" PRId64 ", token %" PRId64 " (%g)", layer, point_names[e->point],
             token / e->shape[1], token % e->shape[1], (double)e->data[at]);
    return sluice__fail(err, SLUICE_ERR_NUMERIC, "%s", f->out);
}

sluice_status sluice__guard_activations(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                                        char *out, size_t size, sluice_error *err) {
    finding f = {out, size};
    *out = '\0';
    uint32_t wants = 0;
    for (int p = 0; p < SLUICE__PROBE_POINTS; p++) wants |= point_names[p] ? 1u << p : 0;
    sluice__probe probe = {&f, wants, look};
    sluice__loss loss;
    sluice_error inner = {0};
    sluice_status st = sluice__evaluate(model, ws, in, &probe, NULL, &loss, &inner);
    if (st == SLUICE_ERR_NUMERIC && *out) return SLUICE_OK;
    if (st != SLUICE_OK) return sluice__fail(err, st, "%s", inner.message);
    if (!isfinite(loss.nll_sum)) snprintf(out, size, "logits (the residual stream is finite up to the head)");
    return SLUICE_OK;
}
