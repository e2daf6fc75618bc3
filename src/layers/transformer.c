/* SPDX-License-Identifier: Apache-2.0 */
/* The walk: embedding, layers, final norm, head; and back. Every addition to the residual stream is one pass over
 * memory with the norm that follows it. Inputs are checked here, once; the layers below rely on it. */
#include "layers/transformer.h"
#include "base/error.h"
#include "kernels/ops.h"
#include "layers/attention.h"
#include "layers/cache.h"
#include "layers/delta.h"
#include "layers/head.h"
#include "layers/mlp.h"
#include "layers/moe.h"
#include "layers/probing.h"
#include "layers/residual.h"
#include <limits.h>
#include <string.h>

static sluice_status check_cache(const sluice__workspace *ws, const sluice__segment *s, sluice_error *err) {
    const sluice__cache *cache = s->cache;
    if (!cache) return SLUICE_OK;
    if (ws->mode == SLUICE__TRAIN)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "a key/value cache needs an inference workspace");
    if (cache->model != ws->model || cache->batch != s->in.batch)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the key/value cache was made for %s (batch %d, input batch %d)",
                            cache->model != ws->model ? "another model" : "another batch", cache->batch, s->in.batch);
    if (!sluice__cache_is_whole(cache))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "the cache was cut to %d tokens, but its states of linear attention stand behind %d, or a window "
                            "reaches further back than what is held",
                            cache->length, cache->state_length);
    if (cache->chunk && (s->in.seq_len > cache->chunk || s->in.key_start))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "the key/value cache was made for passes of 1..%d tokens without key_start, found %d", cache->chunk,
                            s->in.seq_len);
    if (s->in.seq_len > cache->capacity - cache->length)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "the key/value cache is full: %d of %d tokens held, %d more to append", cache->length,
                            cache->capacity, s->in.seq_len);
    return SLUICE_OK;
}

static sluice_status check_shape(const sluice__workspace *ws, const sluice__segment *segments, int count,
                                 int64_t *rows, sluice_error *err) {
    *rows = 0;
    for (int i = 0; i < count; i++) {
        const sluice__input *in = &segments[i].in;
        if (in->batch < 1 || in->seq_len < 1 || (int64_t)in->batch * in->seq_len > ws->rows - *rows)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "input of %d x %d tokens: the workspace holds 1..%lld", in->batch,
                                in->seq_len, (long long)(ws->rows - *rows));
        *rows += (int64_t)in->batch * in->seq_len;
        SLUICE__TRY(check_cache(ws, &segments[i], err));
    }
    return SLUICE_OK;
}

/* Probes look at all keys as floats. */
static sluice_status check_watchers(const sluice__workspace *ws, const sluice__segment *segments, int count,
                                    const sluice__probe *probe, sluice_error *err) {
    const sluice__cache *cache = segments->cache;
    if (count < 1) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "segments: found %d, expected at least 1", count);
    if (count > 1 && (probe || ws->change || ws->mode == SLUICE__TRAIN))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s one segment, found %d",
                            probe ? "a probe looks at" : ws->change ? "interventions are made to" : "training takes", count);
    if (ws->change && (ws->mode != SLUICE__INFER || cache))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "interventions need an inference workspace and no key/value cache");
    if (probe && cache && cache->dtype != SLUICE_KV_F32)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "a probe needs a key/value cache of fp32");
    return SLUICE_OK;
}

/* `what` in row-major order must lie in [min, max]. */
static sluice_status check_range(const int32_t *x, int64_t count, int seq_len, int64_t min, int64_t max,
                                 const char *what, sluice_error *err) {
    for (int64_t i = 0; i < count; i++)
        if (x[i] < min || x[i] > max)
            return sluice__fail(
                err, SLUICE_ERR_ARGUMENT, "%s at row %lld, token %lld: found %ld, expected %lld..%lld", what,
                (long long)(i / seq_len), (long long)(i % seq_len), (long)x[i], (long long)min, (long long)max);
    return SLUICE_OK;
}

