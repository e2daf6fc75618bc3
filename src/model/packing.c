/* SPDX-License-Identifier: Apache-2.0 */
/* Gate rows inside q_proj lie behind the query rows of their block: of their head (Qwen) or of their KV group
 * (the paper). For grouped-query attention both have the same shape and different meaning, so the family
 * decides, never the shape. */
#include "model/packing.h"

int64_t sluice__packed_gate_rows(const sluice_config *config, const sluice__file_layout *layout, int layer) {
    sluice__layer_sizes s = sluice__layer_sizes_of(config, layer);
    if (layout->gate_packing == SLUICE_GATE_OWN_TENSOR) return 0;
    return layout->gate_repeated ? s.q_rows : s.gate_rows;
}

sluice__packed_row sluice__packed_row_of(const sluice_config *config, const sluice__file_layout *layout,
                                         int layer, int64_t r) {
    const sluice_layer_spec *l = &config->layers[layer];
    bool per_group = layout->gate_packing == SLUICE_GATE_Q_PER_GROUP;
    int64_t blocks = per_group ? l->num_key_value_heads : l->num_attention_heads;
    int64_t queries = (int64_t)l->num_attention_heads * l->head_dim / blocks;
    int64_t gates = sluice__packed_gate_rows(config, layout, layer) / blocks;
    int64_t block = r / (queries + gates), within = r % (queries + gates);
    if (within < queries) return (sluice__packed_row){.row = block * queries + within};
    sluice__packed_row p = {.gate = true, .row = block * gates + within - queries};
    if (layout->gate_repeated) {
        p.repeat = p.row % l->head_dim != 0;
        p.row /= l->head_dim;
    }
    return p;
}
