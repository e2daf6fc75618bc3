/* SPDX-License-Identifier: Apache-2.0 */
/* A family of models is a table of facts (families/<name>.c): which config.json it claims, the defaults of its
 * class in transformers, how its norms and gates are stored, its tensor names. What a table cannot say, its
 * `read` does. */
#ifndef SLUICE_MODEL_FAMILY_H
#define SLUICE_MODEL_FAMILY_H
#include "model/config.h"
#include "model/tensors.h"

typedef struct sluice__config_reader {
    sluice__json root; /* the whole config.json */
    sluice__json json; /* the object that describes the language model: root, or nested in it */
    const struct sluice__family *family;
    sluice_config *config;
    sluice__file_layout *layout;
} sluice__config_reader;

/* What an absent key means. 0 in the first five: the key must be there. */
typedef struct sluice__family_defaults {
    int vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
    int num_key_value_heads; /* 0: num_attention_heads */
    int head_dim;            /* 0: hidden_size / num_attention_heads */
    int max_position_embeddings;
    int bos_token_id, eos_token_id; /* -1 = none */
    double partial_rotary_factor;
    bool tie_word_embeddings;
    double rope_theta;   /* 0: 10000 */
    double rms_norm_eps; /* 0: 1e-6 */
    int sliding_window;  /* 0: none, or 4096 with `sliding` */
} sluice__family_defaults;

/* How files hold a tensor: alone, or inside one that several share. F: width of the MLP of an expert. */
typedef enum sluice__storage {
    SLUICE__ALONE,
    SLUICE__OF_EXPERTS,   /* [E, ...] expert after expert */
    SLUICE__GATE_THEN_UP, /* [E, 2F, D]: of each expert its gate rows, then its up rows */
    SLUICE__TRANSPOSED,   /* [E, columns, rows] */
    SLUICE__INTERLEAVED,  /* [E, D, 2F]: transposed, columns of gate and up take turns; biases [E, 2F] likewise */
    SLUICE__QKV_ROWS,     /* [q | k | v, D] */
    SLUICE__DELTA_ROWS,   /* [q | k | v, ...] of linear attention: projections, or taps of the convolution */
    SLUICE__DELTA_GROUPS  /* per key head: [q | k | v | z, D], or [b | a, D], of it and its value heads */
} sluice__storage;

/* A name that a family's files use. Those of a slot are tried in their order; without any that is ALONE,
 * sluice__slot_name is tried first. */
typedef struct sluice__tensor_name {
    sluice__slot slot;
    const char *name; /* as sluice__slot_name has them; of a shared tensor that of the layer */
    sluice__storage storage;
} sluice__tensor_name;

/* Experts in one tensor for all, as transformers keeps them in memory. */
#define SLUICE__FUSED_EXPERTS                                                                                  \
    {SLUICE__SLOT_EXPERT_GATE, "mlp.experts.gate_up_proj", SLUICE__GATE_THEN_UP},                              \
        {SLUICE__SLOT_EXPERT_UP, "mlp.experts.gate_up_proj", SLUICE__GATE_THEN_UP},                            \
        {SLUICE__SLOT_EXPERT_DOWN, "mlp.experts.down_proj", SLUICE__OF_EXPERTS}

typedef struct sluice__family {
    const char *name;               /* for people */
    const char *const *model_types; /* ends with NULL */
    const char *nested; /* key of the object that holds the language model's keys, NULL = the root */
    const char *prefix; /* of tensor names, in place of "model."; NULL = "model." */
    const char *experts; /* of an expert's tensor names in its layer, in place of "mlp.experts."; NULL = that */
    sluice__family_defaults defaults;
    sluice_norm_flavour norm;
    bool gate_without_bias; /* qkv_bias leaves the gate out */
    bool plain_final_norm; /* the last norm is plain whatever the others are */
    bool any_act;          /* hidden_act may be a GELU */
    const char *act;       /* what an absent hidden_act means; NULL = "silu" */
    sluice_gate_packing gate_packing;
    bool sliding;                /* reads sliding_window, use_sliding_window, max_window_layers */
    bool window_everywhere;      /* without layer_types: sliding_window holds for every layer */
    int full_attention_interval; /* without layer_types: layer i is linear unless (i + 1) is a multiple; 0 = all
                                    full */
    /* Rewrites keys of its own to those that the common reader knows, in r->json; before anything is read. */
    sluice_status (*prepare)(sluice__config_reader *r, sluice_error *err);
    /* Without layer_types: sets sliding_window of the layers that have one. NULL = by the rules above. */
    sluice_status (*kinds)(sluice__config_reader *r, int window, sluice_error *err);
    /* Sizes of linear attention; NULL = the family has none. */
    sluice_status (*read_delta)(const sluice__config_reader *r, sluice_delta_spec *out, sluice_error *err);
    const sluice__tensor_name *tensor_names; /* ends with name NULL; may be NULL */
    /* A model_type that several families share goes to the first that claims it. NULL = claims it always. */
    bool (*claims)(const sluice__json *json);
    /* Sets what the common reader leaves at zero: biases, q/k norm, gate, sandwich norm, ... of every layer. */
    sluice_status (*read)(sluice__config_reader *r, sluice_error *err);
} sluice__family;

