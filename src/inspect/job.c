/* SPDX-License-Identifier: Apache-2.0 */
/* An inspect job: every model in turn, so that no two are in memory at the same time. */
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "inspect/inspection_json.h"
#include "inspect/intervene.h"
#include "inspect/job.h"
#include "model/config.h"
#include "model/utf8.h"
#include "sluice/cpu.h"
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <time.h>

enum { ROWS_MOST = 16384 };

sluice_inspect_job sluice_inspect_job_default(void) {
    return (sluice_inspect_job){.bos = SLUICE_BOS_AUTO, .weights = true};
}

sluice_status sluice__job_poll(const sluice_inspect_job *job, sluice_error *err) {
    if (!job->stop_requested || !job->stop_requested(job->user)) return SLUICE_OK;
    return sluice__fail(err, SLUICE_INTERRUPTED, "interrupted");
}

/* ---- one model ---- */

/* Parts of a path, without empty ones: part 0 is the last one. NULL when there are fewer. */
static const char *part_of(const char *path, int index, size_t *size) {
    size_t end = strlen(path);
    for (;; index--) {
        while (end > 0 && path[end - 1] == '/') end--;
        size_t begin = end;
        while (begin > 0 && path[begin - 1] != '/') begin--;
        if (begin == end) return NULL;
        *size = end - begin;
        if (index == 0) return path + begin;
        end = begin;
    }
}

/* Whether part `index` is there and the same in all paths. */
static bool part_is_common(const sluice_inspect_job *job, int index) {
    size_t size, other;
    const char *first = part_of(job->models[0], index, &size);
    for (int i = 1; first && i < job->num_models; i++) {
        const char *p = part_of(job->models[i], index, &other);
        if (!p || other != size || memcmp(p, first, size) != 0) return false;
    }
    return first != NULL;
}

/* What tells this model from the others: its path without the ends that all of them share on either
 * side, or its last part when it is alone. */
static const char *name_of(const sluice_inspect_job *job, const char *path, char out[128]) {
    int skip = 0, take = 1;
    size_t size, end_size;
    while (job->num_models > 1 && part_is_common(job, skip)) skip++;
    while (job->num_models > 1 && part_of(path, skip + take, &size) &&
           !part_is_common(job, skip + take))
        take++;
    const char *end = part_of(path, skip, &end_size);
    if (!end) { /* the same path twice */
        skip = 0, take = 1;
        end = part_of(path, 0, &end_size);
    }
    const char *begin = end ? part_of(path, skip + take - 1, &size) : path;
    size_t length = end ? (size_t)(end + end_size - begin) : strlen(path);
    if (length > 127) begin += length - 127, length = 127;
    memcpy(out, begin, length);
    out[length] = 0;
    return out;
}

/* N of ".../step-N", or -1. */
static json_int_t step_of(const char *path) {
    const char *at = NULL;
    for (const char *p = path; (p = strstr(p, "step-")); p++) at = p;
    if (!at || !isdigit((unsigned char)at[5])) return -1;
    json_int_t step = 0;
    for (at += 5; isdigit((unsigned char)*at) && step < INT64_MAX / 20; at++)
        step = 10 * step + (*at - '0');
    return *at == 0 || *at == '/' ? step : -1;
}

static json_t *describe(const sluice_model *model, const sluice_inspect_job *job,
                        const char *path) {
    static const char *const positions[] = {"none", "sdpa", "value", "key", "query", "output"};
    const sluice_config *c = sluice_model_config(model);
    char name[128];
    json_t *heads = json_array(), *kv = json_array(), *gate = json_null(), *windows = json_array();
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_layer_spec *l = &c->layers[i];
        bool linear = sluice_layer_is_linear(l);
        json_array_append_new(heads, json_integer(linear ? 0 : l->num_attention_heads));
        json_array_append_new(kv, json_integer(linear ? 0 : l->num_key_value_heads));
        json_array_append_new(windows, json_integer(l->sliding_window));
        if (!linear && l->gate.position != SLUICE_GATE_NONE && json_is_null(gate))
            gate =
                json_pack("{s:s, s:s, s:b}", "position", positions[l->gate.position], "granularity",
                          l->gate.granularity == SLUICE_GATE_HEADWISE ? "headwise" : "elementwise",
                          "shared", (int)l->gate.shared);
    }
    json_t *entry =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "name",
                  name_of(job, path, name), "path", path, "model_type", c->model_type, "family",
                  c->family, "parameters", (json_int_t)sluice_config_num_parameters(c),
                  "num_hidden_layers", c->num_hidden_layers, "hidden_size", c->hidden_size,
                  "max_position_embeddings", c->max_position_embeddings, "num_attention_heads",
                  heads, "num_key_value_heads", kv, "sliding_window", windows, "gate", gate);
    if (step_of(path) >= 0) json_object_set_new(entry, "step", json_integer(step_of(path)));
    return entry;
}

