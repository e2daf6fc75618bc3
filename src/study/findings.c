/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that turn numbers into sentences. A verdict is given run by run, gated runs against the ungated run of the same
 * seed: "observed" when it holds in every run, "not observed" when in none, "mixed" otherwise. Sentences carry the
 * numbers, the spread over seeds where there are several, and the value that would mean nothing (uniform attention, a
 * constant gate).
 *
 * Words: a sink head gives the first token more than 0.3 of its attention (Gu et al. 2024). "Massive activation" is
 * kept for the definition of Sun et al. 2024 (|h| > 100 and at least 1000 times the median); what small models show is
 * called the first token's peak. */
#include "study/findings.h"
#include "base/strbuf.h"
#include "study/ladder_results.h"
#include <math.h>
#include <string.h>

/* A run has a sink when some head is a sink head, or when the mean share over all heads is so many times that of
 * uniform attention. It counts as gone when the gated run has none and its share is below this part of the baseline's.
 */
static const double sink_share = 3, gone = 0.5;
/* Losses closer than this, in nats, are called equal. */
static const double same_loss = 0.002;
/* Arms whose numbers of parameters differ by at most so many percent are of equal size. */
static const double same_size = 1;
/* A peak is lower, and a factor moves the sink, when the numbers differ by this factor. */
static const double clearly = 1.5;

typedef struct tally {
    int yes, no;
} tally;

static void vote(tally *t, bool yes) {
    if (yes)
        t->yes++;
    else
        t->no++;
}

static const char *verdict_of(tally t) { return t.yes && t.no ? "mixed" : t.yes ? "observed" : "not observed"; }

static void add(json_t *out, const char *id, tally t, sluice__strbuf *text) {
    if (text->size && !text->failed)
        json_array_append_new(out, json_pack("{s:s, s:s, s:s#}", "id", id, "verdict", verdict_of(t), "text", text->data,
                                             (int)text->size));
    sluice__strbuf_free(text);
}

/* "0.423", or "0.317 +- 0.150" over several seeds */
static void put_spread(sluice__strbuf *b, sluice__spread s, int digits) {
    sluice__strbuf_printf(b, "%.*f", digits, s.mean);
    if (s.count > 1) sluice__strbuf_printf(b, " ± %.*f", digits, s.sd);
}

static void put_arm_spread(sluice__strbuf *b, const sluice__digest_arm *arm, sluice__run_field field, int digits) {
    put_spread(b, sluice__arm_spread(arm, field), digits);
}

static int measured(const sluice__digest_arm *a) {
    int n = 0;
    for (int i = 0; i < a->num_runs; i++) n += a->runs[i].measured;
    return n;
}

static double smallest(const sluice__digest_arm *a, sluice__run_field field) {
    double v = NAN;
    for (int i = 0; i < a->num_runs; i++)
        if (a->runs[i].measured) v = fmin(v, field(&a->runs[i]));
    return v;
}

static double largest(const sluice__digest_arm *a, sluice__run_field field) {
    double v = NAN;
    for (int i = 0; i < a->num_runs; i++)
        if (a->runs[i].measured) v = fmax(v, field(&a->runs[i]));
    return v;
}

static double sink_heads(const sluice__digest_run *r) { return r->sink_heads; }
static double heads(const sluice__digest_run *r) { return r->heads; }
static double other_key(const sluice__digest_run *r) { return r->other_key; }
static double peak(const sluice__digest_run *r) { return r->peak; }
static double peak_others(const sluice__digest_run *r) { return r->peak_others; }
static double peak_ratio(const sluice__digest_run *r) { return r->peak_ratio; }
static double massive(const sluice__digest_run *r) { return r->massive; }
static double gate_below(const sluice__digest_run *r) { return r->gate_below; }
static double small_before(const sluice__digest_run *r) { return r->small_before; }
static double small_after(const sluice__digest_run *r) { return r->small_after; }
static double small_control(const sluice__digest_run *r) { return r->small_control; }
static double spike_score(const sluice__digest_run *r) { return r->spike_score; }
static double spike_events(const sluice__digest_run *r) { return r->spike_events; }
static double rise_plain(const sluice__digest_run *r) { return r->rise_plain; }
static double rise_yarn(const sluice__digest_run *r) { return r->rise_yarn; }

static double reach_recall(const sluice__digest_run *r) { return r->reach_recall; }
static double reach_rise(const sluice__digest_run *r) { return r->reach_loss - r->reach_base; }

