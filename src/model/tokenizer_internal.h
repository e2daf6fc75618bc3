/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer from inside. A file of the tokenizers package is a pipeline
 *
 *     text -> added tokens cut out -> normalisers -> normalised added tokens cut out -> pre-tokenizer -> BPE ->
 * template
 *
 * and each step is one source file tokenizer_<step>.c over the structs below. Everything in sluice_tokenizer is fixed
 * at load; what an encoding call changes lives in a sluice__encoder, of which a tokenizer keeps a pool. */
#ifndef SLUICE_MODEL_TOKENIZER_INTERNAL_H
#define SLUICE_MODEL_TOKENIZER_INTERNAL_H
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <pthread.h>
#include <string.h>
#include "base/json.h"
#include "base/strbuf.h"
#include "sluice/tokenizer.h"

enum {
    SLUICE__MAX_TOKEN_ID = (16 << 20) - 1, /* ids beyond it are refused */
    SLUICE__MAX_ADDED_BYTES = 4096,        /* of one added token: bounds the work at one place of a text */
    SLUICE__MAX_STEPS = 32                 /* normalisers, pre-tokenizers, decoders of one file */
};

typedef struct sluice__span {
    const char *data;
    size_t size;
} sluice__span;

/* ---- vocabulary ---- */
enum { SLUICE__TOKEN_MODEL = 1, SLUICE__TOKEN_ADDED = 2, SLUICE__TOKEN_SPECIAL = 4, SLUICE__TOKEN_NORMALIZED = 8 };
typedef struct sluice__token {
    uint32_t text, text_size;   /* spelling in the file; offset into vocab.arena */
    uint32_t bytes, bytes_size; /* what it decodes to */
    uint32_t flags;             /* 0 = the id is not in use */
} sluice__token;

/* A merge of two tokens is known by its rank. A slot of the table is left:20 right:20 rank:24 while ids and ranks fit
 * (half the memory means half the cache misses), otherwise two words. */
typedef struct sluice__merges {
    uint64_t *slots; /* UINT64_MAX = empty */
    uint64_t mask;
    bool wide; /* slots of two words: left << 32 | right, and the rank */
    uint64_t
        *filter; /* one bit for each hash that a pair has: most questions are answered by "no" here, in the L2 cache */
    uint64_t filter_mask;
    uint32_t *id; /* [count] what each merge makes */
    int32_t count, capacity;
} sluice__merges;

typedef struct sluice__vocab {
    sluice__token *tokens; /* [size] */
    int32_t size, capacity, used;
    char *arena; /* spellings and bytes, each NUL-terminated */
    size_t arena_size, arena_capacity;
    uint64_t *index; /* open addressing by spelling: upper half of the hash, id + 1; 0 = empty */
    uint64_t index_mask;
    uint64_t *byte_index; /* the same by bytes, for ignore_merges over bytes; NULL when not needed */
    uint64_t byte_index_mask;
    sluice__merges merges;
} sluice__vocab;

