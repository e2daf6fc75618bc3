/* SPDX-License-Identifier: Apache-2.0 */
/* See gguf_neutral.h. The layer is written as small as it may be: one head of 16. Its MLP has the width of the others, since
 * the architectures know only one. */
#include "model/gguf_neutral.h"
#include "base/memory.h"
#include "model/dtype.h"
#include "model/gguf_metadata.h"
#include "model/gguf_model.h"
#include <stdio.h>
#include <string.h>

bool sluice__gguf_needs_neutral(const char *arch, const sluice_config *config) {
    for (int i = 0; i < config->num_hidden_layers; i++)
        if (sluice_layer_is_linear(&config->layers[i])) return false;
    return !strncmp(arch, "qwen35", 6) || !strcmp(arch, "qwen3next");
}

sluice_status sluice__gguf_add_neutral(sluice_config *out, const sluice_config *config, sluice_error *err) {
    int n = config->num_hidden_layers;
    *out = *config;
    out->layers = sluice__calloc((size_t)n + 1, sizeof *out->layers, SLUICE__MEM_OTHER);
    if (!out->layers) return sluice__no_memory(err, ((size_t)n + 1) * sizeof *out->layers, "the neutral layer");
    memcpy(out->layers, config->layers, (size_t)n * sizeof *out->layers);
    out->layers[n] = config->layers[0];
    out->layers[n].delta = (sluice_delta_spec){
        .num_value_heads = 1, .num_key_heads = 1, .key_head_dim = 16, .value_head_dim = 16, .conv_kernel = 4};
    out->num_hidden_layers = n + 1;
    return SLUICE_OK;
}

/* ---- writing ---- */

/* Tensors of several slots: the first one stands for all. How many rows the whole has for one of the slot's; 0 = it is not the
 * first. */
static int64_t joined_rows(const sluice_config *c, int layer, sluice__slot slot, int64_t rows, bool grouped) {
    int64_t key[2], value[2];
    switch (slot) {
    case SLUICE__SLOT_DELTA_Q:
        sluice__slot_shape(c, layer, SLUICE__SLOT_DELTA_K, key);
        sluice__slot_shape(c, layer, SLUICE__SLOT_DELTA_V, value);
        return rows + key[0] + value[0];
    case SLUICE__SLOT_DELTA_CONV_Q:
        sluice__slot_shape(c, layer, SLUICE__SLOT_DELTA_CONV_K, key);
        sluice__slot_shape(c, layer, SLUICE__SLOT_DELTA_CONV_V, value);
        return rows + key[0] + value[0];
    case SLUICE__SLOT_DELTA_K:
    case SLUICE__SLOT_DELTA_V:
    case SLUICE__SLOT_DELTA_CONV_K:
    case SLUICE__SLOT_DELTA_CONV_V: return 0;
    case SLUICE__SLOT_DELTA_B: return grouped ? 2 * rows : rows;
    case SLUICE__SLOT_DELTA_A: return grouped ? 0 : rows;
    default: return rows;
    }
}

bool sluice__gguf_neutral_tensor(sluice__neutral_tensor *out, const sluice_config *config, const char *arch, sluice__slot slot) {
    bool grouped = !strcmp(arch, "qwen3next");
    int layer = config->num_hidden_layers - 1;
    const char *name = grouped && slot == SLUICE__SLOT_DELTA_B ? "ssm_ba.weight" : sluice__gguf_slot_name(slot, arch);
    *out = (sluice__neutral_tensor){.slot = slot};
    if (!name || !sluice__slot_in_layer(slot)) return false;
    out->ndim = sluice__slot_shape(config, layer, slot, out->shape);
    if (!out->ndim) return false;
    out->shape[0] = joined_rows(config, layer, slot, out->shape[0], grouped);
    if (!out->shape[0]) return false;
    if (slot == SLUICE__SLOT_EXPERT_GATE || slot == SLUICE__SLOT_EXPERT_UP || slot == SLUICE__SLOT_EXPERT_DOWN) {
        out->shape[2] = out->shape[1];
        out->shape[1] = out->shape[0];
        out->shape[0] = sluice__slot_copies(config, layer, slot);
        out->ndim = 3;
    }
    if (sluice__slot_kind_of(slot) == SLUICE__KIND_NORM) out->fill = 1;
    if (slot == SLUICE__SLOT_DELTA_A_LOG) out->fill = -1; /* files hold -exp(A_log) */
    snprintf(out->name, sizeof out->name, "blk.%d.%s", layer, name);
    return true;
}

