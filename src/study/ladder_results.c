/* SPDX-License-Identifier: Apache-2.0 */
/* A run converged when it finished (nothing was infinite, its held-out loss below that of equal probabilities) and its
 * held-out loss is within SLUICE__LADDER_TROUBLE of the best rung of its arm. The largest rate of an arm is the last one before
 * the first rung with a run that did not, so that a lucky run above it does not count. */
#include "study/ladder_results.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "inspect/inspection_json.h"
#include "study/ladder.h"
#include <math.h>
#include <string.h>

static double score_of(const sluice__digest_run *r) { return r->spike_score; }

/* Rungs rise, whatever the order of arms. */
static sluice__rung_result *insert(sluice__ladder_result *l, double rate) {
    int at = l->num_rungs++;
    for (; at > 0 && l->rungs[at - 1].rate > rate; at--) l->rungs[at] = l->rungs[at - 1];
    return &l->rungs[at];
}

static sluice__ladder_result *ladder_of(sluice__ladder_result *out, int *count, const sluice__digest_arm *a) {
    for (int i = 0; i < *count; i++)
        if (!strcmp(out[i].of, a->rung_of)) return &out[i];
    sluice__ladder_result *l = &out[(*count)++];
    *l = (sluice__ladder_result){.of = a->rung_of, .label = a->rung_label ? a->rung_label : a->rung_of, .gated = a->gated};
    return l;
}

static void add_rung(sluice__ladder_result *l, const sluice__digest_arm *a) {
    sluice__spread loss = sluice__arm_spread(a, sluice__run_loss);
    *insert(l, a->rate) = (sluice__rung_result){.rate = a->rate,
                                                .loss = loss.mean,
                                                .spike_score = sluice__arm_spread(a, score_of).mean,
                                                .m_act = sluice__arm_spread(a, sluice__run_m_act).mean,
                                                .runs = a->num_runs,
                                                .finished = loss.count};
}

static void find_best(sluice__ladder_result *l) {
    l->best_rate = l->best_loss = NAN;
    for (int i = 0; i < l->num_rungs; i++) {
        const sluice__rung_result *r = &l->rungs[i];
        if (r->finished && r->finished == r->runs && !(r->loss >= l->best_loss)) l->best_loss = r->loss, l->best_rate = r->rate;
    }
}

static sluice__rung_result *rung_at(sluice__ladder_result *l, double rate) {
    int i = 0;
    while (l->rungs[i].rate != rate) i++;
    return &l->rungs[i];
}

static void find_largest(sluice__ladder_result *l) {
    l->largest = NAN;
    for (int i = 0; i < l->num_rungs; i++) {
        if (!l->rungs[i].runs || l->rungs[i].converged < l->rungs[i].runs) return;
        l->largest = l->rungs[i].rate;
    }
}

int sluice__ladder_results(sluice__ladder_result *out, const sluice__digest *d) {
    int count = 0;
    for (int i = 0; i < d->num_arms; i++)
        if (d->arms[i].rung_of) add_rung(ladder_of(out, &count, &d->arms[i]), &d->arms[i]);
    for (int i = 0; i < count; i++) find_best(&out[i]);
    for (int i = 0; i < d->num_arms; i++) {
        const sluice__digest_arm *a = &d->arms[i];
        if (!a->rung_of) continue;
        sluice__ladder_result *l = ladder_of(out, &count, a);
        for (int k = 0; k < a->num_runs; k++)
            if (a->runs[k].measured && a->runs[k].loss <= l->best_loss + SLUICE__LADDER_TROUBLE)
                rung_at(l, a->rate)->converged++;
    }
    for (int i = 0; i < count; i++) find_largest(&out[i]);
    return count;
}

static json_t *rung_json(const sluice__rung_result *r) {
    return json_pack("{s:f, s:o, s:o, s:o, s:i, s:i, s:i}", "learning_rate", r->rate, "loss", sluice__json_number(r->loss),
                     "spike_score", sluice__json_number(r->spike_score), "m_act", sluice__json_number(r->m_act), "runs",
                     r->runs, "finished", r->finished, "converged", r->converged);
}

json_t *sluice__ladders(const sluice__digest *d) {
    sluice__ladder_result *l = sluice__calloc(SLUICE__MAX_ARMS, sizeof *l, SLUICE__MEM_OTHER);
    json_t *out = json_array();
    int count = l ? sluice__ladder_results(l, d) : 0;
    for (int i = 0; i < count; i++) {
        json_t *rungs = json_array();
        for (int k = 0; k < l[i].num_rungs; k++) json_array_append_new(rungs, rung_json(&l[i].rungs[k]));
        json_array_append_new(out, json_pack("{s:s, s:s, s:b, s:o, s:o, s:o, s:o}", "of", l[i].of, "label", l[i].label,
                                             "gated", l[i].gated, "largest", sluice__json_number(l[i].largest), "best_rate",
                                             sluice__json_number(l[i].best_rate), "best_loss",
                                             sluice__json_number(l[i].best_loss), "rungs", rungs));
    }
    sluice__free(l);
    return out;
}

static void put_ladder(sluice__strbuf *b, const sluice__ladder_result *l) {
    sluice__strbuf_printf(b, "\"%s\" ", l->label);
    if (isnan(l->largest)) sluice__strbuf_puts(b, "none of those tried");
    else sluice__strbuf_printf(b, "%.3g%s", l->largest,
                               l->largest == l->rungs[l->num_rungs - 1].rate ? " (the largest tried)" : "");
    if (!isnan(l->best_loss)) sluice__strbuf_printf(b, ", best loss %.3f at %.3g", l->best_loss, l->best_rate);
}

void sluice__find_ladder(json_t *out, const sluice__digest *d) {
    sluice__ladder_result *l = sluice__calloc(SLUICE__MAX_ARMS, sizeof *l, SLUICE__MEM_OTHER);
    int count = l ? sluice__ladder_results(l, d) : 0, higher = 0, others = 0, base = 0;
    sluice__strbuf b = {0};
    while (base < count && l[base].gated) base++;
    if (base == count) base = 0;
    for (int i = 0; i < count; i++) {
        sluice__strbuf_puts(&b, i ? "; " : "Largest learning rate up to which every run converges: ");
        put_ladder(&b, &l[i]);
        if (!l[i].gated || i == base) continue;
        others++;
        higher += !isnan(l[i].largest) && !(l[i].largest <= l[base].largest);
    }
    if (count) {
        sluice__strbuf_printf(&b, ". A run converges when it finishes within %.1f nats of the best loss of its arm.",
                              SLUICE__LADDER_TROUBLE);
        if (others)
            sluice__strbuf_puts(&b, higher == others ? " With a gate the rate may be larger."
                                    : higher         ? " With a part of the gates the rate may be larger."
                                                     : " With a gate it may not be larger.");
        const char *verdict = !others || !higher ? "not observed" : higher < others ? "mixed" : "observed";
        if (!b.failed)
            json_array_append_new(out, json_pack("{s:s, s:s, s:s#}", "id", "learning_rate", "verdict", verdict, "text",
                                                 b.data, (int)b.size));
    }
    sluice__strbuf_free(&b);
    sluice__free(l);
}
