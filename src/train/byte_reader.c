/* SPDX-License-Identifier: Apache-2.0 */
/* Streaming decompression behind one read function. Members and frames that follow each other are one text; data that
 * ends inside one is an error. zstd windows are limited to 128 MiB so that a small file cannot ask for any amount of
 * memory. */
#include "train/byte_reader.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT = 128 << 10, ZSTD_WINDOW_LOG = 27 };
typedef enum coding { PLAIN, GZIP, ZSTD } coding;

struct sluice__byte_reader {
    char *path;
    int fd;
    coding coding;
    unsigned char *input;
    size_t at, size;  /* unread part of input */
    bool eof, inside; /* inside: a member or frame has begun and not ended */
    int64_t consumed;
    z_stream gzip;
    ZSTD_DStream *zstd;
};

static sluice_status refill(sluice__byte_reader *r, sluice_error *err) {
    if (r->at) memmove(r->input, r->input + r->at, r->size - r->at);
    r->size -= r->at;
    r->at = 0;
    while (!r->eof && r->size < INPUT) {
        ssize_t n = read(r->fd, r->input + r->size, INPUT - r->size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot read: %s", r->path, strerror(errno));
        if (n == 0) r->eof = true;
        r->size += (size_t)n;
        r->consumed += n;
        if (n > 0 && r->size >= 4) break; /* a terminal or pipe gives what it has */
    }
    return SLUICE_OK;
}

static sluice_status begin(sluice__byte_reader *r, sluice_error *err) {
    SLUICE__TRY(refill(r, err));
    if (r->size >= 2 && r->input[0] == 0x1F && r->input[1] == 0x8B) r->coding = GZIP;
    if (r->size >= 4 && !memcmp(r->input, "\x28\xB5\x2F\xFD", 4)) r->coding = ZSTD;
    if (r->coding == GZIP && inflateInit2(&r->gzip, 15 + 16) != Z_OK) {
        r->coding = PLAIN;
        return sluice__no_memory(err, 1 << 15, "gzip");
    }
    if (r->coding != ZSTD) return SLUICE_OK;
    r->zstd = ZSTD_createDStream();
    if (!r->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(r->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG)))
        return sluice__no_memory(err, 1 << 17, "zstd");
    return SLUICE_OK;
}

sluice_status sluice__byte_reader_open(sluice__byte_reader **out, const char *path, sluice_error *err) {
    bool input = !strcmp(path, "-");
    sluice__byte_reader *r = sluice__calloc(1, sizeof *r, SLUICE__MEM_DATA);
    *out = NULL;
    if (!r) return sluice__no_memory(err, sizeof *r, "a reader");
    r->fd = -1;
    r->path = sluice__strdup(input ? "standard input" : path);
    r->input = sluice__calloc(INPUT, 1, SLUICE__MEM_DATA);
    sluice_status st = r->path && r->input ? SLUICE_OK : sluice__no_memory(err, INPUT, "a reader");
    struct stat info;
    if (st == SLUICE_OK) {
        r->fd = input ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
        if (r->fd < 0)
            st = sluice__fail(err, SLUICE_ERR_IO, "%s: cannot open: %s", r->path, strerror(errno));
        else if (fstat(r->fd, &info) == 0 && S_ISDIR(info.st_mode))
            st = sluice__fail(err, SLUICE_ERR_IO, "%s: a directory, expected a file", r->path);
    }
    if (st == SLUICE_OK) st = begin(r, err);
    if (st == SLUICE_OK)
        *out = r;
    else
        sluice__byte_reader_close(r);
    return st;
}

static sluice_status damaged(const sluice__byte_reader *r, const char *why, sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: damaged %s data: %s", r->path, r->coding == GZIP ? "gzip" : "zstd",
                        why);
}

static sluice_status inflate_some(sluice__byte_reader *r, void *data, size_t size, size_t *got, sluice_error *err) {
    r->gzip.next_in = r->input + r->at;
    r->gzip.avail_in = (uInt)(r->size - r->at);
    r->gzip.next_out = data;
    r->gzip.avail_out = (uInt)(size > 1 << 30 ? 1 << 30 : size);
    uInt room = r->gzip.avail_out;
    r->inside = true;
    int rc = inflate(&r->gzip, Z_NO_FLUSH);
    r->at = r->size - r->gzip.avail_in;
    *got = room - r->gzip.avail_out;
    if (rc == Z_STREAM_END) {
        r->inside = false;
        inflateReset(&r->gzip);
        return SLUICE_OK;
    }
    return rc == Z_OK || rc == Z_BUF_ERROR ? SLUICE_OK : damaged(r, r->gzip.msg ? r->gzip.msg : "wrong header", err);
}

static sluice_status zstd_some(sluice__byte_reader *r, void *data, size_t size, size_t *got, sluice_error *err) {
    ZSTD_inBuffer in = {r->input, r->size, r->at};
    ZSTD_outBuffer out = {data, size, 0};
    size_t left = ZSTD_decompressStream(r->zstd, &out, &in);
    if (ZSTD_isError(left)) return damaged(r, ZSTD_getErrorName(left), err);
    r->at = in.pos;
    r->inside = left != 0;
    *got = out.pos;
    return SLUICE_OK;
}

sluice_status sluice__byte_reader_read(sluice__byte_reader *r, void *data, size_t size, size_t *got,
                                       sluice_error *err) {
    for (*got = 0; *got == 0 && size;) {
        if (r->at == r->size && !r->eof) SLUICE__TRY(refill(r, err));
        bool empty = r->at == r->size;
        if (empty && !r->inside) break;
        if (r->coding == PLAIN) {
            *got = r->size - r->at < size ? r->size - r->at : size;
            memcpy(data, r->input + r->at, *got);
            r->at += *got;
        } else if (r->coding == GZIP) {
            SLUICE__TRY(inflate_some(r, data, size, got, err));
        } else {
            SLUICE__TRY(zstd_some(r, data, size, got, err));
        }
        if (empty && r->eof && *got == 0 && r->inside) return damaged(r, "it ends early", err);
    }
    return SLUICE_OK;
}

int64_t sluice__byte_reader_consumed(const sluice__byte_reader *r) {
    return r->consumed - (int64_t)(r->size - r->at);
}

void sluice__byte_reader_close(sluice__byte_reader *r) {
    if (!r) return;
    if (r->fd >= 0) close(r->fd);
    if (r->coding == GZIP) inflateEnd(&r->gzip);
    ZSTD_freeDStream(r->zstd);
    sluice__free(r->input);
    sluice__free(r->path);
    sluice__free(r);
}
