/* SPDX-License-Identifier: Apache-2.0 */
/* An inspection as JSON: names of metrics as in the field's papers, null where there is no value.
 */
#include "inspect/inspection_json.h"
#include "base/memory.h"
#include <math.h>
#include <stddef.h>

json_t *sluice__json_number(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *sluice__json_numbers(const double *v, int count) {
    json_t *a = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(a, sluice__json_number(v[i]));
    return a;
}

json_t *sluice__share_to_json(const sluice_first_share *s) {
    return json_pack("{s:o, s:o, s:o, s:o}", "all", sluice__json_number(s->all), "from_1",
                     sluice__json_number(s->from_1), "from_4", sluice__json_number(s->from_4),
                     "from_quarter", sluice__json_number(s->from_quarter));
}

static json_t *share_heads(const sluice_inspect_layer *l) {
    json_t *all = json_array(), *from_1 = json_array(), *quarter = json_array();
    for (int h = 0; h < l->heads; h++) {
        json_array_append_new(all, sluice__json_number(l->share_heads[h].all));
        json_array_append_new(from_1, sluice__json_number(l->share_heads[h].from_1));
        json_array_append_new(quarter, sluice__json_number(l->share_heads[h].from_quarter));
    }
    return json_pack("{s:o, s:o, s:o}", "all", all, "from_1", from_1, "from_quarter", quarter);
}

static json_t *counts(const int64_t *v, int n) {
    json_t *a = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(a, json_integer(v[i]));
    return a;
}

static json_t *gate(const sluice_gate_stats *g) {
    if (!g->heads) return json_null();
    json_t *hist = counts(g->hist, SLUICE_GATE_BINS), *heads_hist = json_array();
    for (int h = 0; h < g->heads; h++)
        json_array_append_new(
            heads_hist, counts(g->heads_hist + (size_t)h * SLUICE_GATE_BINS, SLUICE_GATE_BINS));
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "mean",
        sluice__json_number(g->mean), "std", sluice__json_number(g->std), "min",
        sluice__json_number(g->min), "max", sluice__json_number(g->max), "below_0.1",
        sluice__json_number(g->below_01), "below_0.5", sluice__json_number(g->below_05), "hist",
        hist, "below", (json_int_t)g->below, "above", (json_int_t)g->above, "heads_mean",
        sluice__json_numbers(g->heads_mean, g->heads), "heads_std",
        sluice__json_numbers(g->heads_std, g->heads), "heads_min",
        sluice__json_numbers(g->heads_min, g->heads), "heads_max",
        sluice__json_numbers(g->heads_max, g->heads), "heads_below_0.1",
        sluice__json_numbers(g->heads_below_01, g->heads), "heads_hist", heads_hist, "quantiles",
        sluice__json_numbers(g->quantiles, SLUICE_GATE_QUANTILES));
}

static json_t *sparsity(const sluice_output_sparsity *s) {
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "mean_abs_before",
        sluice__json_number(s->mean_abs_before), "mean_abs_after",
        sluice__json_number(s->mean_abs_after), "before_0.01", sluice__json_number(s->before_2),
        "after_0.01", sluice__json_number(s->after_2), "control_0.01",
        sluice__json_number(s->control_2), "before_0.001", sluice__json_number(s->before_3),
        "after_0.001", sluice__json_number(s->after_3), "control_0.001",
        sluice__json_number(s->control_3));
}

static json_t *peaks(const sluice_peak *top) {
    json_t *a = json_array();
    for (int i = 0; i < SLUICE_TOP_PEAKS && top[i].value != 0; i++)
        json_array_append_new(a, json_pack("{s:I, s:i, s:i, s:f}", "window",
                                           (json_int_t)top[i].window, "position", top[i].position,
                                           "channel", top[i].channel, "value", top[i].value));
    return a;
}

static json_t *places(const sluice_inspect_layer *l) {
    static const char *const names[SLUICE_PLACES] = {"attn_out", "resid_attn", "ffn_out",
                                                     "resid_ffn"};
    json_t *all = json_object();
    for (int i = 0; i < SLUICE_PLACES; i++) {
        const sluice_place_stats *p = &l->places[i];
        json_object_set_new(
            all, names[i],
            json_pack("{s:o, s:o, s:o, s:I, s:o, s:o, s:o}", "max", sluice__json_number(p->max),
                      "median", sluice__json_number(p->median), "mean_square",
                      sluice__json_number(p->mean_square), "massive", (json_int_t)p->massive,
                      "token_0", sluice__json_number(p->max_first), "others",
                      sluice__json_number(p->max_others), "top", peaks(p->top)));
    }
    return all;
}