/* ---- reading ---- */

static bool all_zero(const sluice__gguf_tensor *t) {
    int64_t row = t->shape[t->ndim - 1];
    float *values = sluice__calloc((size_t)row, sizeof *values, SLUICE__MEM_OTHER);
    bool zero = values && sluice__dtype_is_weight(t->dtype);
    for (int64_t at = 0; zero && at < t->count; at += row) {
        sluice__to_f32(values, t->dtype, t->data + sluice__dtype_bytes(t->dtype, at), 1, row);
        for (int64_t i = 0; i < row; i++) zero &= values[i] == 0;
    }
    sluice__free(values);
    return zero;
}

/* What attention and MLP add to the residual stream goes through these; one of each has to be there. */
static sluice_status check_neutral(const sluice__gguf *g, int block, sluice_error *err) {
    static const struct {
        const char *name;
        int part;
    } outputs[] = {{"ssm_out.weight", 0},       {"attn_output.weight", 0},    {"ffn_down.weight", 1},
                   {"ffn_down_exps.weight", 1}, {"ffn_down_shexp.weight", 1}, {"attn_output.bias", 2}};
    int found[3] = {0};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", block, outputs[i].name);
        const sluice__gguf_tensor *t = sluice__gguf_find_tensor(g, name);
        if (!t) continue;
        found[outputs[i].part]++;
        if (!all_zero(t))
            return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: " SLUICE__GGUF_NEUTRAL_KEY " names block %d, but %s is not zero",
                                sluice__gguf_path(g), block, name);
    }
    if (found[0] && found[1]) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: " SLUICE__GGUF_NEUTRAL_KEY " names block %d, which lacks an output projection",
                        sluice__gguf_path(g), block);
}

sluice_status sluice__gguf_find_neutral(int *block, const sluice__gguf *g, sluice_error *err) {
    const sluice__gguf_value *v = sluice__gguf_find(g, SLUICE__GGUF_NEUTRAL_KEY);
    sluice__gguf_text arch = {0};
    char key[64];
    int64_t named, blocks = 0;
    *block = -1;
    if (!v) return SLUICE_OK;
    sluice__gguf_string(sluice__gguf_find(g, "general.architecture"), &arch);
    snprintf(key, sizeof key, "%.*s.block_count", (int)(arch.size < 40 ? arch.size : 40), arch.data ? arch.data : "");
    sluice__gguf_integer(sluice__gguf_find(g, key), &blocks);
    if (!sluice__gguf_integer(v, &named) || blocks < 2 || blocks > INT32_MAX || named != blocks - 1)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: " SLUICE__GGUF_NEUTRAL_KEY ": expected the last of at least two blocks",
                            sluice__gguf_path(g));
    SLUICE__TRY(check_neutral(g, (int)named, err));
    *block = (int)named;
    return SLUICE_OK;
}

bool sluice__gguf_is_neutral(const char *tensor, int block) {
    char prefix[32];
    int n = snprintf(prefix, sizeof prefix, "blk.%d.", block);
    return block >= 0 && !strncmp(tensor, prefix, (size_t)n);
}

static bool ends_with(const char *text, const char *tail) {
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && !strcmp(text + n - m, tail);
}

bool sluice__gguf_is_typed(const char *tensor, int ndim, int neutral_block) {
    static const char *const exact[] = {"_norm.weight",      "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "ssm_conv1d.weight",
                                        "ssm_beta.weight",   "ssm_alpha.weight",    "ssm_ba.weight"};
    if (ndim < 2 || !ends_with(tensor, ".weight")) return false;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (ends_with(tensor, exact[i])) return false;
    return !sluice__gguf_is_neutral(tensor, neutral_block) || strstr(tensor, ".ffn_");
}
