/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a configuration that keep the weights. They are made on the parsed configuration, not on its JSON, so that
 * everything else about a family stays as its file says. */
#include "train/adapt.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "layers/transformer.h"
#include "model/config.h"
#include "model/save.h"
#include "train/options.h"
#include <math.h>
#include <string.h>

/* ---- configuration ---- */

static const char gate_prefix[] = "gate_";

/* The gate that the options describe, by the reader of our own configurations. */
static sluice_status read_gate(sluice_gate_spec *out, const json_t *options, sluice_error *err) {
    json_t *only = json_pack("{s:s}", "model_type", "sluice"), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)options, key, value) {
        if (!strncmp(key, gate_prefix, strlen(gate_prefix))) json_object_set(only, key, value);
    }
    char *text = NULL;
    sluice_config parsed;
    sluice_status st = only ? sluice__model_options_text(&text, only, err) : sluice__no_memory(err, 64, "a gate");
    json_decref(only);
    if (st == SLUICE_OK) st = sluice_config_parse(&parsed, text, "model options", err);
    sluice_train_free_text(text);
    if (st != SLUICE_OK) return st;
    *out = parsed.layers[0].gate;
    sluice_config_free(&parsed);
    return SLUICE_OK;
}

static bool any_gate(const sluice_config *c) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (c->layers[i].gate.position != SLUICE_GATE_NONE) return true;
    return false;
}

/* Where the model has a gate already, options about gates can only repeat it: that is judged with all others. */
static sluice_status add_gate(sluice_config *c, const json_t *options, sluice_error *err) {
    sluice_gate_spec gate;
    if (any_gate(c) || !json_object_get(options, "gate_position")) return SLUICE_OK;
    SLUICE__TRY(read_gate(&gate, options, err));
    for (int i = 0; i < c->num_hidden_layers; i++) c->layers[i].gate = gate;
    return SLUICE_OK;
}

static void change_rope(sluice_config *c, const json_t *options) {
    json_t *theta = json_object_get(options, "rope_theta");
    for (int i = 0; json_is_number(theta) && i < c->num_hidden_layers; i++)
        if (c->layers[i].rope.enabled) c->layers[i].rope.theta = json_number_value(theta);
}

static bool scaled_rope(const sluice_config *c) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (c->layers[i].rope.enabled && c->layers[i].rope.type != SLUICE_ROPE_DEFAULT) return true;
    return false;
}

static void change_positions(sluice_config *c, const json_t *options, int64_t positions) {
    json_t *asked = json_object_get(options, "max_position_embeddings");
    if (json_is_integer(asked) && json_integer_value(asked) > 0 && json_integer_value(asked) <= INT32_MAX) {
        c->max_position_embeddings = (int)json_integer_value(asked);
    } else if (positions > c->max_position_embeddings && positions <= INT32_MAX && !scaled_rope(c)) {
        sluice__log(SLUICE_LOG_INFO, "max_position_embeddings: %d becomes %lld, the length of a window",
                    c->max_position_embeddings, (long long)positions);
        c->max_position_embeddings = (int)positions;
    }
}

static void change_router_losses(sluice_config *c, const json_t *options) {
    json_t *aux = json_object_get(options, "router_aux_loss_coef"), *z = json_object_get(options, "router_z_loss_coef");
    if (json_is_number(aux)) c->router_aux_loss_coef = json_number_value(aux);
    if (json_is_number(z)) c->router_z_loss_coef = json_number_value(z);
}

static sluice_status change(sluice_config *c, const char *options, int64_t positions, sluice_error *err) {
    json_t *asked;
    SLUICE__TRY(sluice__model_options_object(&asked, options, err));
    sluice_status st = add_gate(c, asked, err);
    if (st == SLUICE_OK) {
        change_rope(c, asked);
        change_positions(c, asked, positions);
        change_router_losses(c, asked);
    }
    json_decref(asked);
    if (st == SLUICE_OK) st = sluice__config_check(c, err);
    return st == SLUICE_OK ? sluice__model_options_followed(c, options, err) : st;
}

sluice_status sluice__config_adapt(sluice_config *out, const sluice_config *config, const char *options,
                                   int64_t positions, sluice_error *err) {
    SLUICE__TRY(sluice__config_copy(out, config, err));
    sluice_status st = change(out, options, positions, err);
    if (st != SLUICE_OK) sluice_config_free(out);
    return st;
}

sluice_status sluice__config_trainable(const sluice_config *c, sluice_error *err) {
    sluice_error why = {0};
    sluice_status st = sluice__check_trainable(c, &why);
    if (st == SLUICE_OK) st = sluice__config_check_writable(c, &why); /* a checkpoint has to hold it */
    if (st == SLUICE_OK) return st;
    return sluice__fail(err, st, "a model of the family %s (model_type %s) cannot be trained: %s", c->family,
                        c->model_type, why.message);
}