/* States of linear attention run on from document to document. */
static sluice_status check_documents(const sluice_config *config, const sluice__input *in, int64_t rows,
                                     sluice_error *err) {
    int64_t packed = 0;
    while (in->key_start && packed < rows && in->key_start[packed] == 0) packed++;
    if (!in->key_start || packed == rows) return SLUICE_OK;
    for (int i = 0; i < config->num_hidden_layers; i++)
        if (sluice_layer_is_linear(&config->layers[i]))
            return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                                "layer %d is linear attention: several documents in one row are not supported", i);
    return SLUICE_OK;
}

/* Checks the tokens of a segment and puts their positions into those of the workspace; *last is the largest. */
static sluice_status begin_segment(sluice__workspace *ws, const sluice__segment *s, int64_t *last, sluice_error *err) {
    const sluice_config *config = sluice_model_config(ws->model);
    const sluice__input *in = &s->in;
    int64_t rows = (int64_t)in->batch * in->seq_len, held = s->cache ? s->cache->length : 0, end = held + in->seq_len - 1;
    int32_t *positions = ws->positions + s->first;
    SLUICE__TRY(check_range(in->ids, rows, in->seq_len, 0, config->vocab_size - 1, "token id", err));
    if (in->labels)
        SLUICE__TRY(check_range(in->labels, rows, in->seq_len, INT32_MIN, config->vocab_size - 1, "label", err));
    if (in->key_start) SLUICE__TRY(check_range(in->key_start, rows, in->seq_len, 0, end, "key_start", err));
    SLUICE__TRY(check_documents(config, in, rows, err));
    if (in->positions) SLUICE__TRY(check_range(in->positions, rows, in->seq_len, 0, INT32_MAX - 1, "position", err));
    for (int64_t i = 0; i < rows; i++) {
        positions[i] = in->positions ? in->positions[i] : (int32_t)(held + i % in->seq_len);
        if (positions[i] > *last) *last = positions[i];
    }
    return SLUICE_OK;
}

/* Checks the input and fills *pass. */
static sluice_status begin(sluice__pass *pass, const sluice_model *model, sluice__workspace *ws, sluice__segment *segments,
                           int count, const sluice__probe *probe, sluice_error *err) {
    if (ws->model != model) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the workspace was made for another model");
    int64_t rows, last = 0, first = 0;
    SLUICE__TRY(check_watchers(ws, segments, count, probe, err));
    SLUICE__TRY(check_shape(ws, segments, count, &rows, err));
    for (int i = 0; i < count; i++) {
        segments[i].first = first;
        first += (int64_t)segments[i].in.batch * segments[i].in.seq_len;
        SLUICE__TRY(begin_segment(ws, &segments[i], &last, err));
    }
    SLUICE__TRY(sluice__rope_cache_reserve(&ws->rope, last, err));
    for (int i = 0; i < count; i++)
        if (segments[i].cache) sluice__cache_make_room(segments[i].cache, segments[i].in.seq_len);
    *pass = (sluice__pass){.config = sluice_model_config(model),
                           .ws = ws,
                           .segments = segments,
                           .num_segments = count,
                           .all = segments[0],
                           .rows = rows,
                           .positions = ws->positions,
                           .probe = probe,
                           .err = err,
                           .change = ws->change,
                           .read = SLUICE__READ_ALL};
    if (count > 1) pass->all = (sluice__segment){.in = {.batch = 1, .seq_len = (int)rows}};
    pass->batch = pass->all.in.batch;
    pass->seq_len = pass->all.in.seq_len;
    return SLUICE_OK;
}

/* The residual stream after layer `layer`, the norm of it that is read next, and that norm's weight. */
typedef struct next_norm {
    float *h, *x, *rstd;
    const float *weight;
    float *dweight; /* NULL in inference */
} next_norm;

static next_norm norm_in_front_of(const sluice__workspace *ws, int layer) {
    const sluice__weights *w = sluice__model_weights(ws->model);
    bool train = ws->mode == SLUICE__TRAIN;
    if (layer == sluice_model_config(ws->model)->num_hidden_layers)
        return (next_norm){ws->h_out, ws->x_out, ws->rstd_out, w->norm, train ? ws->grads.norm : NULL};
    const sluice__layer_state *s = &ws->layers[layer];
    return (next_norm){s->h_in, s->x1, s->rstd1, w->layers[layer].input_norm,
                       train ? ws->grads.layers[layer].input_norm : NULL};
}

