/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice info` knows, as JSON. */
#include "cli/info.h"
#include "base/memory.h"
#include "sluice/cpu.h"
#include <math.h>
#include <string.h>

static void set(json_t *o, const char *key, json_t *value) {
    json_object_set_new(o, key, value);
}

static void set_int(json_t *o, const char *key, long long value) {
    set(o, key, json_integer(value));
}

json_t *info_machine(void) {
    json_t *o = json_object(), *kernels = json_object();
    char cpu[256];
    sluice_cpu_describe(cpu, sizeof cpu);
    set(o, "version", json_string(SLUICE_VERSION));
    set(o, "cpu", json_string(cpu));
    set_int(o, "threads", sluice_get_num_threads());
    set_int(o, "memory_bytes", sluice__mem_physical());
    set_int(o, "memory_available_bytes", sluice__mem_available());
    for (int i = 0; i < sluice_cpu_num_kernels(); i++) {
        sluice_kernel_choice c = sluice_cpu_kernel(i);
        set(kernels, c.kernel, json_string(c.version));
    }
    set(o, "kernels", kernels);
    return o;
}

/* ---- configuration ---- */

static json_t *gate_report(const sluice_config *c, const sluice_gate_spec *g) {
    static const char *const positions[] = {"none", "sdpa", "value", "key", "query", "output"};
    static const char *const acts[] = {"sigmoid", "silu", "identity", "ns_sigmoid", "softplus"};
    static const char *const packings[] = {"own tensor", "q_proj, per head", "q_proj, per KV group"};
    json_t *o = json_object();
    set(o, "position", json_string(positions[g->position]));
    if (g->position == SLUICE_GATE_NONE) return o;
    set(o, "granularity", json_string(g->granularity == SLUICE_GATE_HEADWISE ? "headwise" : "elementwise"));
    set(o, "act", json_string(acts[g->act]));
    set(o, "op", json_string(g->op == SLUICE_GATE_ADD ? "add" : "multiply"));
    set(o, "sharing",
        json_string(!g->shared            ? "specific"
                    : g->share_mean_logit ? "shared, mean of logits"
                                          : "shared, mean of scores"));
    set(o, "input", json_string(g->input_none ? "none" : "hidden"));
    set(o, "stored_in", json_string(g->input_none ? "a learned tensor" : packings[c->gate_packing]));
    return o;
}

static json_t *rope_report(const sluice_rope_spec *r) {
    static const char *const types[] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};
    if (!r->enabled) return json_null();
    json_t *o = json_object();
    set(o, "type", json_string(types[r->type]));
    set(o, "theta", json_real(r->theta));
    set_int(o, "rotary_dim", r->rotary_dim);
    if (r->type == SLUICE_ROPE_DEFAULT) return o;
    set(o, "factor", json_real(r->factor));
    set_int(o, "original_max_position_embeddings", r->original_max_position_embeddings);
    return o;
}

static void add_text(json_t *list, const char *text) { json_array_append_new(list, json_string(text)); }
static void add_number(json_t *list, const char *name, double value) {
    json_array_append_new(list, json_sprintf("%s %g", name, value));
}

static const char *const mlp_acts[] = {"swiglu", "geglu", "geglu (tanh)", "gpt-oss"};

/* How the router of a layer scores and chooses. */
static json_t *router_report(const sluice_moe_spec *m) {
    char text[256];
    int n = snprintf(text, sizeof text, "%s", m->score == SLUICE_ROUTER_SIGMOID ? "sigmoid" : "softmax");
    if (m->router_bias) n += snprintf(text + n, sizeof text - (size_t)n, ", bias");
    if (m->logit_softcap > 0)
        n += snprintf(text + n, sizeof text - (size_t)n, ", logits soft-capped at %g", (double)m->logit_softcap);
    if (m->selection_bias) n += snprintf(text + n, sizeof text - (size_t)n, ", chosen with a correction bias");
    if (m->norm_topk_prob) n += snprintf(text + n, sizeof text - (size_t)n, ", renormalised");
    if (m->route_scale != 0 && m->route_scale != 1)
        snprintf(text + n, sizeof text - (size_t)n, ", times %g", (double)m->route_scale);
    return json_string(text);
}

/* What has no line of its own. */
static json_t *extras_report(const sluice_layer_spec *l) {
    json_t *e = json_array();
    if (l->sinks) add_text(e, "learned sinks in the softmax");
    if (l->qk_norm_weightless) add_text(e, "q/k norm without weights");
    if (l->qk_norm && l->qk_norm_whole) add_text(e, "q/k norm over all heads");
    if (l->no_input_norm) add_text(e, "no norm before branches");
    if (l->mlp_bias) add_text(e, "MLP biases");
    if (l->moe.expert_bias) add_text(e, "biases of experts");
    if (l->mlp_limit > 0) add_number(e, "activation clamped at", (double)l->mlp_limit);
    if (l->moe.limit > 0) add_number(e, "experts clamped at", (double)l->moe.limit);
    if (l->moe.shared_limit > 0) add_number(e, "shared expert clamped at", (double)l->moe.shared_limit);
    return e;
}

static json_t *linear_report(const sluice_delta_spec *d) {
    json_t *o = json_object();
    set_int(o, "num_key_heads", d->num_key_heads);
    set_int(o, "num_value_heads", d->num_value_heads);
    set_int(o, "key_head_dim", d->key_head_dim);
    set_int(o, "value_head_dim", d->value_head_dim);
    set_int(o, "conv_kernel", d->conv_kernel);
    set_int(o, "state_bytes", 4LL * d->num_value_heads * d->key_head_dim * d->value_head_dim);
    set(o, "double_beta", json_boolean(d->double_beta));
    return o;
}

static json_t *layer_report(const sluice_config *c, int index) {
    const sluice_layer_spec *l = &c->layers[index];
    json_t *o = json_object();
    const char *kind = l->sliding_window ? "sliding_attention" : "full_attention";
    set(o, "kind", json_string(sluice_layer_is_linear(l) ? "linear_attention" : kind));
    if (sluice_layer_is_linear(l)) set(o, "linear", linear_report(&l->delta));
    if (l->sliding_window) set_int(o, "sliding_window", l->sliding_window);
    set_int(o, "num_attention_heads", l->num_attention_heads);
    set_int(o, "num_key_value_heads", l->num_key_value_heads);
    set_int(o, "head_dim", l->head_dim);
    set_int(o, "intermediate_size", l->intermediate_size);
    set(o, "mlp_type", json_string(l->mlp_gelu ? "gelu" : mlp_acts[l->mlp_act]));
    if (l->moe.num_experts) {
        set_int(o, "num_experts", l->moe.num_experts);
        set_int(o, "num_experts_per_tok", l->moe.num_experts_per_tok);
        set_int(o, "moe_intermediate_size", l->moe.intermediate_size);
        set_int(o, "num_shared_experts", l->moe.num_shared_experts);
        set_int(o, "shared_intermediate_size", l->moe.shared_intermediate_size);
        set(o, "shared_expert_gate", json_boolean(l->moe.shared_expert_gate));
        set(o, "router", router_report(&l->moe));
    }
    if (l->switch_head.head != SLUICE_SWITCH_NONE) {
        set(o, "switch_head", json_string(l->switch_head.head == SLUICE_SWITCH_V ? "v" : "kv"));
        set_int(o, "switch_experts", l->switch_head.experts);
        set_int(o, "switch_topk", l->switch_head.topk);
    }
    set(o, "gate", gate_report(c, &l->gate));
    set(o, "rope", rope_report(&l->rope));
    set(o, "qk_norm", json_boolean(l->qk_norm));
    if (l->qk_norm_whole) set(o, "qk_norm_whole", json_true());
    if (l->no_input_norm) set(o, "no_input_norm", json_true());
    set(o, "qkv_bias", json_boolean(l->qkv_bias));
    set(o, "o_bias", json_boolean(l->o_bias));
    set(o, "sandwich_norm", json_boolean(l->sandwich_norm));
    set(o, "residual_clip", json_real((double)l->residual_clip));
    set(o, "sdpa_norm", json_boolean(l->sdpa_norm));
    set(o, "sdpa_silu", json_boolean(l->sdpa_silu));
    set(o, "extras", extras_report(l));
    return o;
}

static void set_token(json_t *o, const char *key, int id) {
    set(o, key, id < 0 ? json_null() : json_integer(id));
}

static void add_costs(json_t *o, const sluice_config *c, long long context) {
    if (!context) context = c->max_position_embeddings < 4096 ? c->max_position_embeddings : 4096;
    set_int(o, "parameters", sluice_config_num_parameters(c));
    set_int(o, "gate_parameters", sluice_config_num_gate_parameters(c));
    set_int(o, "active_parameters", sluice_config_num_active_parameters(c));
    set_int(o, "context", context);
    set(o, "forward_flops_per_token", json_real(sluice_config_forward_flops(c, context)));
    set_int(o, "weight_bytes", 4 * sluice_config_num_parameters(c));
    set_int(o, "cache_bytes", sluice_config_cache_bytes(c, context));
    set_int(o, "state_bytes", sluice_config_state_bytes(c));
}

/* What stands outside the layers. */
static json_t *model_extras(const sluice_config *c) {
    json_t *e = json_array();
    if (c->embedding_norm) add_text(e, "normed embeddings");
    if (c->embedding_scale != 0) add_number(e, "embeddings times", (double)c->embedding_scale);
    if (c->logit_scale != 0) add_number(e, "logits times", (double)c->logit_scale);
    if (c->logit_softcap > 0) add_number(e, "logits soft-capped at", (double)c->logit_softcap);
    if (c->post_norm_eps > 0) add_number(e, "norms behind branches with eps", c->post_norm_eps);
    return e;
}

json_t *info_config(const sluice_config *c, long long context) {
    json_t *o = json_object(), *layers = json_array();
    const char *class = sluice_config_transformers_class(c);
    set(o, "family", json_string(c->family));
    set(o, "model_type", json_string(c->model_type));
    set_int(o, "vocab_size", c->vocab_size);
    set_int(o, "hidden_size", c->hidden_size);
    set_int(o, "num_hidden_layers", c->num_hidden_layers);
    set_int(o, "max_position_embeddings", c->max_position_embeddings);
    set(o, "rms_norm_eps", json_real(c->rms_norm_eps));
    set(o, "norm", json_string(c->norm == SLUICE_NORM_ONE_PLUS ? "1 + w" : "w"));
    set(o, "tie_word_embeddings", json_boolean(c->tie_word_embeddings));
    set_token(o, "bos_token_id", c->bos_token_id);
    set_token(o, "eos_token_id", c->eos_token_id);
    if (c->num_other_eos) {
        json_t *all = json_pack("[i]", c->eos_token_id);
        for (int i = 0; i < c->num_other_eos; i++) json_array_append_new(all, json_integer(c->other_eos[i]));
        json_object_set_new(o, "eos_token_id", all);
    }
    set_token(o, "pad_token_id", c->pad_token_id);
    add_costs(o, c, context);
    const char *foreign = sluice_config_foreign_part(c);
    set(o, "extras", model_extras(c));
    set(o, "transformers_class", class && !foreign ? json_string(class) : json_null());
    set(o, "cannot_train", foreign ? json_string(foreign) : json_null());
    for (int i = 0; i < c->num_hidden_layers; i++) json_array_append_new(layers, layer_report(c, i));
    set(o, "layers", layers);
    return o;
}

/* ---- weights ---- */

static void count_up(json_t *o, const char *key, long long by) {
    set_int(o, key, json_integer_value(json_object_get(o, key)) + by);
}

static json_t *entry_report(const sluice_weight_entry *e) {
    json_t *shape = json_array();
    for (int i = 0; i < e->ndim; i++) json_array_append_new(shape, json_integer(e->shape[i]));
    return json_pack("{s:s, s:s, s:o, s:s}", "name", e->name, "dtype", e->dtype, "shape", shape, "file",
                     e->file);
}

json_t *info_weights(const sluice_weight_files *files, int list) {
    json_t *o = json_object(), *dtypes = json_object(), *by_file = json_object(), *tensors = json_array();
    long long bytes = 0, elements = 0;
    for (int i = 0; i < sluice_weight_files_count(files); i++) {
        sluice_weight_entry e = sluice_weight_files_at(files, i);
        const char *slash = strrchr(e.file, '/');
        count_up(dtypes, e.dtype, 1);
        count_up(by_file, slash ? slash + 1 : e.file, 1);
        bytes += e.bytes;
        elements += e.count;
        if (list) json_array_append_new(tensors, entry_report(&e));
    }
    set_int(o, "tensors", sluice_weight_files_count(files));
    set_int(o, "elements", elements);
    set_int(o, "bytes", bytes);
    set(o, "dtypes", dtypes);
    set(o, "files", by_file);
    if (list)
        set(o, "list", tensors);
    else
        json_decref(tensors);
    return o;
}

json_t *info_nonfinite(const sluice_model *model) {
    json_t *names = json_array();
    for (int i = 0; i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        if (t.nonfinite) json_array_append_new(names, json_string(t.name));
    }
    return names;
}
