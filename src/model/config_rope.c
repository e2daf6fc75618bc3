/* SPDX-License-Identifier: Apache-2.0 */
/* RoPE keys in both spellings of transformers. New: rope_parameters {rope_type, rope_theta,
 * partial_rotary_factor, ...}, possibly keyed by layer type. Old: rope_scaling {type | rope_type, ...} with
 * rope_theta and partial_rotary_factor beside it. As there, rope_scaling wins when both stand in a file, and
 * values inside win over those beside. */
#include "base/memory.h"
#include "model/config.h"
#include <math.h>
#include <string.h>

enum { MAX_POSITIONS = 1 << 30 };

static const struct {
    const char *name;
    sluice_rope_type type;
} types[] = {{"default", SLUICE_ROPE_DEFAULT}, {"linear", SLUICE_ROPE_LINEAR},
             {"dynamic", SLUICE_ROPE_DYNAMIC}, {"yarn", SLUICE_ROPE_YARN},
             {"llama3", SLUICE_ROPE_LLAMA3},   {"longrope", SLUICE_ROPE_LONGROPE}};

static sluice_status read_type(sluice_rope_type *out, const sluice__json *p, sluice_error *err) {
    const char *name = NULL, *key = "rope_type";
    SLUICE__TRY(sluice__json_string(p, key, false, &name, err));
    if (!name) SLUICE__TRY(sluice__json_string(p, key = "type", false, &name, err));
    *out = SLUICE_ROPE_DEFAULT;
    if (!name) return SLUICE_OK;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name)) continue;
        *out = types[i].type;
        return SLUICE_OK;
    }
    return sluice__json_fail(
        p, key, err, "found \"%.40s\", expected one of default, linear, dynamic, yarn, llama3, longrope", name);
}

/* The object with the parameters, and the one that it is in when they are keyed by layer type (otherwise the same);
 * .value NULL when there is none. */
static sluice_status find_parameters(sluice__json *out, sluice__json *outer, const sluice__json *json,
                                     const char *kind, sluice_error *err) {
    *out = sluice__json_get(json, "rope_scaling");
    if (!out->value || (json_is_object(out->value) && !json_object_size(out->value)))
        *out = sluice__json_get(json, "rope_parameters");
    *outer = *out;
    if (!out->value) return SLUICE_OK;
    if (!json_is_object(out->value)) return sluice__json_fail(out, NULL, err, "expected an object or null");
    sluice__json by_kind = sluice__json_get(out, kind);
    if (json_is_object(by_kind.value)) {
        *out = by_kind;
    } else if (json_is_object(json_object_get(out->value, "full_attention")) ||
               json_is_object(json_object_get(out->value, "sliding_attention"))) {
        return sluice__json_fail(out, kind, err, "missing: the parameters are keyed by layer type");
    }
    return SLUICE_OK;
}

static sluice_status read_theta(sluice_rope_spec *r, const sluice__json *json, const sluice__json *p,
                                sluice_error *err) {
    SLUICE__TRY(sluice__json_real(json, "rope_theta", false, 1e-3, 1e15, &r->theta, err));
    SLUICE__TRY(sluice__json_real(p, "rope_theta", false, 1e-3, 1e15, &r->theta, err));
    if (r->theta <= 1)
        return sluice__json_fail(json, "rope_theta", err, "found %g, expected more than 1", r->theta);
    return SLUICE_OK;
}

static sluice_status read_rotary(sluice_rope_spec *r, const sluice__json *json, const sluice__json *p,
                                 int head_dim, double partial, sluice_error *err) {
    SLUICE__TRY(sluice__json_real(json, "partial_rotary_factor", false, 0, 1, &partial, err));
    SLUICE__TRY(sluice__json_real(p, "partial_rotary_factor", false, 0, 1, &partial, err));
    r->rotary_dim = (int)(head_dim * partial);
    r->enabled = r->rotary_dim > 0;
    if (r->rotary_dim % 2)
        return sluice__json_fail(
            json, "partial_rotary_factor", err,
            "found %g: %d of %d components of a head would rotate, expected an even number", partial,
            r->rotary_dim, head_dim);
    return SLUICE_OK;
}

static sluice_status read_factors(double **out, const sluice__json *p, const char *key, int count,
                                  sluice_error *err) {
    sluice__json list = sluice__json_get(p, key);
    if (!json_is_array(list.value) || json_array_size(list.value) != (size_t)count)
        return sluice__json_fail(p, key, err, "expected a list of %d numbers (rotary_dim / 2)", count);
    *out = sluice__calloc((size_t)count, sizeof **out, SLUICE__MEM_OTHER);
    if (!*out) return sluice__no_memory(err, (size_t)count * sizeof **out, key);
    for (int i = 0; i < count; i++) {
        double v = json_number_value(json_array_get(list.value, (size_t)i));
        if (!(v >= 1e-6 && v <= 1e9))
            return sluice__json_fail(&list, NULL, err, "entry %d: expected a number above 0", i);
        (*out)[i] = v;
    }
    return SLUICE_OK;
}