static void put_sink_heads(sluice__strbuf *b, const sluice__digest_arm *a) {
    double least = smallest(a, sink_heads), most = largest(a, sink_heads);
    if (least == most)
        sluice__strbuf_printf(b, "%.0f", most);
    else
        sluice__strbuf_printf(b, "%.0f to %.0f", least, most);
    sluice__strbuf_printf(b, " of %.0f heads", largest(a, heads));
}

static const sluice__digest_arm *reference(const sluice__digest *d) { return &d->arms[d->reference]; }

/* ---- the sink ---- */

static bool has_sink(const sluice__digest_arm *a, const sluice__digest_run *r) {
    return r->sink_heads > 0 || r->share >= sink_share * a->uniform;
}

static void find_sink(json_t *out, const sluice__digest *d) {
    const sluice__digest_arm *a = reference(d);
    sluice__strbuf b = {0};
    tally t = {0, 0};
    if (!measured(a)) return;
    for (int i = 0; i < a->num_runs; i++)
        if (a->runs[i].measured) vote(&t, has_sink(a, &a->runs[i]));
    sluice__strbuf_printf(&b, "In the arm \"%s\" the first token takes ", a->label);
    put_arm_spread(&b, a, sluice__run_share, 3);
    sluice__strbuf_printf(&b, " of the attention (mean over all heads), %.1f",
                          smallest(a, sluice__run_share) / a->uniform);
    if (t.yes + t.no > 1) sluice__strbuf_printf(&b, " to %.1f", largest(a, sluice__run_share) / a->uniform);
    sluice__strbuf_printf(&b, " times the %.3f of uniform attention; ", a->uniform);
    put_sink_heads(&b, a);
    sluice__strbuf_puts(&b, " give it more than 0.3.");
    add(out, "sink", t, &b);
}

static void find_gate_removes(json_t *out, const sluice__digest *d) {
    const sluice__digest_arm *base = reference(d);
    sluice__strbuf b = {0};
    tally t = {0, 0};
    int sinks = 0, pairs = 0;
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        sluice__pairs p = sluice__pair_up(a, base);
        if (!a->gated || a == base || !p.count) continue;
        for (int k = 0; k < p.count; k++, pairs++) {
            if (!has_sink(base, p.base[k])) continue;
            sinks++;
            vote(&t, !has_sink(a, p.arm[k]) && p.arm[k]->share < gone * p.base[k]->share);
        }
        sluice__strbuf_printf(&b, "%s\"%s\": mean share ",
                              b.size ? "; " : "Share of attention on the first token with a gate: ", a->label);
        put_arm_spread(&b, a, sluice__run_share, 3);
        sluice__strbuf_puts(&b, ", ");
        put_sink_heads(&b, a);
        sluice__strbuf_puts(&b, " above 0.3");
        if (isfinite(largest(a, other_key)))
            sluice__strbuf_printf(&b, ", no other early key above %.2f in any head",
                                  ceil(100 * largest(a, other_key)) / 100);
    }
    if (!pairs) return sluice__strbuf_free(&b);
    sluice__strbuf_printf(&b, ". Without it: ");
    put_arm_spread(&b, base, sluice__run_share, 3);
    if (!sinks) sluice__strbuf_puts(&b, ", which is no sink, so there was none to remove");
    sluice__strbuf_printf(&b, "; uniform: %.3f.", base->uniform);
    add(out, "gate_removes_sink", t, &b);
}

/* Studies of other factors than gates: what the share does in every other ungated arm. */
static void find_factors(json_t *out, const sluice__digest *d) {
    const sluice__digest_arm *base = reference(d);
    sluice__strbuf b = {0};
    tally t = {0, 0};
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        sluice__pairs p = sluice__pair_up(a, base);
        if (a->gated || a == base || !p.count) continue;
        for (int k = 0; k < p.count; k++)
            vote(&t, p.arm[k]->share > clearly * p.base[k]->share || p.base[k]->share > clearly * p.arm[k]->share);
        sluice__strbuf_printf(&b, "%s\"%s\" ",
                              b.size ? ", " : "Mean share of attention on the first token: ", a->label);
        put_arm_spread(&b, a, sluice__run_share, 3);
        sluice__strbuf_printf(&b, " (uniform %.3f)", a->uniform);
    }
    if (!b.size) return;
    sluice__strbuf_printf(&b, "; \"%s\" ", base->label);
    put_arm_spread(&b, base, sluice__run_share, 3);
    sluice__strbuf_printf(&b, " (uniform %.3f). The verdict counts arms whose share differs by a factor of %.1f.",
                          base->uniform, clearly);
    add(out, "factors", t, &b);
}

/* ---- loss ---- */

static sluice__spread loss_difference(const sluice__pairs *p) {
    double v[SLUICE__MAX_SEEDS];
    for (int k = 0; k < p->count; k++) v[k] = p->arm[k]->loss - p->base[k]->loss;
    return sluice__spread_of(v, p->count);
}

