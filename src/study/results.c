/* SPDX-License-Identifier: Apache-2.0 */
/* Putting results together: facts about machine, data and arms around the runs' own JSON, then comparisons and
 * findings, which see nothing but that JSON. docs/study.md describes every key. */
#include "study/results.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "inspect/inspection_json.h"
#include "sluice/cpu.h"
#include "study/findings.h"
#include "study/ladder_results.h"
#include "study/report.h"
#include "train/batches.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- facts ---- */

static json_t *machine(const sluice__run_facts *f) {
    char text[256];
    sluice_cpu_describe(text, sizeof text);
    char *features = strrchr(text, '(');
    char *end = features ? strchr(features, ')') : NULL;
    if (end) *end = '\0';
    json_t *m = json_pack("{s:s, s:i, s:i, s:I}", "features", end ? features + 1 : "", "threads", f->threads,
                          "parallel_arms", f->parallel_arms, "memory_bytes", (json_int_t)sluice__mem_physical());
    if (features && features > text) features[-1] = '\0';
    json_object_set_new(m, "cpu", json_string(text));
    return m;
}

static json_t *data(const sluice__material *m) {
    sluice_dataset_info i = sluice_dataset_get_info(m->entries[m->entry_of_arm[0]].dataset);
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:o, s:i, s:i}", "source", m->source, "bytes",
                     m->bytes >= 0 ? json_integer(m->bytes) : json_null(), "documents",
                     (json_int_t)(i.train_documents > i.heldout_documents ? i.train_documents : i.heldout_documents),
                     "train_tokens", (json_int_t)i.train_tokens, "heldout_tokens", (json_int_t)i.heldout_tokens,
                     "heldout_bytes", i.heldout_bytes ? json_integer(i.heldout_bytes) : json_null(), "vocab_size",
                     i.vocab_size, "seq_len", i.seq_len);
}

static const char *const positions[] = {"none", "sdpa", "value", "key", "query", "output"};
static const char *const acts[] = {"sigmoid", "silu", "identity", "ns_sigmoid", "softplus"};

static json_t *gate(const sluice_gate_spec *g) {
    if (g->position == SLUICE_GATE_NONE) return json_pack("{s:s}", "position", "none");
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "position", positions[g->position], "granularity",
                     g->granularity == SLUICE_GATE_HEADWISE ? "headwise" : "elementwise", "op",
                     g->op == SLUICE_GATE_ADD ? "add" : "multiply", "act", acts[g->act], "sharing",
                     g->shared ? "shared" : "specific", "input", g->input_none ? "none" : "hidden");
}

/* Every option of training with its value, defaults included. */
static json_t *options(const sluice_train_params *p) {
    static const char *const left_out[] = {
        "seed",   "data_seed",       "output_dir", "resume_from_checkpoint", "overwrite_output_dir", "text",
        "shards", "validation_text", NULL};
    json_t *o = json_object();
    for (int i = 0; i < sluice_train_num_options(); i++) {
        sluice_option option = sluice_train_option(i);
        char value[256];
        bool skip = false;
        for (const char *const *l = left_out; *l; l++) skip |= !strcmp(option.name, *l);
        if (skip) continue;
        sluice_train_option_value(p, i, value, sizeof value);
        json_object_set_new(o, option.name, json_string(value));
    }
    return o;
}

static sluice_status arm(json_t **out, const sluice__recipe *recipe, const sluice__material *m, int index,
                         sluice_error *err) {
    const sluice__arm *a = &recipe->arms[index];
    sluice_dataset_info info = sluice_dataset_get_info(m->entries[m->entry_of_arm[index]].dataset);
    sluice_train_params p;
    sluice_config config;
    char *full = NULL;
    SLUICE__TRY(sluice__arm_params(&p, a, recipe->seeds[0], err));
    SLUICE__TRY(
        sluice__arm_config(&config, &full, a, &p, m->entries[m->entry_of_arm[index]].tokenizer, info.vocab_size, err));
    sluice_first_share uniform = sluice_uniform_share((int)p.seq_len);
    double flops = sluice_config_forward_flops(&config, p.seq_len);
    sluice__batches batches;
    SLUICE__TRY(sluice__batches_of(&batches, &p, err));
    double tokens = (double)sluice__batches_before(&batches, p.max_steps) * (double)p.seq_len;
    *out =
        json_pack("{s:s, s:s, s:o, s:o, s:i, s:I, s:I, s:f, s:o, s:o, s:o}", "name", a->name, "label", a->label, "gate",
                  gate(&config.layers[0].gate), "config", json_loads(full, JSON_ALLOW_NUL, NULL), "data_set", m->entry_of_arm[index],
                  "parameters", (json_int_t)sluice_config_num_parameters(&config), "gate_parameters",
                  (json_int_t)sluice_config_num_gate_parameters(&config), "forward_flops_per_token", flops,
                  "train_flops", p.max_steps > 0 ? json_real(3 * flops * tokens) : json_null(), "options", options(&p),
                  "uniform_share", sluice__share_to_json(&uniform));
    json_t *match = json_object_get(json_array_get(json_object_get(recipe->root, "arms"), (size_t)index), "match");
    if (*out && match) json_object_set_new(*out, "match", json_deep_copy(match));
    json_t *rung = json_object_get(json_array_get(json_object_get(recipe->root, "arms"), (size_t)index), "rung");
    if (*out && rung) json_object_set_new(*out, "rung", json_deep_copy(rung));
    sluice_train_free_text(full);
    sluice_config_free(&config);
    return *out ? SLUICE_OK : sluice__no_memory(err, 0, "results");
}

