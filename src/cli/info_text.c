/* SPDX-License-Identifier: Apache-2.0 */
/* The text report of `sluice info`, drawn from its JSON. */
#include "cli/info.h"
#include "base/progress.h"
#include <stdio.h>
#include <string.h>

static const json_t *get(const json_t *o, const char *key) {
    return json_object_get(o, key);
}

static long long integer(const json_t *o, const char *key) {
    return json_integer_value(get(o, key));
}

static const char *text(const json_t *o, const char *key) {
    const char *s = json_string_value(get(o, key));
    return s ? s : "";
}

static int on(const json_t *o, const char *key) {
    return json_is_true(get(o, key));
}

static void label(const char *name) {
    printf("  %-18s", name);
}

/* The names of all kernels of one version, wrapped. */
static void print_kernels(const json_t *kernels, const char *wanted) {
    enum { WIDTH = 76 };
    const char *kernel;
    json_t *version;
    size_t column = 0;
    json_object_foreach((json_t *)(uintptr_t)kernels, kernel, version) {
        if (strcmp(json_string_value(version), wanted)) continue;
        if (!column)
            label(wanted);
        else if (column + strlen(kernel) + 2 > WIDTH)
            column = (size_t)printf(",\n%20s", "") - 22;
        else
            column += (size_t)printf(", ");
        column += (size_t)printf("%s", kernel);
    }
    if (column) printf("\n");
}

/* Whether no kernel before this one has its version. */
static bool is_first_of(const json_t *kernels, const char *kernel, const char *version) {
    const char *other;
    json_t *its;
    json_object_foreach((json_t *)(uintptr_t)kernels, other, its)
        if (!strcmp(json_string_value(its), version)) return !strcmp(other, kernel);
    return false;
}

void info_print_machine(const json_t *m) {
    char a[32], b[32];
    printf("sluice %s\n", text(m, "version"));
    label("cpu");
    printf("%s\n", text(m, "cpu"));
    label("threads");
    printf("%lld\n", integer(m, "threads"));
    label("memory");
    printf("%s, %s available\n", sluice__format_bytes(a, (double)integer(m, "memory_bytes")),
           sluice__format_bytes(b, (double)integer(m, "memory_available_bytes")));
    printf("kernels in use\n");
    const json_t *kernels = get(m, "kernels");
    const char *kernel;
    json_t *version;
    json_object_foreach((json_t *)(uintptr_t)kernels, kernel, version)
        if (is_first_of(kernels, kernel, json_string_value(version))) print_kernels(kernels, json_string_value(version));
}

/* ---- configuration ---- */

static void print_gate(const json_t *gate) {
    label("gate");
    const char *position = text(gate, "position");
    if (!strcmp(position, "none")) {
        printf("none\n");
        return;
    }
    printf("%s %s at %s, %s", text(gate, "granularity"), text(gate, "act"), position,
           !strcmp(text(gate, "op"), "add") ? "added" : "multiplied");
    if (strcmp(text(gate, "sharing"), "specific")) printf(", %s", text(gate, "sharing"));
    printf("; stored in %s\n", text(gate, "stored_in"));
}

static void print_rope(const json_t *rope, long long head_dim) {
    label("RoPE");
    if (!json_is_object(rope)) {
        printf("none\n");
        return;
    }
    printf("theta %g, %lld of %lld components", json_real_value(get(rope, "theta")),
           integer(rope, "rotary_dim"), head_dim);
    if (strcmp(text(rope, "type"), "default"))
        printf(", %s x%g from %lld tokens", text(rope, "type"), json_real_value(get(rope, "factor")),
               integer(rope, "original_max_position_embeddings"));
    printf("\n");
}

static void print_list(const json_t *list, const char *separator) {
    for (size_t i = 0; i < json_array_size(list); i++)
        printf("%s%s", i ? ", " : separator, json_string_value(json_array_get(list, i)));
}