static uint32_t measures_of(const sluice_inspect_job *job, int seq_len) {
    if (job->measures) return job->measures;
    return seq_len > ROWS_MOST ? SLUICE_MEASURE_ALL & ~SLUICE_MEASURE_ROWS : SLUICE_MEASURE_ALL;
}

/* Where the sink begins and where the largest activation is born, in layer numbers from 0; null
 * where there is none. */
static json_t *origins(const sluice_inspection *r) {
    int sink = -1, begin = -1, longest = 0, birth = -1;
    double most = 0;
    for (int i = 0; i <= r->num_layers; i++) {
        bool high = i < r->num_layers && r->layers[i].share.from_1 > SLUICE_SINK_THRESHOLD;
        if (high && begin < 0) begin = i;
        if (!high && begin >= 0) {
            if (i - begin > longest) longest = i - begin, sink = begin;
            begin = -1;
        }
    }
    for (int i = 0; i < r->num_layers; i++) most = fmax(most, r->layers[i].residual_max);
    for (int i = 0; i < r->num_layers && birth < 0; i++)
        if (most > 0 && r->layers[i].residual_max >= most / 2) birth = i;
    json_t *o = json_pack("{s:o, s:o}", "sink_layer", sink < 0 ? json_null() : json_integer(sink),
                          "sink_layers", json_integer(longest));
    if (birth < 0) return o;
    const sluice_inspect_layer *l = &r->layers[birth];
    const sluice_peak *p = &l->places[SLUICE_PLACE_RESID_FFN].top[0];
    json_object_set_new(o, "peak",
                        json_pack("{s:i, s:s, s:i, s:i, s:f, s:b}", "layer", birth, "place",
                                  l->max_ffn_out >= l->max_attn_out ? "ffn_out" : "attn_out",
                                  "channel", p->channel, "position", p->position, "value", p->value,
                                  "massive", l->residual_massive > 0));
    return o;
}

static sluice_status measure(sluice_inspection **out, const sluice_inspect_job *job,
                             const sluice_model *model, const sluice__job_text *t,
                             const sluice_intervention *change,
                             uint32_t measures, sluice_error *err) {
    sluice_inspect_params p = sluice_inspect_params_default();
    p.measures = measures;
    p.marks = t->marks;
    p.change = change;
    p.stop_requested = job->stop_requested;
    p.user = job->user;
    return sluice_inspect(out, model, t->ids, t->windows, t->seq_len, &p, err);
}

static sluice_status add_change(json_t *rows, const sluice_model *model, const sluice__job_text *t,
                                const sluice_inspect_job *job, const sluice_inspect_change *x,
                                sluice_error *err) {
    sluice__job_text bare = {0};
    sluice_inspection *r = NULL;
    sluice_error own = {0};
    uint32_t measures = SLUICE_MEASURE_LIGHT | SLUICE_MEASURE_MEDIANS | SLUICE_MEASURE_LOSS;
    SLUICE__TRY(sluice__job_poll(job, err));
    sluice_status st = SLUICE_OK;
    if (x->no_bos && t->first < 0)
        st = sluice__fail(&own, SLUICE_ERR_ARGUMENT,
                          "no token stands in front of the windows anyway");
    if (st == SLUICE_OK && x->no_bos) st = sluice__job_text_without_first(&bare, t, job, &own);
    if (st == SLUICE_OK)
        st = measure(&r, job, model, x->no_bos ? &bare : t, x->no_bos ? NULL : &x->change, measures,
                     &own);
    if (st == SLUICE_INTERRUPTED) {
        sluice__job_text_free(&bare);
        return sluice__job_poll(job, err);
    }
    json_t *row = json_pack("{s:s}", "name", x->name);
    if (st == SLUICE_OK)
        json_object_set_new(row, "inspect", sluice__inspection_brief(r));
    else
        json_object_set_new(row, "error", json_string(own.message));
    json_array_append_new(rows, row);
    sluice_inspection_free(r);
    sluice__job_text_free(&bare);
    return SLUICE_OK; /* a row that makes no sense for this model says so; the others stand */
}

