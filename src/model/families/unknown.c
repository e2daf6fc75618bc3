/* SPDX-License-Identifier: Apache-2.0 */
/* What to say about a model_type that nobody knows: families with a similar name, or else those that the file's keys make
 * likely, and parts that the keys speak of and no family has. */
#include "base/strbuf.h"
#include "model/family.h"
#include <string.h>

enum { LONGEST = 63, NEAREST = 3 };

/* Edits that turn a into b (Levenshtein 1966); words longer than 63 characters count as far away. */
static int distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    int row[LONGEST + 1];
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

typedef struct candidate {
    const char *type;
    int distance;
} candidate;

/* Puts a type among the nearest, in rising order of distance. */
static void consider(candidate list[NEAREST], const char *type, int d) {
    for (int i = 0; i < NEAREST; i++) {
        if (list[i].type && list[i].distance <= d) continue;
        memmove(&list[i + 1], &list[i], (size_t)(NEAREST - 1 - i) * sizeof *list);
        list[i] = (candidate){type, d};
        return;
    }
}

/* Names no further from `type` than a third of it. */
static void nearest_by_name(candidate list[NEAREST], const char *type) {
    int limit = (int)strlen(type) / 3;
    for (int i = 0; sluice__families[i]; i++) {
        if (sluice__families[i]->claims) continue; /* its types are those of others */
        for (const char *const *t = sluice__families[i]->model_types; *t; t++) {
            int d = distance(type, *t);
            if (d <= (limit < 3 ? limit : 3)) consider(list, *t, d);
        }
    }
}

/* key, the part that it stands for; family NULL = no family has it */
static const struct {
    const char *key, *part, *family;
} signs[] = {
    {"kv_lora_rank", "multi-head latent attention", NULL},
    {"hc_count", "hyper-connections", NULL},
    {"sparse_attention_config", "sparse attention", NULL},
    {"index_n_heads", "an attention indexer", NULL},
    {"mamba_d_state", "state-space layers", NULL},
    {"ssm_state_size", "state-space layers", NULL},
    {"state_size", "state-space layers", NULL},
    {"attn_logit_softcapping", "soft-capped attention scores", NULL},
    {"is_encoder_decoder", "an encoder", NULL},
    {"encoder_layers", "an encoder", NULL},
    {"alibi", "ALiBi positions", NULL},
    {"layer_norm_eps", "LayerNorm", NULL},
    {"layer_norm_epsilon", "LayerNorm", NULL},
    {"linear_num_key_heads", "the gated delta rule", "qwen3_5_text"},
    {"num_experts", "experts", "qwen3_moe"},
    {"num_local_experts", "experts", "qwen3_moe"},
    {"n_routed_experts", "experts", "qwen3_moe"},
    {"sliding_window", "a sliding window", "mistral"},
};

static bool has(const sluice__json *root, const char *key) {
    const json_t *value = json_object_get(root->value, key);
    if (!value) value = json_object_get(json_object_get(root->value, "text_config"), key);
    return value && !json_is_null(value) && !json_is_false(value);
}

static const char *likely_family(const sluice__json *root) {
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (signs[i].family && has(root, signs[i].key)) return signs[i].family;
    return has(root, "hidden_size") ? "llama" : NULL;
}

static void say_parts(sluice__strbuf *text, const sluice__json *root) {
    int parts = 0;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (!signs[i].family && has(root, signs[i].key))
            sluice__strbuf_printf(text, "%s%s (%s)", parts++ ? ", " : "; no known family has what the file speaks of: ",
                                  signs[i].key, signs[i].part);
}

sluice_status sluice__family_unknown(const sluice__json *root, const char *type, sluice_error *err) {
    candidate near[NEAREST + 1] = {{0}};
    sluice__strbuf text = {0};
    nearest_by_name(near, type);
    const char *likely = near[0].type ? NULL : likely_family(root);
    for (int i = 0; i < NEAREST && near[i].type; i++)
        sluice__strbuf_printf(&text, "%s%s", i ? " or " : " (did you mean ", near[i].type);
    if (near[0].type) sluice__strbuf_printf(&text, "?)");
    if (likely) sluice__strbuf_printf(&text, "; by its keys the nearest is %s", likely);
    say_parts(&text, root);
    const char *lead = "; known are ";
    for (int i = 0; sluice__families[i]; i++)
        for (const char *const *t = sluice__families[i]->model_types; *t && !sluice__families[i]->claims; t++) {
            sluice__strbuf_printf(&text, "%s%s", lead, *t);
            lead = ", ";
        }
    sluice_status st = sluice__json_fail(root, "model_type", err, "\"%.60s\" is not known%s", type,
                                         text.data ? text.data : "");
    sluice__strbuf_free(&text);
    return st;
}
