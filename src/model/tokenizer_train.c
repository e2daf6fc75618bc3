/* SPDX-License-Identifier: Apache-2.0 */
/* Training of byte-level BPE (Sennrich et al. 2016), with the results of the tokenizers package: pairs are counted once
 * over the distinct pre-tokens; a merge touches only the words that hold its pair and changes the counts of the
 * neighbours; a heap with lazy deletion gives the next pair. An entry of the heap carries the words in which its pair
 * came up, and its count may be out of date: it is then put back with the true one.
 *
 * Two different merges can make the same token (a+bc and ab+c). As in the tokenizers package the token keeps its first
 * id, its pairs go on counting, and the count of a merged pair is left as it was. */
#include "model/tokenizer_train.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/tokenizer_save.h"
#include "model/utf8.h"

typedef struct word_list {
    uint32_t *at;
    uint32_t count, capacity;
} word_list;

typedef struct candidate {
    int64_t count;
    uint64_t pair; /* left << 32 | right */
    word_list words;
} candidate;

typedef struct pair_slot {
    uint64_t pair; /* UINT64_MAX = empty */
    int64_t count;
    uint32_t fresh; /* 1 + index in trainer.fresh while a merge goes on, 0 = not there */
} pair_slot;

typedef struct trainer {
    const sluice__words *words;
    uint32_t *symbols; /* of all words behind each other */
    uint64_t *start;   /* [words + 1] */
    uint32_t *length;  /* [words] shrinks */
    pair_slot *slots;
    uint64_t mask, used;
    candidate *heap;
    size_t heap_count, heap_capacity;
    candidate *fresh; /* pairs that the present merge made */
    size_t fresh_count, fresh_capacity;
    sluice__pair *merges;
    size_t num_merges;
    sluice__vocab vocab;
    bool failed; /* out of memory */
} trainer;

/* ---- pair counts ---- */
static pair_slot *slot_of(trainer *t, uint64_t pair);

static bool resize_slots(trainer *t, uint64_t size) {
    pair_slot *old = t->slots;
    uint64_t old_size = old ? t->mask + 1 : 0;
    t->slots = sluice__calloc(size, sizeof *t->slots, SLUICE__MEM_DATA);
    if (!t->slots) {
        t->slots = old;
        t->failed = true;
        return false;
    }
    t->mask = size - 1;
    t->used = 0;
    for (uint64_t i = 0; i < size; i++) t->slots[i].pair = UINT64_MAX;
    for (uint64_t i = 0; i < old_size; i++)
        if (old[i].pair != UINT64_MAX) *slot_of(t, old[i].pair) = old[i];
    sluice__free(old);
    return true;
}

static pair_slot *slot_of(trainer *t, uint64_t pair) {
    if (t->used * 3 > t->mask * 2 && !resize_slots(t, (t->mask + 1) * 2) && t->used == t->mask) return &t->slots[0];
    uint64_t i = sluice__mix(pair, pair) & t->mask;
    while (t->slots[i].pair != UINT64_MAX && t->slots[i].pair != pair) i = (i + 1) & t->mask;
    if (t->slots[i].pair == UINT64_MAX) {
        t->slots[i] = (pair_slot){pair, 0, 0};
        t->used++;
    }
    return &t->slots[i];
}

static void add_word(trainer *t, word_list *list, uint32_t word) {
    if (list->count && list->at[list->count - 1] == word) return;
    if (list->count == list->capacity) {
        uint32_t n = list->capacity ? list->capacity * 2 : 4;
        void *more = sluice__realloc(list->at, n, sizeof *list->at, SLUICE__MEM_DATA);
        if (!more) {
            t->failed = true;
            return;
        }
        list->at = more;
        list->capacity = n;
    }
    list->at[list->count++] = word;
}

/* The list of a pair that the present merge (or the first count) makes. */
static void note_fresh(trainer *t, pair_slot *s, uint32_t word) {
    if (!s->fresh) {
        if (t->fresh_count == t->fresh_capacity) {
            size_t n = t->fresh_capacity ? t->fresh_capacity * 2 : 256;
            void *more = sluice__realloc(t->fresh, n, sizeof *t->fresh, SLUICE__MEM_DATA);
            if (!more) {
                t->failed = true;
                return;
            }
            t->fresh = more;
            t->fresh_capacity = n;
        }
        t->fresh[t->fresh_count++] = (candidate){.pair = s->pair};
        s->fresh = (uint32_t)t->fresh_count;
    }
    add_word(t, &t->fresh[s->fresh - 1].words, word);
}

