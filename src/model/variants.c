/* SPDX-License-Identifier: Apache-2.0 */
/* The table of variants. Changes of sizes are relative (twice the key/value heads, half as many query heads again, 4 more
 * experts), which gives the paper's numbers for its own baseline and something sensible for others. */
#include "sluice/variants.h"
#include "base/error.h"
#include "model/config.h"
#include <math.h>

typedef enum change {
    NOTHING,
    MORE_KV,
    MORE_Q,
    MORE_EXPERTS,
    GATE,
    SDPA_NORM,
    SDPA_SILU,
    SWITCH
} change;

typedef struct row {
    sluice_variant public;
    change change;
    sluice_gate_spec gate;
    sluice_switch_spec switched;
} row;

static const char active_note[] =
    "the paper calls 2.54 G active; its Table 7 gives 1.99 G with both embeddings and 1.37 G without";
static const char experts_note[] =
    "the paper prints 400; 4 SwiGLU experts of width 768 in 24 layers, which Table 7 gives, are 453";
static const char maps_note[] =
    "maps of full head size are counted; the paper's numbers fit N maps of 64 components in all (N x 24 x 2048 x 64)";
static const char one_map_note[] = "Table 6 prints 3, Table 1 prints 0.2 for the same model; the latter is counted";

#define G(where, ...) .change = GATE, .gate = {.position = SLUICE_GATE_##where, __VA_ARGS__}
#define ELEMENT .granularity = SLUICE_GATE_ELEMENTWISE
#define HEAD .granularity = SLUICE_GATE_HEADWISE
#define SWITCHED(which, n, k) .change = SWITCH, .switched = {SLUICE_SWITCH_##which, n, k}

static const row rows[] = {
    {{"baseline", "baseline", "Table 1, row 1", 0, active_note}, .change = NOTHING},
    {{"more-kv", "twice the key/value heads", "Table 1, row 2", 50, NULL}, .change = MORE_KV},
    {{"more-q", "half as many query heads again", "Table 1, row 3", 201, NULL}, .change = MORE_Q},
    {{"more-experts", "4 more experts, all active", "Table 1, row 4", 400, experts_note}, .change = MORE_EXPERTS},
    {{"g1-elementwise", "G1 elementwise", "Table 1, row 5", 201, NULL}, G(SDPA, ELEMENT)},
    {{"g2-elementwise", "G2 elementwise", "Table 1, row 6", 25, NULL}, G(VALUE, ELEMENT)},
    {{"g3-elementwise", "G3 elementwise", "Table 1, row 7", 25, NULL}, G(KEY, ELEMENT)},
    {{"g4-elementwise", "G4 elementwise", "Table 1, row 8", 201, NULL}, G(QUERY, ELEMENT)},
    {{"g5-elementwise", "G5 elementwise", "Table 1, row 9", 100, NULL}, G(OUTPUT, ELEMENT)},
    {{"g1-headwise", "G1 headwise", "Table 1, row 10", 1.6, NULL}, G(SDPA, HEAD)},
    {{"g2-headwise", "G2 headwise", "Table 1, row 11", 0.2, NULL}, G(VALUE, HEAD)},
    {{"g1-shared", "G1 elementwise, shared by heads", "Table 1, row 12", 201, NULL}, G(SDPA, ELEMENT, .shared = true)},
    {{"g2-shared", "G2 elementwise, shared by heads", "Table 1, row 13", 25, NULL}, G(VALUE, ELEMENT, .shared = true)},
    {{"g1-add-silu", "G1 added, SiLU", "Table 1, row 14", 201, NULL},
     G(SDPA, ELEMENT, .op = SLUICE_GATE_ADD, .act = SLUICE_GATE_SILU)},
    {{"g1-silu", "G1 multiplied, SiLU", "Table 1, row 15", 201, NULL}, G(SDPA, ELEMENT, .act = SLUICE_GATE_SILU)},
    {{"sdpa-norm", "RMSNorm of every head's output", "Table 3, row 5", NAN, NULL}, .change = SDPA_NORM},
    {{"sdpa-silu", "SiLU of every head's output", "Table 3, row 6", NAN, NULL}, .change = SDPA_SILU},
    {{"g1-add-identity", "G1 added, identity", "Table 3, row 7", NAN, NULL},
     G(SDPA, ELEMENT, .op = SLUICE_GATE_ADD, .act = SLUICE_GATE_IDENTITY)},
    {{"g1-input-independent", "G1 independent of the input", "Table 4, row 6", NAN, NULL},
     G(SDPA, ELEMENT, .input_none = true)},
    {{"g1-ns-sigmoid", "G1 NS-sigmoid", "Table 4, row 7", NAN, NULL}, G(SDPA, ELEMENT, .act = SLUICE_GATE_NS_SIGMOID)},
    {{"switch-kv-8top8", "switch heads: keys and values, 8 top 8", "Table 6", 38, maps_note}, SWITCHED(KV, 8, 8)},
    {{"switch-kv-4top4", "switch heads: keys and values, 4 top 4", "Table 6", 13, maps_note}, SWITCHED(KV, 4, 4)},
    {{"switch-v-4top4", "switch heads: values, 4 top 4", "Table 6", 13, maps_note}, SWITCHED(V, 4, 4)},
    {{"switch-v-8top2", "switch heads: values, 8 top 2", "Table 6", 25, maps_note}, SWITCHED(V, 8, 2)},
    {{"switch-v-1top1", "switch heads: values, 1 top 1", "Table 6", 3, one_map_note}, SWITCHED(V, 1, 1)},
};
enum { ROWS = sizeof rows / sizeof *rows, ADDED_EXPERTS = 4 };

