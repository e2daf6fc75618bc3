/* SPDX-License-Identifier: Apache-2.0 */
/* Curves from metrics.jsonl: one line an update (a study logs every one), one line a probe. */
#include "study/curves.h"
#include "base/file.h"
#include "base/memory.h"
#include "inspect/inspection_json.h"
#include "train/spikes.h"
#include <math.h>
#include <string.h>

enum { LAST = 50, KEPT_EVENTS = 500 }; /* updates behind final_loss; spike events that survive thinning */

typedef struct point {
    int64_t step, tokens;
    double loss, grad_norm, learning_rate, tokens_per_second;
} point;

typedef struct curves {
    point *points;
    int64_t count, capacity;
    json_t *probe_step, *share, *max_abs, *max_attn, *max_ffn, *gate;
    json_t *router; /* object of arrays over looks; empty without experts */
} curves;

static double number_of(const json_t *line, const char *key) {
    json_t *v = json_object_get(line, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static sluice_status add_point(curves *c, const json_t *line, sluice_error *err) {
    if (c->count == c->capacity) {
        int64_t more = c->capacity ? 2 * c->capacity : 1024;
        point *grown = sluice__realloc(c->points, (size_t)more, sizeof *grown, SLUICE__MEM_OTHER);
        if (!grown) return sluice__no_memory(err, (size_t)more * sizeof *grown, "training curves");
        c->points = grown;
        c->capacity = more;
    }
    c->points[c->count++] = (point){json_integer_value(json_object_get(line, "step")),
                                    json_integer_value(json_object_get(line, "tokens")),
                                    number_of(line, "loss"),
                                    number_of(line, "grad_norm"),
                                    number_of(line, "learning_rate"),
                                    number_of(line, "tokens_per_second")};
    return SLUICE_OK;
}

static void append_copy(json_t *to, const json_t *line, const char *key) {
    json_t *v = json_object_get(line, key);
    json_array_append(to, v ? v : json_null());
}

static void add_probe(curves *c, const json_t *line) {
    append_copy(c->probe_step, line, "step");
    append_copy(c->share, line, "first_token_share_from_quarter");
    append_copy(c->max_abs, line, "max_abs_residual");
    append_copy(c->max_attn, line, "max_abs_attn_out");
    append_copy(c->max_ffn, line, "max_abs_ffn_out");
    append_copy(c->gate, line, "gate_mean");
}

/* Loads of single experts are left to metrics.jsonl: those of one update say little. */
static void add_router(curves *c, const json_t *line) {
    static const char *const keys[] = {"step", "entropy", "max_load", "dead_experts"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!json_object_get(c->router, keys[i])) json_object_set_new(c->router, keys[i], json_array());
        append_copy(json_object_get(c->router, keys[i]), line, keys[i]);
    }
}

static sluice_status add_line(curves *c, const char *text, size_t size, sluice_error *err) {
    json_t *line = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
    const char *type = json_string_value(json_object_get(line, "type"));
    sluice_status st = SLUICE_OK;
    if (type && !strcmp(type, "train"))
        st = add_point(c, line, err);
    else if (type && !strcmp(type, "probe"))
        add_probe(c, line);
    else if (type && !strcmp(type, "router"))
        add_router(c, line);
    json_decref(line);
    return st;
}

static sluice_status read_lines(curves *c, const char *path, sluice_error *err) {
    sluice__map map;
    if (!sluice__is_file(path)) return SLUICE_OK;
    SLUICE__TRY(sluice__map_open(&map, path, err));
    const char *at = (const char *)map.data, *end = at + map.size;
    sluice_status st = SLUICE_OK;
    while (st == SLUICE_OK && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        st = add_line(c, at, (size_t)(stop - at), err);
        at = stop + 1;
    }
    sluice__map_close(&map);
    return st;
}

/* ---- spikes ---- */

typedef struct spikes {
    double *loss;
    int64_t *flagged, *events, num_flagged, num_events;
} spikes;

static sluice_status find_spikes(spikes *s, const curves *c, const sluice_train_params *p, sluice_error *err) {
    size_t n = (size_t)c->count;
    s->loss = sluice__calloc(n, sizeof *s->loss, SLUICE__MEM_OTHER);
    s->flagged = sluice__calloc(n, sizeof *s->flagged, SLUICE__MEM_OTHER);
    s->events = sluice__calloc(n, sizeof *s->events, SLUICE__MEM_OTHER);
    if (!s->loss || !s->flagged || !s->events) return sluice__no_memory(err, n * sizeof *s->loss, "training curves");
    for (size_t i = 0; i < n; i++) s->loss[i] = c->points[i].loss;
    sluice__spike_options o = {p->loss_spike_alpha, p->loss_spike_threshold, p->loss_spike_start,
                               p->loss_spike_min_gap};
    sluice__loss_spikes(s->loss, c->count, o, s->flagged, &s->num_flagged, s->events, &s->num_events);
    return SLUICE_OK;
}

static json_t *steps_of(const curves *c, const int64_t *indices, int64_t count) {
    json_t *a = json_array();
    for (int64_t i = 0; i < count && i < SLUICE__CURVE_POINTS; i++)
        json_array_append_new(a, json_integer(c->points[indices[i]].step));
    return a;
}

static json_t *spikes_to_json(const spikes *s, const curves *c, const sluice_train_params *p) {
    return json_pack("{s:o, s:o, s:o, s:f}", "flagged", steps_of(c, s->flagged, s->num_flagged), "events",
                     steps_of(c, s->events, s->num_events), "spike_score",
                     sluice__json_number(sluice__spike_score(s->loss, c->count, 1000, 7, 100)), "threshold",
                     p->loss_spike_threshold);
}

/* ---- output ---- */

/* Every stride-th point, the last one, and the first KEPT_EVENTS spike events. */
static void thinned(json_t *out, const curves *c, const spikes *s) {
    json_t *step = json_array(), *loss = json_array(), *norm = json_array(), *rate = json_array();
    int64_t events = s->num_events < KEPT_EVENTS ? s->num_events : KEPT_EVENTS, next = 0;
    int64_t room = SLUICE__CURVE_POINTS - events - 1, stride = (c->count + room - 1) / room;
    for (int64_t i = 0; i < c->count; i++) {
        bool event = next < events && s->events[next] == i;
        next += event;
        if (i % stride && !event && i + 1 < c->count) continue;
        json_array_append_new(step, json_integer(c->points[i].step));
        json_array_append_new(loss, sluice__json_number(c->points[i].loss));
        json_array_append_new(norm, sluice__json_number(c->points[i].grad_norm));
        json_array_append_new(rate, sluice__json_number(c->points[i].learning_rate));
    }
    json_object_set_new(out, "step", step);
    json_object_set_new(out, "loss", loss);
    json_object_set_new(out, "grad_norm", norm);
    json_object_set_new(out, "learning_rate", rate);
}

/* Time from the speed of every update, so that it adds up over interruptions and leaves out evaluation. */
static double seconds_of(const curves *c) {
    double seconds = 0;
    int64_t timed = 0, last = 0;
    for (int64_t i = 0; i < c->count; i++) {
        double speed = c->points[i].tokens_per_second;
        if (speed > 0) seconds += (double)(c->points[i].tokens - last) / speed, timed++;
        last = c->points[i].tokens;
    }
    return timed ? seconds * (double)c->count / (double)timed : NAN;
}

static double final_loss(const curves *c) {
    int64_t n = c->count < LAST ? c->count : LAST;
    double sum = 0;
    for (int64_t i = c->count - n; i < c->count; i++) sum += c->points[i].loss;
    return n ? sum / (double)n : NAN;
}

static bool has_gate(const json_t *rows) {
    size_t i, j;
    json_t *row, *v;
    json_array_foreach(rows, i, row) json_array_foreach(row, j, v) if (json_is_number(v)) return true;
    return false;
}

static json_t *to_json(const curves *c, const spikes *s, const sluice_train_params *p) {
    double seconds = seconds_of(c);
    int64_t tokens = c->count ? c->points[c->count - 1].tokens : 0;
    json_t *out = json_pack("{s:o, s:o, s:I, s:I, s:o}", "seconds", sluice__json_number(seconds), "tokens_per_s",
                            sluice__json_number((double)tokens / seconds), "tokens", (json_int_t)tokens, "updates",
                            (json_int_t)c->count, "final_loss", sluice__json_number(final_loss(c)));
    thinned(out, c, s);
    json_object_set(out, "probe_step", c->probe_step);
    json_object_set(out, "first_token_share", c->share);
    json_object_set(out, "max_abs_residual", c->max_abs);
    json_object_set(out, "max_abs_attn_out", c->max_attn);
    json_object_set(out, "max_abs_ffn_out", c->max_ffn);
    json_object_set(out, "gate_mean", has_gate(c->gate) ? c->gate : json_null());
    if (json_object_size(c->router)) json_object_set(out, "router", c->router);
    json_object_set_new(out, "spikes", spikes_to_json(s, c, p));
    return out;
}

sluice_status sluice__curves_read(json_t **out, const char *metrics_path, const sluice_train_params *p,
                                  sluice_error *err) {
    curves c = {.probe_step = json_array(), .share = json_array(), .max_abs = json_array(), .max_attn = json_array(),
                .max_ffn = json_array(),    .gate = json_array(),  .router = json_object()};
    spikes s = {0};
    sluice_status st = read_lines(&c, metrics_path, err);
    if (st == SLUICE_OK) st = find_spikes(&s, &c, p, err);
    if (st == SLUICE_OK) *out = to_json(&c, &s, p);
    sluice__free(s.loss);
    sluice__free(s.flagged);
    sluice__free(s.events);
    sluice__free(c.points);
    json_decref(c.probe_step);
    json_decref(c.share);
    json_decref(c.max_abs);
    json_decref(c.max_attn);
    json_decref(c.max_ffn);
    json_decref(c.gate);
    json_decref(c.router);
    return st;
}