/* Arrays over heads; null where rows were not measured. */
static json_t *head_stats(const sluice_inspect_layer *l) {
    static const char *const kinds[] = {"other",     "sink",      "previous",
                                        "duplicate", "induction", "self"};
    static const struct {
        const char *name;
        size_t offset;
    } fields[] = {{"entropy", offsetof(sluice_head_stats, entropy)},
                  {"entropy_share", offsetof(sluice_head_stats, entropy_share)},
                  {"distance", offsetof(sluice_head_stats, distance)},
                  {"self", offsetof(sluice_head_stats, self)},
                  {"previous", offsetof(sluice_head_stats, previous)},
                  {"duplicate", offsetof(sluice_head_stats, duplicate)},
                  {"induction", offsetof(sluice_head_stats, induction)},
                  {"marked", offsetof(sluice_head_stats, marked)}};
    if (isnan(l->distance[0])) return json_null();
    json_t *all = json_object(), *kind = json_array();
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        json_t *a = json_array();
        for (int h = 0; h < l->heads; h++)
            json_array_append_new(
                a, sluice__json_number(
                       *(const double *)(const void *)((const char *)&l->head_stats[h] +
                                                       fields[f].offset)));
        json_object_set_new(all, fields[f].name, a);
    }
    for (int h = 0; h < l->heads; h++)
        json_array_append_new(
            kind, json_string(kinds[sluice_head_kind_of(&l->share_heads[h], &l->head_stats[h])]));
    json_object_set_new(all, "kind", kind);
    return all;
}

static json_t *router(const sluice_router_stats *r) {
    if (!r->experts) return json_null();
    return json_pack("{s:i, s:o, s:o, s:i, s:o}", "experts", r->experts, "entropy",
                     sluice__json_number(r->entropy), "max_load", sluice__json_number(r->max_load),
                     "dead", r->dead, "load", sluice__json_numbers(r->load, r->experts));
}

static json_t *delta(const sluice_delta_stats *d) {
    if (!d->heads) return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "decay",
                     sluice__json_number(d->decay), "decay_min", sluice__json_number(d->decay_min),
                     "decay_max", sluice__json_number(d->decay_max), "decay_heads",
                     sluice__json_numbers(d->decay_heads, d->heads), "decay_hist",
                     counts(d->decay_hist, SLUICE_GATE_BINS), "beta", sluice__json_number(d->beta),
                     "beta_min", sluice__json_number(d->beta_min), "beta_max",
                     sluice__json_number(d->beta_max), "beta_heads",
                     sluice__json_numbers(d->beta_heads, d->heads), "beta_hist",
                     counts(d->beta_hist, SLUICE_GATE_BINS));
}

static json_t *input_errors(const sluice_int8_error *e) {
    static const char *const names[SLUICE_INPUTS] = {"qkv", "o", "up", "down"};
    json_t *all = json_object();
    bool any = false;
    for (int i = 0; i < SLUICE_INPUTS; i++) {
        any |= !isnan(e[i].per_token);
        json_object_set_new(all, names[i],
                            json_pack("{s:o, s:o}", "per_tensor",
                                      sluice__json_number(e[i].per_tensor), "per_token",
                                      sluice__json_number(e[i].per_token)));
    }
    if (any) return all;
    json_decref(all);
    return json_null();
}