/* ---- comparisons ---- */

static json_t *difference(const double *values, int count) {
    sluice__spread s = sluice__spread_of(values, count);
    return json_pack("{s:o, s:o, s:o}", "per_seed", sluice__json_numbers(values, count), "mean",
                     sluice__json_number(s.mean), "sd", sluice__json_number(s.sd));
}

static json_t *compare(const sluice__digest_arm *a, const sluice__digest_arm *base) {
    sluice__pairs p = sluice__pair_up(a, base);
    double loss[SLUICE__MAX_SEEDS], share[SLUICE__MAX_SEEDS], ratio[SLUICE__MAX_SEEDS];
    json_t *seeds = json_array();
    for (int k = 0; k < p.count; k++) {
        json_array_append_new(seeds, json_integer(p.arm[k]->seed));
        loss[k] = p.arm[k]->loss - p.base[k]->loss;
        share[k] = p.arm[k]->share - p.base[k]->share;
        ratio[k] = p.arm[k]->seconds / p.base[k]->seconds;
    }
    bool same = a->data_set == base->data_set;
    return json_pack("{s:s, s:s, s:o, s:b, s:o, s:o, s:o, s:o}", "arm", a->name, "against", base->name, "seeds", seeds,
                     "same_data", same, "loss_difference", same ? difference(loss, p.count) : json_null(),
                     "share_difference", difference(share, p.count), "seconds_ratio",
                     sluice__json_number(sluice__spread_of(ratio, p.count).mean), "parameters_difference",
                     sluice__json_number(a->parameters - base->parameters));
}

json_t *sluice__comparisons(const sluice__digest *d) {
    json_t *out = json_array();
    for (int i = 0; i < d->num_arms; i++) {
        int base = sluice__digest_base(d, i);
        if (i != base) json_array_append_new(out, compare(&d->arms[i], &d->arms[base]));
    }
    return out;
}

/* ---- the whole ---- */

static sluice_status arms(json_t *root, const sluice__recipe *recipe, const sluice__material *m, json_t *const *runs,
                          sluice_error *err) {
    json_t *list = json_object_get(root, "arms");
    for (int a = 0; a < recipe->num_arms; a++) {
        json_t *one = NULL, *of_arm = json_array();
        for (int s = 0; s < recipe->num_seeds; s++)
            if (runs[a * recipe->num_seeds + s]) json_array_append(of_arm, runs[a * recipe->num_seeds + s]);
        sluice_status st = arm(&one, recipe, m, a, err);
        if (st == SLUICE_OK) {
            json_object_set(one, "runs", of_arm);
            json_array_append_new(list, one);
        }
        json_decref(of_arm);
        SLUICE__TRY(st);
    }
    return SLUICE_OK;
}

static json_t *frame(const sluice__recipe *recipe, const sluice__material *m, const sluice__run_facts *facts) {
    char created[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    sluice_first_share uniform =
        sluice_uniform_share(sluice_dataset_get_info(m->entries[m->entry_of_arm[0]].dataset).seq_len);
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:O, s:o, s:o, s:o, s:[]}", "format", "sluice-study-1",
                     "sluice_version", SLUICE_VERSION, "title", recipe->title, "created", created, "seconds",
                     facts->seconds, "recipe", recipe->root, "machine", machine(facts), "data", data(m),
                     "uniform_share", sluice__share_to_json(&uniform), "arms");
}

sluice_status sluice__study_results_new(json_t **out, const sluice__recipe *recipe, const sluice__material *material,
                                        json_t *const *runs, const sluice__run_facts *facts, sluice_error *err) {
    json_t *root = frame(recipe, material, facts);
    if (!root) return sluice__no_memory(err, 0, "results");
    sluice_status st = arms(root, recipe, material, runs, err);
    if (st != SLUICE_OK) {
        json_decref(root);
        return st;
    }
    sluice__digest d;
    sluice__digest_read(&d, root);
    json_object_set_new(root, "comparisons", sluice__comparisons(&d));
    json_object_set_new(root, "findings", sluice__findings(&d));
    if (d.arms[d.reference].rung_of) json_object_set_new(root, "ladders", sluice__ladders(&d));
    *out = root;
    return SLUICE_OK;
}

/* ---- files ---- */

static void csv_text(sluice__strbuf *b, const char *text) {
    sluice__strbuf_puts(b, "\"");
    for (; text && *text; text++) {
        if (*text == '"')
            sluice__strbuf_puts(b, "\"\"");
        else
            sluice__strbuf_add(b, text, 1);
    }
    sluice__strbuf_puts(b, "\"");
}

