/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard event files: scalars over steps. A file is a sequence of records (length, masked CRC-32C of the
 * length, data, masked CRC-32C of the data); data is one Event message in protocol-buffer encoding. */
#ifndef SLUICE_TRAIN_TENSORBOARD_H
#define SLUICE_TRAIN_TENSORBOARD_H
#include <stdint.h>
#include <stdio.h>
#include "base/strbuf.h"

typedef struct sluice__tensorboard {
    FILE *stream;
    char *path;
    sluice__strbuf summary; /* scalars collected for one event */
} sluice__tensorboard;

/* Creates a new file in dir, named as TensorBoard expects. restart >= 0 tells TensorBoard to forget what earlier
 * files of this directory say about that step and later ones (a run resumed from a checkpoint). */
sluice_status sluice__tensorboard_open(sluice__tensorboard *t, const char *dir, int64_t restart, sluice_error *err);
/* Collects a scalar; event writes what was collected as one event at `step`. */
void sluice__tensorboard_scalar(sluice__tensorboard *t, const char *tag, double value);
void sluice__tensorboard_event(sluice__tensorboard *t, int64_t step);
sluice_status sluice__tensorboard_flush(sluice__tensorboard *t, sluice_error *err);
sluice_status sluice__tensorboard_close(sluice__tensorboard *t, sluice_error *err); /* a zeroed one is left alone */

uint32_t sluice__crc32c(const void *data, size_t size);
#endif