/* h = in + branch;  x = norm(h) */
static void add_norm(const sluice__pass *pass, float *h, float *x, float *rstd, const float *in, const float *branch,
                     const float *weight) {
    sluice__add_rms_norm_forward(h, x, rstd, in, branch, weight, pass->rows, pass->config->hidden_size,
                                 (float)pass->config->rms_norm_eps, sluice__norm_offset(pass->config));
}

/* What an intervention does to the residual stream behind layer i; the norm of it is made again. */
static void change_residual(const sluice__pass *pass, int i, const next_norm *next) {
    int64_t width = pass->config->hidden_size;
    if (!pass->change || !pass->change->massive) return;
    if (sluice__change_massive(&pass->change->massive[i], next->h, pass->rows, width))
        sluice__rms_norm_forward(next->x, next->rstd, next->h, next->weight, pass->rows, width,
                                 (float)pass->config->rms_norm_eps, sluice__norm_offset(pass->config));
}

/* The rows of last tokens whose logits are wanted move to the front; *few is the pass over them alone. */
static const sluice__pass *last_tokens(sluice__pass *few, const sluice__pass *pass, const sluice__layer_state *s) {
    size_t row = (size_t)pass->config->hidden_size;
    *few = *pass;
    few->rows = 0;
    for (int i = 0; i < pass->num_segments; i++) {
        const sluice__segment *segment = &pass->segments[i];
        for (int b = 0; b < segment->in.batch && segment->logits; b++) {
            size_t to = row * (size_t)few->rows++,
                   from = row * (size_t)(segment->first + (b + 1) * (int64_t)segment->in.seq_len - 1);
            if (to == from) continue;
            memcpy(s->h_in + to, s->h_in + from, row * sizeof(float));
            memcpy(s->attention_out.raw + to, s->attention_out.raw + from, row * sizeof(float));
        }
    }
    return few;
}

static sluice_status layer_forward(const sluice__pass *pass, int i) {
    const sluice__layer_state *s = &pass->ws->layers[i];
    const sluice__layer_weights *w = &sluice__model_weights(pass->ws->model)->layers[i];
    bool linear = sluice_layer_is_linear(&pass->config->layers[i]), direct = pass->config->layers[i].no_input_norm;
    const float *x1 = direct ? s->h_in : s->x1, *x2 = direct ? s->h_mid : s->x2;
    SLUICE__TRY(sluice__probe_stream(pass, SLUICE__PROBE_ATTN_IN, i, x1));
    if (linear) SLUICE__TRY(sluice__delta_layer_forward(pass, i, x1, s->attention_out.raw, &s->delta));
    else SLUICE__TRY(sluice__attention_layer_forward(pass, i, x1, s->x1_half, s->attention_out.raw, &s->attention));
    if (linear) SLUICE__TRY(sluice__probe_delta(pass, i, &s->delta));
    sluice__pass few;
    if (i == pass->config->num_hidden_layers - 1 && pass->read == SLUICE__READ_LAST) {
        pass = last_tokens(&few, pass, s);
        if (!pass->rows) return SLUICE_OK;
    }
    sluice__branch_forward(pass, i, w->post_self_attn_norm, &s->attention_out);
    SLUICE__TRY(sluice__probe_stream(pass, SLUICE__PROBE_ATTN_OUT, i, s->attention_out.out));
    add_norm(pass, s->h_mid, s->x2, s->rstd2, s->h_in, s->attention_out.out, w->post_attention_norm);
    SLUICE__TRY(sluice__probe_stream(pass, SLUICE__PROBE_RESID_ATTN, i, s->h_mid));
    SLUICE__TRY(sluice__probe_stream(pass, SLUICE__PROBE_FFN_IN, i, x2));
    if (pass->config->layers[i].moe.num_experts) sluice__moe_forward(pass, i, x2, s->mlp_out.raw, &s->moe);
    else sluice__mlp_forward(pass, i, x2, s->x2_half, s->mlp_out.raw, &s->mlp);
    SLUICE__TRY(sluice__probe_ffn(pass, i, s));
    sluice__branch_forward(pass, i, w->post_mlp_norm, &s->mlp_out);
    SLUICE__TRY(sluice__probe_stream(pass, SLUICE__PROBE_FFN_OUT, i, s->mlp_out.out));
    next_norm next = norm_in_front_of(pass->ws, i + 1);
    add_norm(pass, next.h, next.x, next.rstd, s->h_mid, s->mlp_out.out, next.weight);
    change_residual(pass, i, &next);
    return sluice__probe_stream(pass, SLUICE__PROBE_RESID_FFN, i, next.h);
}