/* ---- heap: most frequent first, then the smallest pair ---- */
static bool before(const candidate *a, const candidate *b) {
    return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

static void heap_push(trainer *t, candidate x) {
    if (t->heap_count == t->heap_capacity) {
        size_t n = t->heap_capacity ? t->heap_capacity * 2 : 1024;
        void *more = sluice__realloc(t->heap, n, sizeof *t->heap, SLUICE__MEM_DATA);
        if (!more) {
            sluice__free(x.words.at);
            t->failed = true;
            return;
        }
        t->heap = more;
        t->heap_capacity = n;
    }
    size_t i = t->heap_count++;
    for (; i && before(&x, &t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = x;
}

static candidate heap_pop(trainer *t) {
    candidate top = t->heap[0], x = t->heap[--t->heap_count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < t->heap_count) {
        if (child + 1 < t->heap_count && before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!before(&t->heap[child], &x)) break;
        t->heap[i] = t->heap[child];
        i = child;
    }
    if (t->heap_count) t->heap[i] = x;
    return top;
}

static void release_fresh(trainer *t) {
    for (size_t i = 0; i < t->fresh_count; i++) {
        pair_slot *s = slot_of(t, t->fresh[i].pair);
        s->fresh = 0;
        t->fresh[i].count = s->count;
        if (s->count > 0)
            heap_push(t, t->fresh[i]);
        else
            sluice__free(t->fresh[i].words.at);
    }
    t->fresh_count = 0;
}

/* ---- words ---- */
static sluice_status spread_words(trainer *t, const int32_t symbol[256], sluice_error *err) {
    const sluice__words *w = t->words;
    t->symbols = sluice__calloc(w->bytes, sizeof *t->symbols, SLUICE__MEM_DATA);
    t->start = sluice__calloc(w->count + 1, sizeof *t->start, SLUICE__MEM_DATA);
    t->length = sluice__calloc(w->count, sizeof *t->length, SLUICE__MEM_DATA);
    if (!t->symbols || !t->start || !t->length || !resize_slots(t, 1 << 16))
        return sluice__no_memory(err, w->bytes * sizeof *t->symbols, "the words of a text");
    uint64_t at = 0;
    for (size_t i = 0; i < w->count; i++) {
        t->start[i] = at;
        t->length[i] = w->at[i].size;
        for (uint32_t k = 0; k < w->at[i].size; k++)
            t->symbols[at++] = (uint32_t)symbol[(unsigned char)w->arena[w->at[i].text + k]];
    }
    for (size_t i = 0; i < w->count; i++) {
        const uint32_t *s = t->symbols + t->start[i];
        for (uint32_t k = 0; k + 1 < t->length[i]; k++) {
            pair_slot *p = slot_of(t, (uint64_t)s[k] << 32 | s[k + 1]);
            p->count += w->at[i].count;
            note_fresh(t, p, (uint32_t)i);
        }
    }
    release_fresh(t);
    return t->failed ? sluice__no_memory(err, t->used * sizeof *t->slots, "pair counts") : SLUICE_OK;
}

static void change(trainer *t, uint32_t left, uint32_t right, int64_t by, uint32_t word) {
    pair_slot *s = slot_of(t, (uint64_t)left << 32 | right);
    s->count += by;
    if (by > 0) note_fresh(t, s, word);
}

/* Merges (left, right) into id in one word, from left to right. */
static void merge_word(trainer *t, uint32_t word, uint32_t left, uint32_t right, uint32_t id) {
    uint32_t *s = t->symbols + t->start[word], n = t->length[word], out = 0;
    int64_t count = t->words->at[word].count;
    for (uint32_t i = 0; i < n; i++) {
        if (s[i] != left || i + 1 == n || s[i + 1] != right) {
            s[out++] = s[i];
            continue;
        }
        if (out) {
            change(t, s[out - 1], left, -count, word);
            change(t, s[out - 1], id, count, word);
        }
        if (i + 2 < n) {
            change(t, right, s[i + 2], -count, word);
            change(t, id, s[i + 2], count, word);
        }
        s[out++] = id;
        i++;
    }
    t->length[word] = out;
}

/* ---- merging ---- */
static sluice_status new_token(trainer *t, uint32_t left, uint32_t right, uint32_t *id, sluice_error *err) {
    const sluice__vocab *v = &t->vocab;
    sluice__strbuf text = {0};
    sluice__strbuf_add(&text, sluice__token_text(v, (int32_t)left), v->tokens[left].text_size);
    sluice__strbuf_add(&text, sluice__token_text(v, (int32_t)right), v->tokens[right].text_size);
    sluice_status st = text.failed ? sluice__no_memory(err, text.size, "a token") : SLUICE_OK;
    int32_t there = st == SLUICE_OK ? sluice__vocab_find(v, text.data, text.size) : -1;
    *id = there >= 0 ? (uint32_t)there : (uint32_t)v->size;
    if (st == SLUICE_OK && there < 0)
        st = sluice__vocab_add(&t->vocab, "training", *id, (sluice__span){text.data, text.size}, SLUICE__TOKEN_MODEL,
                               err);
    sluice__strbuf_free(&text);
    return st;
}

static sluice_status keep_merge(trainer *t, uint32_t left, uint32_t right, sluice_error *err) {
    if ((t->num_merges & (t->num_merges - 1)) == 0) { /* room doubles at powers of two */
        void *more =
            sluice__realloc(t->merges, t->num_merges ? t->num_merges * 2 : 1, sizeof *t->merges, SLUICE__MEM_DATA);
        if (!more) return sluice__no_memory(err, t->num_merges * 2 * sizeof *t->merges, "merges");
        t->merges = more;
    }
    t->merges[t->num_merges++] = (sluice__pair){left, right};
    return SLUICE_OK;
}

static sluice_status merge_all(trainer *t, int vocab_size, int64_t min_frequency, sluice_error *err) {
    while (t->vocab.size < vocab_size && t->heap_count) {
        candidate top = heap_pop(t);
        int64_t now = slot_of(t, top.pair)->count;
        if (top.count != now) {
            top.count = now;
            heap_push(t, top);
            continue;
        }
        uint32_t left = (uint32_t)(top.pair >> 32), right = (uint32_t)top.pair, id = 0;
        bool stop = top.count < 1 || top.count < min_frequency;
        sluice_status st = stop ? SLUICE_OK : new_token(t, left, right, &id, err);
        if (st == SLUICE_OK && !stop) st = keep_merge(t, left, right, err);
        for (uint32_t i = 0; i < top.words.count && st == SLUICE_OK && !stop; i++)
            merge_word(t, top.words.at[i], left, right, id);
        sluice__free(top.words.at);
        if (st != SLUICE_OK) return st;
        if (stop) break;
        release_fresh(t);
        if (t->failed) return sluice__no_memory(err, t->used * sizeof *t->slots, "pair counts");
    }
    return SLUICE_OK;
}

static void trainer_free(trainer *t) {
    for (size_t i = 0; i < t->heap_count; i++) sluice__free(t->heap[i].words.at);
    for (size_t i = 0; i < t->fresh_count; i++) sluice__free(t->fresh[i].words.at);
    sluice__free(t->heap);
    sluice__free(t->fresh);
    sluice__free(t->symbols);
    sluice__free(t->start);
    sluice__free(t->length);
    sluice__free(t->slots);
    sluice__free(t->merges);
    sluice__vocab_free(&t->vocab);
}

/* ---- parameters ---- */
sluice_tokenizer_params sluice_tokenizer_params_default(void) {
    static const char *const special[] = {"<|endoftext|>"};
    return (sluice_tokenizer_params){
        .vocab_size = 32000, .pattern = "qwen2", .special_tokens = special, .num_special_tokens = 1};
}

static sluice_status check_params(const sluice_tokenizer_params *p, const char **normalizer, sluice_error *err) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    int least = p->num_special_tokens + 256;
    if (p->vocab_size < least || p->vocab_size > SLUICE__MAX_TOKEN_ID)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "vocab_size: found %d, expected %d (special tokens and 256 bytes) to %d", p->vocab_size,
                            least, SLUICE__MAX_TOKEN_ID);
    if (p->min_frequency < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "min_frequency: found %lld, expected 0 or more",
                            (long long)p->min_frequency);
    *normalizer = NULL;
    if (!p->normalizer || !strcmp(p->normalizer, "none")) return SLUICE_OK;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(p->normalizer, forms[i])) *normalizer = forms[i];
    return *normalizer
               ? SLUICE_OK
               : sluice__fail(err, SLUICE_ERR_ARGUMENT,
                              "normalizer: found \"%.40s\", expected none, NFC, NFD, NFKC or NFKD", p->normalizer);
}

