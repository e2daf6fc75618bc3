/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tokenize info: a tokenizer, or a shard. */
#include "cli/tokenize.h"
#include "base/file.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct options {
    cli_common common;
    char *tokenizer;
} options;

/* ---- tokenizer ---- */
static json_t *token_json(const sluice_tokenizer *tok, int32_t id) {
    size_t size = 0;
    const char *text = sluice_tokenizer_token(tok, id, &size);
    return text ? json_pack("{s:i, s:s%}", "id", id, "token", text, (int)size) : json_null();
}

static json_t *tokenizer_json(const sluice_tokenizer *tok, const char *path) {
    bool fast;
    char hash[24];
    const char *pre = sluice_tokenizer_pretokenizer(tok, &fast);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)sluice_tokenizer_hash(tok));
    json_t *special = json_array();
    for (int32_t id = 0; id < sluice_tokenizer_vocab_size(tok); id++)
        if (sluice_tokenizer_is_special(tok, id)) json_array_append_new(special, token_json(tok, id));
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:s, s:b, s:s, s:o, s:o, s:o, s:o, s:o}", "path", path, "kind",
                     "tokenizer", "vocab_size", sluice_tokenizer_vocab_size(tok), "tokens",
                     sluice_tokenizer_num_tokens(tok), "merges", sluice_tokenizer_num_merges(tok), "pre_tokenizer", pre,
                     "fast_matcher", fast, "hash", hash, "bos", token_json(tok, sluice_tokenizer_bos_id(tok)), "eos",
                     token_json(tok, sluice_tokenizer_eos_id(tok)), "pad",
                     token_json(tok, sluice_tokenizer_pad_id(tok)), "unk",
                     token_json(tok, sluice_tokenizer_unk_id(tok)), "special", special);
}

static void print_role(const sluice_tokenizer *tok, const char *role, int32_t id) {
    const char *text = sluice_tokenizer_token(tok, id, NULL);
    if (text)
        printf("%-14s %s (%d)\n", role, text, id);
    else
        printf("%-14s none\n", role);
}

static void print_tokenizer(const sluice_tokenizer *tok, const char *path) {
    bool fast;
    const char *pre = sluice_tokenizer_pretokenizer(tok, &fast);
    printf("%s: tokenizer\n", path);
    printf("%-14s %d (largest id and one; %d ids in use)\n", "vocabulary", sluice_tokenizer_vocab_size(tok),
           sluice_tokenizer_num_tokens(tok));
    printf("%-14s %d\n", "merges", sluice_tokenizer_num_merges(tok));
    printf("%-14s %s; %s\n", "pre-tokenizer", pre, fast ? "hand-written matchers" : "PCRE2");
    print_role(tok, "bos", sluice_tokenizer_bos_id(tok));
    print_role(tok, "eos", sluice_tokenizer_eos_id(tok));
    print_role(tok, "pad", sluice_tokenizer_pad_id(tok));
    print_role(tok, "unk", sluice_tokenizer_unk_id(tok));
    printf("%-14s", "special");
    int n = 0;
    for (int32_t id = 0; id < sluice_tokenizer_vocab_size(tok); id++)
        if (sluice_tokenizer_is_special(tok, id) && n++ < 16)
            printf(" %s (%d)", sluice_tokenizer_token(tok, id, NULL), id);
    if (n > 16) printf(" and %d more", n - 16);
    printf("%s\n%-14s %016llx\n", n ? "" : " none", "hash", (unsigned long long)sluice_tokenizer_hash(tok));
}

/* ---- shard ---- */
static const char *match_of(const sluice_shard *s, const sluice_tokenizer *tok) {
    uint64_t hash;
    if (!tok || !sluice_shard_tokenizer_hash(s, &hash)) return "unknown";
    return hash == sluice_tokenizer_hash(tok) ? "yes" : "no";
}

static json_t *shard_json(const sluice_shard *s, const sluice_shard_stats *st, const char *path,
                          const sluice_tokenizer *tok) {
    char hash[24] = "";
    uint64_t value;
    bool known = sluice_shard_tokenizer_hash(s, &value);
    if (known) snprintf(hash, sizeof hash, "%016llx", (unsigned long long)value);
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:f, s:I, s:o, s:s}", "path", path, "kind",
                     "shard", "token_type", sluice_shard_token_bytes(s) == 2 ? "uint16" : "int32", "documents",
                     (json_int_t)st->documents, "tokens", (json_int_t)st->tokens, "distinct_tokens",
                     (json_int_t)st->distinct, "shortest_document", (json_int_t)st->shortest, "longest_document",
                     (json_int_t)st->longest, "min_id", st->min_id, "max_id", st->max_id, "entropy_bits", st->entropy,
                     "unk_tokens", (json_int_t)st->unk_tokens, "tokenizer_hash",
                     known ? json_string(hash) : json_null(), "tokenizer_matches", match_of(s, tok));
}

