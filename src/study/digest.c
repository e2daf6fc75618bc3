/* SPDX-License-Identifier: Apache-2.0 */
/* Reading numbers out of results.json. */
#include "study/digest.h"
#include <math.h>
#include <string.h>

/* Number at a path of keys ("inspect", "f_attn_mean", "all", NULL), or NaN. */
static double number_at(const json_t *at, const char *const *keys) {
    for (; *keys; keys++) at = json_object_get(at, *keys);
    return json_is_number(at) ? json_number_value(at) : NAN;
}

#define NUMBER(at, ...) number_at(at, (const char *const[]){__VA_ARGS__, NULL})

static double mean_of_layers(const json_t *layers, const char *section, const char *key) {
    double sum = 0;
    int count = 0;
    size_t i;
    json_t *layer;
    json_array_foreach(layers, i, layer) {
        double v = NUMBER(layer, section, key);
        if (isnan(v)) continue;
        sum += v;
        count++;
    }
    return count ? sum / count : NAN;
}

static void read_layers(sluice__digest_run *r, const json_t *layers) {
    r->other_key = r->peak = r->peak_others = r->peak_ratio = NAN;
    size_t i;
    json_t *layer;
    json_array_foreach(layers, i, layer) {
        r->other_key = fmax(r->other_key, NUMBER(layer, "max_other_key_share"));
        double first = NUMBER(layer, "first_token_peak", "token_0"),
               median = NUMBER(layer, "first_token_peak", "median");
        if (!(median > 0) || !(isnan(r->peak_ratio) || first / median > r->peak_ratio)) continue;
        r->peak = first;
        r->peak_others = NUMBER(layer, "first_token_peak", "others");
        r->peak_ratio = first / median;
    }
    r->gate_below = mean_of_layers(layers, "gate", "below_0.1");
    r->small_before = mean_of_layers(layers, "sparsity", "before_0.01");
    r->small_after = mean_of_layers(layers, "sparsity", "after_0.01");
    r->small_control = mean_of_layers(layers, "sparsity", "control_0.01");
}

static void read_lengths(sluice__digest_run *r, sluice__digest *d, const json_t *rows) {
    double shortest = INFINITY, longest = 0, base = NAN, plain = NAN, yarn = NAN;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        double length = NUMBER(row, "length"), loss = NUMBER(row, "loss");
        const char *rope = json_string_value(json_object_get(row, "rope"));
        if (length < shortest) shortest = length, base = loss;
        if (length > longest) longest = length, plain = yarn = NAN;
        if (length == longest && rope && !strcmp(rope, "plain")) plain = loss;
        if (length == longest && rope && !strcmp(rope, "yarn")) yarn = loss;
    }
    bool several = longest > shortest;
    r->rise_plain = several ? plain - base : NAN;
    r->rise_yarn = several ? yarn - base : NAN;
    if (several) d->longest = longest / shortest;
}

/* Rows stand plain before YaRN, each by rising length. */
static void read_extension(sluice__digest_run *r, const json_t *stages) {
    const json_t *rows = json_object_get(json_array_get(stages, json_array_size(stages) - 1), "rows");
    const json_t *first = json_array_get(rows, 0), *last = json_array_get(rows, json_array_size(rows) - 1);
    bool yarn = json_is_string(json_object_get(last, "rope")) &&
                !strcmp(json_string_value(json_object_get(last, "rope")), "yarn");
    r->reach_base = NUMBER(first, "loss");
    r->reach_loss = yarn ? NUMBER(last, "loss") : NAN;
    r->reach_recall = yarn ? NUMBER(last, "recall") : NAN;
}

static void read_run(sluice__digest_run *r, sluice__digest *d, const json_t *run) {
    const json_t *inspect = json_object_get(run, "inspect"), *events;
    r->seed = json_integer_value(json_object_get(run, "seed"));
    r->status = json_string_value(json_object_get(run, "status"));
    r->error = json_string_value(json_object_get(run, "error"));
    r->loss = NUMBER(run, "eval", "loss");
    r->perplexity = NUMBER(run, "eval", "perplexity");
    r->bits_per_byte = NUMBER(run, "eval", "bits_per_byte");
    r->share = NUMBER(inspect, "f_attn_mean", "from_quarter");
    r->share_from_1 = NUMBER(inspect, "f_attn_mean", "from_1");
    r->sink_heads = NUMBER(inspect, "sink_heads");
    r->heads = NUMBER(inspect, "heads");
    r->m_act = NUMBER(inspect, "m_act_mean");
    r->massive = NUMBER(inspect, "massive_total");
    r->gate_mean = NUMBER(inspect, "gate_mean");
    read_layers(r, json_object_get(inspect, "layers"));
    events = json_object_get(json_object_get(json_object_get(run, "train"), "spikes"), "events");
    r->spike_events = json_is_array(events) ? (double)json_array_size(events) : NAN;
    r->spike_score = NUMBER(run, "train", "spikes", "spike_score");
    read_lengths(r, d, json_object_get(run, "length"));
    read_extension(r, json_object_get(json_object_get(run, "extension"), "stages"));
    r->seconds = NUMBER(run, "train", "seconds");
    r->tokens_per_s = NUMBER(run, "train", "tokens_per_s");
    r->measured = r->status && !strcmp(r->status, "done") && !isnan(r->loss) && inspect;
}

