/* SPDX-License-Identifier: Apache-2.0 */
/* What a run writes while it goes: metrics.jsonl (one JSON object a line, docs/training.md) and TensorBoard events. */
#ifndef SLUICE_TRAIN_RUN_LOG_H
#define SLUICE_TRAIN_RUN_LOG_H
#include "sluice/train.h"
#include "train/tensorboard.h"

typedef struct sluice__run_log {
    FILE *jsonl;
    char *path;
    sluice__tensorboard board;
    double last_flush;
    bool has_board;
} sluice__run_log;

/* Opens the files in dir for a run that continues behind `step` (-1: from the beginning): lines of later steps, and
 * a last line that a kill has torn, are cut off. */
sluice_status sluice__run_log_open(sluice__run_log *log, const char *dir, int64_t step, bool tensorboard,
                                   sluice_error *err);
/* The same cut while open: the run goes back to `step`. */
sluice_status sluice__run_log_rewind(sluice__run_log *log, const char *dir, int64_t step, sluice_error *err);
void sluice__run_log_step(sluice__run_log *log, const sluice_step_record *r);
/* Selections of every expert in the step, a line of its own. */
void sluice__run_log_router(sluice__run_log *log, const sluice_step_record *r);
void sluice__run_log_eval(sluice__run_log *log, const sluice_eval_record *r);
void sluice__run_log_probe(sluice__run_log *log, const sluice_probe_record *r);
/* {"type": type, "step": step, "loss": loss, "text": text} */
void sluice__run_log_event(sluice__run_log *log, const char *type, int64_t step, double loss, const char *text);
/* Everything to the files; `sync` to the disk too. Otherwise lines may wait for up to a second. */
sluice_status sluice__run_log_flush(sluice__run_log *log, bool sync, sluice_error *err);
sluice_status sluice__run_log_tick(sluice__run_log *log, sluice_error *err);  /* flushes when a second has passed */
sluice_status sluice__run_log_close(sluice__run_log *log, sluice_error *err); /* a zeroed one is left alone */
#endif