/* What inspections have beyond what results.json of a study needs. */
static void add_more(json_t *to, const sluice_inspect_layer *l, int query_bins) {
    bool rows = !isnan(l->distance[0]);
    json_object_set_new(to, "sink_rate_0.3_64", sluice__json_number(l->sink_rate_64));
    json_object_set_new(to, "share_queries", sluice__json_numbers(l->share_queries, query_bins));
    json_object_set_new(to, "key_norm",
                        json_pack("{s:o, s:o}", "token_0",
                                  sluice__json_numbers(l->key_norm_first, l->kv_heads), "others",
                                  sluice__json_numbers(l->key_norm_others, l->kv_heads)));
    json_object_set_new(to, "places", places(l));
    json_object_set_new(to, "heads", head_stats(l));
    json_object_set_new(to, "distance",
                        rows ? sluice__json_numbers(l->distance, SLUICE_DISTANCE_BINS)
                             : json_null());
    json_object_set_new(to, "matched_queries", sluice__json_number(l->duplicate_queries));
    json_object_set_new(to, "router", router(&l->router));
    json_object_set_new(to, "delta", delta(&l->delta));
    bool learned = l->heads && !isnan(l->learned_sink[0]);
    json_object_set_new(to, "learned_sink",
                        learned ? sluice__json_numbers(l->learned_sink, l->heads) : json_null());
    json_object_set_new(to, "int8_error", input_errors(l->input_error));
}

static json_t *layer(const sluice_inspect_layer *l, int query_bins) {
    json_t *residual = json_pack("{s:o, s:o, s:I}", "max", sluice__json_number(l->residual_max),
                                 "median", sluice__json_number(l->residual_median), "massive",
                                 (json_int_t)l->residual_massive);
    json_t *max_abs = json_pack(
        "{s:o, s:o, s:o, s:o}", "attn_out", sluice__json_number(l->max_attn_out), "resid_attn",
        sluice__json_number(l->max_resid_attn), "ffn_out", sluice__json_number(l->max_ffn_out),
        "resid_ffn", sluice__json_number(l->max_resid_ffn));
    json_t *peak = json_pack("{s:o, s:o, s:o}", "token_0", sluice__json_number(l->peak_first),
                             "others", sluice__json_number(l->peak_others), "median",
                             sluice__json_number(l->residual_median));
    json_t *values =
        json_pack("{s:o, s:o}", "token_0", sluice__json_numbers(l->value_norm_first, l->kv_heads),
                  "others", sluice__json_numbers(l->value_norm_others, l->kv_heads));
    json_t *all =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "f_attn",
                  sluice__share_to_json(&l->share), "f_attn_heads", share_heads(l), "sink_rate_0.3",
                  sluice__json_number(l->sink_rate), "residual", residual, "max_abs", max_abs,
                  "top3", sluice__json_numbers(l->residual_top3, 3), "first_token_peak", peak,
                  "value_norm", values, "gate", gate(&l->gate), "sparsity", sparsity(&l->sparsity),
                  "max_other_key_share", sluice__json_number(l->max_other_key_share));
    if (all) add_more(all, l, query_bins);
    return all;
}

/* The means over layers. */
static json_t *summary(const sluice_inspection *r) {
    json_t *loss = json_null();
    if (r->scored)
        loss = json_pack("{s:I, s:f, s:f, s:o}", "scored", (json_int_t)r->scored, "loss", r->loss,
                         "perplexity", r->perplexity, "perplexity_half",
                         sluice__json_number(r->perplexity_half));
    return json_pack("{s:I, s:i, s:o, s:o, s:o, s:o, s:i, s:i, s:o, s:I, s:o}", "windows",
                     (json_int_t)r->windows, "seq_len", r->seq_len, "f_attn_mean",
                     sluice__share_to_json(&r->share), "sink_rate_0.3_mean",
                     sluice__json_number(r->sink_rate), "sink_rate_0.3_64_mean",
                     sluice__json_number(r->sink_rate_64), "loss", loss, "sink_heads",
                     r->sink_heads, "heads", r->heads, "m_act_mean", sluice__json_number(r->m_act),
                     "massive_total", (json_int_t)r->massive_total, "gate_mean",
                     sluice__json_number(r->gate_mean));
}

json_t *sluice__inspection_to_json(const sluice_inspection *r) {
    json_t *all = summary(r), *layers = json_array();
    for (int i = 0; i < r->num_layers; i++)
        json_array_append_new(layers, layer(&r->layers[i], r->query_bins));
    if (all)
        json_object_set_new(all, "layers", layers);
    else
        json_decref(layers);
    return all;
}