static void csv_number(sluice__strbuf *b, double v) {
    sluice__strbuf_puts(b, ",");
    if (isfinite(v)) sluice__strbuf_printf(b, "%.9g", v);
}

static void csv_run(sluice__strbuf *b, const sluice__digest_arm *a, const sluice__digest_run *r) {
    const double columns[] = {a->rate,        r->loss,        r->perplexity,   r->bits_per_byte, r->share,         r->share_from_1,
                              a->uniform,     r->other_key,    r->sink_heads,    r->heads,         r->peak,
                              r->peak_others, r->peak_ratio,   r->m_act,         r->massive,       r->gate_mean,
                              r->gate_below,  r->small_before, r->small_after,   r->small_control, r->spike_events,
                              r->spike_score, r->rise_plain,   r->rise_yarn,     a->parameters,    r->seconds,
                              r->tokens_per_s};
    csv_text(b, a->name);
    sluice__strbuf_puts(b, ",");
    csv_text(b, a->label);
    sluice__strbuf_printf(b, ",%lld,%s", (long long)r->seed, r->status ? r->status : "");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) csv_number(b, columns[i]);
    sluice__strbuf_puts(b, "\n");
}

static sluice_status write_csv(const json_t *results, const char *path, sluice_error *err) {
    sluice__digest d;
    sluice__strbuf b = {0};
    sluice__digest_read(&d, results);
    sluice__strbuf_puts(
        &b, "arm,label,seed,status,rung_learning_rate,loss,perplexity,bits_per_byte,first_token_share_from_quarter,"
            "first_token_share_from_1,uniform_share_from_quarter,max_other_key_share,sink_heads,heads,"
            "first_token_peak,largest_other,peak_over_median,m_act_mean,massive_activations,gate_mean,"
            "gate_below_0.1,outputs_below_0.01_before,outputs_below_0.01_after,outputs_below_0.01_constant_gate,"
            "spike_events,spike_score_percent,loss_rise_longest_plain,loss_rise_longest_yarn,parameters,"
            "train_seconds,tokens_per_s\n");
    for (int i = 0; i < d.num_arms; i++)
        for (int k = 0; k < d.arms[i].num_runs; k++) csv_run(&b, &d.arms[i], &d.arms[i].runs[k]);
    sluice_status st =
        b.failed ? sluice__no_memory(err, b.size, "results.csv") : sluice__write_file(path, b.data, b.size, err);
    sluice__strbuf_free(&b);
    return st;
}

static sluice_status write_report(const json_t *results, const char *path, sluice_error *err) {
    char *text = json_dumps(results, JSON_REAL_PRECISION(9));
    if (!text) return sluice__no_memory(err, 0, "the report");
    sluice_status st = sluice__report_write(text, strlen(text), path, err);
    free(text);
    return st;
}

static sluice_status in_dir(const json_t *results, const char *dir, const char *name,
                            sluice_status (*write)(const json_t *, const char *, sluice_error *), sluice_error *err) {
    char *path = sluice__path_join(dir, name);
    sluice_status st = path ? write(results, path, err) : sluice__no_memory(err, strlen(dir), "a path");
    sluice__free(path);
    return st;
}

sluice_status sluice__study_results_write(const json_t *results, const char *dir, sluice_error *err) {
    SLUICE__TRY(in_dir(results, dir, "results.json", sluice__json_save, err));
    SLUICE__TRY(in_dir(results, dir, "results.csv", write_csv, err));
    return in_dir(results, dir, "report.html", write_report, err);
}

/* ---- the table ---- */

void sluice__study_results_summary(sluice_study_summary *out, const json_t *results) {
    sluice__digest d;
    sluice__digest_read(&d, results);
    const char *title = json_string_value(json_object_get(results, "title"));
    snprintf(out->title, sizeof out->title, "%s", title ? title : "");
    out->num_arms = d.num_arms;
    for (int i = 0; i < d.num_arms; i++) {
        const sluice__digest_arm *a = &d.arms[i];
        sluice_study_arm *s = &out->arms[i];
        sluice__spread loss = sluice__arm_spread(a, sluice__run_loss), share = sluice__arm_spread(a, sluice__run_share);
        *s = (sluice_study_arm){.parameters = (int64_t)a->parameters,
                                .runs = a->num_runs,
                                .measured = loss.count,
                                .loss = loss.mean,
                                .loss_sd = loss.sd,
                                .first_share = share.mean,
                                .first_share_sd = share.sd,
                                .uniform_share = a->uniform,
                                .gate_mean = sluice__arm_spread(a, sluice__run_gate_mean).mean,
                                .m_act = sluice__arm_spread(a, sluice__run_m_act).mean,
                                .seconds = sluice__arm_spread(a, sluice__run_seconds).mean};
        snprintf(s->name, sizeof s->name, "%s", a->name);
        snprintf(s->label, sizeof s->label, "%s", a->label);
        out->runs += a->num_runs;
        out->failed += a->num_runs - loss.count;
    }
}
