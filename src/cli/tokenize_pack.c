/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tokenize pack */
#include "base/file.h"
#include "cli/tokenize.h"
#include "base/progress.h"
#include <stdio.h>
#include <string.h>

typedef struct options {
    cli_common common;
    tokenize_text_options text;
    char *tokenizer, *output, *eod_token;
    int append_eod, add_special, parse_special;
    long long shard_tokens;
} options;

static int report(const options *o, const sluice_tokenizer *tok, const sluice_pack_result *r, double seconds) {
    double unk = r->tokens ? (double)r->unk_tokens / (double)r->tokens : 0;
    if (o->common.json)
        return tokenize_print_json(
            "tokenize pack", json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "output", o->output,
                                       "shards", r->shards, "token_type", r->token_bytes == 2 ? "uint16" : "int32",
                                       "documents", (json_int_t)r->documents, "tokens", (json_int_t)r->tokens, "bytes",
                                       (json_int_t)r->bytes, "unk_tokens", (json_int_t)r->unk_tokens, "unk_share", unk,
                                       "bytes_per_token", (double)r->bytes / (double)r->tokens, "seconds", seconds));
    if (unk > 0.01)
        fprintf(stderr, "warning: %.1f%% of the tokens are the unknown token: does this tokenizer fit the text?\n",
                100 * unk);
    if (o->common.quiet) return CLI_OK;
    printf("%lld documents, %lld tokens (%s), %lld bytes of text, %.3f bytes per token, %.1f MB/s\n",
           (long long)r->documents, (long long)r->tokens, r->token_bytes == 2 ? "uint16" : "int32", (long long)r->bytes,
           (double)r->bytes / (double)r->tokens, 1e-6 * (double)r->bytes / seconds);
    if (sluice_tokenizer_unk_id(tok) >= 0)
        printf("unknown tokens: %lld (%.4f%%)\n", (long long)r->unk_tokens, 100 * unk);
    if (o->shard_tokens)
        printf("written to %s-00000 ... %s-%05d (.bin, .idx, .json)\n", o->output, o->output, r->shards - 1);
    else
        printf("written to %s.bin, %s.idx, %s.json\n", o->output, o->output, o->output);
    return CLI_OK;
}

static int eod_id(const options *o, const sluice_tokenizer *tok, int32_t *id) {
    *id = -1;
    if (!o->append_eod && !o->eod_token) return CLI_OK;
    *id = o->eod_token ? sluice_tokenizer_id(tok, o->eod_token, strlen(o->eod_token)) : sluice_tokenizer_eos_id(tok);
    if (*id >= 0) return CLI_OK;
    if (o->eod_token)
        return cli_usage("tokenize pack", "--eod-token: the tokenizer has no token \"%.60s\"", o->eod_token);
    return cli_usage("tokenize pack",
                     "--append-eod: the tokenizer names no end-of-text token; choose one with --eod-token");
}

static int run(const options *o, const char *const *paths, int num_paths) {
    sluice_pack_params p = sluice_pack_params_default();
    int code = tokenize_text_params("tokenize pack", &o->text, &p.text);
    if (code == CLI_OK && (!o->tokenizer || !o->output))
        code = cli_usage("tokenize pack", "--%s: missing", o->tokenizer ? "output" : "tokenizer");
    if (code == CLI_OK && !num_paths)
        code = cli_usage("tokenize pack", "no text given; expected files, directories, or - for standard input");
    if (code == CLI_OK && o->shard_tokens < 0)
        code = cli_usage("tokenize pack", "--shard-tokens: found %lld, expected 0 or more", o->shard_tokens);
    if (code == CLI_OK) code = cli_start(&o->common);
    if (code != CLI_OK) return code;
    sluice_error err = {0};
    sluice_tokenizer *tok;
    if (sluice_tokenizer_load(&tok, o->tokenizer, &err) != SLUICE_OK) return cli_fail("tokenize pack", &err);
    p.output = o->output;
    p.add_special = o->add_special;
    p.parse_special = o->parse_special;
    p.shard_tokens = o->shard_tokens;
    code = eod_id(o, tok, &p.eod_id);
    double start = sluice__now();
    sluice_pack_result r;
    if (code == CLI_OK && (sluice__make_parents(o->output, &err) != SLUICE_OK || sluice_pack(tok, &p, paths, num_paths, &r, &err) != SLUICE_OK))
        code = cli_fail("tokenize pack", &err);
    else if (code == CLI_OK)
        code = report(o, tok, &r, sluice__now() - start);
    sluice_tokenizer_free(tok);
    return code;
}

int tokenize_pack(int argc, const char **argv) {
    options o = {.text.max_document_mib = 1024};
    struct poptOption table[] = {
        {"tokenizer", 't', POPT_ARG_STRING, &o.tokenizer, 0, "tokenizer.json, or a directory that holds one", "PATH"},
        {"output", 'o', POPT_ARG_STRING, &o.output, 0, "prefix of the files: PREFIX.bin, PREFIX.idx, PREFIX.json",
         "PREFIX"},
        {"append-eod", '\0', POPT_ARG_NONE, &o.append_eod, 0, "put the end-of-text token behind every document", NULL},
        {"eod-token", '\0', POPT_ARG_STRING, &o.eod_token, 0,
         "the token to put there (default: the tokenizer's eos); implies --append-eod", "TOKEN"},
        {"add-special-tokens", '\0', POPT_ARG_NONE, &o.add_special, 0,
         "what the tokenizer's post-processor puts around a text, for example BOS", NULL},
        {"parse-special-tokens", '\0', POPT_ARG_NONE, &o.parse_special, 0,
         "special tokens that are written in the text become their ids (default: they are text)", NULL},
        {"shard-tokens", '\0', POPT_ARG_LONGLONG, &o.shard_tokens, 0,
         "begin a new pair PREFIX-00000, PREFIX-00001 ... before it would hold more tokens (default: 0, one pair)",
         "N"},
        TOKENIZE_TEXT_OPTIONS(&o.text),
        CLI_COMMON_OPTIONS(&o.common),
        POPT_AUTOHELP POPT_TABLEEND};
    int code;
    const char **paths;
    poptContext ctx = cli_parse(
        argc, argv, table, "[OPTIONS] --tokenizer PATH --output PREFIX TEXT...",
        "Encodes text into Megatron's .bin/.idx files for training: uint16 tokens where the vocabulary has fewer than\n"
        "65500, otherwise int32. TEXT are text or JSON-lines files, plain, .gz or .zst, directories of them, or - for\n"
        "standard input. The text is streamed; the files appear when all is written. PREFIX.json holds the hash of "
        "the\n"
        "tokenizer, by which training recognises it.",
        "  sluice tokenize pack --tokenizer tok --append-eod --output data/corpus corpus/ more.jsonl.zst", &code);
    if (!ctx) return code;
    int n = tokenize_arguments(ctx, &paths);
    code = run(&o, paths, n);
    cli_finish(ctx, table);
    return code;
}