void sluice__digest_read(sluice__digest *out, const json_t *results) {
    *out = (sluice__digest){.reference = -1, .longest = NAN};
    size_t i, j;
    json_t *arm, *run;
    json_array_foreach(json_object_get(results, "arms"), i, arm) {
        if (out->num_arms == SLUICE__MAX_ARMS) break;
        sluice__digest_arm *a = &out->arms[out->num_arms++];
        a->name = json_string_value(json_object_get(arm, "name"));
        a->label = json_string_value(json_object_get(arm, "label"));
        const char *position = json_string_value(json_object_get(json_object_get(arm, "gate"), "position"));
        a->gated = position && strcmp(position, "none") != 0;
        a->data_set = (int)json_integer_value(json_object_get(arm, "data_set"));
        a->parameters = NUMBER(arm, "parameters");
        const json_t *match = json_object_get(arm, "match");
        a->match_with = json_string_value(json_object_get(match, "with"));
        a->match_to = json_string_value(json_object_get(match, "to"));
        const json_t *rung = json_object_get(arm, "rung");
        a->rung_of = json_string_value(json_object_get(rung, "of"));
        a->rung_label = json_string_value(json_object_get(rung, "label"));
        a->rate = NUMBER(rung, "learning_rate");
        a->uniform = NUMBER(arm, "uniform_share", "from_quarter");
        if (isnan(a->uniform)) a->uniform = NUMBER(results, "uniform_share", "from_quarter");
        json_array_foreach(json_object_get(arm, "runs"), j, run) if (a->num_runs < SLUICE__MAX_SEEDS)
            read_run(&a->runs[a->num_runs++], out, run);
        if (out->reference < 0 && !a->gated) out->reference = (int)i;
    }
    if (out->reference < 0) out->reference = 0;
}

int sluice__digest_base(const sluice__digest *d, int i) {
    const sluice__digest_arm *reference = &d->arms[d->reference];
    if (!d->arms[i].rung_of || !reference->rung_of) return d->reference;
    for (int j = 0; j < d->num_arms; j++)
        if (d->arms[j].rung_of && !strcmp(d->arms[j].rung_of, reference->rung_of) && d->arms[j].rate == d->arms[i].rate)
            return j;
    return i;
}

sluice__spread sluice__spread_of(const double *values, int count) {
    sluice__spread s = {0, 0, 0};
    for (int i = 0; i < count; i++)
        if (isfinite(values[i])) s.mean += values[i], s.count++;
    s.mean = s.count ? s.mean / s.count : NAN;
    for (int i = 0; i < count; i++)
        if (isfinite(values[i])) s.sd += (values[i] - s.mean) * (values[i] - s.mean);
    s.sd = s.count > 1 ? sqrt(s.sd / (s.count - 1)) : NAN;
    return s;
}

sluice__spread sluice__arm_spread(const sluice__digest_arm *arm, sluice__run_field field) {
    double values[SLUICE__MAX_SEEDS];
    int n = 0;
    for (int i = 0; i < arm->num_runs; i++)
        if (arm->runs[i].measured) values[n++] = field(&arm->runs[i]);
    return sluice__spread_of(values, n);
}

double sluice__run_loss(const sluice__digest_run *r) { return r->loss; }
double sluice__run_share(const sluice__digest_run *r) { return r->share; }
double sluice__run_seconds(const sluice__digest_run *r) { return r->seconds; }
double sluice__run_gate_mean(const sluice__digest_run *r) { return r->gate_mean; }
double sluice__run_m_act(const sluice__digest_run *r) { return r->m_act; }

sluice__pairs sluice__pair_up(const sluice__digest_arm *arm, const sluice__digest_arm *base) {
    sluice__pairs p = {.count = 0};
    for (int i = 0; i < arm->num_runs; i++)
        for (int j = 0; j < base->num_runs; j++) {
            if (!arm->runs[i].measured || !base->runs[j].measured || arm->runs[i].seed != base->runs[j].seed) continue;
            p.arm[p.count] = &arm->runs[i];
            p.base[p.count++] = &base->runs[j];
        }
    return p;
}
