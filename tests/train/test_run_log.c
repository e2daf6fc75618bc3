/* SPDX-License-Identifier: Apache-2.0 */
/* train: TensorBoard event files taken apart byte by byte, with a checksum of their own; metrics.jsonl cut where a
 * run goes back. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/run_log.h"
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CRC-32C by polynomial division of the message as one long number: another way than the library's. */
static uint32_t crc_by_division(const unsigned char *p, size_t n) {
    uint64_t rest = 0;
    for (size_t i = 0; i < n + 4; i++) {
        unsigned char byte = i < n ? p[i] : 0;
        for (int bit = 0; bit < 8; bit++) { /* least significant bit first; the first 32 bits are inverted */
            unsigned in = (byte >> bit & 1) ^ (i < 4);
            rest = rest << 1 | in;
            if (rest >> 32 & 1) rest ^= 0x11EDC6F41u;
        }
    }
    uint32_t mirrored = 0;
    for (int i = 0; i < 32; i++) mirrored |= (uint32_t)(rest >> i & 1) << (31 - i);
    return ~mirrored;
}

static void checksum(void **state) {
    (void)state;
    assert_int_equal(sluice__crc32c("123456789", 9), 0xE3069283u); /* the check value of the CRC catalogue */
    assert_int_equal(sluice__crc32c("", 0), 0);
    unsigned char bytes[64];
    for (int i = 0; i < 64; i++) bytes[i] = (unsigned char)(i * 37 + 11);
    for (size_t n = 4; n <= 64; n++) assert_int_equal(sluice__crc32c(bytes, n), crc_by_division(bytes, n));
}

static uint64_t number(const unsigned char *p, int bytes) {
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static uint32_t masked(const unsigned char *p, size_t n) {
    uint32_t c = crc_by_division(p, n);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static uint64_t varint(const unsigned char **p) {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*p)++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return v;
    }
}

typedef struct event {
    double wall_time;
    int64_t step;
    char version[32], tags[16][64];
    float values[16];
    int num_values, session;
} event;

static void parse_value(event *e, const unsigned char *p, const unsigned char *end) {
    int i = e->num_values++;
    while (p < end) {
        uint64_t key = varint(&p);
        if (key == (1 << 3 | 2)) {
            size_t n = (size_t)varint(&p);
            assert_true(n < 64);
            memcpy(e->tags[i], p, n);
            p += n;
        } else {
            assert_int_equal(key, 2 << 3 | 5);
            uint32_t bits = (uint32_t)number(p, 4);
            memcpy(&e->values[i], &bits, 4);
            p += 4;
        }
    }
}

static event parse_event(const unsigned char *p, const unsigned char *end) {
    event e = {.step = -1};
    while (p < end) {
        uint64_t key = varint(&p), bits;
        if (key == (1 << 3 | 1)) {
            bits = number(p, 8);
            memcpy(&e.wall_time, &bits, 8);
            p += 8;
        } else if (key == (2 << 3 | 0)) {
            e.step = (int64_t)varint(&p);
        } else {
            size_t n = (size_t)varint(&p);
            const unsigned char *inside = p, *stop = p + n;
            if (key == (3 << 3 | 2)) memcpy(e.version, p, n);
            else if (key == (7 << 3 | 2)) e.session = inside[0] == 1 << 3 ? inside[1] : -1;
            else assert_int_equal(key, 5 << 3 | 2);
            while (key == (5 << 3 | 2) && inside < stop) {
                assert_int_equal(varint(&inside), 1 << 3 | 2);
                size_t m = (size_t)varint(&inside);
                parse_value(&e, inside, inside + m);
                inside += m;
            }
            p = stop;
        }
    }
    return e;
}

/* All events of one file; checks lengths and checksums. */
static int read_events(const char *path, event *out, int most) {
    char *text;
    size_t size, at = 0;
    int n = 0;
    assert_ok(sluice__read_file(&text, &size, path, 1 << 20, NULL));
    const unsigned char *p = (const unsigned char *)text;
    while (at < size) {
        uint64_t length = number(p + at, 8);
        assert_true(at + 16 + length <= size);
        assert_int_equal(number(p + at + 8, 4), masked(p + at, 8));
        assert_int_equal(number(p + at + 12 + length, 4), masked(p + at + 12, length));
        assert_true(n < most);
        out[n++] = parse_event(p + at + 12, p + at + 12 + length);
        at += 16 + length;
    }
    sluice__free(text);
    return n;
}

static int event_files(const char *dir, char paths[4][512]) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, "events.out.tfevents.")) snprintf(paths[n++ & 3], 512, "%s/%s", dir, e->d_name);
    closedir(d);
    return n;
}