static void print_mlp(const json_t *l) {
    const char *type = text(l, "mlp_type");
    if (!integer(l, "num_experts")) {
        printf("MLP %lld", integer(l, "intermediate_size"));
        if (!strcmp(type, "gelu")) printf(" with GELU");
        else if (strcmp(type, "swiglu")) printf(" (%s)", type);
        printf("\n");
        return;
    }
    printf("%lld of %lld experts of %lld", integer(l, "num_experts_per_tok"), integer(l, "num_experts"),
           integer(l, "moe_intermediate_size"));
    if (integer(l, "num_shared_experts"))
        printf(", %lld shared of %lld%s", integer(l, "num_shared_experts"), integer(l, "shared_intermediate_size"),
               on(l, "shared_expert_gate") ? " behind a sigmoid" : "");
    if (strcmp(type, "swiglu")) printf(" (%s)", type);
    printf("\n");
    label("router");
    printf("%s\n", text(l, "router"));
}

/* The rest of a layer of linear attention. */
static void print_linear(const json_t *l, const json_t *d) {
    char state[32];
    printf(", %lld key heads of %lld, %lld value heads of %lld, ", integer(d, "num_key_heads"), integer(d, "key_head_dim"),
           integer(d, "num_value_heads"), integer(d, "value_head_dim"));
    print_mlp(l);
    label("state");
    printf("%s a layer and sequence, convolution over %lld tokens%s\n",
           sluice__format_bytes(state, (double)integer(d, "state_bytes")), integer(d, "conv_kernel"),
           on(d, "double_beta") ? ", write strength up to 2" : "");
}

/* One group of equal layers. */
static void print_layers(const json_t *l, size_t first, size_t last) {
    label("layers");
    if (first == last)
        printf("%zu: ", first);
    else
        printf("%zu-%zu: ", first, last);
    printf("%s", text(l, "kind"));
    if (get(l, "linear")) {
        print_linear(l, get(l, "linear"));
        return;
    }
    if (integer(l, "sliding_window")) printf(" over %lld tokens", integer(l, "sliding_window"));
    printf(", %lld heads, %lld key/value heads of %lld, ", integer(l, "num_attention_heads"),
           integer(l, "num_key_value_heads"), integer(l, "head_dim"));
    print_mlp(l);
    print_gate(get(l, "gate"));
    print_rope(get(l, "rope"), integer(l, "head_dim"));
    label("extras");
    if (integer(l, "switch_experts"))
        printf("%lld of %lld maps for %s, ", integer(l, "switch_topk"), integer(l, "switch_experts"),
               strcmp(text(l, "switch_head"), "v") ? "keys and values" : "values");
    printf("%s", on(l, "qk_norm") ? "q/k norm" : "no q/k norm");
    if (on(l, "qk_norm_whole")) printf(" over all heads");
    if (on(l, "qkv_bias")) printf(", q/k/v bias");
    if (on(l, "o_bias")) printf(", output bias");
    if (on(l, "sandwich_norm")) printf(on(l, "no_input_norm") ? ", norms behind the branches only" : ", sandwich norm");
    if (on(l, "sdpa_norm")) printf(", norm on the attention output");
    if (on(l, "sdpa_silu")) printf(", SiLU on the attention output");
    double clip = json_real_value(get(l, "residual_clip"));
    if (clip > 0) printf(", residual clip %g", clip);
    print_list(get(l, "extras"), ", ");
    printf("\n");
}

static void print_costs(const json_t *c) {
    char a[32], b[32], d[32];
    double parameters = (double)integer(c, "parameters"), gate = (double)integer(c, "gate_parameters");
    label("parameters");
    printf("%s (%lld), gate %s (%.2f %%)\n", sluice__format_count(a, parameters), integer(c, "parameters"),
           sluice__format_count(b, gate), 100 * gate / parameters);
    if (integer(c, "active_parameters") != integer(c, "parameters")) {
        label("active");
        printf("%s a token\n", sluice__format_count(a, (double)integer(c, "active_parameters")));
    }
    label("FLOPs per token");
    printf("%s, mean of a pass over %lld tokens\n",
           sluice__format_count(a, json_real_value(get(c, "forward_flops_per_token"))), integer(c, "context"));
    label("memory");
    bool stored = integer(c, "stored_bytes") > 0; /* known when the weight files are there */
    double weights = (double)integer(c, stored ? "stored_bytes" : "weight_bytes"),
           cache = (double)(integer(c, "cache_bytes") + integer(c, "state_bytes"));
    printf("%s to run%s: weights %s, keys and values of %lld tokens %s",
           sluice__format_bytes(a, weights + cache), stored ? "" : " in fp32", sluice__format_bytes(b, weights),
           integer(c, "context"), sluice__format_bytes(d, (double)integer(c, "cache_bytes")));
    if (integer(c, "state_bytes")) printf(", states of linear attention %s", sluice__format_bytes(d, (double)integer(c, "state_bytes")));
    printf("\n");
}