static sluice_status fill(json_t *entry, const sluice_model *model, const sluice__job_text *t,
                          const sluice_inspect_job *job, sluice_error *err) {
    sluice_inspection *r;
    sluice_first_share uniform = sluice_uniform_share(t->seq_len);
    json_t *rows = json_array(), *first = json_null();
    uint32_t measures = measures_of(job, t->seq_len);
    json_object_set_new(entry, "interventions", rows);
    if (t->first >= 0) {
        json_t *text;
        SLUICE__TRY(sluice__job_token(&text, t, t->first, err));
        first = json_pack("{s:i, s:o}", "id", (int)t->first, "text", text);
    }
    json_object_set_new(entry, "first_token", first);
    json_object_set_new(entry, "tokens", json_integer(t->windows * t->seq_len));
    json_object_set_new(entry, "uniform_share", sluice__share_to_json(&uniform));
    SLUICE__TRY(measure(&r, job, model, t, NULL, measures, err));
    json_object_set_new(entry, "origins", origins(r));
    json_object_set_new(entry, "inspect", sluice__inspection_to_json(r));
    sluice_inspection_free(r);
    for (int i = 0; i < job->num_changes; i++)
        SLUICE__TRY(add_change(rows, model, t, job, &job->changes[i], err));
    SLUICE__TRY(sluice__job_poll(job, err));
    SLUICE__TRY(sluice__job_add_maps(entry, model, t, job, err));
    return job->weights ? sluice__job_add_weights(entry, model, err) : SLUICE_OK;
}

sluice_status sluice__job_model(json_t **entry, const sluice_inspect_job *job, const char *path,
                                sluice_error *err) {
    sluice_model *model;
    sluice__job_text t = {0};
    double start = sluice__now();
    *entry = NULL;
    SLUICE__TRY(sluice_model_load(&model, path, NULL, err));
    const sluice_config *c = sluice_model_config(model);
    sluice_status st = sluice__job_text_load(&t, job, path, c, err);
    if (st == SLUICE_OK && t.seq_len > sluice__config_positions(c))
        sluice__log(SLUICE_LOG_WARNING,
                    "%s: windows of %d tokens are longer than the %lld positions that it was made for",
                    path, t.seq_len, (long long)sluice__config_positions(c));
    if (st == SLUICE_OK && !job->measures && t.seq_len > ROWS_MOST)
        sluice__log(SLUICE_LOG_WARNING,
                    "%s: entropy, distances and kinds of heads are left out for windows of more "
                    "than %d tokens",
                    path, ROWS_MOST);
    if (st == SLUICE_OK) *entry = describe(model, job, path);
    if (st == SLUICE_OK) st = fill(*entry, model, &t, job, err);
    if (st == SLUICE_OK) json_object_set_new(*entry, "seconds", json_real(sluice__now() - start));
    sluice__job_text_free(&t);
    sluice_model_free(model);
    if (st != SLUICE_OK) {
        json_decref(*entry);
        *entry = NULL;
    }
    return st;
}

/* ---- all ---- */

static json_t *machine(void) {
    char cpu[256];
    sluice_cpu_describe(cpu, sizeof cpu);
    return json_pack("{s:s, s:i}", "cpu", cpu, "threads", sluice_get_num_threads());
}

static json_t *root_of(const sluice_inspect_job *job) {
    char when[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *root =
        json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:I}}", "format", "sluice-inspect-1", "version",
                  SLUICE_VERSION, "created", when, "machine", machine(), "text", "name",
                  job->text_name ? job->text_name : "text", "bytes", (json_int_t)job->text_size);
    if (job->map_text) json_object_set_new(root, "map_text", json_string(job->map_text));
    if (job->mark_tokens) json_object_set_new(root, "mark_tokens", json_string(job->mark_tokens));
    return root;
}

