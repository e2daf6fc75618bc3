/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader and the writer of shards share. */
#ifndef SLUICE_TRAIN_SHARDS_H
#define SLUICE_TRAIN_SHARDS_H
#include "sluice/shards.h"

#define SLUICE__IDX_MAGIC "MMIDIDX\0" /* and the literal's own NUL: 9 bytes */
enum { SLUICE__IDX_HEADER = 34, SLUICE__IDX_INT32 = 4, SLUICE__IDX_UINT16 = 8 };

/* The mapped tokens, sluice_shard_token_bytes each. */
const void *sluice__shard_data(const sluice_shard *shard);

/* Writes one pair of files, document by document (shard_writer.c). */
typedef struct sluice__shard_writer sluice__shard_writer;
sluice_status sluice__shard_writer_open(sluice__shard_writer **out, const char *prefix, int token_bytes,
                                        sluice_error *err);
sluice_status sluice__shard_writer_add(sluice__shard_writer *w, const int32_t *ids, size_t count, sluice_error *err);
/* The tokens added since the last call are one document. */
sluice_status sluice__shard_writer_end_document(sluice__shard_writer *w, sluice_error *err);
int64_t sluice__shard_writer_tokens(const sluice__shard_writer *w);
int64_t sluice__shard_writer_documents(const sluice__shard_writer *w);
/* finish: everything is on the disk under temporary names; publish: it gets its names. Either frees nothing: close
 * does, and removes what was not published. */
sluice_status sluice__shard_writer_finish(sluice__shard_writer *w, sluice_error *err);
sluice_status sluice__shard_writer_publish(sluice__shard_writer *w, sluice_error *err);
void sluice__shard_writer_close(sluice__shard_writer *w);
#endif