/* A word of letters, digits, dots and dashes is meant as a name: as an expression it could only match itself. */
static sluice_status check_pattern(const char *pattern, sluice_error *err) {
    size_t n = strspn(pattern, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (pattern[n]) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                        "pattern: found \"%.40s\", expected gpt2, qwen2, qwen3.5, llama3 or a regular expression",
                        pattern);
}

/* Special tokens, then the characters of the 256 bytes in the order of their code points. */
static sluice_status first_tokens(sluice__vocab *v, const sluice_tokenizer_params *p, int32_t symbol[256],
                                  sluice_error *err) {
    for (int i = 0; i < p->num_special_tokens; i++) {
        const char *text = p->special_tokens[i];
        size_t n = strlen(text);
        if (!n || n > SLUICE__MAX_ADDED_BYTES || sluice__utf8_valid_prefix(text, n) != n)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "special token %d: expected 1..%d bytes of UTF-8", i,
                                SLUICE__MAX_ADDED_BYTES);
        SLUICE__TRY(sluice__vocab_add(v, "special tokens", i, (sluice__span){text, n}, SLUICE__TOKEN_MODEL, err));
    }
    for (uint32_t c = 0; c < 256 + 68; c++) {
        int byte = sluice__char_byte(c);
        char text[4];
        if (byte < 0) continue;
        symbol[byte] = v->size;
        SLUICE__TRY(sluice__vocab_add(v, "special tokens and bytes", v->size,
                                      (sluice__span){text, (size_t)sluice__utf8_put(text, c)}, SLUICE__TOKEN_MODEL,
                                      err));
    }
    return SLUICE_OK;
}