int sluice_num_variants(void) { return ROWS; }

sluice_variant sluice_variant_at(int index) { return rows[index].public; }

static sluice_status no_meaning(sluice_error *err, const char *why) {
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s", why);
}

static void plain(sluice_layer_spec *l) {
    l->gate = (sluice_gate_spec){0};
    l->sdpa_norm = l->sdpa_silu = false;
    l->switch_head = (sluice_switch_spec){SLUICE_SWITCH_NONE, 1, 1};
}

static sluice_status apply(sluice_layer_spec *l, const row *r, sluice_error *err) {
    plain(l);
    switch (r->change) {
    case NOTHING:
        return SLUICE_OK;
    case MORE_KV:
        if (l->num_attention_heads % (2 * l->num_key_value_heads))
            return no_meaning(err, "every query head has a key/value head already, or they do not double evenly");
        l->num_key_value_heads *= 2;
        return SLUICE_OK;
    case MORE_Q:
        if (l->num_attention_heads % (2 * l->num_key_value_heads))
            return no_meaning(err, "half of the query heads is no multiple of the key/value heads");
        l->num_attention_heads += l->num_attention_heads / 2;
        return SLUICE_OK;
    case MORE_EXPERTS:
        if (!l->moe.num_experts) return no_meaning(err, "a dense model has no experts");
        l->moe.num_experts += ADDED_EXPERTS;
        l->moe.num_experts_per_tok += ADDED_EXPERTS;
        return SLUICE_OK;
    case GATE:
        l->gate = r->gate;
        return SLUICE_OK;
    case SDPA_NORM:
        l->sdpa_norm = true;
        return SLUICE_OK;
    case SDPA_SILU:
        l->sdpa_silu = true;
        return SLUICE_OK;
    case SWITCH:
        if (l->qkv_bias) return no_meaning(err, "the maps of switch heads have no bias, this model has");
        l->switch_head = r->switched;
        return SLUICE_OK;
    }
    return SLUICE_OK;
}

sluice_status sluice_variant_config(sluice_config *out, const sluice_config *base, int index, sluice_error *err) {
    *out = (sluice_config){0};
    if (index < 0 || index >= ROWS)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "variant %d: expected 0..%d", index, ROWS - 1);
    SLUICE__TRY(sluice__config_copy(out, base, err));
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < out->num_hidden_layers && st == SLUICE_OK; i++) st = apply(&out->layers[i], &rows[index], err);
    if (st != SLUICE_OK) sluice_config_free(out);
    return st;
}

static void set_width(sluice_config *c, int width) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (c->layers[i].moe.num_experts) c->layers[i].moe.intermediate_size = width;
        else c->layers[i].intermediate_size = width;
}

int sluice_config_equal_width(const sluice_config *config, int64_t parameters, sluice_error *err) {
    sluice_config c;
    if (sluice__config_copy(&c, config, err) != SLUICE_OK) return 0;
    set_width(&c, 1);
    int64_t one = sluice_config_num_parameters(&c);
    set_width(&c, 2);
    int64_t slope = sluice_config_num_parameters(&c) - one;
    sluice_config_free(&c);
    double width = slope > 0 ? 1 + round((double)(parameters - one) / (double)slope) : 0;
    return width >= 1 && width <= 1 << 20 ? (int)width : 0;
}

bool sluice_config_is_15a2b(const sluice_config *c) {
    const sluice_layer_spec *l = &c->layers[0];
    return c->num_hidden_layers == 24 && c->hidden_size == 2048 && l->num_attention_heads == 32 &&
           l->num_key_value_heads == 4 && l->head_dim == 128 && l->moe.num_experts == 128 &&
           l->moe.num_experts_per_tok == 8 && l->moe.intermediate_size == 768 && !l->moe.num_shared_experts;
}
