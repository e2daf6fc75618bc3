/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard event files. Field numbers are those of tensorboard's event.proto and summary.proto: Event {1
 * wall_time, 2 step, 3 file_version, 5 summary, 7 session_log}, Summary {1 value}, Value {1 tag, 2 simple_value},
 * SessionLog {1 status}. */
#include "train/tensorboard.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */
enum { SESSION_START = 1 };

/* Castagnoli polynomial, reflected, one bit at a time: event files are small. */
uint32_t sluice__crc32c(const void *data, size_t size) {
    const unsigned char *p = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
    }
    return ~crc;
}

static uint32_t masked_crc(const void *data, size_t size) {
    uint32_t crc = sluice__crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void little_endian(unsigned char *out, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)(v >> 8 * i);
}

static void put_fixed(sluice__strbuf *b, uint64_t v, int bytes) {
    unsigned char raw[8];
    little_endian(raw, v, bytes);
    sluice__strbuf_add(b, raw, (size_t)bytes);
}

static void put_varint(sluice__strbuf *b, uint64_t v) {
    do {
        unsigned char byte = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        sluice__strbuf_add(b, &byte, 1);
    } while (v >>= 7);
}

static void put_key(sluice__strbuf *b, unsigned field, unsigned wire) {
    put_varint(b, field << 3 | wire);
}

static void put_bytes(sluice__strbuf *b, unsigned field, const void *data, size_t size) {
    put_key(b, field, BYTES);
    put_varint(b, size);
    sluice__strbuf_add(b, data, size);
}

static void write_record(sluice__tensorboard *t, const sluice__strbuf *event) {
    unsigned char head[12], tail[4];
    little_endian(head, event->size, 8);
    little_endian(head + 8, masked_crc(head, 8), 4);
    little_endian(tail, masked_crc(event->data, event->size), 4);
    fwrite(head, 1, sizeof head, t->stream);
    fwrite(event->data, 1, event->size, t->stream);
    fwrite(tail, 1, sizeof tail, t->stream);
}

/* An event with the given payload field; a failed allocation loses the event, which is what a metric is worth. */
static void write_event(sluice__tensorboard *t, int64_t step, unsigned field, const void *payload, size_t size) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    uint64_t bits;
    memcpy(&bits, &wall, sizeof bits);
    sluice__strbuf event = {0};
    put_key(&event, 1, FIXED64);
    put_fixed(&event, bits, 8);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, field, payload, size);
    if (!event.failed) write_record(t, &event);
    sluice__strbuf_free(&event);
}

/* "events.out.tfevents.<seconds>.<host>.<pid>.<n>" with the first n that is free. */
static sluice_status create(sluice__tensorboard *t, const char *dir, sluice_error *err) {
    char host[64] = "localhost";
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "localhost");
    for (int n = 0; n < 1000; n++) {
        sluice__free(t->path);
        t->path = sluice__asprintf("%s/events.out.tfevents.%lld.%s.%d.%d", dir, (long long)time(NULL), host,
                                   (int)getpid(), n);
        if (!t->path) return sluice__no_memory(err, strlen(dir), "a path");
        t->stream = fopen(t->path, "wbxe");
        if (t->stream) return SLUICE_OK;
        if (errno != EEXIST) break;
    }
    return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot create: %s", t->path, strerror(errno));
}

sluice_status sluice__tensorboard_open(sluice__tensorboard *t, const char *dir, int64_t restart, sluice_error *err) {
    static const char version[] = "brain.Event:2";
    *t = (sluice__tensorboard){0};
    sluice_status st = create(t, dir, err);
    if (st != SLUICE_OK) {
        sluice__free(t->path);
        *t = (sluice__tensorboard){0};
        return st;
    }
    write_event(t, 0, 3, version, sizeof version - 1);
    if (restart >= 0) {
        const unsigned char start[] = {1 << 3 | VARINT, SESSION_START};
        write_event(t, restart, 7, start, sizeof start);
    }
    return SLUICE_OK;
}

void sluice__tensorboard_scalar(sluice__tensorboard *t, const char *tag, double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    sluice__strbuf v = {0};
    put_bytes(&v, 1, tag, strlen(tag));
    put_key(&v, 2, FIXED32);
    put_fixed(&v, bits, 4);
    if (!v.failed) put_bytes(&t->summary, 1, v.data, v.size);
    sluice__strbuf_free(&v);
}

void sluice__tensorboard_event(sluice__tensorboard *t, int64_t step) {
    if (t->summary.size && !t->summary.failed) write_event(t, step, 5, t->summary.data, t->summary.size);
    sluice__strbuf_free(&t->summary);
}

sluice_status sluice__tensorboard_flush(sluice__tensorboard *t, sluice_error *err) {
    if (fflush(t->stream) == 0 && !ferror(t->stream)) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot write: %s", t->path, strerror(errno));
}

sluice_status sluice__tensorboard_close(sluice__tensorboard *t, sluice_error *err) {
    if (!t->stream) return SLUICE_OK;
    sluice_status st = sluice__tensorboard_flush(t, err);
    fclose(t->stream);
    sluice__free(t->path);
    sluice__strbuf_free(&t->summary);
    *t = (sluice__tensorboard){0};
    return st;
}
