/* SPDX-License-Identifier: Apache-2.0 */
/* Readers and rewriters of keys that several families share. */
#include "base/log.h"
#include "base/memory.h"
#include "model/family.h"
#include <string.h>

sluice_status sluice__read_act(const sluice__config_reader *r, sluice_mlp_act *act, sluice_error *err) {
    static const struct {
        const char *name;
        sluice_mlp_act act;
    } names[] = {{"silu", SLUICE_MLP_SILU},
                 {"swish", SLUICE_MLP_SILU},
                 {"gelu", SLUICE_MLP_GELU},
                 {"gelu_pytorch_tanh", SLUICE_MLP_GELU_TANH},
                 {"gelu_new", SLUICE_MLP_GELU_TANH}};
    const char *name = r->family->act ? r->family->act : "silu";
    SLUICE__TRY(sluice__json_string(&r->json, "hidden_act", false, &name, err));
    /* our own MLP without a gate matrix says so in both keys */
    const char *mlp = json_string_value(json_object_get(r->json.value, "mlp_type"));
    bool ours = r->family == &sluice__family_sluice && mlp && !strcmp(mlp, "gelu") && !strcmp(name, "gelu");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].name, name)) continue;
        if (names[i].act != SLUICE_MLP_SILU && !r->family->any_act && !ours) break;
        *act = ours ? SLUICE_MLP_SILU : names[i].act;
        return SLUICE_OK;
    }
    return sluice__json_fail(&r->json, "hidden_act", err, "\"%.40s\" is not supported by this version, only silu%s",
                             name, r->family->any_act ? ", gelu, gelu_new and gelu_pytorch_tanh" : "");
}

sluice_status sluice__read_mlp_bias(sluice__config_reader *r, sluice_error *err) {
    bool bias;
    SLUICE__TRY(sluice__read_flag(r, "mlp_bias", false, &bias, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++) r->config->layers[i].mlp_bias = bias;
    return SLUICE_OK;
}

sluice_status sluice__rename_key(sluice__config_reader *r, const char *from, const char *to, sluice_error *err) {
    json_t *value = json_object_get(r->json.value, from), *there = json_object_get(r->json.value, to);
    if (!value || json_is_null(value)) return SLUICE_OK;
    if (there && !json_is_null(there) && !json_equal(there, value))
        return sluice__json_fail(&r->json, from, err, "another value than that of %s", to);
    if (json_object_set(r->json.value, to, value)) return sluice__no_memory(err, 64, to);
    return SLUICE_OK;
}

void sluice__drop_rope(sluice_layer_spec *layer) {
    sluice__rope_free(&layer->rope);
    layer->rope.enabled = false;
    layer->rope.rotary_dim = 0;
}

sluice_status sluice__layer_list(sluice__json *out, const sluice__config_reader *r, const char *key, bool longer,
                                 sluice_error *err) {
    *out = sluice__json_get(&r->json, key);
    size_t count = json_array_size(out->value), layers = (size_t)r->config->num_hidden_layers;
    if (!out->value) return SLUICE_OK;
    if (json_is_array(out->value) && (count == layers || (longer && count > layers))) return SLUICE_OK;
    return sluice__json_fail(&r->json, key, err, "found %zu entries, expected one for each of %zu layers", count,
                             layers);
}

void sluice__warn_unread(const sluice__config_reader *r, const char *key, const char *what) {
    sluice__log(SLUICE_LOG_WARNING, "%s: %s: not read: %s, as in transformers", r->json.file, key, what);
}