static inline uint64_t sluice__mix(uint64_t a, uint64_t b) {
    unsigned __int128 r = (unsigned __int128)(a ^ 0x9E3779B97F4A7C15ULL) * (b ^ 0xD1B54A32D192ED03ULL);
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}
/* Two overlapping words that, with n, tell all bytes of a text of at most 16. */
static inline void sluice__two_words(const char *p, size_t n, uint64_t *a, uint64_t *b) {
    uint32_t x, y;
    if (n >= 8) {
        memcpy(a, p, 8);
        memcpy(b, p + n - 8, 8);
    } else if (n >= 4) {
        memcpy(&x, p, 4);
        memcpy(&y, p + n - 4, 4);
        *a = x, *b = y;
    } else {
        *a = n ? (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[n >> 1] << 8 | (unsigned char)p[n - 1]
               : 0;
        *b = 0;
    }
}
static inline uint64_t sluice__hash_span(const char *p, size_t n) {
    uint64_t h = n, a, b;
    for (; n > 16; p += 8, n -= 8) {
        memcpy(&a, p, 8);
        h = sluice__mix(h, a);
    }
    sluice__two_words(p, n, &a, &b);
    return sluice__mix(h ^ a, b);
}

sluice_status sluice__vocab_reserve(sluice__vocab *v, size_t tokens, size_t bytes, sluice_error *err);
/* Adds token `id`; `file` is for messages. Ids and spellings must be new. */
sluice_status sluice__vocab_add(sluice__vocab *v, const char *file, int64_t id, sluice__span text, unsigned flags,
                                sluice_error *err);
/* Gives a token bytes that differ from its spelling; room in the arena has to be there. */
void sluice__vocab_set_bytes(sluice__vocab *v, int32_t id, const char *bytes, size_t size);
int32_t sluice__vocab_find(const sluice__vocab *v, const char *text, size_t size);
/* The id of a whole pre-token in the model's own vocabulary, or -1; needs byte_index when over bytes. */
int32_t sluice__vocab_find_bytes(const sluice__vocab *v, const char *bytes, size_t size);
sluice_status sluice__vocab_index_bytes(sluice__vocab *v, sluice_error *err);
/* Room for `count` merges over the vocabulary as it is, then one at a time in rising rank; a later pair overrides an
 * equal earlier one. */
sluice_status sluice__merges_reserve(sluice__vocab *v, size_t count, sluice_error *err);
void sluice__merges_add(sluice__vocab *v, uint32_t left, uint32_t right, uint32_t id);
void sluice__vocab_free(sluice__vocab *v);
static inline const char *sluice__token_text(const sluice__vocab *v, int32_t id) {
    return v->arena + v->tokens[id].text;
}
enum { SLUICE__NARROW_ID_BITS = 20, SLUICE__NARROW_RANK_BITS = 24 };
#define SLUICE__NO_MERGE UINT32_MAX
/* The rank of the merge of two tokens, or SLUICE__NO_MERGE. */
static inline uint32_t sluice__merge_rank(const sluice__merges *m, uint32_t left, uint32_t right) {
    uint64_t key = (uint64_t)left << 32 | right, h = sluice__mix(key, key), i = h & m->mask,
             f = h >> 32 & m->filter_mask;
    if (!(m->filter[f >> 6] >> (f & 63) & 1)) return SLUICE__NO_MERGE;
    if (!m->wide) {
        uint64_t want = (uint64_t)left << SLUICE__NARROW_ID_BITS | right;
        for (;; i = (i + 1) & m->mask) {
            uint64_t slot = m->slots[i];
            if (slot >> SLUICE__NARROW_RANK_BITS == want)
                return (uint32_t)slot & ((1u << SLUICE__NARROW_RANK_BITS) - 1);
            if (slot == UINT64_MAX) return SLUICE__NO_MERGE;
        }
    }
    for (;; i = (i + 1) & m->mask) {
        if (m->slots[2 * i] == key) return (uint32_t)m->slots[2 * i + 1];
        if (m->slots[2 * i] == UINT64_MAX) return SLUICE__NO_MERGE;
    }
}

/* GPT-2's printable characters for bytes: the character of a byte, and the byte of a character or -1. */
uint32_t sluice__byte_char(unsigned byte);
int sluice__char_byte(uint32_t c);
/* Appends the bytes that a spelling of such characters stands for; false when it holds another character. */
bool sluice__add_byte_chars(sluice__strbuf *out, sluice__span text);

/* ---- regular expressions (tokenizer_regex.c) ---- */
typedef struct sluice__regex {
    pcre2_code *code;
} sluice__regex;
/* What matching needs and changes. */
typedef struct sluice__matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
} sluice__matcher;
/* The pattern is in Oniguruma's syntax as the tokenizers package reads it; `where` is for messages. */
sluice_status sluice__regex_new(sluice__regex *out, const char *pattern, size_t size, const char *where,
                                sluice_error *err);
void sluice__regex_free(sluice__regex *r);
/* Oniguruma's spelling to PCRE2's (tokenizer_regex_syntax.c). */
sluice_status sluice__regex_translate(sluice__strbuf *out, const char *pattern, size_t size, const char *where,
                                      sluice_error *err);
sluice_status sluice__matcher_new(sluice__matcher *out, sluice_error *err);
void sluice__matcher_free(sluice__matcher *m);
/* The first match at or behind `from` in well-formed text: *found, [*start, *end). */
sluice_status sluice__regex_search(const sluice__regex *r, sluice__matcher *m, const char *text, size_t size,
                                   size_t from, bool *found, size_t *start, size_t *end, sluice_error *err);