static sluice_step_record record(int64_t step) {
    return (sluice_step_record){.step = step,
                                .loss = 3.5 - 0.01 * (double)step,
                                .grad_norm = 1,
                                .learning_rate = 1e-3,
                                .tokens_per_second = 100,
                                .tokens = 128 * step};
}

static void events(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    sluice__run_log log;
    sluice_error err = {0};
    assert_ok_err(sluice__run_log_open(&log, dir, -1, true, &err), &err);
    sluice_step_record r = record(300);
    sluice__run_log_step(&log, &r);
    double share[] = {0.25, 0.5}, residual[] = {1, 2}, gate[] = {NAN, 0.125};
    sluice_probe_record probe = {300, 2, share, share, residual, residual, residual, gate};
    sluice__run_log_probe(&log, &probe);
    sluice_eval_record eval = {300, 2, 7.389, 1.5, 1000, 4000};
    sluice__run_log_eval(&log, &eval);
    assert_ok_err(sluice__run_log_close(&log, &err), &err);
    char paths[4][512];
    event e[8];
    assert_int_equal(event_files(dir, paths), 1);
    assert_int_equal(read_events(paths[0], e, 8), 4);
    assert_string_equal(e[0].version, "brain.Event:2");
    assert_true(e[0].wall_time > 1.5e9);
    assert_int_equal(e[1].step, 300);
    assert_string_equal(e[1].tags[0], "train/loss");
    assert_float_equal(e[1].values[0], 0.5, 1e-6);
    assert_string_equal(e[2].tags[1], "first_token_share/layer_01");
    assert_float_equal(e[2].values[1], 0.5, 0);
    assert_int_equal(e[2].num_values, 9); /* the layer without a gate has no value */
    assert_string_equal(e[2].tags[5], "max_abs_attn_out/layer_01");
    assert_string_equal(e[2].tags[6], "max_abs_ffn_out/layer_00");
    assert_string_equal(e[2].tags[8], "gate_mean/layer_01");
    assert_string_equal(e[3].tags[2], "eval/bits_per_byte");
}

static int count_lines(const char *dir, const char *word) {
    char path[512], *text;
    int n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_ok(sluice__read_file(&text, NULL, path, 1 << 20, NULL));
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_true(json_is_object(o));
        json_decref(o);
        *end = '\0';
        n += strstr(line, word) != NULL;
    }
    sluice__free(text);
    return n;
}

static void lines_are_cut_where_a_run_goes_on(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    char path[512];
    sluice__run_log log;
    sluice_error err = {0};
    assert_ok_err(sluice__run_log_open(&log, dir, -1, false, &err), &err);
    for (int64_t i = 1; i <= 20; i++) {
        sluice_step_record r = record(i);
        if (i == 13) r.loss = NAN;
        sluice__run_log_step(&log, &r);
    }
    sluice__run_log_event(&log, "skip", 20, INFINITY, "quotes \" and \n ends");
    assert_ok_err(sluice__run_log_close(&log, &err), &err);
    assert_int_equal(count_lines(dir, "\"train\""), 20);
    assert_int_equal(count_lines(dir, "\"loss\": null"), 2);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *f = fopen(path, "ab"); /* what a kill leaves */
    fputs("{\"type\": \"train\", \"step\": 21, \"lo", f);
    fclose(f);
    assert_ok_err(sluice__run_log_open(&log, dir, 20, false, &err), &err);
    assert_ok_err(sluice__run_log_close(&log, &err), &err);
    assert_int_equal(count_lines(dir, ""), 21);
    assert_ok_err(sluice__run_log_open(&log, dir, 12, true, &err), &err);
    sluice_step_record r = record(13);
    sluice__run_log_step(&log, &r);
    assert_ok_err(sluice__run_log_rewind(&log, dir, 10, &err), &err);
    sluice__run_log_step(&log, &r);
    assert_ok_err(sluice__run_log_close(&log, &err), &err);
    assert_int_equal(count_lines(dir, ""), 11);
    char paths[4][512];
    event e[8];
    assert_int_equal(event_files(dir, paths), 2);
    for (int i = 0; i < 2; i++) { /* each says from which step on earlier files are void */
        assert_int_equal(read_events(paths[i], e, 8), 3);
        assert_int_equal(e[1].session, 1);
        assert_true(e[1].step == 13 || e[1].step == 11);
    }
}

static void a_file_that_cannot_be_written(void **state) {
    (void)state;
    sluice__run_log log;
    sluice_error err = {0};
    assert_int_equal(sluice__run_log_open(&log, "/proc/nowhere", -1, true, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "/proc/nowhere"));
    assert_ok(sluice__run_log_close(&log, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksum),
        cmocka_unit_test(events),
        cmocka_unit_test(lines_are_cut_where_a_run_goes_on),
        cmocka_unit_test(a_file_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
