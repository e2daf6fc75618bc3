/* SPDX-License-Identifier: Apache-2.0 */
/* Trimming. Two kinds of data grow with the product of arms, seeds and something else: attention
 * maps (layers x heads x tokens^2) and training curves (steps). Both have a budget that ordinary
 * studies stay far under; nothing else is cut. */
#include "study/report_trim.h"
#include "base/memory.h"
#include <stdbool.h>
#include <string.h>

enum {
    MAP_BUDGET = 2 << 20, /* bytes of base64 */
    CURVE_BUDGET = 60000, /* points of all runs together; a figure shows a few hundred per curve */
};

static bool is_done(const json_t *run) {
    const char *status = json_string_value(json_object_get(run, "status"));
    return status && strcmp(status, "done") == 0;
}

static json_t *map_layers(const json_t *run) {
    return json_object_get(json_object_get(run, "attention_map"), "layers");
}

static size_t map_bytes(const json_t *run) {
    size_t bytes = 0, l, h;
    json_t *layer, *head;
    json_array_foreach(map_layers(run), l, layer) {
        json_array_foreach(layer, h, head) {
            bytes += json_string_length(head);
        }
    }
    return bytes;
}

/* Calls visit(run, first, arg) for every run; first: no finished run of this arm with a map came
 * before. */
static void each_run(const json_t *root, void (*visit)(json_t *run, bool first, void *arg),
                     void *arg) {
    size_t a, r;
    json_t *arm, *run;
    json_array_foreach(json_object_get(root, "arms"), a, arm) {
        bool found = false;
        json_array_foreach(json_object_get(arm, "runs"), r, run) {
            bool first = !found && is_done(run) && map_bytes(run) > 0;
            found = found || first;
            visit(run, first, arg);
        }
    }
}

static void add_map_bytes(json_t *run, bool first, void *arg) {
    (void)first;
    *(size_t *)arg += map_bytes(run);
}

static void drop_other_map(json_t *run, bool first, void *arg) {
    (void)arg;
    if (!first) json_object_del(run, "attention_map");
}

/* Sets all but `keep` evenly spread elements to null; the last one stays. */
static void thin_layers(json_t *layers, size_t keep) {
    size_t n = json_array_size(layers);
    for (size_t i = 0; keep < n && i < n; i++)
        if (i * keep / n == (i + 1) * keep / n) json_array_set(layers, i, json_null());
}

static void thin_map(json_t *run, bool first, void *arg) {
    (void)first;
    const double *part = arg;
    size_t n = json_array_size(map_layers(run)), keep = (size_t)(*part * (double)n);
    thin_layers(map_layers(run), keep ? keep : 1);
    thin_layers(json_object_get(json_object_get(run, "attention_map"), "gate"), keep ? keep : 1);
}

static void add_points(json_t *run, bool first, void *arg) {
    (void)first;
    *(size_t *)arg += json_array_size(json_object_get(json_object_get(run, "train"), "step"));
}

static bool is_event(const json_t *train, const json_t *step) {
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(json_object_get(train, "spikes"), "events"), i, event) {
        if (json_number_value(event) == json_number_value(step)) return true;
    }
    return false;
}

typedef struct curve_thinning {
    size_t stride;
    bool failed; /* out of memory */
} curve_thinning;

static void thin_curve(json_t *run, bool first, void *arg) {
    (void)first;
    static const char *const keys[] = {"loss", "grad_norm", "learning_rate",
                                       "step"}; /* step last: the others need it */
    curve_thinning *how = arg;
    json_t *train = json_object_get(run, "train"), *steps = json_object_get(train, "step");
    size_t n = json_array_size(steps);
    for (size_t k = 0; k < 4; k++) {
        json_t *old = json_object_get(train, keys[k]);
        if (json_array_size(old) != n || n == 0) continue;
        json_t *thinned = json_array();
        for (size_t i = 0; thinned && i < n; i++) {
            if (i % how->stride && i + 1 < n && !is_event(train, json_array_get(steps, i)))
                continue;
            if (json_array_append(thinned, json_array_get(old, i)) != 0) how->failed = true;
        }
        if (!thinned || json_object_set_new(train, keys[k], thinned) != 0) how->failed = true;
    }
}

/* Shares per head are drawn for two ranges of queries; the others would be a third of a deep
 * model's page. */
static void drop_undrawn(json_t *run, bool first, void *arg) {
    (void)first, (void)arg;
    size_t l;
    json_t *layer;
    json_array_foreach(json_object_get(json_object_get(run, "inspect"), "layers"), l, layer) {
        json_t *heads = json_object_get(layer, "f_attn_heads");
        json_object_del(heads, "from_1");
        json_object_del(heads, "from_4");
    }
}

static sluice_status say(json_t *root, const char *text, sluice_error *err) {
    json_t *page = json_object_get(root, "page"), *left_out;
    if (!json_is_object(page)) {
        json_object_set_new(root, "page", json_pack("{s:[]}", "left_out"));
        page = json_object_get(root, "page");
    }
    left_out = json_object_get(page, "left_out");
    return json_array_append_new(left_out, json_string(text)) == 0
               ? SLUICE_OK
               : sluice__no_memory(err, strlen(text), "a note");
}

static sluice_status trim_maps(json_t *root, sluice_error *err) {
    size_t bytes = 0;
    each_run(root, add_map_bytes, &bytes);
    if (bytes <= MAP_BUDGET) return SLUICE_OK;
    each_run(root, drop_other_map, NULL);
    SLUICE__TRY(say(root,
                    "Attention maps are shown for the first finished seed of each arm; "
                    "results.json has all of them.",
                    err));
    bytes = 0;
    each_run(root, add_map_bytes, &bytes);
    if (bytes <= MAP_BUDGET) return SLUICE_OK;
    double part = (double)MAP_BUDGET / (double)bytes;
    each_run(root, thin_map, &part);
    return say(
        root,
        "Attention maps are shown for evenly spread layers only; results.json has all of them.",
        err);
}

static sluice_status trim_curves(json_t *root, sluice_error *err) {
    size_t points = 0;
    each_run(root, add_points, &points);
    if (points <= CURVE_BUDGET) return SLUICE_OK;
    curve_thinning how = {.stride = (points + CURVE_BUDGET - 1) / CURVE_BUDGET};
    each_run(root, thin_curve, &how);
    if (how.failed) return sluice__no_memory(err, points, "thinned training curves");
    return say(root,
               "Training curves are thinned to every few points and all spikes; results.json has "
               "every logged point.",
               err);
}

sluice_status sluice__report_trim(json_t *root, sluice_error *err) {
    json_object_del(root, "page");
    each_run(root, drop_undrawn, NULL);
    SLUICE__TRY(trim_maps(root, err));
    return trim_curves(root, err);
}