/* ---- patterns with a hand-written matcher (tokenizer_known.c) ---- */
typedef struct sluice__known {
    const char *name;
    bool gpt2;  /* GPT-2's alternatives; otherwise cl100k's */
    bool marks; /* \p{M} counts as a letter */
    int digits; /* longest run of digits, 0 = any */
} sluice__known;
const sluice__known *sluice__known_find(const char *pattern, size_t size); /* by the exact text; NULL */
const sluice__known *sluice__known_named(const char *name, const char **pattern);
/* End of the pre-token that begins at p; the matches of such a pattern cover all of a well-formed text. */
const unsigned char *sluice__known_next(const sluice__known *k, const unsigned char *p, const unsigned char *end);
/* The largest safe cut in [0, size]; see sluice_tokenizer_cut. */
size_t sluice__known_cut(const sluice__known *k, const char *text, size_t size);

/* ---- characters (tokenizer_chars.c) ---- */
typedef enum sluice__char_class {
    SLUICE__CHAR_OTHER,
    SLUICE__CHAR_LETTER,
    SLUICE__CHAR_MARK,
    SLUICE__CHAR_NUMBER,
    SLUICE__CHAR_SPACE,   /* white space but the next */
    SLUICE__CHAR_NEWLINE, /* \r \n */
    SLUICE__CHAR_PUNCTUATION
} sluice__char_class;
extern const unsigned char sluice__ascii_class[128];
sluice__char_class sluice__char_class_of(uint32_t c);
bool sluice__char_is_space(uint32_t c); /* White_Space */
bool sluice__char_is_word(uint32_t c);  /* \w of Rust's regex crate */

/* ---- normalisers (tokenizer_normalize.c) ---- */
typedef enum sluice__norm_kind {
    SLUICE__NORM_NFC,
    SLUICE__NORM_NFD,
    SLUICE__NORM_NFKC,
    SLUICE__NORM_NFKD,
    SLUICE__NORM_LOWERCASE,
    SLUICE__NORM_STRIP,
    SLUICE__NORM_REPLACE,
    SLUICE__NORM_PREPEND
} sluice__norm_kind;
typedef struct sluice__pattern { /* Regex, or String */
    sluice__regex regex;
    char *literal; /* NULL = regex */
    size_t literal_size;
    const sluice__known *known; /* the regex is one of those; NULL */
} sluice__pattern;
typedef struct sluice__norm_step {
    sluice__norm_kind kind;
    unsigned char *inert;    /* normal forms: bit set over the BMP (tokenizer_normal_form.c) */
    bool left, right;        /* Strip */
    sluice__pattern pattern; /* Replace */
    char *content;           /* Replace, Prepend */
    size_t content_size;
} sluice__norm_step;

sluice_status sluice__inert_new(unsigned char **out, sluice__norm_kind kind, sluice_error *err);
/* Replaces *text by its normal form, which lies in out unless the text was in the form already. */
sluice_status sluice__normal_form(const unsigned char *inert, sluice__norm_kind kind, sluice__span *text,
                                  sluice__strbuf *out, sluice_error *err);

/* ---- pre-tokenizers (tokenizer_pretokenize.c) ---- */
typedef enum sluice__behavior {
    SLUICE__REMOVED,
    SLUICE__ISOLATED,
    SLUICE__MERGED_WITH_PREVIOUS,
    SLUICE__MERGED_WITH_NEXT,
    SLUICE__CONTIGUOUS
} sluice__behavior;
typedef enum sluice__pre_kind {
    SLUICE__PRE_SPLIT,  /* by pattern */
    SLUICE__PRE_KNOWN,  /* the same, isolated, with a hand-written matcher */
    SLUICE__PRE_DIGITS, /* by character class */
    SLUICE__PRE_PUNCTUATION,
    SLUICE__PRE_SPACE,
    SLUICE__PRE_WORDS,        /* \w+|[^\w\s]+ */
    SLUICE__PRE_PREFIX_SPACE, /* ByteLevel's add_prefix_space */
    SLUICE__PRE_METASPACE
} sluice__pre_kind;
typedef enum sluice__prepend { SLUICE__PREPEND_ALWAYS, SLUICE__PREPEND_FIRST, SLUICE__PREPEND_NEVER } sluice__prepend;
typedef struct sluice__pre_step {
    sluice__pre_kind kind;
    sluice__behavior behavior;
    bool invert;
    sluice__pattern pattern;
    char replacement[5]; /* Metaspace */
    sluice__prepend prepend;
    bool split;
} sluice__pre_step;

