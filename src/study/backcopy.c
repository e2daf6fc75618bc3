/* SPDX-License-Identifier: Apache-2.0 */
/* The generator: symbols are the most frequent bytes of the text, transitions its bigrams among them (pairs with
 * another byte are left out), drawn by inverting the cumulative counts. */
#include "study/backcopy.h"
#include "base/memory.h"
#include "base/rng.h"
#include <string.h>

enum { STREAM = 0x6261636b }; /* of the random numbers */

void sluice__backcopy_free(sluice__backcopy *b) {
    sluice__free(b->ids);
    *b = (sluice__backcopy){0};
}

static bool is_trigger(const sluice__backcopy *b, int32_t id) {
    for (int i = 0; i < b->num_triggers; i++)
        if (b->triggers[i] == id) return true;
    return false;
}

/* Fills bytes by falling frequency (equal ones by value) and id_of (-1 = not a symbol); all bytes of the text when they
 * are fewer than asked for. */
static void choose_symbols(sluice__backcopy *b, const unsigned char *text, size_t size, int id_of[256]) {
    int64_t count[256] = {0};
    for (size_t i = 0; i < size; i++) count[text[i]]++;
    for (int c = 0; c < 256; c++) id_of[c] = -1;
    for (int s = 0; s < b->symbols; s++) {
        int best = -1;
        for (int c = 0; c < 256; c++)
            if (id_of[c] < 0 && count[c] > 0 && (best < 0 || count[c] > count[best])) best = c;
        if (best < 0) {
            b->symbols = s;
            break;
        }
        id_of[best] = s;
        b->bytes[s] = (unsigned char)best;
    }
}

/* cumulative [symbols + 1, symbols]: of row a, the number of pairs (a, b' <= b). The last row counts the second symbols
 * of all pairs; a row without pairs falls back to it. */
static void count_bigrams(const sluice__backcopy *b, const unsigned char *text, size_t size, const int id_of[256],
                          int64_t *cumulative) {
    int n = b->symbols;
    for (size_t i = 0; i + 1 < size; i++) {
        int a = id_of[text[i]], c = id_of[text[i + 1]];
        if (a >= 0 && c >= 0) cumulative[a * n + c]++;
    }
    int64_t *any = cumulative + n * n;
    for (int a = 0; a < n; a++)
        for (int c = 0; c < n; c++) any[c] += cumulative[a * n + c];
    for (int a = 0; a <= n; a++) {
        int64_t row = 0;
        for (int c = 0; c < n; c++) row += cumulative[a * n + c];
        if (!row) memcpy(cumulative + a * n, any, (size_t)n * sizeof *any);
        for (int c = 1; c < n; c++) cumulative[a * n + c] += cumulative[a * n + c - 1];
    }
}

static int32_t draw(const int64_t *row, int n, sluice__rng *rng) {
    int64_t at = (int64_t)sluice__rng_below(rng, (uint64_t)row[n - 1]);
    int32_t s = 0;
    while (row[s] <= at) s++;
    return s;
}

/* A chain begins with a symbol that is no trigger; so a trigger always follows one, and no two triggers can go on
 * copying each other for ever. */
static void generate(sluice__backcopy *b, const int64_t *cumulative, const sluice__backcopy_params *p) {
    sluice__rng rng = {.seed = p->seed, .stream = STREAM};
    const int64_t *frequencies = cumulative + b->symbols * b->symbols;
    for (int64_t t = 0; t < b->count; t++) {
        bool begins = t == 0 || (p->document_tokens && t % p->document_tokens == 0);
        if (begins) {
            do b->ids[t] = draw(frequencies, b->symbols, &rng);
            while (is_trigger(b, b->ids[t]));
        } else if (is_trigger(b, b->ids[t - 1])) {
            b->ids[t] = b->ids[t - 2];
        } else {
            b->ids[t] = draw(cumulative + b->ids[t - 1] * b->symbols, b->symbols, &rng);
        }
    }
}

static sluice_status set_triggers(sluice__backcopy *b, const char *triggers, const int id_of[256], sluice_error *err) {
    size_t n = strlen(triggers);
    if (n < 1 || n > sizeof b->triggers / sizeof *b->triggers)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "data.triggers: found %zu characters, expected 1..16", n);
    for (size_t i = 0; i < n; i++) {
        int id = id_of[(unsigned char)triggers[i]];
        if (id < 0)
            return sluice__fail(err, SLUICE_ERR_CONFIG,
                                "data.triggers: \"%c\" is not among the %d most frequent characters "
                                "of the text",
                                triggers[i], b->symbols);
        if (!is_trigger(b, id)) b->triggers[b->num_triggers++] = id;
    }
    if (b->num_triggers == b->symbols)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "data.triggers: every symbol is a trigger");
    return SLUICE_OK;
}

/* Whether some symbol that is no trigger can begin a chain. */
static bool can_begin(const sluice__backcopy *b, const int64_t *frequencies) {
    for (int32_t s = 0; s < b->symbols; s++)
        if (!is_trigger(b, s) && frequencies[s] > (s ? frequencies[s - 1] : 0)) return true;
    return false;
}

static sluice_status make_chain(sluice__backcopy *b, const unsigned char *text, size_t size, const int id_of[256],
                                const sluice__backcopy_params *p, sluice_error *err) {
    size_t pairs = (size_t)(b->symbols + 1) * (size_t)b->symbols;
    int64_t *cumulative = sluice__calloc(pairs, sizeof *cumulative, SLUICE__MEM_DATA);
    b->ids = sluice__calloc((size_t)b->count, sizeof *b->ids, SLUICE__MEM_DATA);
    sluice_status st = SLUICE_OK;
    if (!cumulative || !b->ids) st = sluice__no_memory(err, (size_t)b->count * sizeof *b->ids, "synthetic data");
    if (st == SLUICE_OK) {
        count_bigrams(b, text, size, id_of, cumulative);
        if (can_begin(b, cumulative + b->symbols * b->symbols))
            generate(b, cumulative, p);
        else
            st = sluice__fail(err, SLUICE_ERR_CONFIG, "data: the text has no pairs of symbols to make a chain of");
    }
    sluice__free(cumulative);
    return st;
}

sluice_status sluice__backcopy_new(sluice__backcopy *out, const char *text, size_t size,
                                   const sluice__backcopy_params *p, sluice_error *err) {
    *out = (sluice__backcopy){.symbols = p->symbols, .count = p->count};
    int id_of[256];
    const unsigned char *bytes = (const unsigned char *)text;
    if (p->symbols < 2 || p->symbols > 255 || p->count < 2)
        return sluice__fail(err, SLUICE_ERR_CONFIG,
                            "data: found %d symbols and %lld tokens, expected 2..255 and at least 2", p->symbols,
                            (long long)p->count);
    if (p->document_tokens < 0 || p->document_tokens == 1)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "data.document_tokens: found %lld, expected 0 or at least 2",
                            (long long)p->document_tokens);
    choose_symbols(out, bytes, size, id_of);
    if (out->symbols < 2)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "data: the text has fewer than 2 different bytes");
    SLUICE__TRY(set_triggers(out, p->triggers, id_of, err));
    sluice_status st = make_chain(out, bytes, size, id_of, p, err);
    if (st != SLUICE_OK) sluice__backcopy_free(out);
    return st;
}