/* ---- weights ---- */

/* The activation at 0. */
static double at_zero(sluice_gate_act act) {
    switch (act) {
    case SLUICE_GATE_SIGMOID: return 0.5;
    case SLUICE_GATE_NS_SIGMOID: return 0.75;
    case SLUICE_GATE_SOFTPLUS: return log(2);
    default: return 0;
    }
}

/* What the matrix behind an open gate is multiplied by; refuses gates that have no such start. */
static sluice_status open_scale(double *scale, const sluice_layer_spec *l, sluice_error *err) {
    const sluice_gate_spec *g = &l->gate;
    double start = at_zero(g->act);
    *scale = 1;
    if (g->op == SLUICE_GATE_ADD) {
        if (start == 0) return SLUICE_OK;
        return sluice__fail(err, SLUICE_ERR_CONFIG,
                            "gate_start open: an added score is %g at the start, not 0, with this gate_act", start);
    }
    if (start == 0)
        return sluice__fail(err, SLUICE_ERR_CONFIG,
                            "gate_start open: with this gate_act a gate of zero weights is closed (score 0)");
    if (g->position == SLUICE_GATE_QUERY || g->position == SLUICE_GATE_KEY)
        return sluice__fail(err, SLUICE_ERR_CONFIG,
                            "gate_start open: nothing behind a gate on queries or keys can make up for its start");
    if (g->position == SLUICE_GATE_VALUE && l->sdpa_silu)
        return sluice__fail(err, SLUICE_ERR_CONFIG,
                            "gate_start open: sdpa_silu stands between a gate on values and the next matrix");
    if (g->position == SLUICE_GATE_VALUE && l->sdpa_norm) return SLUICE_OK; /* the norm makes up for it */
    *scale = 1 / start;
    return SLUICE_OK;
}

static void scale_tensor(sluice_model *m, int layer, const char *name, double scale) {
    char full[128];
    snprintf(full, sizeof full, "model.layers.%d.self_attn.%s", layer, name);
    int at = sluice_model_find_tensor(m, full);
    if (at < 0) return;
    sluice_tensor_info t = sluice_model_tensor(m, at);
    sluice__scale(t.data, (float)scale, t.count);
}

static sluice_status open_gates(sluice_model *m, sluice_error *err) {
    const sluice_config *c = sluice_model_config(m);
    for (int i = 0; i < c->num_hidden_layers; i++) {
        double scale;
        SLUICE__TRY(open_scale(&scale, &c->layers[i], err));
        scale_tensor(m, i, "o_proj.weight", scale);
        if (c->layers[i].gate.position == SLUICE_GATE_OUTPUT) scale_tensor(m, i, "o_proj.bias", scale);
    }
    return SLUICE_OK;
}

/* Copies what both have; with `zero` the rest is set to 0. Returns the number of tensors that are new. */
static int copy_weights(sluice_model *to, const sluice_model *from, bool zero) {
    int fresh = 0;
    for (int i = 0; i < sluice_model_num_tensors(to); i++) {
        sluice_tensor_info t = sluice_model_tensor(to, i);
        int at = sluice_model_find_tensor(from, t.name);
        if (at >= 0 && sluice_model_tensor(from, at).count == t.count) {
            memcpy(t.data, sluice_model_tensor(from, at).data, (size_t)t.count * sizeof *t.data);
            continue;
        }
        fresh++;
        if (zero) memset(t.data, 0, (size_t)t.count * sizeof *t.data);
    }
    return fresh;
}

sluice_status sluice__model_adapt(sluice_model **out, sluice_model *from, const sluice_config *config, uint64_t seed,
                                  int gate_start, sluice_error *err) {
    bool open = gate_start == SLUICE_GATE_START_OPEN;
    sluice_status st = sluice_model_new(out, config, seed, err);
    int fresh = st == SLUICE_OK ? copy_weights(*out, from, open) : 0;
    sluice_model_free(from);
    if (st == SLUICE_OK && open && !fresh)
        st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "gate_start open: no gate is added, the model to go on from has the same ones");
    if (fresh)
        sluice__log(SLUICE_LOG_INFO, "gates: %d new tensors (%lld parameters), %s", fresh,
                    (long long)sluice_config_num_gate_parameters(config),
                    open ? "open: the model computes what it did without them" : "with fresh random weights");
    if (st == SLUICE_OK && open && fresh) st = open_gates(*out, err);
    if (st == SLUICE_OK) return st;
    sluice_model_free(*out);
    *out = NULL;
    return st;
}