/* Everything that goes into the file and the page has to be UTF-8. */
static sluice_status check_utf8(const char *what, const char *text, size_t size,
                                sluice_error *err) {
    size_t good = text ? sluice__utf8_valid_prefix(text, size) : size, line = 1;
    if (good == size) return SLUICE_OK;
    for (size_t i = 0; i < good; i++) line += text[i] == '\n';
    return sluice__fail(err, SLUICE_ERR_FORMAT,
                        "%s: line %zu: byte 0x%02X (byte %zu of the text, from 0) is not UTF-8; "
                        "convert it first, for example with iconv",
                        what, line, (unsigned char)text[good], good);
}

static sluice_status check_word(const char *what, const char *text, sluice_error *err) {
    return check_utf8(what, text, text ? strlen(text) : 0, err);
}

static sluice_status check(const sluice_inspect_job *job, sluice_error *err) {
    if (job->num_models < 1) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "inspect: no model");
    if (!job->ids && !job->text) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "inspect: no text");
    SLUICE__TRY(check_utf8(job->text_name ? job->text_name : "the text", job->text, job->text_size, err));
    SLUICE__TRY(check_word("the text of the map", job->map_text, err));
    SLUICE__TRY(check_word("the marked tokens", job->mark_tokens, err));
    SLUICE__TRY(check_word("the name of the text", job->text_name, err));
    for (int i = 0; i < job->num_models; i++)
        SLUICE__TRY(check_word("the name of a model", job->models[i], err));
    if (job->seq_len < 0 || job->windows < 0 || job->map_tokens > SLUICE_MAP_MAX_TOKENS)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "inspect: found seq_len %d, %lld windows and maps of %d tokens, "
                            "expected 0 or more, and maps "
                            "of at most %d",
                            job->seq_len, (long long)job->windows, job->map_tokens,
                            SLUICE_MAP_MAX_TOKENS);
    return SLUICE_OK;
}

/* Checkpoints come in the order of their steps, whatever a shell made of their names; other models
 * as they were given. */
static void sort_by_step(json_t *models) {
    size_t n = json_array_size(models);
    for (size_t i = 0; i < n; i++)
        if (step_of(json_string_value(json_object_get(json_array_get(models, i), "path"))) < 0)
            return;
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 0; j--) {
            json_t *a = json_array_get(models, j - 1), *b = json_array_get(models, j);
            const char *left = json_string_value(json_object_get(a, "path"));
            if (step_of(left) <= step_of(json_string_value(json_object_get(b, "path")))) break;
            json_incref(b);
            json_array_remove(models, j);
            json_array_insert_new(models, j - 1, b);
        }
}

static sluice_status all_models(json_t *models, const sluice_inspect_job *job, sluice_error *err) {
    int done = 0;
    sluice__progress p;
    sluice__progress_begin(&p, "inspect", "models", job->num_models, 0, 1);
    for (int i = 0; i < job->num_models; i++) {
        json_t *entry;
        char name[128];
        name_of(job, job->models[i], name);
        SLUICE__TRY(sluice__job_poll(job, err));
        sluice_status st = sluice__job_model(&entry, job, job->models[i], err);
        if (st == SLUICE_INTERRUPTED || (st != SLUICE_OK && job->num_models == 1)) return st;
        if (st != SLUICE_OK) {
            entry = json_pack("{s:s, s:s, s:s}", "name", name, "path", job->models[i], "error",
                              err ? err->message : sluice_status_text(st));
            sluice__log(SLUICE_LOG_WARNING, "%s: %s", job->models[i],
                        err ? err->message : sluice_status_text(st));
        }
        done += st == SLUICE_OK;
        json_array_append_new(models, entry);
        sluice__progress_update(&p, i + 1, "%s", name);
    }
    sluice__progress_end(&p, "%d of %d", done, job->num_models);
    sort_by_step(models);
    return done ? SLUICE_OK : err ? err->code : SLUICE_ERR_ARGUMENT;
}

sluice_status sluice_inspect_run(char **json, const sluice_inspect_job *job, sluice_error *err) {
    sluice_error own = {0};
    if (!err) err = &own;
    *json = NULL;
    SLUICE__TRY(check(job, err));
    json_t *root = root_of(job), *models = json_array();
    json_object_set_new(root, "models", models);
    sluice_status st = all_models(models, job, err);
    if (st == SLUICE_OK) {
        *json = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        if (!*json) st = sluice__no_memory(err, 1 << 20, "inspect.json");
    }
    json_decref(root);
    return st;
}
