/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of mixtures of experts that families share. Limits keep every product of sizes far below 2^63 (config.c). */
#include "model/family.h"

enum { MAX_EXPERTS = 1 << 12, MAX_EXPERT_WIDTH = 1 << 20, MAX_ALL_EXPERTS = 1 << 24, MAX_STEP = 1 << 12 };

/* num_experts under any of its names; two that differ are refused. */
static sluice_status read_count(const sluice__config_reader *r, int fallback, int *out, sluice_error *err) {
    static const char *const keys[] = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"};
    const char *first = NULL;
    int64_t value = fallback;
    for (int i = 0; i < 4; i++) {
        int64_t one = value;
        SLUICE__TRY(sluice__json_int(&r->json, keys[i], false, 0, MAX_EXPERTS, &one, err));
        if (!sluice__json_has(&r->json, keys[i])) continue;
        if (first && one != value)
            return sluice__json_fail(&r->json, keys[i], err, "found %lld, but %s is %lld", (long long)one, first,
                                     (long long)value);
        first = keys[i];
        value = one;
    }
    *out = (int)value;
    return SLUICE_OK;
}

static sluice_status read_int(const sluice__config_reader *r, const char *key, int fallback, int min, int max,
                              int *out, sluice_error *err) {
    int64_t value = fallback;
    SLUICE__TRY(sluice__json_int(&r->json, key, false, min, max, &value, err));
    *out = (int)value;
    return SLUICE_OK;
}

sluice_status sluice__read_experts(const sluice__config_reader *r, const sluice_moe_spec *defaults,
                                   sluice_moe_spec *m, sluice_error *err) {
    *m = *defaults;
    SLUICE__TRY(read_count(r, defaults->num_experts, &m->num_experts, err));
    SLUICE__TRY(read_int(r, "num_experts_per_tok", defaults->num_experts_per_tok, 1, MAX_EXPERTS,
                         &m->num_experts_per_tok, err));
    SLUICE__TRY(read_int(r, "moe_intermediate_size", defaults->intermediate_size, 1, MAX_EXPERT_WIDTH,
                         &m->intermediate_size, err));
    if (defaults->shared_intermediate_size)
        SLUICE__TRY(read_int(r, "shared_expert_intermediate_size", defaults->shared_intermediate_size, 1,
                             MAX_EXPERT_WIDTH, &m->shared_intermediate_size, err));
    SLUICE__TRY(sluice__read_flag(r, "norm_topk_prob", defaults->norm_topk_prob, &m->norm_topk_prob, err));
    if (!m->num_experts) return *m = (sluice_moe_spec){0}, SLUICE_OK;
    if (m->num_experts_per_tok > m->num_experts)
        return sluice__json_fail(&r->json, "num_experts_per_tok", err, "found %d, but there are %d experts",
                                 m->num_experts_per_tok, m->num_experts);
    if ((int64_t)m->num_experts * m->intermediate_size > MAX_ALL_EXPERTS)
        return sluice__json_fail(&r->json, "moe_intermediate_size", err, "found %d, too wide for %d experts",
                                 m->intermediate_size, m->num_experts);
    return SLUICE_OK;
}

static sluice_status mark_dense(const sluice__config_reader *r, sluice_error *err) {
    sluice__json list = sluice__json_get(&r->json, "mlp_only_layers");
    if (!list.value) return SLUICE_OK;
    if (!json_is_array(list.value)) return sluice__json_fail(&list, NULL, err, "expected a list of layers");
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        json_t *entry = json_array_get(list.value, i);
        if (!json_is_integer(entry)) return sluice__json_fail(&list, NULL, err, "entry %zu is not an integer", i);
        json_int_t layer = json_integer_value(entry);
        if (layer >= 0 && layer < r->config->num_hidden_layers) r->config->layers[layer].moe = (sluice_moe_spec){0};
    }
    return SLUICE_OK;
}

sluice_status sluice__set_sparse_layers(sluice__config_reader *r, const sluice_moe_spec *moe, sluice_error *err) {
    int step;
    SLUICE__TRY(read_int(r, "decoder_sparse_step", 1, 1, MAX_STEP, &step, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++)
        if ((i + 1) % step == 0) r->config->layers[i].moe = *moe;
    return mark_dense(r, err);
}