/* In the order in which they are asked; ends with NULL. */
extern const sluice__family *const sluice__families[];
extern const sluice__family sluice__family_llama, sluice__family_qwen2, sluice__family_qwen3,
    sluice__family_paper, sluice__family_qwen3_next, sluice__family_qwen3_5, sluice__family_qwen3_5_wrapped,
    sluice__family_qwen3_5_moe, sluice__family_qwen3_5_moe_wrapped, sluice__family_olmo_hybrid, sluice__family_sluice,
    sluice__family_qwen3_moe, sluice__family_qwen2_moe, sluice__family_smollm3, sluice__family_mistral,
    sluice__family_mixtral, sluice__family_afmoe, sluice__family_gpt_oss, sluice__family_laguna,
    sluice__family_step3p5, sluice__family_step3p7, sluice__family_muse_glimmer, sluice__family_muse_glimmer_text,
    sluice__family_spark2_5;

/* The family of a config.json, or an error that names what is known. */
sluice_status sluice__family_find(const sluice__family **out, const sluice__json *root, sluice_error *err);
/* The error for a model_type that no family has: the nearest ones, and what in the file none of them has. */
sluice_status sluice__family_unknown(const sluice__json *root, const char *type, sluice_error *err);
/* The name under which a tensor of its own stands in this family's files; freed with sluice__free, NULL when out of
 * memory. */
char *sluice__family_tensor_name(const sluice__file_layout *layout, sluice__place place);

/* Shared readers of families. */
sluice_status sluice__read_flag(const sluice__config_reader *r, const char *key, bool fallback, bool *out,
                                sluice_error *err);
/* hidden_act into *act; kinds other than SiLU only for families with any_act. */
sluice_status sluice__read_act(const sluice__config_reader *r, sluice_mlp_act *act, sluice_error *err);
/* mlp_bias in every layer. */
sluice_status sluice__read_mlp_bias(sluice__config_reader *r, sluice_error *err);
/* Gives a key another name unless that is there; both with different values are refused. */
sluice_status sluice__rename_key(sluice__config_reader *r, const char *from, const char *to, sluice_error *err);
/* No RoPE in a layer. */
void sluice__drop_rope(sluice_layer_spec *layer);
/* An array with one entry for each layer; more are let through when `longer`. .value NULL when absent. */
sluice_status sluice__layer_list(sluice__json *out, const sluice__config_reader *r, const char *key, bool longer,
                                 sluice_error *err);
/* A key that transformers does not read, with a value other than what its class does: a warning. */
void sluice__warn_unread(const sluice__config_reader *r, const char *key, const char *what);
/* Experts by the keys of transformers; *defaults says what an absent key means. Sets score, route_scale and the like
 * as in *defaults. num_experts 0 gives a dense MLP. */
sluice_status sluice__read_experts(const sluice__config_reader *r, const sluice_moe_spec *defaults,
                                   sluice_moe_spec *out, sluice_error *err);
/* Experts in the layers that decoder_sparse_step and mlp_only_layers leave to them. */
sluice_status sluice__set_sparse_layers(sluice__config_reader *r, const sluice_moe_spec *moe, sluice_error *err);
/* attention_bias: biases of q, k, v and o in every layer. */
sluice_status sluice__read_attention_bias(sluice__config_reader *r, sluice_error *err);
void sluice__set_qk_norm(sluice__config_reader *r, bool on);
/* linear_num_key_heads and its like; 0 in defaults: the key must be there. What has no key is taken from defaults. */
sluice_status sluice__read_delta(const sluice__config_reader *r, const sluice_delta_spec *defaults,
                                 sluice_delta_spec *out, sluice_error *err);
/* The gate by our own flat keys, and those keys of a gate (0 on success). */
sluice_status sluice__read_own_gate(const sluice__config_reader *r, sluice_gate_spec *gate, sluice_error *err);
int sluice__gate_to_json(json_t *object, const sluice_gate_spec *gate);
/* The gate by the flags of the paper (headwise_attn_output_gate, elementwise_attn_output_gate) and of Qwen
 * (attn_output_gate). *found is false when no flag is there. Contradictions are errors that name both keys. */
sluice_status sluice__read_gate_flags(const sluice__config_reader *r, sluice_gate_spec *gate, bool *found,
                                      sluice_error *err);
void sluice__set_gate(sluice__config_reader *r, const sluice_gate_spec *gate);
/* For families without a gate: an error when the file asks for one. */
sluice_status sluice__refuse_gate(const sluice__config_reader *r, sluice_error *err);
#endif
