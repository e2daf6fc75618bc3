/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a .bin/.idx pair. Tokens go straight to the .bin; sizes and document starts go to two unnamed files beside it
 * until the counts, which the .idx begins with, are known. So memory stays the same for any number of documents. */
#include "train/shards.h"
#include "base/file.h"
#include "base/memory.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 16 << 10 };

struct sluice__shard_writer {
    sluice__atomic_file bin, idx;
    bool bin_open, idx_open;
    FILE *sizes, *first; /* i32 tokens of each sequence; i64 first sequence of each document */
    int token_bytes;
    int64_t tokens, sequences, documents, pending; /* pending: tokens of the sequence that is being added */
};

/* A file without a name, in the directory of path. */
static sluice_status scratch(FILE **out, const char *path, sluice_error *err) {
    char *name = sluice__asprintf("%s.tmp-XXXXXX", path);
    if (!name) return sluice__no_memory(err, strlen(path), "a path");
    int fd = mkstemp(name);
    *out = fd < 0 ? NULL : fdopen(fd, "w+b");
    sluice_status st =
        *out ? SLUICE_OK : sluice__fail(err, SLUICE_ERR_IO, "%s: cannot create: %s", name, strerror(errno));
    if (fd >= 0) unlink(name);
    if (fd >= 0 && !*out) close(fd);
    sluice__free(name);
    return st;
}

sluice_status sluice__shard_writer_open(sluice__shard_writer **out, const char *prefix, int token_bytes,
                                        sluice_error *err) {
    *out = NULL;
    sluice__shard_writer *w = sluice__calloc(1, sizeof *w, SLUICE__MEM_DATA);
    char *bin = sluice__asprintf("%s.bin", prefix), *idx = sluice__asprintf("%s.idx", prefix);
    sluice_status st = w && bin && idx ? SLUICE_OK : sluice__no_memory(err, strlen(prefix), "a shard writer");
    if (st == SLUICE_OK) {
        w->token_bytes = token_bytes;
        st = sluice__atomic_open(&w->bin, bin, err);
        w->bin_open = st == SLUICE_OK;
    }
    if (st == SLUICE_OK) {
        st = sluice__atomic_open(&w->idx, idx, err);
        w->idx_open = st == SLUICE_OK;
    }
    if (st == SLUICE_OK) st = scratch(&w->sizes, idx, err);
    if (st == SLUICE_OK) st = scratch(&w->first, idx, err);
    sluice__free(bin);
    sluice__free(idx);
    if (st == SLUICE_OK)
        *out = w;
    else
        sluice__shard_writer_close(w);
    return st;
}

static sluice_status write_failed(const char *path, sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
}

static sluice_status end_sequence(sluice__shard_writer *w, sluice_error *err) {
    int32_t size = (int32_t)w->pending;
    if (fwrite(&size, sizeof size, 1, w->sizes) != 1) return write_failed(w->idx.path, err);
    w->sequences++;
    w->pending = 0;
    return SLUICE_OK;
}

/* A document of more than 2^31 - 1 tokens becomes several sequences: the format counts a sequence in 32 bits. */
sluice_status sluice__shard_writer_add(sluice__shard_writer *w, const int32_t *ids, size_t count, sluice_error *err) {
    uint16_t block[BLOCK];
    while (count) {
        size_t n = count < BLOCK ? count : BLOCK;
        if (w->pending + (int64_t)n > INT32_MAX) SLUICE__TRY(end_sequence(w, err));
        for (size_t i = 0; i < n && w->token_bytes == 2; i++) block[i] = (uint16_t)ids[i];
        const void *data = w->token_bytes == 2 ? (const void *)block : (const void *)ids;
        if (fwrite(data, (size_t)w->token_bytes, n, w->bin.stream) != n) return write_failed(w->bin.path, err);
        w->pending += (int64_t)n;
        w->tokens += (int64_t)n;
        ids += n;
        count -= n;
    }
    return SLUICE_OK;
}

static sluice_status put_first(sluice__shard_writer *w, int64_t sequence, sluice_error *err) {
    return fwrite(&sequence, sizeof sequence, 1, w->first) == 1 ? SLUICE_OK : write_failed(w->idx.path, err);
}

sluice_status sluice__shard_writer_end_document(sluice__shard_writer *w, sluice_error *err) {
    if (w->documents == 0) SLUICE__TRY(put_first(w, 0, err));
    SLUICE__TRY(end_sequence(w, err));
    w->documents++;
    return put_first(w, w->sequences, err);
}

int64_t sluice__shard_writer_tokens(const sluice__shard_writer *w) {
    return w->tokens;
}
int64_t sluice__shard_writer_documents(const sluice__shard_writer *w) {
    return w->documents;
}

static bool copy_stream(FILE *to, FILE *from) {
    char block[BLOCK];
    size_t n;
    if (fflush(from) != 0) return false;
    rewind(from);
    while ((n = fread(block, 1, sizeof block, from)) > 0)
        if (fwrite(block, 1, n, to) != n) return false;
    return !ferror(from);
}

static bool write_pointers(FILE *to, FILE *sizes, int token_bytes) {
    int32_t size;
    int64_t pointer = 0;
    rewind(sizes);
    while (fread(&size, sizeof size, 1, sizes) == 1) {
        if (fwrite(&pointer, sizeof pointer, 1, to) != 1) return false;
        pointer += (int64_t)size * token_bytes;
    }
    return !ferror(sizes);
}

sluice_status sluice__shard_writer_finish(sluice__shard_writer *w, sluice_error *err) {
    if (w->documents == 0) SLUICE__TRY(put_first(w, 0, err));
    unsigned char header[SLUICE__IDX_HEADER] = SLUICE__IDX_MAGIC;
    uint64_t counts[2] = {(uint64_t)w->sequences, (uint64_t)w->documents + 1}, version = 1;
    memcpy(header + 9, &version, 8);
    header[17] = w->token_bytes == 2 ? SLUICE__IDX_UINT16 : SLUICE__IDX_INT32;
    memcpy(header + 18, counts, 16);
    FILE *to = w->idx.stream;
    bool ok = fwrite(header, 1, sizeof header, to) == sizeof header && copy_stream(to, w->sizes) &&
              write_pointers(to, w->sizes, w->token_bytes) && copy_stream(to, w->first);
    if (!ok || fflush(to) != 0) return write_failed(w->idx.path, err);
    return fflush(w->bin.stream) == 0 ? SLUICE_OK : write_failed(w->bin.path, err);
}

/* The .idx last: without it the pair does not exist for a reader. */
sluice_status sluice__shard_writer_publish(sluice__shard_writer *w, sluice_error *err) {
    w->bin_open = false;
    SLUICE__TRY(sluice__atomic_commit(&w->bin, err));
    w->idx_open = false;
    return sluice__atomic_commit(&w->idx, err);
}

void sluice__shard_writer_close(sluice__shard_writer *w) {
    if (!w) return;
    if (w->bin_open) sluice__atomic_abort(&w->bin);
    if (w->idx_open) sluice__atomic_abort(&w->idx);
    if (w->sizes) fclose(w->sizes);
    if (w->first) fclose(w->first);
    sluice__free(w);
}