/* ---- decoders (tokenizer_decode.c) ---- */
typedef enum sluice__dec_kind {
    SLUICE__DEC_BYTE_LEVEL,
    SLUICE__DEC_BYTE_FALLBACK,
    SLUICE__DEC_FUSE,
    SLUICE__DEC_REPLACE,
    SLUICE__DEC_STRIP,
    SLUICE__DEC_METASPACE
} sluice__dec_kind;
typedef struct sluice__dec_step {
    sluice__dec_kind kind;
    sluice__pattern pattern; /* Replace */
    char *content;           /* Replace; Strip: one character; Metaspace: the replacement */
    size_t content_size;
    int64_t start, stop;     /* Strip */
    sluice__prepend prepend; /* Metaspace */
} sluice__dec_step;

/* ---- added tokens (tokenizer_added.c) ---- */
typedef struct sluice__added {
    int32_t id;
    char *normal; /* what normalisers make of it, if that is another text: it is found and decoded as this */
    size_t normal_size;
    bool single_word, lstrip, rstrip, special, normalized;
} sluice__added;
typedef struct sluice__trie_node {
    uint32_t child, sibling; /* 0 = none */
    int32_t token;           /* index of an added token, or -1 */
    unsigned char byte;
} sluice__trie_node;
/* Finds the leftmost longest added token. */
typedef struct sluice__trie {
    sluice__trie_node *nodes; /* [0] is unused */
    uint32_t count, capacity;
    uint32_t first[256]; /* node of each first byte */
    int num_first, only; /* different first bytes; one of them */
} sluice__trie;

/* What decoders get for a token: its spelling, or what normalisers make of an added token. */
sluice__span sluice__decoded_text(const sluice_tokenizer *tok, int32_t id);
/* The added tokens of a well-formed text, left to right; start it as {tok, trie, text}. */
typedef struct sluice__added_search {
    const sluice_tokenizer *tok;
    const sluice__trie *trie;
    sluice__span text;
    size_t from;      /* where to look next */
    size_t done;      /* text behind the last token found, its stripped space included */
    sluice__span gap; /* text in front of the token found */
    int32_t id;       /* the token found */
} sluice__added_search;
bool sluice__added_next(sluice__added_search *s, unsigned flags);

struct sluice_tokenizer {
    char *name;
    char *json, *config_json; /* bytes of tokenizer.json and of tokenizer_config.json (NULL) */
    size_t json_size, config_size;
    sluice__vocab vocab;
    bool byte_level;     /* symbols are bytes; otherwise characters */
    int32_t symbol[256]; /* byte level: token of each byte, -1 = none; otherwise token of <0xNN> */
    uint32_t *byte_pairs; /* [256 * 256] ranks of the merges of two bytes, when every byte has a token; else NULL */
    bool byte_fallback, ignore_merges, fuse_unk;
    int32_t unk_id; /* of the model */
    int32_t bos_id, eos_id, pad_id, config_unk_id;
    sluice__added *added;
    int num_added;
    sluice__trie raw_trie, normalized_trie;
    bool added_blocks_cuts; /* an added token could reach over a cut inside a text without added tokens */
    sluice__norm_step norm[SLUICE__MAX_STEPS];
    sluice__pre_step pre[SLUICE__MAX_STEPS];
    sluice__dec_step dec[SLUICE__MAX_STEPS];
    int num_norm, num_pre, num_dec;
    const sluice__known *sole; /* the only pre-tokenizer step is this pattern, isolated; NULL */
    bool can_cut;              /* sole, and normalisers that work character by character */
    int32_t *prefix, *suffix;  /* of the post-processor's template */
    int num_prefix, num_suffix;
    char pre_text[256];
    bool pre_fast;
    pthread_mutex_t pool_lock;
    struct sluice__encoder *pool; /* idle encoders */
};

/* ---- one encoding call ---- */
typedef struct sluice__encoder sluice__encoder;
/* Gets the pre-tokens in order. */
typedef sluice_status (*sluice__piece_fn)(sluice__encoder *e, const char *data, size_t size, void *user,
                                          sluice_error *err);

struct sluice__cache_slot;
struct sluice__waiting;
typedef struct sluice__piece {
    size_t start, end;
    bool match;
} sluice__piece;
typedef struct sluice__pieces {
    sluice__piece *at;
    size_t count, capacity;
} sluice__pieces;

struct sluice__encoder {
    const sluice_tokenizer *tok;
    struct sluice__encoder *next;
    sluice__matcher matcher;
    sluice__strbuf norm[2];                    /* normalised text, two sides in turn */
    sluice__strbuf changed[SLUICE__MAX_STEPS]; /* text that a pre-tokenizer step rewrote */
    sluice__pieces pieces[SLUICE__MAX_STEPS];  /* what a step cut */
    struct sluice__cache_slot *cache;
    struct sluice__waiting *waiting; /* pre-tokens whose cache slots are on their way from memory */
    int num_waiting;
    uint32_t *words; /* scratch of the merge loops */
    size_t words_capacity;
    sluice_ids *out;
};
sluice_status sluice__encoder_get(sluice__encoder **out, const sluice_tokenizer *tok, sluice_error *err);
void sluice__encoder_put(sluice__encoder *e);
void sluice__encoder_free(sluice__encoder *e);

