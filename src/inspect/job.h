/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of an inspect job: the windows of one model, its measures as JSON, its maps and surfaces.
 */
#ifndef SLUICE_INSPECT_JOB_H
#define SLUICE_INSPECT_JOB_H
#include <jansson.h>
#include "sluice/inspect_report.h"
#include "sluice/tokenizer.h"

/* What one model reads. */
typedef struct sluice__job_text {
    sluice_tokenizer *tokenizer; /* NULL when ids were given */
    int32_t *all;                /* [count] tokens of the text, nothing in front */
    int64_t count;
    int seq_len;
    int64_t windows;
    int32_t first;  /* in front of every window, or -1 */
    int32_t *ids;   /* [windows, seq_len] */
    uint8_t *marks; /* the same, or NULL */
} sluice__job_text;

sluice_status sluice__job_text_load(sluice__job_text *t, const sluice_inspect_job *job,
                                    const char *model_path, const sluice_config *config,
                                    sluice_error *err);
/* Cuts the windows again, without a token in front. */
sluice_status sluice__job_text_without_first(sluice__job_text *out, const sluice__job_text *t,
                                             const sluice_inspect_job *job, sluice_error *err);
void sluice__job_text_free(sluice__job_text *t);
/* The token as text; with ids alone, its number. */
sluice_status sluice__job_token(json_t **out, const sluice__job_text *t, int32_t id,
                                sluice_error *err);
/* Ids of the map: of map_text or the beginning of the first window, at most `most`. */
sluice_status sluice__job_map_ids(sluice_ids *out, const sluice__job_text *t,
                                  const sluice_inspect_job *job, int most, sluice_error *err);

/* Adds "map" and "surface" to a model's entry. */
sluice_status sluice__job_add_maps(json_t *entry, const sluice_model *model,
                                   const sluice__job_text *t, const sluice_inspect_job *job,
                                   sluice_error *err);
/* Adds "weights": the rounding errors of every matrix. */
sluice_status sluice__job_add_weights(json_t *entry, const sluice_model *model, sluice_error *err);
/* Everything about one model; *entry is new. */
sluice_status sluice__job_model(json_t **entry, const sluice_inspect_job *job, const char *path,
                                sluice_error *err);
/* SLUICE_INTERRUPTED when the caller asked to stop. */
sluice_status sluice__job_poll(const sluice_inspect_job *job, sluice_error *err);
#endif