/* For yarn and longrope factor may be absent: then it is max / original. */
static sluice_status read_factor(sluice_rope_spec *r, const sluice__json *p, int64_t max_positions,
                                 sluice_error *err) {
    bool implied = r->type == SLUICE_ROPE_LONGROPE || r->type == SLUICE_ROPE_YARN;
    r->factor = implied ? (double)max_positions / (double)r->original_max_position_embeddings : 0;
    SLUICE__TRY(sluice__json_real(p, "factor", !implied, 1e-3, 1e6, &r->factor, err));
    if (r->type == SLUICE_ROPE_DYNAMIC && r->factor < 1)
        return sluice__json_fail(p, "factor", err, "found %g, expected 1 or more", r->factor);
    return SLUICE_OK;
}

static sluice_status read_lengths(sluice_rope_spec *r, const sluice__json *json, const sluice__json *p,
                                  int64_t max_positions, sluice_error *err) {
    r->original_max_position_embeddings = max_positions;
    if (r->type == SLUICE_ROPE_DYNAMIC || r->type == SLUICE_ROPE_LINEAR)
        return SLUICE_OK; /* they count from max_position_embeddings */
    int64_t *original = &r->original_max_position_embeddings;
    SLUICE__TRY(
        sluice__json_int(p, "original_max_position_embeddings", false, 2, MAX_POSITIONS, original, err));
    return sluice__json_int(json, "original_max_position_embeddings", false, 2, MAX_POSITIONS, original, err);
}

static sluice_status read_yarn(sluice_rope_spec *r, const sluice__json *p, sluice_error *err) {
    SLUICE__TRY(sluice__json_real(p, "beta_fast", false, 0, 1e6, &r->beta_fast, err));
    SLUICE__TRY(sluice__json_real(p, "beta_slow", false, 0, 1e6, &r->beta_slow, err));
    if (r->beta_fast == 0) r->beta_fast = 32; /* 0 reads as absent in transformers */
    if (r->beta_slow == 0) r->beta_slow = 1;
    SLUICE__TRY(sluice__json_real(p, "mscale", false, 0, 1e6, &r->mscale, err));
    return sluice__json_real(p, "mscale_all_dim", false, 0, 1e6, &r->mscale_all_dim, err);
}

static sluice_status read_llama3(sluice_rope_spec *r, const sluice__json *p, sluice_error *err) {
    SLUICE__TRY(sluice__json_real(p, "low_freq_factor", true, 1e-6, 1e6, &r->low_freq_factor, err));
    SLUICE__TRY(sluice__json_real(p, "high_freq_factor", true, 1e-6, 1e6, &r->high_freq_factor, err));
    if (r->high_freq_factor <= r->low_freq_factor)
        return sluice__json_fail(p, "high_freq_factor", err,
                                 "found %g, expected more than low_freq_factor (%g)", r->high_freq_factor,
                                 r->low_freq_factor);
    return SLUICE_OK;
}

static sluice_status read_scaling(sluice_rope_spec *r, const sluice__json *json, const sluice__json *p,
                                  int64_t max_positions, sluice_error *err) {
    SLUICE__TRY(read_lengths(r, json, p, max_positions, err));
    SLUICE__TRY(read_factor(r, p, max_positions, err));
    SLUICE__TRY(sluice__json_real(p, "attention_factor", false, 0, 1e6, &r->attention_factor, err));
    if (r->type == SLUICE_ROPE_YARN) return read_yarn(r, p, err);
    if (r->type == SLUICE_ROPE_LLAMA3) return read_llama3(r, p, err);
    if (r->type != SLUICE_ROPE_LONGROPE) return SLUICE_OK;
    SLUICE__TRY(read_factors(&r->long_factor, p, "long_factor", r->rotary_dim / 2, err));
    return read_factors(&r->short_factor, p, "short_factor", r->rotary_dim / 2, err);
}

sluice_status sluice__rope_read(sluice_rope_spec *out, const sluice__json *json, const char *kind, int head_dim,
                                int64_t max_position_embeddings, double theta, double partial,
                                sluice_error *err) {
    *out = (sluice_rope_spec){.theta = theta,
                              .factor = 1,
                              .beta_fast = 32,
                              .beta_slow = 1,
                              .truncate = true,
                              .original_max_position_embeddings = max_position_embeddings};
    sluice__json p, outer;
    SLUICE__TRY(find_parameters(&p, &outer, json, kind, err));
    SLUICE__TRY(read_theta(out, json, &p, err));
    SLUICE__TRY(read_rotary(out, json, &p, head_dim, partial, err));
    SLUICE__TRY(read_type(&out->type, &p, err));
    if (!out->enabled || out->type == SLUICE_ROPE_DEFAULT) return SLUICE_OK;
    sluice_status st = read_scaling(out, json, &p, max_position_embeddings, err);
    /* transformers reads it from there even where the parameters are keyed by layer type */
    if (st == SLUICE_OK && out->type == SLUICE_ROPE_YARN)
        st = sluice__json_bool(&outer, "truncate", false, &out->truncate, err);
    if (st != SLUICE_OK) sluice__rope_free(out);
    return st;
}

