/* SPDX-License-Identifier: Apache-2.0 */
/* The one forward pass (training, inference, inspection, evaluation, serving) and its backward. */
#ifndef SLUICE_LAYERS_TRANSFORMER_H
#define SLUICE_LAYERS_TRANSFORMER_H
#include "layers/intervention.h"
#include "layers/probe.h"
#include "layers/router.h"
#include "model/weights.h"
#include "sluice/model.h"
#include <stddef.h>

/* Activations and scratch for passes of up to batch x seq_len tokens. One pass at a time; not shared by threads. */
typedef struct sluice__workspace sluice__workspace;
typedef enum sluice__mode {
    SLUICE__INFER,
    SLUICE__TRAIN,
    SLUICE__IN_BF16 = 2 /* or'ed to either: products of layers and head have factors rounded to bf16 (layers/dense.h) */
} sluice__mode;
sluice_status sluice__workspace_new(sluice__workspace **out, const sluice_model *model, int batch, int seq_len,
                                    sluice__mode mode, sluice_error *err);
void sluice__workspace_free(sluice__workspace *ws);
/* What later passes of this workspace (INFER, without a cache) do to the model's inside; NULL = nothing. Not copied. */
void sluice__workspace_intervene(sluice__workspace *ws, const sluice__intervention *change);
/* Bytes that a workspace of this shape takes, without making it (memory plan). */
/* Refuses, naming the part, a model that forward knows and backward does not. */
sluice_status sluice__check_trainable(const sluice_config *config, sluice_error *err);
int64_t sluice__workspace_bytes(const sluice_config *config, int batch, int seq_len, sluice__mode mode);

/* Keys and values of earlier tokens and states of linear attention, one sequence per batch row, all rows of equal length. */
typedef struct sluice__cache sluice__cache;
sluice_status sluice__cache_new(sluice__cache **out, const sluice_model *model, int batch, int capacity,
                                sluice_error *err);
/* The same with keys and values in another type than fp32. SLUICE_ERR_UNSUPPORTED when heads do not fall into its blocks.
 * chunk > 0: passes have at most so many tokens, and layers with a sliding window keep only what that needs; 0: all. */
sluice_status sluice__cache_new_typed(sluice__cache **out, const sluice_model *model, int batch, int capacity,
                                      sluice_kv_dtype dtype, int chunk, sluice_error *err);
void sluice__cache_free(sluice__cache *cache);
int sluice__cache_length(const sluice__cache *cache);
int sluice__cache_capacity(const sluice__cache *cache);
/* Makes room for `capacity` tokens (never less than now), keeping what is there. On failure *cache stays as it was. */
sluice_status sluice__cache_grow(sluice__cache **cache, int capacity, sluice_error *err);
/* Forget everything behind the first `length` tokens. States of linear attention cannot go back but to 0, and layers with
 * a window not to where they dropped what it saw: then the cache is no longer whole, and forward refuses it until it is
 * truncated to 0. */
void sluice__cache_truncate(sluice__cache *cache, int length);
bool sluice__cache_is_whole(const sluice__cache *cache);
/* Whether it would be whole when truncated to `length`, at most what it holds. */
bool sluice__cache_keeps(const sluice__cache *cache, int length);
/* Drops what layers with a window need no longer, if there is no room for `tokens` more (at most a chunk). */
void sluice__cache_make_room(sluice__cache *cache, int tokens);
/* A pass broke off: some states have seen its tokens, others not. */
void sluice__cache_spoil(sluice__cache *cache);
/* For snapshots and files, as bytes: keys and values of tokens of batch row 0, layer after layer; the states of linear
 * attention behind the last token, and what layers that drop tokens need of them there (none: 0 bytes). Two caches of the same model take each other's. put_tokens takes
 * `count` tokens, behind the first `skip`, out of the bytes of `held` tokens. */