static void print_token(const char *name, const json_t *id, const char *end) {
    if (json_is_integer(id))
        printf("%s %lld%s", name, json_integer_value(id), end);
    else
        printf("%s none%s", name, end);
}

static int has_linear(const json_t *layers) {
    for (size_t i = 0; i < json_array_size(layers); i++)
        if (get(json_array_get(layers, i), "linear")) return 1;
    return 0;
}

void info_print_config(const json_t *c) {
    label("family");
    printf("%s (model_type %s)\n", text(c, "family"), text(c, "model_type"));
    label("sizes");
    printf("%lld layers, hidden %lld, vocabulary %lld, %s head, up to %lld positions\n",
           integer(c, "num_hidden_layers"), integer(c, "hidden_size"), integer(c, "vocab_size"),
           on(c, "tie_word_embeddings") ? "tied" : "untied", integer(c, "max_position_embeddings"));
    label("norms");
    printf("RMS, eps %g, stored as %s\n", json_real_value(get(c, "rms_norm_eps")),
           text(c, "norm")[0] == '1' ? "w - 1" : "w");
    label("tokens");
    print_token("bos", get(c, "bos_token_id"), ", ");
    print_token("eos", get(c, "eos_token_id"), ", ");
    print_token("pad", get(c, "pad_token_id"), "\n");
    const json_t *layers = get(c, "layers");
    for (size_t first = 0, next; first < json_array_size(layers); first = next) {
        const json_t *l = json_array_get(layers, first);
        for (next = first + 1; next < json_array_size(layers) && json_equal(l, json_array_get(layers, next));
             next++) {
        }
        print_layers(l, first, next - 1);
    }
    print_costs(c);
    if (json_array_size(get(c, "extras"))) {
        label("model extras");
        print_list(get(c, "extras"), "");
        printf("\n");
    }
    label("transformers");
    const char *class = text(c, "transformers_class");
    if (*text(c, "cannot_train"))
        printf("runs, but cannot be trained or saved here: it has %s\n", text(c, "cannot_train"));
    else if (*class)
        printf("can be saved for %s\n", class);
    else if (has_linear(layers))
        printf("a hybrid: runs, cannot be saved by this version\n");
    else
        printf("can be saved with our own class only (trust_remote_code)\n");
}

/* ---- weights ---- */

static void print_counts(const json_t *o) {
    const char *key;
    json_t *count;
    const char *separator = "";
    json_object_foreach((json_t *)(uintptr_t)o, key, count) {
        printf("%s%s x%lld", separator, key, json_integer_value(count));
        separator = ", ";
    }
}

static void print_shape(const json_t *shape) {
    for (size_t i = 0; i < json_array_size(shape); i++)
        printf("%s%lld", i ? " x " : "", json_integer_value(json_array_get(shape, i)));
}

void info_print_weights(const json_t *w) {
    char a[32], b[32];
    label("weights");
    printf("%lld tensors, %s elements, %s: ", integer(w, "tensors"),
           sluice__format_count(a, (double)integer(w, "elements")),
           sluice__format_bytes(b, (double)integer(w, "bytes")));
    print_counts(get(w, "dtypes"));
    printf("\n");
    label("files");
    print_counts(get(w, "files"));
    printf("\n");
    const json_t *list = get(w, "list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *t = json_array_get(list, i);
        printf("    %-60s %-8s ", text(t, "name"), text(t, "dtype"));
        print_shape(get(t, "shape"));
        printf("\n");
    }
}
