/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a file as they were before gzip or zstd, read front to back. */
#ifndef SLUICE_TRAIN_BYTE_READER_H
#define SLUICE_TRAIN_BYTE_READER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct sluice__byte_reader sluice__byte_reader;

/* path "-" is standard input. The content tells how it is compressed. */
sluice_status sluice__byte_reader_open(sluice__byte_reader **out, const char *path, sluice_error *err);
/* Up to `size` bytes; *got 0 at the end. */
sluice_status sluice__byte_reader_read(sluice__byte_reader *r, void *data, size_t size, size_t *got, sluice_error *err);
int64_t sluice__byte_reader_consumed(const sluice__byte_reader *r); /* bytes of the file itself */
void sluice__byte_reader_close(sluice__byte_reader *r);
#endif