static sluice_status parse_result(sluice_tokenizer **out, const trainer *t, int special, const char *normalizer,
                                  const char *pattern, bool gpt2, sluice_error *err) {
    sluice__strbuf json = {0};
    sluice__tokenizer_json(&json, &t->vocab, special, normalizer, pattern, gpt2, t->merges, t->num_merges);
    sluice_status st = json.failed ? sluice__no_memory(err, json.size, "tokenizer.json")
                                   : sluice_tokenizer_parse(out, json.data, json.size, "trained tokenizer", err);
    sluice__strbuf_free(&json);
    return st;
}

typedef struct recipe {
    const char *normalizer, *pattern;
    bool gpt2;
} recipe;

/* Checks the parameters, makes the first tokens, and a tokenizer without merges and special tokens, which cuts texts.
 */
static sluice_status prepare(sluice_tokenizer **cutter, recipe *plan, trainer *t, int32_t symbol[256],
                             const sluice_tokenizer_params *p, sluice_error *err) {
    plan->pattern = p->pattern ? p->pattern : "qwen2";
    const sluice__known *known = sluice__known_named(plan->pattern, &plan->pattern);
    plan->gpt2 = known && known->gpt2;
    if (!known) SLUICE__TRY(check_pattern(plan->pattern, err));
    SLUICE__TRY(check_params(p, &plan->normalizer, err));
    SLUICE__TRY(first_tokens(&t->vocab, p, symbol, err));
    return parse_result(cutter, t, 0, plan->normalizer, plan->pattern, plan->gpt2, err);
}

sluice_status sluice__training_cutter(sluice_tokenizer **out, const sluice_tokenizer_params *params,
                                      sluice_error *err) {
    trainer t = {0};
    recipe plan;
    int32_t symbol[256];
    *out = NULL;
    sluice_status st = prepare(out, &plan, &t, symbol, params, err);
    trainer_free(&t);
    return st;
}

sluice_status sluice_tokenizer_train(sluice_tokenizer **out, const sluice_tokenizer_params *params, sluice_text_fn next,
                                     void *user, sluice_error *err) {
    sluice_tokenizer_params p = params ? *params : sluice_tokenizer_params_default();
    trainer t = {0};
    recipe plan;
    sluice__words words = {0};
    sluice_tokenizer *cutter = NULL;
    int32_t symbol[256];
    *out = NULL;
    sluice_status st = prepare(&cutter, &plan, &t, symbol, &p, err);
    if (st == SLUICE_OK) st = sluice__count_words(&words, cutter, next, user, err);
    t.words = &words;
    if (st == SLUICE_OK) st = spread_words(&t, symbol, err);
    if (st == SLUICE_OK) st = merge_all(&t, p.vocab_size, p.min_frequency, err);
    if (st == SLUICE_OK)
        st = parse_result(out, &t, p.num_special_tokens, plan.normalizer, plan.pattern, plan.gpt2, err);
    if (st == SLUICE_OK &&
        p.num_special_tokens) { /* the first one does for both, unless one has a name that says what it is */
        if ((*out)->bos_id < 0) (*out)->bos_id = 0;
        if ((*out)->eos_id < 0) (*out)->eos_id = 0;
    }
    sluice_tokenizer_free(cutter);
    sluice__words_free(&words);
    trainer_free(&t);
    return st;
}

typedef struct one_text {
    const char *text;
    size_t size;
} one_text;

static sluice_status next_of_one(void *user, const char **text, size_t *size, sluice_error *err) {
    one_text *one = user;
    (void)err;
    *text = one->text;
    *size = one->size;
    one->text = NULL;
    return SLUICE_OK;
}

sluice_status sluice_tokenizer_train_text(sluice_tokenizer **out, const sluice_tokenizer_params *params,
                                          const char *text, size_t size, sluice_error *err) {
    one_text one = {text, size};
    return sluice_tokenizer_train(out, params, next_of_one, &one, err);
}