static void print_shard(const sluice_shard *s, const sluice_shard_stats *st, const char *path,
                        const sluice_tokenizer *tok) {
    uint64_t hash;
    printf("%s: token shard\n", path);
    printf("%-14s %lld (%s)\n", "tokens", (long long)st->tokens, sluice_shard_token_bytes(s) == 2 ? "uint16" : "int32");
    printf("%-14s %lld, of %lld to %lld tokens, %.1f on average\n", "documents", (long long)st->documents,
           (long long)st->shortest, (long long)st->longest,
           st->documents ? (double)st->tokens / (double)st->documents : 0);
    printf("%-14s %d..%d, %lld different\n", "ids", st->min_id, st->max_id, (long long)st->distinct);
    printf("%-14s %.4f bits per token (unigram), perplexity %.1f\n", "entropy", st->entropy, exp2(st->entropy));
    if (tok && sluice_tokenizer_unk_id(tok) >= 0)
        printf("%-14s %lld (%.4f%%)\n", "unknown", (long long)st->unk_tokens,
               st->tokens ? 100.0 * (double)st->unk_tokens / (double)st->tokens : 0);
    if (sluice_shard_tokenizer_hash(s, &hash)) printf("%-14s %016llx\n", "tokenizer", (unsigned long long)hash);
    if (tok) printf("%-14s %s\n", "matches", match_of(s, tok));
}

/* A tokenizer that does not have all the ids of a shard cannot be the one that made it. */
static sluice_status check_ids(const sluice_shard_stats *st, const char *path, const sluice_tokenizer *tok,
                               sluice_error *err) {
    if (!tok || st->max_id < sluice_tokenizer_vocab_size(tok)) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_MISMATCH, "%s: found token id %d, but the tokenizer has ids 0..%d only", path,
                        st->max_id, sluice_tokenizer_vocab_size(tok) - 1);
}

static sluice_status show_shard(const options *o, const char *path, const sluice_tokenizer *tok, json_t *list,
                                sluice_error *err) {
    sluice_shard *s;
    sluice_shard_stats st;
    SLUICE__TRY(sluice_shard_open(&s, path, err));
    sluice_status status = sluice_shard_statistics(s, tok ? sluice_tokenizer_unk_id(tok) : -1, &st, err);
    if (status == SLUICE_OK) status = check_ids(&st, path, tok, err);
    if (status == SLUICE_OK && o->common.json)
        json_array_append_new(list, shard_json(s, &st, path, tok));
    else if (status == SLUICE_OK)
        print_shard(s, &st, path, tok);
    sluice_shard_close(s);
    return status;
}

static sluice_status show_tokenizer(const options *o, const char *path, json_t *list, sluice_error *err) {
    sluice_tokenizer *tok;
    SLUICE__TRY(sluice_tokenizer_load(&tok, path, err));
    if (o->common.json)
        json_array_append_new(list, tokenizer_json(tok, path));
    else
        print_tokenizer(tok, path);
    sluice_tokenizer_free(tok);
    return SLUICE_OK;
}

static bool names_tokenizer(const char *path) {
    size_t n = strlen(path);
    return sluice__is_dir(path) || (n > 5 && !strcmp(path + n - 5, ".json"));
}

static int run(options *o, const char **paths, int num_paths) {
    sluice_error err = {0};
    sluice_tokenizer *tok = NULL;
    if (!num_paths) return cli_usage("tokenize info", "nothing to look at; expected a tokenizer or a shard");
    sluice_status st = o->tokenizer ? sluice_tokenizer_load(&tok, o->tokenizer, &err) : SLUICE_OK;
    json_t *list = json_array();
    for (int i = 0; i < num_paths && st == SLUICE_OK; i++)
        st = names_tokenizer(paths[i]) ? show_tokenizer(o, paths[i], list, &err)
                                       : show_shard(o, paths[i], tok, list, &err);
    int code = st == SLUICE_OK ? CLI_OK : cli_fail("tokenize info", &err);
    if (code == CLI_OK && o->common.json)
        code = tokenize_print_json("tokenize info", num_paths == 1 ? json_incref(json_array_get(list, 0))
                                                                   : json_pack("{s:O}", "items", list));
    json_decref(list);
    sluice_tokenizer_free(tok);
    return code;
}

int tokenize_info(int argc, const char **argv) {
    options o = {0};
    struct poptOption table[] = {
        {"tokenizer", 't', POPT_ARG_STRING, &o.tokenizer, 0,
         "for shards: compare the tokenizer's hash and count its unknown token (default: neither)", "PATH"},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_AUTOHELP POPT_TABLEEND};
    int code;
    const char **paths;
    poptContext ctx = cli_parse(
        argc, argv, table, "[OPTIONS] PATH...",
        "Shows facts. A PATH that is a directory or ends in .json is a tokenizer: vocabulary, pre-tokenizer and "
        "whether\n"
        "hand-written matchers serve it, special tokens. Any other PATH is a shard (PREFIX, .bin or .idx): documents,\n"
        "tokens, entropy of the unigram distribution, share of the unknown token.",
        "  sluice tokenize info tok\n  sluice tokenize info --tokenizer tok data/corpus", &code);
    if (!ctx) return code;
    o.common.quiet |= 2; /* no line about the machine */
    code = cli_start(&o.common);
    if (code == CLI_OK) {
        int n = tokenize_arguments(ctx, &paths);
        code = run(&o, paths, n);
    }
    cli_finish(ctx, table);
    return code;
}