static void put_loss(sluice__strbuf *b, const sluice__digest_arm *a, const sluice__pairs *p) {
    sluice__spread s = loss_difference(p);
    int lower = 0;
    for (int k = 0; k < p->count; k++) lower += p->arm[k]->loss - p->base[k]->loss < -same_loss;
    sluice__strbuf_printf(b, "\"%s\" ", a->label);
    put_arm_spread(b, a, sluice__run_loss, 3);
    sluice__strbuf_printf(b, " (%+.3f", s.mean);
    if (s.count > 1)
        sluice__strbuf_printf(b, " ± %.3f at equal seed, lower in %d of %d)", s.sd, lower, p->count);
    else
        sluice__strbuf_puts(b, ", one seed)");
}

static void find_loss(json_t *out, const sluice__digest *d) {
    const sluice__digest_arm *base = reference(d);
    sluice__strbuf b = {0};
    tally t = {0, 0};
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        sluice__pairs p = sluice__pair_up(a, base);
        if (!a->gated || a == base || !p.count || a->data_set != base->data_set) continue;
        for (int k = 0; k < p.count; k++) vote(&t, p.arm[k]->loss - p.base[k]->loss < -same_loss);
        if (b.size) {
            sluice__strbuf_puts(&b, "; ");
        } else {
            sluice__strbuf_puts(&b, "Held-out loss of ");
            put_arm_spread(&b, base, sluice__run_loss, 3);
            sluice__strbuf_puts(&b, " nats without a gate becomes with ");
        }
        put_loss(&b, a, &p);
    }
    if (!b.size) return;
    if (t.yes && t.no) sluice__strbuf_printf(&b, ": lower in %d of %d runs.", t.yes, t.yes + t.no);
    else sluice__strbuf_puts(&b, t.yes ? ": lower." : ": not lower.");
    add(out, "loss", t, &b);
}

/* ---- activations ---- */

static void put_peak(sluice__strbuf *b, const sluice__digest_arm *a) {
    sluice__strbuf_printf(b, "\"%s\" %.2f (%.0f times the median, largest of the others %.2f)", a->label,
                          sluice__arm_spread(a, peak).mean, sluice__arm_spread(a, peak_ratio).mean,
                          sluice__arm_spread(a, peak_others).mean);
}

static void find_peak(json_t *out, const sluice__digest *d) {
    const sluice__digest_arm *base = reference(d);
    sluice__strbuf b = {0};
    tally t = {0, 0};
    if (!isfinite(sluice__arm_spread(base, peak_ratio).mean)) return;
    sluice__strbuf_puts(
        &b, "First token's peak in the residual stream, at the layer where it is highest against the median: ");
    put_peak(&b, base);
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        sluice__pairs p = sluice__pair_up(a, base);
        if (!a->gated || a == base || !p.count) continue;
        for (int k = 0; k < p.count; k++) vote(&t, p.base[k]->peak_ratio > clearly * p.arm[k]->peak_ratio);
        sluice__strbuf_puts(&b, ", ");
        put_peak(&b, a);
    }
    if (!t.yes && !t.no) /* nothing to compare with: is there a peak at all? */
        for (int i = 0; i < base->num_runs; i++)
            if (base->runs[i].measured) vote(&t, base->runs[i].peak > clearly * base->runs[i].peak_others);
    sluice__strbuf_puts(&b, ".");
    add(out, "first_token_peak", t, &b);
}

static void find_massive(json_t *out, const sluice__digest *d) {
    sluice__strbuf b = {0};
    tally t = {0, 0};
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        for (int k = 0; k < a->num_runs; k++)
            if (a->runs[k].measured) vote(&t, a->runs[k].massive > 0);
        if (largest(a, massive) > 0)
            sluice__strbuf_printf(&b, "%s\"%s\" %.0f",
                                  b.size ? ", "
                                         : "Massive activations (|h| > 100 and 1000 times the "
                                           "median), most in one run: ",
                                  a->label, largest(a, massive));
    }
    if (!t.yes && !t.no) return;
    if (!b.size) sluice__strbuf_puts(&b, "No run has a massive activation (|h| > 100 and 1000 times the median)");
    sluice__strbuf_puts(&b, ".");
    add(out, "massive_activations", t, &b);
}

/* ---- gate scores ---- */