/* From token ids to ws->x_out, the final norm of the residual stream. */
static sluice_status body_forward(const sluice__pass *pass) {
    const sluice_config *config = pass->config;
    next_norm first = norm_in_front_of(pass->ws, 0);
    for (int i = 0; i < pass->num_segments; i++) {
        const sluice__segment *s = &pass->segments[i];
        sluice__matrix_rows(first.h + s->first * config->hidden_size,
                            sluice__model_weights(pass->ws->model)->embedding.part, s->in.ids,
                            (int64_t)s->in.batch * s->in.seq_len);
    }
    int64_t count = pass->rows * config->hidden_size;
    if (config->embedding_norm)
        sluice__rms_norm_forward(first.h, NULL, first.h, NULL, pass->rows, config->hidden_size,
                                 (float)config->rms_norm_eps, 0);
    if (config->embedding_scale != 0) sluice__scale(first.h, config->embedding_scale, count);
    SLUICE__TRY(sluice__probe_stream(pass, SLUICE__PROBE_EMBEDDING, -1, first.h));
    sluice__rms_norm_forward(first.x, first.rstd, first.h, first.weight, pass->rows, config->hidden_size,
                             (float)config->rms_norm_eps, sluice__norm_offset(config));
    for (int i = 0; i < config->num_hidden_layers; i++) SLUICE__TRY(layer_forward(pass, i));
    return SLUICE_OK;
}

sluice_status sluice__forward_segments(const sluice_model *model, sluice__workspace *ws, sluice__segment *segments,
                                       int count, const sluice__probe *probe, sluice__logits which, sluice_error *err) {
    sluice__pass pass;
    SLUICE__TRY(begin(&pass, model, ws, segments, count, probe, err));
    for (int i = 0; i < count && which == SLUICE__LOGITS_NONE; i++) segments[i].logits = NULL;
    if (which != SLUICE__LOGITS_ALL && !probe && !ws->change && ws->mode == SLUICE__INFER) pass.read = SLUICE__READ_LAST;
    sluice_status st = body_forward(&pass);
    if (st != SLUICE_OK) {
        for (int i = 0; i < count; i++)
            if (segments[i].cache) sluice__cache_spoil(segments[i].cache);
        return st;
    }
    sluice__head_logits(&pass, ws->x_out, which);
    for (int i = 0; i < count; i++) {
        sluice__cache *cache = segments[i].cache;
        if (cache) cache->state_length = cache->length += segments[i].in.seq_len;
    }
    return SLUICE_OK;
}

sluice_status sluice__forward(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                              sluice__cache *cache, const sluice__probe *probe, sluice__logits which, float *logits,
                              sluice_error *err) {
    sluice__segment only = {.in = *in, .cache = cache, .logits = logits};
    return sluice__forward_segments(model, ws, &only, 1, probe, which, err);
}

static sluice_status need_labels(const sluice__input *in, sluice_error *err) {
    return in->labels ? SLUICE_OK : sluice__fail(err, SLUICE_ERR_ARGUMENT, "a loss needs labels");
}

static sluice_status evaluate(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                              const sluice__probe *probe, sluice__router *router, float *nll, sluice__loss *loss,
                              sluice_error *err) {
    sluice__pass pass;
    sluice__segment only = {.in = *in};
    SLUICE__TRY(need_labels(in, err));
    SLUICE__TRY(begin(&pass, model, ws, &only, 1, probe, err));
    pass.router = router;
    SLUICE__TRY(body_forward(&pass));
    sluice__head_loss(&pass, ws->x_out, in->labels, nll ? nll : ws->nll, loss, 0.0f, NULL);
    return SLUICE_OK;
}

