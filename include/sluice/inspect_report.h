/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice inspect` does, as a function: models and a text in, the content of inspect.json out; and the page drawn
 * from it. docs/inspect.md describes both. */
#ifndef SLUICE_INSPECT_REPORT_H
#define SLUICE_INSPECT_REPORT_H
#include <stddef.h>
#include "sluice/inspect.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One row of the table of interventions. */
typedef struct sluice_inspect_change {
    const char *name; /* as the table calls it: "gate = 0.15" */
    sluice_intervention change;
    bool no_bos; /* windows without the token in front */
} sluice_inspect_change;

enum { SLUICE_BOS_AUTO = -1, SLUICE_BOS_OMIT = -2 };

typedef struct sluice_inspect_job {
    const char *const *models; /* directories; required */
    int num_models;
    const char *text;      /* what is read; or */
    size_t text_size;
    const char *text_name; /* where it came from, for the report; NULL = "text" */
    const int32_t *ids;    /* token ids in place of a text: then no tokenizer is needed; NULL (default) */
    size_t num_ids;
    const char *tokenizer; /* NULL (default) = that of each model */
    int seq_len;           /* tokens of a window; 0 (default) = 512, less when a model or the text is shorter */
    int64_t windows;       /* most windows; 0 (default) = 8 */
    int32_t bos;           /* token in front of every window; SLUICE_BOS_AUTO (default) = what the tokenizer puts in front
                              of a text, else what training put in front of every window (trainer_state.json of a
                              checkpoint, ../config.json of a run's model); SLUICE_BOS_OMIT */
    uint32_t measures;     /* SLUICE_MEASURE_...; 0 (default) = all but ROWS for windows beyond 16384 tokens */
    const sluice_inspect_change *changes;
    int num_changes;
    const int *mark_positions; /* keys of every window whose weight is added up as `marked` ... */
    int num_mark_positions;
    const char *mark_tokens; /* ... and tokens whose text, without spaces around it, has only characters of this */
    int map_tokens;       /* tokens of attention maps and surfaces; 0 (default) = by size of the model; -1 = none */
    const char *map_text; /* what they show; NULL (default) = the beginning of the first window */
    bool weights;         /* also what int8 would do to every weight matrix. Default true */
    bool (*stop_requested)(void *user); /* asked between measurements and layers; true = SLUICE_INTERRUPTED. NULL (default) */
    void *user;
} sluice_inspect_job;
sluice_inspect_job sluice_inspect_job_default(void);

/* *json: NUL-terminated, freed with free(). A model that cannot be loaded or measured fails the whole job when it is the
 * only one; otherwise its entry says why. */
sluice_status sluice_inspect_run(char **json, const sluice_inspect_job *job, sluice_error *err);

/* Draws the page of an inspect.json (its text). Atomic. */
sluice_status sluice_inspect_page(const char *json, size_t size, const char *html_path, sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