static void find_sparsity(json_t *out, const sluice__digest *d) {
    sluice__strbuf b = {0};
    tally t = {0, 0};
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        if (!a->gated || !measured(a)) continue;
        for (int k = 0; k < a->num_runs; k++) {
            const sluice__digest_run *r = &a->runs[k];
            if (r->measured) vote(&t, r->gate_mean < 0.5 && r->small_after > r->small_control);
        }
        sluice__strbuf_printf(&b, "%s\"%s\" has a mean score of ", b.size ? "; " : "Gate scores: ", a->label);
        put_arm_spread(&b, a, sluice__run_gate_mean, 3);
        sluice__strbuf_printf(
            &b,
            ", %.0f %% of the scores are below 0.1; %.0f %% of the attention outputs are below 1e-2 "
            "before the gate and %.0f %% after it, a constant gate of that mean would give %.0f %%",
            100 * sluice__arm_spread(a, gate_below).mean, 100 * sluice__arm_spread(a, small_before).mean,
            100 * sluice__arm_spread(a, small_after).mean, 100 * sluice__arm_spread(a, small_control).mean);
    }
    if (b.size) sluice__strbuf_puts(&b, ".");
    add(out, "gate_sparsity", t, &b);
}

/* ---- training ---- */

static void find_spikes(json_t *out, const sluice__digest *d) {
    const sluice__digest_arm *base = reference(d);
    sluice__strbuf b = {0};
    tally t = {0, 0};
    double most = 0;
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        sluice__pairs p = sluice__pair_up(a, base);
        if (!measured(a)) continue;
        most = fmax(most, fmax(largest(a, spike_events), largest(a, spike_score)));
        for (int k = 0; a->gated && a != base && k < p.count; k++)
            vote(&t, p.arm[k]->spike_events < p.base[k]->spike_events);
        sluice__strbuf_printf(&b, "%s\"%s\" ",
                              b.size ? ", "
                                     : "Loss spikes a run (and the share of steps 7 standard "
                                       "deviations off): ",
                              a->label);
        put_arm_spread(&b, a, spike_events, 1);
        sluice__strbuf_printf(&b, " (%.2f %%)", sluice__arm_spread(a, spike_score).mean);
    }
    if (most == 0 && b.size) {
        sluice__strbuf_free(&b);
        sluice__strbuf_puts(&b, "No loss spike in any run, so nothing can be said about fewer of them");
    }
    if (b.size) sluice__strbuf_puts(&b, ".");
    add(out, "spikes", t, &b);
}

static void find_length(json_t *out, const sluice__digest *d) {
    const sluice__digest_arm *base = reference(d);
    sluice__strbuf b = {0};
    tally t = {0, 0};
    for (int i = 0; i < d->num_arms && isfinite(d->longest); i++) {
        const sluice__digest_arm *a = &d->arms[i];
        sluice__pairs p = sluice__pair_up(a, base);
        sluice__spread plain = sluice__arm_spread(a, rise_plain), yarn = sluice__arm_spread(a, rise_yarn);
        if (!plain.count) continue;
        for (int k = 0; a->gated && a != base && k < p.count; k++) {
            vote(&t, p.arm[k]->rise_plain < p.base[k]->rise_plain);
            if (isfinite(p.arm[k]->rise_yarn)) vote(&t, p.arm[k]->rise_yarn < p.base[k]->rise_yarn);
        }
        if (!b.size)
            sluice__strbuf_printf(
                &b, "Change of the loss on the same tokens in windows %.0f times as long as in training: ", d->longest);
        else
            sluice__strbuf_puts(&b, ", ");
        sluice__strbuf_printf(&b, "\"%s\" %+.3f", a->label, plain.mean);
        if (yarn.count) sluice__strbuf_printf(&b, " (YaRN %+.3f)", yarn.mean);
    }
    if (b.size)
        sluice__strbuf_puts(&b,
                            ". Observed means that it rises less (or falls more) with a gate, plain and with YaRN.");
    add(out, "length", t, &b);
}

static void find_extension(json_t *out, const sluice__digest *d) {
    const sluice__digest_arm *base = reference(d);
    sluice__strbuf b = {0};
    tally t = {0, 0};
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        sluice__pairs p = sluice__pair_up(a, base);
        sluice__spread rise = sluice__arm_spread(a, reach_rise), recall = sluice__arm_spread(a, reach_recall);
        if (!rise.count) continue;
        for (int k = 0; a->gated && a != base && k < p.count; k++) vote(&t, reach_rise(p.arm[k]) < reach_rise(p.base[k]));
        sluice__strbuf_puts(&b, b.size ? ", "
                                       : "Longest windows with YaRN, after the base was raised: change of the loss from the "
                                         "shortest windows without it, and recall: ");
        sluice__strbuf_printf(&b, "\"%s\" %+.3f", a->label, rise.mean);
        if (rise.count > 1) sluice__strbuf_printf(&b, " ± %.3f", rise.sd);
        if (recall.count) sluice__strbuf_printf(&b, " and %.2f", recall.mean);
    }
    if (b.size) sluice__strbuf_puts(&b, ". Observed means that the loss rises less (or falls more) with a gate.");
    add(out, "extension", t, &b);
}

