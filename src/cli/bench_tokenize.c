/* SPDX-License-Identifier: Apache-2.0 */
/* `sluice bench tokenize TOKENIZER FILE`: how long the tokenizer takes to load, and how fast it encodes the file as one
 * text, on the threads in use. */
#include "cli/bench.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/progress.h"
#include "sluice/cpu.h"
#include "sluice/tokenizer.h"
#include <stdio.h>

typedef struct result {
    double load_seconds, encode_seconds; /* best of all */
    size_t bytes, tokens;
} result;

static double least(double best, double seconds) { return best == 0 || seconds < best ? seconds : best; }

static sluice_status encode_once(const sluice_tokenizer *tok, const char *text, result *r, sluice_error *err) {
    sluice_ids ids = {0};
    double start = sluice__now();
    sluice_status st = sluice_tokenizer_encode(tok, text, r->bytes, 0, &ids, err);
    r->encode_seconds = least(r->encode_seconds, sluice__now() - start);
    r->tokens = ids.count;
    sluice_ids_free(&ids);
    return st;
}

static sluice_status measure(const char *path, const char *text, int repeat, result *r, sluice_error *err) {
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < repeat; i++) {
        sluice_tokenizer *tok;
        double start = sluice__now();
        st = sluice_tokenizer_load(&tok, path, err);
        r->load_seconds = least(r->load_seconds, sluice__now() - start);
        if (st == SLUICE_OK) st = encode_once(tok, text, r, err);
        sluice_tokenizer_free(tok);
    }
    return st;
}

int bench_tokenize(const char *tokenizer, const char *file, int repeat, bool as_json, sluice_error *err) {
    enum { MOST = 1 << 30 };
    result r = {0};
    char *text;
    if (sluice__read_file(&text, &r.bytes, file, MOST, err) != SLUICE_OK) return cli_fail("bench", err);
    sluice_status st = measure(tokenizer, text, repeat, &r, err);
    sluice__free(text);
    if (st != SLUICE_OK) return cli_fail("bench", err);
    double rate = (double)r.bytes / r.encode_seconds / 1e6;
    if (as_json)
        return bench_print_json(json_pack("{s:i, s:f, s:f, s:f, s:I, s:I}", "threads", sluice_get_num_threads(), "load_seconds",
                                          r.load_seconds, "encode_seconds", r.encode_seconds, "encode_mbs", rate, "bytes",
                                          (json_int_t)r.bytes, "tokens", (json_int_t)r.tokens));
    printf("load %.3f s   encode %.1f MB/s: %zu bytes, %zu tokens, %.3f s, %d thread%s\n", r.load_seconds, rate, r.bytes,
           r.tokens, r.encode_seconds, sluice_get_num_threads(), sluice_get_num_threads() == 1 ? "" : "s");
    return CLI_OK;
}
