/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is: one normalised configuration for every family, with one layer_spec per layer. It is read from a
 * Hugging Face config.json (any known model_type), or from the flat keys of a model of our own; it is written as either. */
#ifndef SLUICE_CONFIG_H
#define SLUICE_CONFIG_H
#include <stdbool.h>
#include <stdint.h>
#include "sluice/attention.h"
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SLUICE_MAX_EOS = 32 };

typedef enum sluice_gate_position {
    SLUICE_GATE_NONE,
    SLUICE_GATE_SDPA,  /* G1 */
    SLUICE_GATE_VALUE, /* G2 */
    SLUICE_GATE_KEY,   /* G3 */
    SLUICE_GATE_QUERY, /* G4 */
    SLUICE_GATE_OUTPUT /* G5 */
} sluice_gate_position;

/* One gate, everywhere. JSON: gate_position, gate_granularity, gate_sharing, gate_share_mean, gate_op, gate_act, gate_input. */
typedef struct sluice_gate_spec {
    sluice_gate_position position;
    sluice_gate_granularity granularity;
    sluice_gate_op op;
    sluice_gate_act act;
    bool shared;           /* mean over the head axis */
    bool share_mean_logit; /* average before instead of after the activation */
    bool input_none;       /* a learned tensor instead of a projection of the hidden state */
} sluice_gate_spec;

typedef enum sluice_rope_type {
    SLUICE_ROPE_DEFAULT,
    SLUICE_ROPE_LINEAR,
    SLUICE_ROPE_DYNAMIC,
    SLUICE_ROPE_YARN,
    SLUICE_ROPE_LLAMA3,
    SLUICE_ROPE_LONGROPE
} sluice_rope_type;

/* JSON: rope_parameters / rope_scaling of transformers. */
typedef struct sluice_rope_spec {
    bool enabled;   /* false = NoPE */
    double theta;
    int rotary_dim; /* rotated components of a head; even */
    sluice_rope_type type;
    double factor;
    int64_t original_max_position_embeddings;
    double attention_factor; /* 0 = by formula */
    double beta_fast, beta_slow, mscale, mscale_all_dim;
    bool truncate;
    double low_freq_factor, high_freq_factor;
    double *long_factor, *short_factor; /* [rotary_dim/2] for longrope; owned by the config */
} sluice_rope_spec;

/* Switch heads: every key/value head has several maps, of which a router picks for each token (the paper's Table
 * 6). JSON: switch_head, switch_experts, switch_topk. */
typedef enum sluice_switch_head { SLUICE_SWITCH_NONE, SLUICE_SWITCH_V, SLUICE_SWITCH_KV } sluice_switch_head;
typedef struct sluice_switch_spec {
    sluice_switch_head head; /* what is switched: values, or keys and values together */
    int experts, topk;       /* maps, and how many of them add up for a token; 1 each without */
} sluice_switch_spec;

/* Linear attention by the gated delta rule (Yang et al. 2025, arXiv 2412.06464) in place of softmax attention: a state of
 * [key_head_dim, value_head_dim] for every value head instead of keys and values of all tokens. Value head h reads key
 * head h / (num_value_heads / num_key_heads). JSON: linear_num_key_heads, linear_num_value_heads, linear_key_head_dim,
 * linear_value_head_dim, linear_conv_kernel_dim, linear_allow_neg_eigval. */
typedef struct sluice_delta_spec {
    int num_value_heads; /* 0 = softmax attention */
    int num_key_heads;   /* a divisor of num_value_heads */
    int key_head_dim, value_head_dim;
    int conv_kernel;  /* taps of the causal convolution over queries, keys and values */
    bool double_beta; /* write strength 2 sigmoid(b) instead of sigmoid(b) */
    double norm_eps;  /* of the norm of every head's output */
} sluice_delta_spec;

/* The function between the two halves of an MLP: act(gate) * up, or act(up) without a gate matrix. */
typedef enum sluice_mlp_act {
    SLUICE_MLP_SILU,
    SLUICE_MLP_GELU,      /* exact */
    SLUICE_MLP_GELU_TANH, /* by tanh */
    SLUICE_MLP_GPT_OSS    /* gate sigmoid(1.702 gate) (up + 1), gate and up clamped to the limit first */
} sluice_mlp_act;

typedef enum sluice_router_score { SLUICE_ROUTER_SOFTMAX, SLUICE_ROUTER_SIGMOID } sluice_router_score;

/* Mixture of experts in place of the MLP. JSON: num_experts, num_experts_per_tok, moe_intermediate_size,
 * norm_topk_prob, num_shared_experts, shared_expert_gate. */
typedef struct sluice_moe_spec {
    int num_experts;             /* 0 = a dense MLP */
    int num_experts_per_tok;
    int intermediate_size;       /* SwiGLU width of one expert */
    int num_shared_experts;      /* one more expert of this many times that width sees every token; 0 = none */
    int shared_intermediate_size; /* its width */
    bool norm_topk_prob;         /* weights of the chosen experts sum to 1 */
    bool shared_expert_gate;     /* the shared expert is scaled by sigmoid(w . x) */
    sluice_router_score score;   /* of the router's logits */
    float logit_softcap;         /* logits become c tanh(logit / c); 0 = off */
    float route_scale;           /* multiplies the weights of the chosen experts; 0 = 1 */
    bool router_bias;            /* added to the logits */
    bool selection_bias;         /* added to the scores when experts are chosen, but not to their weights */
    bool expert_bias;            /* the experts' matrices have biases */
    float limit, shared_limit;   /* see layer_spec.mlp_limit */
} sluice_moe_spec;

