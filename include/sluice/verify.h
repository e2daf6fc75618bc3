/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputing a reference case and holding the result against it. A case is a model directory with recorded results:
 *   golden.safetensors       input_ids and, for them, logits, hidden.<layer>, first_token_share.<layer>, gate.<layer>,
 *                            attn_out_pre_gate.<layer>, attn_probs.<layer>; golden.<label>.safetensors: other prompts
 *   decode.json              ways to split the prompt over cached calls, each of which must give the same logits
 *   greedy.json              a prompt and the tokens that follow it greedily
 * or a training case:
 *   weights.safetensors, batch.safetensors (ids, labels, doc_ids, positions), golden.json (schedule, losses, norms) and
 *   golden.safetensors (logits, hidden.<layer>, grad.<tensor>, final.<tensor> after the steps).
 * Every file of the directory is loaded, a tokenizer included, so this is also how a suspicious directory is tried. */
#ifndef SLUICE_VERIFY_H
#define SLUICE_VERIFY_H
#include <stdbool.h>
#include <stdint.h>
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_verify_params {
    const char *reference; /* directory with the recorded results of a forward case; NULL (default) = the model's own */
    double tolerance; /* replaces the limit of every comparison but counts, where a recorded token passes when its logit lies at
                         most twice this below the largest; negative (default) = 3e-4 for models; for training 5e-5 on
                         logits, 1e-5 on the loss, 3e-5 on gradients, 5e-5, 2e-4 and 1e-3 on losses, gradient norms
                         and final tensors of the steps */
    const char *dump_path; /* what was computed, under the golden's names; of golden.<label>.safetensors into the
                              same name with .<label> in front of .safetensors; NULL (default) = not written */
} sluice_verify_params;
sluice_verify_params sluice_verify_params_default(void);

typedef enum sluice_verify_kind {
    SLUICE_VERIFY_LOADED,  /* no golden: only loaded */
    SLUICE_VERIFY_MODEL,   /* forward pass */
    SLUICE_VERIFY_TRAINING /* gradients and optimiser steps */
} sluice_verify_kind;

typedef enum sluice_verify_measure {
    SLUICE_VERIFY_MAX_ABS,     /* largest absolute difference */
    SLUICE_VERIFY_RELATIVE_L2, /* |got - golden| / |golden| */
    SLUICE_VERIFY_RELATIVE,    /* largest |got / golden - 1| */
    SLUICE_VERIFY_MISMATCHES   /* number of integers that differ */
} sluice_verify_measure;

typedef struct sluice_verify_item {
    char name[160]; /* "hidden.1", "golden.len5.safetensors: logits", "decode.json: chunks 11, 30, 1" */
    char note[160]; /* why it could not be compared; "" otherwise */
    sluice_verify_measure measure;
    double error, limit;
    double max_abs; /* of a tensor, whatever the measure; the error itself otherwise */
    bool passed;
} sluice_verify_item;

typedef struct sluice_verify_report {
    sluice_verify_kind kind;
    char model_type[64];
    int num_hidden_layers, vocab_size;
    int64_t num_parameters;
    int tokenizer_size; /* rows that its ids need; 0 = no tokenizer.json */
    sluice_verify_item *items;
    int num_items, num_failed;
} sluice_verify_report;

/* path: a model directory, or a GGUF file, which holds no recorded results and is only loaded unless there is a reference.
 * params NULL = default. OK: everything is within its limit. SLUICE_ERR_MISMATCH: something is not, or could not be
 * computed; the report says what. Another status: a file is bad or missing; the report is empty. The report is
 * freed with sluice_verify_report_free whatever the status. */
sluice_status sluice_verify(sluice_verify_report *out, const char *path, const sluice_verify_params *params,
                            sluice_error *err);
void sluice_verify_report_free(sluice_verify_report *report);

#ifdef __cplusplus
}
#endif
#endif
