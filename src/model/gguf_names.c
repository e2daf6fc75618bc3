/* SPDX-License-Identifier: Apache-2.0 */
/* Names of tensors in GGUF files, and what the converters of llama.cpp change in some of them. Norms stored as w - 1 become
 * w there, so no norm needs a change here. */
#include "base/memory.h"
#include "model/gguf_model.h"
#include <stdio.h>
#include <string.h>

static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_EMBED_TOKENS, "token_embd.weight", SLUICE__ALONE},
    {SLUICE__SLOT_INPUT_NORM, "attn_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_Q, "attn_q.weight", SLUICE__ALONE},
    {SLUICE__SLOT_K, "attn_k.weight", SLUICE__ALONE},
    {SLUICE__SLOT_V, "attn_v.weight", SLUICE__ALONE},
    {SLUICE__SLOT_Q, "attn_qkv.weight", SLUICE__QKV_ROWS},
    {SLUICE__SLOT_K, "attn_qkv.weight", SLUICE__QKV_ROWS},
    {SLUICE__SLOT_V, "attn_qkv.weight", SLUICE__QKV_ROWS},
    {SLUICE__SLOT_DELTA_Q, "attn_qkv.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_K, "attn_qkv.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_V, "attn_qkv.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_Z, "attn_gate.weight", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_B, "ssm_beta.weight", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_A, "ssm_alpha.weight", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_B, "ssm_ba.weight", SLUICE__DELTA_GROUPS},
    {SLUICE__SLOT_DELTA_A, "ssm_ba.weight", SLUICE__DELTA_GROUPS},
    {SLUICE__SLOT_DELTA_CONV_Q, "ssm_conv1d.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_CONV_K, "ssm_conv1d.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_CONV_V, "ssm_conv1d.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_A_LOG, "ssm_a", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_DT_BIAS, "ssm_dt.bias", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_NORM, "ssm_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_OUT, "ssm_out.weight", SLUICE__ALONE},
    {SLUICE__SLOT_Q_BIAS, "attn_q.bias", SLUICE__ALONE},
    {SLUICE__SLOT_K_BIAS, "attn_k.bias", SLUICE__ALONE},
    {SLUICE__SLOT_V_BIAS, "attn_v.bias", SLUICE__ALONE},
    {SLUICE__SLOT_GATE, "attn_gate.weight", SLUICE__ALONE},
    {SLUICE__SLOT_Q_NORM, "attn_q_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_K_NORM, "attn_k_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_O, "attn_output.weight", SLUICE__ALONE},
    {SLUICE__SLOT_O_BIAS, "attn_output.bias", SLUICE__ALONE},
    {SLUICE__SLOT_SINKS, "attn_sinks.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_ATTENTION_NORM, "ffn_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_ATTENTION_NORM, "post_attention_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_MLP_GATE, "ffn_gate.weight", SLUICE__ALONE},
    {SLUICE__SLOT_MLP_UP, "ffn_up.weight", SLUICE__ALONE},
    {SLUICE__SLOT_MLP_DOWN, "ffn_down.weight", SLUICE__ALONE},
    {SLUICE__SLOT_ROUTER, "ffn_gate_inp.weight", SLUICE__ALONE},
    {SLUICE__SLOT_ROUTER_BIAS, "ffn_gate_inp.bias", SLUICE__ALONE},
    {SLUICE__SLOT_EXPERT_GATE, "ffn_gate_exps.weight", SLUICE__OF_EXPERTS},
    {SLUICE__SLOT_EXPERT_UP, "ffn_up_exps.weight", SLUICE__OF_EXPERTS},
    {SLUICE__SLOT_EXPERT_DOWN, "ffn_down_exps.weight", SLUICE__OF_EXPERTS},
    {SLUICE__SLOT_EXPERT_GATE_BIAS, "ffn_gate_exps.bias", SLUICE__OF_EXPERTS},
    {SLUICE__SLOT_EXPERT_UP_BIAS, "ffn_up_exps.bias", SLUICE__OF_EXPERTS},
    {SLUICE__SLOT_EXPERT_DOWN_BIAS, "ffn_down_exps.bias", SLUICE__OF_EXPERTS},
    {SLUICE__SLOT_SHARED_GATE, "ffn_gate_shexp.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_UP, "ffn_up_shexp.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_DOWN, "ffn_down_shexp.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_EXPERT_GATE, "ffn_gate_inp_shexp.weight", SLUICE__ALONE},
    {SLUICE__SLOT_NORM, "output_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_LM_HEAD, "output.weight", SLUICE__ALONE},
    {0}};

static const char *const no_types[] = {NULL};
const sluice__family sluice__gguf_names = {.name = "GGUF", .model_types = no_types, .tensor_names = names};

const char *sluice__gguf_slot_name(sluice__slot slot, const char *arch) {
    bool post = !strncmp(arch, "qwen35", 6) || !strcmp(arch, "qwen3next") || !strcmp(arch, "gpt-oss");
    if (slot == SLUICE__SLOT_POST_ATTENTION_NORM && post) return "post_attention_norm.weight";
    for (int i = 0; names[i].name; i++)
        if (names[i].slot == slot) return names[i].name;
    return NULL;
}

/* ---- changed tensors ---- */

static int64_t integer_of(const sluice__gguf *g, const char *arch, const char *key) {
    char full[128];
    int64_t value = 0;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    sluice__gguf_integer(sluice__gguf_find(g, full), &value);
    return value;
}

static bool ends_with(const char *name, const char *tail) {
    size_t n = strlen(name), m = strlen(tail);
    return n > m && !strcmp(name + n - m, tail) && name[n - m - 1] == '.';
}

/* llama: rows of q and k, and their biases, in pairs of neighbours instead of halves. */
static sluice__gguf_edit llama_edit(const sluice__gguf *g, const char *name) {
    bool q = ends_with(name, "attn_q.weight") || ends_with(name, "attn_q.bias");
    bool k = ends_with(name, "attn_k.weight") || ends_with(name, "attn_k.bias");
    const sluice__gguf_tensor *t = sluice__gguf_find_tensor(g, name);
    int64_t heads = integer_of(g, "llama", "attention.head_count"), kv = integer_of(g, "llama", "attention.head_count_kv");
    if (!kv) kv = heads;
    int64_t of = q ? heads : kv;
    if (!(q || k) || of < 1 || t->shape[0] % of || t->shape[0] / of % 2) return (sluice__gguf_edit){0};
    return (sluice__gguf_edit){SLUICE__EDIT_ROPE_PAIRS, of, t->shape[0] / of, 0, 0};
}

/* Linear attention with more value heads than key heads: value heads of one key head are neighbours in the model and
 * num_key_heads apart in the file. */
static sluice__gguf_edit hybrid_edit(const sluice__gguf *g, const char *arch, const char *name) {
    int64_t heads = integer_of(g, arch, "ssm.time_step_rank"), groups = integer_of(g, arch, "ssm.group_count");
    int64_t inner = integer_of(g, arch, "ssm.inner_size"), state = integer_of(g, arch, "ssm.state_size");
    bool decay = ends_with(name, "ssm_a"), tiled = !strncmp(arch, "qwen35", 6);
    sluice__gguf_edit e = {.kind = SLUICE__EDIT_VALUE_HEADS, .heads = heads, .width = 1, .groups = groups};
    enum { MOST = 1 << 24 }; /* far above any model, and products stay far below 2^63 */
    bool sane = heads >= 1 && heads <= MOST && groups >= 1 && inner >= heads && inner <= MOST && state >= 0 && state <= MOST;
    if (!sane || heads % groups || inner % heads) return (sluice__gguf_edit){0};
    if (!tiled) e.groups = heads; /* one value head each: nothing moves */
    if (decay) return e.kind = SLUICE__EDIT_DECAY, e;
    if (e.groups == heads) return (sluice__gguf_edit){0};
    if (ends_with(name, "ssm_dt.bias") || ends_with(name, "ssm_beta.weight") || ends_with(name, "ssm_alpha.weight")) return e;
    e.width = inner / heads;
    if (ends_with(name, "attn_gate.weight")) return e;
    if (ends_with(name, "ssm_out.weight")) return e.kind = SLUICE__EDIT_VALUE_COLUMNS, e;
    e.first = 2 * groups * state;
    bool mixed = ends_with(name, "attn_qkv.weight") || ends_with(name, "ssm_conv1d.weight");
    return mixed ? e : (sluice__gguf_edit){0};
}

/* An edit moves values inside the tensor only, whatever the metadata say. */
static bool fits(const sluice__gguf_edit *e, const sluice__gguf_tensor *t) {
    int64_t row = t->shape[t->ndim - 1];
    bool columns = e->kind == SLUICE__EDIT_VALUE_COLUMNS || t->ndim == 1;
    return e->first + e->heads * e->width <= (columns ? row : t->count / row);
}

static sluice__gguf_edit edit_by_metadata(const sluice__gguf *g, const char *name) {
    sluice__gguf_text arch;
    char text[24];
    if (!sluice__gguf_string(sluice__gguf_find(g, "general.architecture"), &arch) || arch.size >= sizeof text)
        return (sluice__gguf_edit){0};
    memcpy(text, arch.data, arch.size);
    text[arch.size] = '\0';
    if (!strcmp(text, "llama")) return llama_edit(g, name);
    if (!strncmp(text, "qwen35", 6) || !strcmp(text, "qwen3next")) return hybrid_edit(g, text, name);
    return (sluice__gguf_edit){0};
}

sluice__gguf_edit sluice__gguf_edit_of(const sluice__gguf *g, const char *name) {
    const sluice__gguf_tensor *t = sluice__gguf_find_tensor(g, name);
    sluice__gguf_edit e = t ? edit_by_metadata(g, name) : (sluice__gguf_edit){0};
    return e.kind != SLUICE__EDIT_NONE && fits(&e, t) ? e : (sluice__gguf_edit){0};
}

int64_t sluice__gguf_edit_source(const sluice__gguf_edit *e, int64_t r) {
    if (e->kind == SLUICE__EDIT_NONE || r < e->first) return r;
    int64_t head = (r - e->first) / e->width, at = (r - e->first) % e->width, half = e->width / 2;
    if (head >= e->heads) return r;
    if (e->kind == SLUICE__EDIT_ROPE_PAIRS) return head * e->width + at % half * 2 + at / half;
    int64_t per_group = e->heads / e->groups;
    return e->first + (head % per_group * e->groups + head / per_group) * e->width + at;
}
