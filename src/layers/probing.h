/* SPDX-License-Identifier: Apache-2.0 */
/* How layers talk to a probe. */
#ifndef SLUICE_LAYERS_PROBING_H
#define SLUICE_LAYERS_PROBING_H
#include "layers/gate.h"
#include "layers/workspace.h"

/* Which scratch buffer a probe uses for what: attention output before the gate; first-token shares; anything brief;
 * log-sum-exps of attention whose first keys are added later; shares of learned sinks. */
enum {
    SLUICE__PROBE_UNGATED,
    SLUICE__PROBE_SHARES,
    SLUICE__PROBE_MISC,
    SLUICE__PROBE_LSE,
    SLUICE__PROBE_SINKS
};

static inline bool sluice__probe_wants(const sluice__pass *pass, sluice__probe_point point) {
    return pass->probe && (pass->probe->wants >> point & 1);
}

/* d3 0 = three dimensions. The caller has checked that the point is wanted. */
sluice_status sluice__probe_emit(const sluice__pass *pass, sluice__probe_point point, int layer, const float *data,
                                 int64_t d0, int64_t d1, int64_t d2, int64_t d3);
/* [B,T,D], if wanted. */
sluice_status sluice__probe_stream(const sluice__pass *pass, sluice__probe_point point, int layer, const float *data);
/* [B,T,heads] L2 norms of the vectors of x, if wanted. */
sluice_status sluice__probe_norms(const sluice__pass *pass, sluice__probe_point point, int layer, sluice_strided x,
                                  int heads, int head_dim);
/* [B,T,n,w] gate scores (n 1 when shared), if wanted. */
sluice_status sluice__probe_gate(const sluice__pass *pass, int layer, const sluice__gating *g, const float *logits,
                                 int64_t stride);
/* What the MLP or the experts of a layer have just left in its state: FFN_ACT, or ROUTER and EXPERTS, if wanted. */
sluice_status sluice__probe_ffn(const sluice__pass *pass, int layer, const sluice__layer_state *s);
/* Decay and write strength of linear attention, if wanted. */
sluice_status sluice__probe_delta(const sluice__pass *pass, int layer, const sluice__delta_state *s);
/* The attention map in blocks of queries, if wanted. keep: the first keys that stay visible behind a window. */
sluice_status sluice__probe_rows(const sluice__pass *pass, int layer, const sluice_attention_params *p, int keep,
                                 sluice_strided q, sluice_strided k);
#endif
