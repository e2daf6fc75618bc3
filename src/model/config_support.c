/* SPDX-License-Identifier: Apache-2.0 */
/* What a configuration may describe and src/layers does not compute yet. A model that needs such a part is refused before
 * its weights are read; the day the layers learn it, its line here goes. */
#include "model/config.h"

static sluice_status refuse(sluice_error *err, int layer, const char *key, const char *what) {
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "layer %d: %s: %s is not supported by this version", layer, key, what);
}

sluice_status sluice__config_check_supported(const sluice_config *c, sluice_error *err) {
    static const char *const positions[] = {"none", "sdpa", "value", "key", "query", "output"};
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_layer_spec *l = &c->layers[i];
        const sluice_gate_spec *g = &l->gate;
        if (g->position != SLUICE_GATE_NONE && g->position != SLUICE_GATE_SDPA)
            return refuse(err, i, "gate_position", positions[g->position]);
        if (g->shared) return refuse(err, i, "gate_sharing", "shared");
        if (g->input_none) return refuse(err, i, "gate_input", "none");
        if (l->sdpa_norm) return refuse(err, i, "sdpa_norm", "a norm on the attention output");
        if (l->sdpa_silu) return refuse(err, i, "sdpa_silu", "SiLU on the attention output");
    }
    return SLUICE_OK;
}