size_t sluice__cache_token_bytes(const sluice__cache *cache); /* of one token */
void sluice__cache_get_tokens(const sluice__cache *cache, int first, int count, void *to);
void sluice__cache_put_tokens(sluice__cache *cache, int first, int count, const void *from, int skip, int held);
size_t sluice__cache_state_bytes(const sluice__cache *cache, int length); /* behind so many tokens */
void sluice__cache_get_states(const sluice__cache *cache, void *to);
/* The cache then holds `length` tokens, which are there. states may be NULL when they take 0 bytes. */
void sluice__cache_put_states(sluice__cache *cache, int length, const void *states);
/* Tokens and states of `from`, which is whole, of the same model, type and batch; they fit into `to`. */
void sluice__cache_copy(sluice__cache *to, const sluice__cache *from);
int64_t sluice__cache_bytes(const sluice_config *config, int batch, int capacity);
int64_t sluice__cache_bytes_typed(const sluice_config *config, int batch, int capacity, sluice_kv_dtype dtype, int chunk);

/* Whether a session of this model cannot go back to any token: linear attention, or windows that drop tokens. */
bool sluice__is_stateful(const sluice_config *config);

typedef struct sluice__input {
    int batch, seq_len;
    const int32_t *ids;       /* [B,T], 0 <= id < vocab_size, checked */
    const int32_t
        *labels; /* [B,T] already shifted (labels[t] follows ids[t]); negative = not scored; NULL in inference */
    const int32_t *positions; /* [B,T]; NULL = cache length + 0..T-1 */
    const int32_t *key_start; /* [B,T] first key index (within the row) that token t may see; NULL = 0 */
} sluice__input;

typedef enum sluice__logits { SLUICE__LOGITS_NONE, SLUICE__LOGITS_LAST, SLUICE__LOGITS_ALL } sluice__logits;

/* A part of a pass: tokens with a cache of their own. */
typedef struct sluice__segment {
    sluice__input in;
    sluice__cache *cache; /* NULL = no earlier tokens, nothing kept; otherwise the tokens are appended to it */
    float *logits;        /* [B,V] (LAST) or [B,T,V] (ALL); NULL = not wanted */
    int64_t first;        /* its first row in the pass: set by forward */
} sluice__segment;

/* Forward of several segments at once, whose rows share every product; no two may have the same cache. They fit into the
 * workspace together. Probes and interventions look at one segment. On failure no cache is longer than before. */
sluice_status sluice__forward_segments(const sluice_model *model, sluice__workspace *ws, sluice__segment *segments,
                                       int count, const sluice__probe *probe, sluice__logits which, sluice_error *err);
/* The same for one segment. probe may be NULL. */
sluice_status sluice__forward(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                              sluice__cache *cache, const sluice__probe *probe, sluice__logits which, float *logits,
                              sluice_error *err);

typedef struct sluice__loss {
    double nll_sum;  /* nats over scored tokens */
    int64_t scored;  /* their number */
} sluice__loss;

/* Forward with labels, no gradients. nll [B,T] (0 where not scored) may be NULL. */
sluice_status sluice__evaluate(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                               const sluice__probe *probe, float *nll, sluice__loss *loss, sluice_error *err);

/* Forward and backward (TRAIN workspace): grads += loss_scale * d nll_sum / d parameter. grads is one flat buffer
 * in which tensor i of the model starts at sluice__grad_offset(model, i); loss_scale is usually 1 / scored tokens
 * of the whole optimiser step, so that any split into micro-batches gives the same gradient. The head never holds
 * all logits. */
sluice_status sluice__loss_and_grads(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                                     const sluice__probe *probe, double loss_scale, float *grads, sluice__loss *loss,
                                     sluice_error *err);

/* The same for models with experts: router losses and statistics of this pass are added to *router, and grads gets
 * the gradient of sluice__router_objective as well. loss_scale 0: no gradients. router NULL: no router losses. */
sluice_status sluice__loss_and_grads_routed(const sluice_model *model, sluice__workspace *ws,
                                            const sluice__input *in, const sluice__probe *probe, double loss_scale,
                                            sluice__router *router, float *grads, sluice__loss *loss,
                                            sluice_error *err);
/* Forward of one of a step's micro-batches that only counts selections (GLOBAL balance). After it the counts of
 * *router stand until it is reset: call it for every micro-batch before the first loss_and_grads_routed. */
sluice_status sluice__count_routing(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                                    sluice__router *router, sluice_error *err);
#endif