json_t *sluice__inspection_brief(const sluice_inspection *r) {
    json_t *all = summary(r), *share = json_array(), *heads = json_array(), *max = json_array(),
           *gates = json_array();
    for (int i = 0; i < r->num_layers; i++) {
        const sluice_inspect_layer *l = &r->layers[i];
        json_t *one = json_array();
        for (int h = 0; h < l->heads; h++)
            json_array_append_new(one, sluice__json_number(l->share_heads[h].from_1));
        json_array_append_new(heads, one);
        json_array_append_new(share, sluice__json_number(l->share.from_1));
        json_array_append_new(max, sluice__json_number(l->residual_max));
        json_array_append_new(gates, sluice__json_number(l->gate.mean));
    }
    json_t *layers = json_pack("{s:o, s:o, s:o, s:o}", "f_attn", share, "f_attn_heads", heads,
                               "max", max, "gate", gates);
    if (all)
        json_object_set_new(all, "by_layer", layers);
    else
        json_decref(layers);
    return all;
}

char *sluice_inspection_json(const sluice_inspection *r) {
    json_t *root = sluice__inspection_to_json(r);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

/* RFC 4648, padded. */
static json_t *base64(const unsigned char *data, size_t size) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t length = (size + 2) / 3 * 4;
    char *text = sluice__calloc(length + 1, 1, SLUICE__MEM_OTHER);
    if (!text) return NULL;
    for (size_t i = 0, o = 0; i < size; i += 3, o += 4) {
        unsigned v = (unsigned)data[i] << 16 | (i + 1 < size ? data[i + 1] << 8 : 0) |
                     (i + 2 < size ? data[i + 2] : 0);
        for (int d = 0; d < 4; d++) text[o + (size_t)d] = digits[v >> (18 - 6 * d) & 63];
        if (i + 1 >= size) text[o + 2] = '=';
        if (i + 2 >= size) text[o + 3] = '=';
    }
    json_t *s = json_stringn(text, length);
    sluice__free(text);
    return s;
}

json_t *sluice__bytes_to_json(const float *probs, size_t count) {
    unsigned char *bytes = sluice__calloc(count, 1, SLUICE__MEM_OTHER);
    if (!bytes) return NULL;
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)lrint(255.0 * fmin(fmax(probs[i], 0), 1));
    json_t *s = base64(bytes, count);
    sluice__free(bytes);
    return s;
}

static json_t *gate_rows(const sluice_attention_map *map, int layer_index) {
    json_t *heads = json_array();
    for (int h = 0; h < map->gate_heads[layer_index]; h++) {
        json_t *row = json_array();
        for (int t = 0; t < map->seq_len; t++)
            json_array_append_new(
                row, sluice__json_number(map->gate[layer_index][(size_t)h * map->seq_len + t]));
        json_array_append_new(heads, row);
    }
    return heads;
}

/* The weights on and below the diagonal of [T,T]. */
static json_t *lower_map(const float *probs, int len) {
    size_t count = (size_t)len * ((size_t)len + 1) / 2, at = 0;
    float *part = sluice__calloc(count, sizeof *part, SLUICE__MEM_OTHER);
    if (!part) return NULL;
    for (int q = 0; q < len; q++)
        for (int k = 0; k <= q; k++) part[at++] = probs[(size_t)q * (size_t)len + (size_t)k];
    json_t *s = sluice__bytes_to_json(part, count);
    sluice__free(part);
    return s;
}

static json_t *map_to_json(const sluice_attention_map *map, bool lower) {
    json_t *layers = json_array(), *gates = json_array();
    size_t square = (size_t)map->seq_len * (size_t)map->seq_len;
    bool gated = false;
    for (int i = 0; i < map->num_layers; i++) {
        json_t *heads = json_array();
        for (int h = 0; h < map->heads[i]; h++) {
            const float *probs = map->probs[i] + (size_t)h * square;
            json_array_append_new(heads, lower ? lower_map(probs, map->seq_len)
                                               : sluice__bytes_to_json(probs, square));
        }
        json_array_append_new(layers, heads);
        json_array_append_new(gates, gate_rows(map, i));
        gated |= map->gate_heads[i] > 0;
    }
    if (!gated) {
        json_decref(gates);
        gates = json_null();
    }
    return json_pack("{s:o, s:o}", "layers", layers, "gate", gates);
}

json_t *sluice__map_to_json(const sluice_attention_map *map) {
    return map_to_json(map, false);
}

json_t *sluice__map_to_json_lower(const sluice_attention_map *map) {
    json_t *all = map_to_json(map, true);
    if (all) json_object_set_new(all, "packing", json_string("lower"));
    return all;
}