void sluice__rope_free(sluice_rope_spec *rope) {
    sluice__free(rope->long_factor);
    sluice__free(rope->short_factor);
    rope->long_factor = rope->short_factor = NULL;
}

static double *copy_factors(const double *in, int count) {
    double *out = in ? sluice__calloc((size_t)count, sizeof *out, SLUICE__MEM_OTHER) : NULL;
    if (out) memcpy(out, in, (size_t)count * sizeof *out);
    return out;
}

sluice_status sluice__rope_copy(sluice_rope_spec *out, const sluice_rope_spec *in, sluice_error *err) {
    *out = *in;
    out->long_factor = copy_factors(in->long_factor, in->rotary_dim / 2);
    out->short_factor = copy_factors(in->short_factor, in->rotary_dim / 2);
    if ((in->long_factor && !out->long_factor) || (in->short_factor && !out->short_factor)) {
        sluice__rope_free(out);
        return sluice__no_memory(err, (size_t)in->rotary_dim * sizeof(double), "RoPE factors");
    }
    return SLUICE_OK;
}

static bool same_factors(const double *a, const double *b, int count) {
    return a && b ? !memcmp(a, b, (size_t)count * sizeof *a) : a == b;
}

bool sluice__rope_equal(const sluice_rope_spec *a, const sluice_rope_spec *b) {
    if (!a->enabled || !b->enabled) return a->enabled == b->enabled;
    return a->theta == b->theta && a->rotary_dim == b->rotary_dim && a->type == b->type &&
           a->factor == b->factor &&
           a->original_max_position_embeddings == b->original_max_position_embeddings &&
           a->attention_factor == b->attention_factor && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->mscale == b->mscale && a->mscale_all_dim == b->mscale_all_dim &&
           a->truncate == b->truncate && a->low_freq_factor == b->low_freq_factor &&
           a->high_freq_factor == b->high_freq_factor &&
           same_factors(a->long_factor, b->long_factor, a->rotary_dim / 2) &&
           same_factors(a->short_factor, b->short_factor, a->rotary_dim / 2);
}

/* ---- writing ---- */

static int set_real(json_t *o, const char *key, double value) {
    return json_object_set_new(o, key, json_real(value));
}

static int set_list(json_t *o, const char *key, const double *values, int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(list, json_real(values[i]));
    return json_object_set_new(o, key, list);
}

static int set_scaling(json_t *o, const sluice_rope_spec *r) {
    int bad = set_real(o, "factor", r->factor);
    if (r->type == SLUICE_ROPE_LINEAR || r->type == SLUICE_ROPE_DYNAMIC) return bad;
    bad |= json_object_set_new(o, "original_max_position_embeddings",
                               json_integer(r->original_max_position_embeddings));
    if (r->attention_factor > 0) bad |= set_real(o, "attention_factor", r->attention_factor);
    if (r->type == SLUICE_ROPE_YARN) {
        bad |= set_real(o, "beta_fast", r->beta_fast) | set_real(o, "beta_slow", r->beta_slow);
        if (r->mscale > 0) bad |= set_real(o, "mscale", r->mscale);
        if (r->mscale_all_dim > 0) bad |= set_real(o, "mscale_all_dim", r->mscale_all_dim);
        if (!r->truncate) bad |= json_object_set_new(o, "truncate", json_false());
    } else if (r->type == SLUICE_ROPE_LLAMA3) {
        bad |= set_real(o, "low_freq_factor", r->low_freq_factor) |
               set_real(o, "high_freq_factor", r->high_freq_factor);
    } else {
        bad |= set_list(o, "long_factor", r->long_factor, r->rotary_dim / 2);
        bad |= set_list(o, "short_factor", r->short_factor, r->rotary_dim / 2);
    }
    return bad;
}

json_t *sluice__rope_to_json(const sluice_rope_spec *r, int head_dim) {
    json_t *o = json_object();
    int bad = json_object_set_new(o, "rope_type", json_string(types[r->type].name));
    bad |= set_real(o, "rope_theta", r->theta);
    bad |= set_real(o, "partial_rotary_factor", r->enabled ? (double)r->rotary_dim / head_dim : 0);
    if (r->enabled && r->type != SLUICE_ROPE_DEFAULT) bad |= set_scaling(o, r);
    if (!bad) return o;
    json_decref(o);
    return NULL;
}

/* ---- how far it reaches ---- */

int64_t sluice__config_positions(const sluice_config *config) {
    int64_t most = config->max_position_embeddings;
    for (int i = 0; i < config->num_hidden_layers; i++) {
        const sluice_rope_spec *r = &config->layers[i].rope;
        if (!r->enabled || r->type == SLUICE_ROPE_DEFAULT) continue;
        int64_t from = r->original_max_position_embeddings > 0 ? r->original_max_position_embeddings : config->max_position_embeddings;
        double reach = r->factor * (double)from;
        if (reach > (double)most && reach < 9e15) most = (int64_t)reach;
    }
    return most;
}