/* Where files keep the rows of a projected gate. */
typedef enum sluice_gate_packing {
    SLUICE_GATE_OWN_TENSOR,  /* in a tensor of its own; so it is in every model in memory */
    SLUICE_GATE_Q_PER_HEAD,  /* in q_proj, every head: query rows, then its gate rows (Qwen3.5) */
    SLUICE_GATE_Q_PER_GROUP, /* in q_proj, every KV group: query rows of its heads, then their gate rows (the paper's 1B) */
} sluice_gate_packing;

typedef enum sluice_norm_flavour { SLUICE_NORM_PLAIN, SLUICE_NORM_ONE_PLUS } sluice_norm_flavour;

/* One decoder layer:  h += clip(norm(attention(norm(h))));  h += clip(norm(mlp(norm(h)))). */
typedef struct sluice_layer_spec {
    sluice_delta_spec delta; /* when it is linear attention, no field up to switch_head means anything */
    int num_attention_heads, num_key_value_heads, head_dim;
    int sliding_window; /* 0 = full attention */
    float attention_scale; /* multiplies q.k */
    sluice_rope_spec rope;
    bool qk_norm;   /* RMSNorm per head on q and k before RoPE */
    bool qk_norm_whole; /* with qk_norm: one norm over all heads of a token instead */
    bool qk_norm_weightless; /* it has no weights */
    bool sinks;     /* a learned logit per head joins the softmax without a value (gpt-oss) */
    bool qkv_bias, o_bias;
    sluice_gate_spec gate;
    bool sdpa_norm; /* RMSNorm over head_dim of every head's attention output, before the gate (one weight for all heads) */
    bool sdpa_silu; /* SiLU on the attention output, after sdpa_norm and before the gate */
    sluice_switch_spec switch_head;
    int intermediate_size; /* width of the MLP; unused with experts */
    bool mlp_gelu;         /* down(gelu(up(x))), exact GELU, no gate matrix; else gated. JSON: mlp_type */
    sluice_mlp_act mlp_act; /* of a gated MLP, and of all experts */
    float mlp_limit;       /* act(gate) at most this, |up| too; 0 = no limit */
    bool mlp_bias;         /* its matrices have biases */
    sluice_moe_spec moe;
    bool sandwich_norm;    /* RMSNorm on attention and MLP outputs before the residual addition */
    bool no_input_norm;    /* attention and MLP read the residual stream itself (with sandwich_norm: OLMo 2) */
    float residual_clip;   /* 0 = off */
} sluice_layer_spec;

static inline bool sluice_layer_is_linear(const sluice_layer_spec *layer) { return layer->delta.num_value_heads > 0; }

typedef struct sluice_config {
    char model_type[64]; /* as in config.json */
    char family[40];     /* for people: "Qwen3" */
    int vocab_size, hidden_size, num_hidden_layers, max_position_embeddings;
    double rms_norm_eps, initializer_range;
    sluice_norm_flavour norm; /* of every norm in the file; models in memory are plain */
    sluice_gate_packing gate_packing;
    bool tie_word_embeddings;
    double post_norm_eps;      /* of sandwich norms; 0 = rms_norm_eps */
    float embedding_scale;     /* multiplies embeddings; 0 = 1 */
    bool embedding_norm;       /* RMSNorm without weights on embeddings */
    float logit_scale;         /* multiplies logits; 0 = 1 */
    float logit_softcap;       /* then logits become c tanh(logit / c); 0 = off */
    double router_aux_loss_coef, router_z_loss_coef; /* weights of the router losses in training */
    int bos_token_id, eos_token_id, pad_token_id; /* -1 = none */
    int num_other_eos, other_eos[SLUICE_MAX_EOS - 1]; /* more ids that end a text, where a file has a list: eos_token_id
                                                         is its first */
    sluice_layer_spec *layers; /* [num_hidden_layers]; owned */
} sluice_config;

/* Reads a config.json (or the JSON text of one, `name` standing for the file in messages). *out is filled on success and
 * freed with sluice_config_free; on failure it holds nothing. */
sluice_status sluice_config_load(sluice_config *out, const char *path, sluice_error *err);
sluice_status sluice_config_parse(sluice_config *out, const char *json, const char *name, sluice_error *err);
void sluice_config_free(sluice_config *config);

/* Something that only released models have, which runs but cannot be trained or saved ("a learned sink in the softmax");
 * NULL when there is nothing of the kind. */
const char *sluice_config_foreign_part(const sluice_config *config);

/* Counts. FLOPs: multiply-adds times two of one token's forward pass at context length `context` (causal mean). */
int64_t sluice_config_num_parameters(const sluice_config *config);
/* Those that one token meets: all but the experts that its router leaves out. */
int64_t sluice_config_num_active_parameters(const sluice_config *config);
int64_t sluice_config_num_gate_parameters(const sluice_config *config);
double sluice_config_forward_flops(const sluice_config *config, int64_t context);
/* Bytes of the keys and values of one sequence of `context` tokens (fp32) in a session; layers with a sliding window keep
 * little more than it. */
int64_t sluice_config_cache_bytes(const sluice_config *config, int64_t context);
/* Bytes of the recurrent and convolution states of one sequence (fp32), whatever its length; 0 without linear attention. */
int64_t sluice_config_state_bytes(const sluice_config *config);

#ifdef __cplusplus
}
#endif
#endif
