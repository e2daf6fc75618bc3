/* SPDX-License-Identifier: Apache-2.0 */
/* Perplexity by disjoint or sliding windows. Windows of equal length run as one batch; the sums are kept per token in
 * the order of the text, so batch sizes do not change them. */
#include "eval/perplexity.h"
#include "base/memory.h"
#include "layers/transformer.h"
#include <math.h>

enum { PASS_TOKENS = 4096, DEFAULT_CONTEXT = 1024 };

typedef struct scorer {
    const sluice_model *model;
    const int32_t *ids, *token_bytes;
    int64_t count;
    int context, stride, batch;
    sluice__workspace *ws;
    int32_t *in, *labels;    /* [batch, context] */
    float *nll;              /* [batch, context] */
    sluice__window *windows; /* [batch] the ones in flight */
    float *text_nll;         /* [count] or NULL */
    sluice_perplexity *sum;
} scorer;

sluice_perplexity_params sluice_perplexity_params_default(void) { return (sluice_perplexity_params){0, 0, 0}; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static bool next_disjoint(sluice__window *w, bool first, int64_t count, int64_t context) {
    int64_t b = first ? 0 : w->begin + context;
    if (b >= count - 1) return false;
    int64_t length = least(context, count - 1 - b);
    *w = (sluice__window){b, length, b + 1, b + length + 1};
    return true;
}

/* A sliding window predicts only tokens inside itself, so its last token is no input; windows that score nothing are
 * passed over. */
static bool next_sliding(sluice__window *w, bool first, int64_t count, int64_t context, int64_t stride) {
    int64_t b = first ? 0 : w->begin + stride, seen = first ? 1 : w->score_to;
    if (!first && w->score_to == count) return false;
    for (;; b += stride) {
        int64_t e = least(b + context, count), from = seen > b + 1 ? seen : b + 1;
        if (from < e) {
            *w = (sluice__window){b, e - 1 - b, from, e};
            return true;
        }
        if (e == count) return false;
        seen = e > seen ? e : seen;
    }
}

bool sluice__next_window(sluice__window *w, bool first, int64_t count, int64_t context, int64_t stride) {
    return stride ? next_sliding(w, first, count, context, stride) : next_disjoint(w, first, count, context);
}

void sluice__perplexity_finish(sluice_perplexity *p) {
    p->ce = p->scored ? p->total_nll / (double)p->scored : NAN;
    p->ppl = exp(p->ce);
    p->bits_per_byte = p->bytes ? p->total_nll / log(2.0) / (double)p->bytes : NAN;
}

static void collect(scorer *s, int windows, int64_t length) {
    for (int i = 0; i < windows; i++) {
        const sluice__window *w = &s->windows[i];
        for (int64_t t = w->score_from; t < w->score_to; t++) {
            float v = s->nll[i * length + t - 1 - w->begin];
            s->sum->total_nll += v;
            s->sum->scored++;
            if (s->token_bytes) s->sum->bytes += s->token_bytes[s->ids[t]];
            if (s->text_nll) s->text_nll[t] = v;
        }
    }
}

/* Runs windows[0..windows), all of the same length. */
static sluice_status flush(scorer *s, int windows, sluice_error *err) {
    if (windows == 0) return SLUICE_OK;
    int64_t length = s->windows[0].length;
    for (int i = 0; i < windows; i++) {
        const sluice__window *w = &s->windows[i];
        for (int64_t t = 0; t < length; t++) {
            int64_t at = w->begin + t;
            s->in[i * length + t] = s->ids[at];
            s->labels[i * length + t] = at + 1 >= w->score_from && at + 1 < w->score_to ? s->ids[at + 1] : -1;
        }
    }
    sluice__input in = {.batch = windows, .seq_len = (int)length, .ids = s->in, .labels = s->labels};
    sluice__loss loss;
    SLUICE__TRY(sluice__evaluate(s->model, s->ws, &in, NULL, s->nll, &loss, err));
    collect(s, windows, length);
    return SLUICE_OK;
}

static sluice_status score(scorer *s, sluice_error *err) {
    sluice__window w = {0};
    int waiting = 0;
    for (bool first = true; sluice__next_window(&w, first, s->count, s->context, s->stride); first = false) {
        if (waiting == s->batch || (waiting && s->windows[0].length != w.length)) {
            SLUICE__TRY(flush(s, waiting, err));
            waiting = 0;
        }
        s->windows[waiting++] = w;
    }
    return flush(s, waiting, err);
}

static sluice_status start(scorer *s, sluice_error *err) {
    size_t tokens = (size_t)s->batch * (size_t)s->context;
    s->in = sluice__calloc(tokens, sizeof *s->in, SLUICE__MEM_DATA);
    s->labels = sluice__calloc(tokens, sizeof *s->labels, SLUICE__MEM_DATA);
    s->nll = sluice__calloc(tokens, sizeof *s->nll, SLUICE__MEM_DATA);
    s->windows = sluice__calloc((size_t)s->batch, sizeof *s->windows, SLUICE__MEM_DATA);
    if (!s->in || !s->labels || !s->nll || !s->windows)
        return sluice__no_memory(err, 12 * tokens, "perplexity windows");
    return sluice__workspace_new(&s->ws, s->model, s->batch, s->context, SLUICE__INFER, err);
}

static sluice_status check(const sluice_config *c, const int32_t *ids, int64_t count, const sluice_perplexity_params *p,
                           sluice_error *err) {
    if (count < 2)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "perplexity: found %lld tokens, expected at least 2",
                            (long long)count);
    if (p->context < 0 || p->stride < 0 || p->batch < 0 || p->context == 1 || (p->context && p->stride > p->context))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "perplexity: found context %d, stride %d, batch %d; expected context of at least 2, stride "
                            "from 0 to context, batch of at least 0",
                            p->context, p->stride, p->batch);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= c->vocab_size)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "perplexity: token %lld is %d, expected 0..%d", (long long)i,
                                ids[i], c->vocab_size - 1);
    return SLUICE_OK;
}

sluice_status sluice_perplexity_of_ids(sluice_perplexity *out, const sluice_model *model, const int32_t *ids,
                                       int64_t count, const int32_t *token_bytes,
                                       const sluice_perplexity_params *params, float *nll, sluice_error *err) {
    const sluice_config *c = sluice_model_config(model);
    sluice_perplexity_params p = params ? *params : sluice_perplexity_params_default();
    if (!p.context) p.context = (int)least(c->max_position_embeddings, DEFAULT_CONTEXT);
    SLUICE__TRY(check(c, ids, count, &p, err));
    scorer s = {.model = model, .ids = ids, .token_bytes = token_bytes, .count = count, .text_nll = nll, .sum = out};
    s.context = (int)least(p.context, count);
    s.stride = p.stride;
    int64_t batch = p.batch ? p.batch : PASS_TOKENS / s.context;
    s.batch = (int)(batch < 1 ? 1 : least(batch, count / (p.stride ? p.stride : s.context) + 1));
    *out = (sluice_perplexity){0};
    for (int64_t i = 0; nll && i < count; i++) nll[i] = NAN;
    sluice_status st = start(&s, err);
    if (st == SLUICE_OK) st = score(&s, err);
    if (st == SLUICE_OK) sluice__perplexity_finish(out);
    sluice__workspace_free(s.ws);
    sluice__free(s.in);
    sluice__free(s.labels);
    sluice__free(s.nll);
    sluice__free(s.windows);
    return st;
}