sluice_status sluice__evaluate(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                               const sluice__probe *probe, float *nll, sluice__loss *loss, sluice_error *err) {
    return evaluate(model, ws, in, probe, NULL, nll, loss, err);
}

sluice_status sluice__count_routing(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                                    sluice__router *router, sluice_error *err) {
    sluice__pass pass;
    sluice__segment only = {.in = *in};
    SLUICE__TRY(begin(&pass, model, ws, &only, 1, NULL, err));
    pass.router = router;
    router->counting = true;
    router->counted = false;
    sluice_status st = body_forward(&pass);
    router->counting = false;
    router->counted = true;
    return st;
}

/* ws->back.dh += backward of a norm for the gradient in ws->back.dx (or = when !accumulate). */
static void norm_backward(const sluice__pass *pass, float *dweight, const float *h, const float *weight,
                          const float *rstd, bool accumulate) {
    const sluice__backward_state *b = &pass->ws->back;
    sluice__rms_norm_backward(b->dh, dweight, b->dx, h, weight, rstd, pass->rows, pass->config->hidden_size,
                              sluice__norm_offset(pass->config), accumulate);
}

static sluice_status layer_backward(const sluice__pass *pass, int i) {
    const sluice__layer_state *s = &pass->ws->layers[i];
    const sluice__layer_weights *w = &sluice__model_weights(pass->ws->model)->layers[i],
                                *g = &pass->ws->grads.layers[i];
    const sluice__backward_state *b = &pass->ws->back;
    const float *d = sluice__branch_backward(pass, i, w->post_mlp_norm, g->post_mlp_norm, b->dh, &s->mlp_out);
    if (pass->config->layers[i].moe.num_experts) sluice__moe_backward(pass, i, d, s->x2, b->dx, &s->moe);
    else sluice__mlp_backward(pass, i, d, s->x2, s->x2_half, b->dx, &s->mlp);
    norm_backward(pass, g->post_attention_norm, s->h_mid, w->post_attention_norm, s->rstd2, true);
    d = sluice__branch_backward(pass, i, w->post_self_attn_norm, g->post_self_attn_norm, b->dh, &s->attention_out);
    SLUICE__TRY(sluice__attention_layer_backward(pass, i, d, s->x1, s->x1_half, b->dx, &s->attention));
    norm_backward(pass, g->input_norm, s->h_in, w->input_norm, s->rstd1, true);
    return SLUICE_OK;
}

sluice_status sluice__loss_and_grads_routed(const sluice_model *model, sluice__workspace *ws,
                                            const sluice__input *in, const sluice__probe *probe, double loss_scale,
                                            sluice__router *router, float *grads, sluice__loss *loss,
                                            sluice_error *err) {
    if (ws->mode != SLUICE__TRAIN) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "gradients need a training workspace");
    if (loss_scale == 0) return evaluate(model, ws, in, probe, router, NULL, loss, err);
    sluice__pass pass;
    sluice__segment only = {.in = *in};
    SLUICE__TRY(need_labels(in, err));
    SLUICE__TRY(begin(&pass, model, ws, &only, 1, probe, err));
    pass.router = router;
    sluice__weights_bind(model, grads, &ws->grads);
    SLUICE__TRY(body_forward(&pass));
    sluice__head_loss(&pass, ws->x_out, in->labels, ws->nll, loss, (float)loss_scale, ws->back.dx);
    int layers = pass.config->num_hidden_layers;
    next_norm last = norm_in_front_of(ws, layers);
    norm_backward(&pass, last.dweight, last.h, last.weight, last.rstd, false);
    for (int i = layers - 1; i >= 0; i--) SLUICE__TRY(layer_backward(&pass, i));
    sluice__embedding_backward(ws->grads.embed_tokens, ws->back.dh, in->ids, pass.rows, pass.config->hidden_size,
                               pass.config->vocab_size);
    return SLUICE_OK;
}

sluice_status sluice__loss_and_grads(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                                     const sluice__probe *probe, double loss_scale, float *grads, sluice__loss *loss,
                                     sluice_error *err) {
    return sluice__loss_and_grads_routed(model, ws, in, probe, loss_scale, NULL, grads, loss, err);
}