sluice_status sluice__ids_reserve(sluice_ids *ids, size_t more, sluice_error *err);
sluice_status sluice__text_add(sluice_text *text, const void *data, size_t size, sluice_error *err);
static inline sluice_status sluice__ids_push(sluice_ids *ids, int32_t id, sluice_error *err) {
    if (ids->count == ids->capacity) SLUICE__TRY(sluice__ids_reserve(ids, 1, err));
    ids->data[ids->count++] = id;
    return SLUICE_OK;
}

/* Normalises well-formed text; *out is valid until the encoder normalises again (it may be the input itself). */
sluice_status sluice__normalize(sluice__encoder *e, const char *text, size_t size, sluice__span *out,
                                sluice_error *err);
/* Cuts normalised text into pre-tokens. `at_start`: the text's own start is here (Metaspace wants to know). */
sluice_status sluice__pretokenize(sluice__encoder *e, const char *text, size_t size, bool at_start,
                                  sluice__piece_fn emit, void *user, sluice_error *err);
/* Normalises, cuts out normalised added tokens (their ids go to e->out unless that is NULL), cuts the rest into
 * pre-tokens. The text is well-formed. */
sluice_status sluice__cut_normalized(sluice__encoder *e, sluice__span text, bool first, unsigned flags,
                                     sluice__piece_fn emit, void *user, sluice_error *err);
/* Appends the ids of one pre-token (any bytes) to e->out, at the latest when sluice__bpe_flush is called: until then
 * the bytes have to stay. */
sluice_status sluice__bpe(sluice__encoder *e, const char *data, size_t size, sluice_error *err);
sluice_status sluice__bpe_flush(sluice__encoder *e, sluice_error *err);
/* The matches of a pattern from left to right in well-formed text (tokenizer_split.c). An empty match is skipped where
 * the last match ended, as in Oniguruma's find_iter. */
typedef struct sluice__matches {
    const sluice__pattern *pattern;
    sluice__matcher *matcher;
    sluice__span text;
    size_t from, last; /* SIZE_MAX before the first */
} sluice__matches;
static inline sluice__matches sluice__matches_of(const sluice__pattern *p, sluice__matcher *m, sluice__span text) {
    return (sluice__matches){p, m, text, 0, SIZE_MAX};
}
sluice_status sluice__match_next(sluice__matches *m, bool *found, size_t *start, size_t *end, sluice_error *err);
void sluice__pattern_free(sluice__pattern *p);

/* ---- loading: one entry of the file each (tokenizer_parts.c, tokenizer_pre_parts.c) ---- */
sluice_status sluice__load_pattern(sluice__pattern *out, const sluice__json *in, sluice_error *err);
sluice_status sluice__load_bytes(char **out, size_t *size, const sluice__json *in, const char *key, sluice_error *err);
sluice_status sluice__load_type(const sluice__json *in, const char **type, sluice_error *err);
sluice_status sluice__load_unsupported(const sluice__json *in, const char *what, const char *type, sluice_error *err);
sluice_status sluice__load_metaspace(const sluice__json *in, char **replacement, size_t *size, sluice__prepend *prepend,
                                     sluice_error *err);
sluice_status sluice__load_normalizer(sluice_tokenizer *tok, const sluice__json *j, sluice_error *err);
sluice_status sluice__load_pre_tokenizer(sluice_tokenizer *tok, const sluice__json *j, sluice_error *err);
sluice_status sluice__load_post_processor(sluice_tokenizer *tok, const sluice__json *j, sluice_error *err);
sluice_status sluice__load_decoder(sluice_tokenizer *tok, const sluice__json *j, sluice_error *err);
sluice_status sluice__load_added(sluice_tokenizer *tok, const sluice__json *j, sluice_error *err);
/* tokenizer_config.json: as loaded, or a new one (tokenizer_save.c). */
sluice_status sluice__save_config(const sluice_tokenizer *tok, const char *path, sluice_error *err);
sluice_status sluice__build_tries(sluice_tokenizer *tok, sluice_error *err);
#endif