static void find_cost(json_t *out, const sluice__digest *d) {
    const sluice__digest_arm *base = reference(d);
    sluice__strbuf b = {0};
    tally t = {0, 0};
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        sluice__pairs p = sluice__pair_up(a, base);
        if (!a->gated || a == base || !p.count) continue;
        double ratio = 0;
        for (int k = 0; k < p.count; k++) {
            ratio += p.arm[k]->seconds / p.base[k]->seconds / p.count;
            vote(&t, p.arm[k]->seconds > p.base[k]->seconds);
        }
        sluice__strbuf_printf(&b, "%s\"%s\" %+.0f parameters and %.2f times the training time",
                              b.size ? ", " : "Cost of the gate: ", a->label, a->parameters - base->parameters, ratio);
    }
    if (b.size) sluice__strbuf_puts(&b, "; times of small runs that share a machine differ by some percent.");
    add(out, "cost", t, &b);
}

/* ---- the study itself ---- */

static const sluice__digest_arm *arm_named(const sluice__digest *d, const char *name) {
    for (int i = 0; i < d->num_arms; i++)
        if (name && !strcmp(d->arms[i].name, name)) return &d->arms[i];
    return NULL;
}

/* What is left of the difference where a recipe asks for arms of equal size. */
static void find_match(json_t *out, const sluice__digest *d) {
    sluice__strbuf b = {0};
    tally t = {0, 0};
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i], *to = arm_named(d, a->match_to);
        if (!to) continue;
        double more = a->parameters - to->parameters, percent = 100 * more / to->parameters;
        vote(&t, fabs(percent) <= same_size);
        sluice__strbuf_printf(&b, "%s\"%s\" by its %s is %+.0f (%+.2f %%) off \"%s\"",
                              b.size ? "; " : "Parameters made equal: ", a->label, a->match_with, more, percent,
                              to->label);
    }
    if (b.size) sluice__strbuf_printf(&b, ". Observed means within %.0f %%.", same_size);
    add(out, "match", t, &b);
}

static void find_failures(json_t *out, const sluice__digest *d) {
    sluice__strbuf b = {0};
    tally t = {0, 0};
    for (int i = 0; i < d->num_arms; i++)
        for (int k = 0; k < d->arms[i].num_runs; k++) {
            const sluice__digest_run *r = &d->arms[i].runs[k];
            if (r->measured) continue;
            vote(&t, true);
            sluice__strbuf_printf(&b, "%s\"%s\" seed %lld %s",
                                  b.size ? "; " : "Runs without a result: ", d->arms[i].label, (long long)r->seed,
                                  r->status ? r->status : "?");
            if (r->error) sluice__strbuf_printf(&b, " (%s)", r->error);
        }
    if (b.size) sluice__strbuf_puts(&b, ". They are left out of all means.");
    add(out, "failures", t, &b);
}

static void find_seeds(json_t *out, const sluice__digest *d) {
    sluice__strbuf b = {0};
    int n = measured(reference(d));
    if (n == 1)
        sluice__strbuf_puts(
            &b, "One seed only: the spread between seeds is unknown, and differences as small as chance gives "
                "cannot be told from real ones.");
    else if (n > 1)
        sluice__strbuf_printf(
            &b,
            "%d seeds: numbers are means, ± is the sample standard deviation between seeds, and arms are "
            "compared within a seed, where they see the same data in the same order.",
            n);
    add(out, "seeds", (tally){n > 1, n == 1}, &b);
}

json_t *sluice__findings(const sluice__digest *d) {
    json_t *out = json_array();
    if (!out || !d->num_arms) return out;
    if (d->arms[d->reference].rung_of) { /* the other rules compare arms at one learning rate */
        sluice__find_ladder(out, d);
        find_massive(out, d);
        find_match(out, d);
        find_failures(out, d);
        find_seeds(out, d);
        return out;
    }
    find_sink(out, d);
    find_gate_removes(out, d);
    find_factors(out, d);
    find_loss(out, d);
    find_peak(out, d);
    find_massive(out, d);
    find_sparsity(out, d);
    find_spikes(out, d);
    find_length(out, d);
    find_extension(out, d);
    find_cost(out, d);
    find_match(out, d);
    find_failures(out, d);
    find_seeds(out, d);
    return out;
}
