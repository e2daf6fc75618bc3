/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tokenize train */
#include "cli/tokenize.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/progress.h"
#include <stdio.h>
#include <string.h>

enum { MAX_SPECIAL = 1024 };

typedef struct options {
    cli_common common;
    tokenize_text_options text;
    int vocab_size;
    long long min_frequency;
    char *pattern, *normalizer, *output, *special;
    const char *special_tokens[MAX_SPECIAL];
    int num_special;
} options;

/* "a,b" in place; an empty list means no special tokens. */
static int split_special(options *o) {
    for (char *p = o->special; p && *p;) {
        char *comma = strchr(p, ',');
        if (comma) *comma = '\0';
        if (!*p || o->num_special == MAX_SPECIAL)
            return cli_usage("tokenize train", "--special-tokens: expected up to %d tokens with commas between them",
                             MAX_SPECIAL);
        o->special_tokens[o->num_special++] = p;
        p = comma ? comma + 1 : NULL;
    }
    return CLI_OK;
}

static int report(const options *o, const sluice_tokenizer *tok, double seconds) {
    if (o->common.json)
        return tokenize_print_json("tokenize train", json_pack("{s:s, s:i, s:i, s:f}", "output", o->output,
                                                               "vocab_size", sluice_tokenizer_vocab_size(tok), "merges",
                                                               sluice_tokenizer_num_merges(tok), "seconds", seconds));
    if (!o->common.quiet)
        printf("vocabulary of %d tokens (%d merges) in %.1f s\nwritten to %s\n", sluice_tokenizer_vocab_size(tok),
               sluice_tokenizer_num_merges(tok), seconds, o->output);
    if (sluice_tokenizer_vocab_size(tok) < o->vocab_size)
        fprintf(stderr, "warning: the text has pairs for %d tokens only, not for %d\n",
                sluice_tokenizer_vocab_size(tok), o->vocab_size);
    return CLI_OK;
}

/* A file that is there is replaced if it is empty or a tokenizer: a config.json is neither. */
static sluice_status check_replaced(const char *path, sluice_error *err) {
    json_t *old = NULL;
    sluice_error ignored = {0};
    FILE *f = fopen(path, "rbe");
    bool empty = !f || fgetc(f) == EOF;
    if (f) fclose(f);
    if (empty) return SLUICE_OK;
    bool tokenizer = sluice__json_load(&old, path, &ignored) == SLUICE_OK && json_is_object(json_object_get(old, "model"));
    json_decref(old);
    return tokenizer ? SLUICE_OK
                     : sluice__fail(err, SLUICE_ERR_IO, "%s: exists and is not a tokenizer.json; give another name, or remove it first", path);
}

/* A name that ends in .json is a file, anything else a directory. */
static sluice_status check_output(const options *o, sluice_error *err) {
    size_t n = strlen(o->output);
    if (n < 5 || strcmp(o->output + n - 5, ".json")) return sluice__check_writable_dir(o->output, err);
    if (sluice__is_file(o->output)) SLUICE__TRY(check_replaced(o->output, err));
    char *dir = sluice__path_parent(o->output);
    if (!dir) return sluice__no_memory(err, n, "a path");
    sluice_status st = sluice__check_writable_dir(dir, err);
    sluice__free(dir);
    return st;
}

static int run(options *o, const char *const *paths, int num_paths) {
    sluice_text_params text;
    int code = tokenize_text_params("tokenize train", &o->text, &text);
    text.allow_invalid = true; /* as `sluice train` takes them; they are reported */
    if (code == CLI_OK) code = split_special(o);
    if (code == CLI_OK && !o->output)
        code = cli_usage("tokenize train", "--output: missing; expected a directory or a .json file");
    if (code == CLI_OK && !num_paths)
        code = cli_usage("tokenize train", "no text given; expected files, directories, or - for standard input");
    if (code == CLI_OK) code = cli_start(&o->common);
    if (code != CLI_OK) return code;
    sluice_tokenizer_params p = sluice_tokenizer_params_default();
    p.vocab_size = o->vocab_size;
    p.min_frequency = o->min_frequency;
    if (o->pattern) p.pattern = o->pattern;
    if (o->normalizer) p.normalizer = o->normalizer;
    if (o->special) {
        p.special_tokens = o->special_tokens;
        p.num_special_tokens = o->num_special;
    }
    sluice_error err = {0};
    sluice_tokenizer *tok = NULL;
    double start = sluice__now();
    sluice_status st = check_output(o, &err);
    if (st == SLUICE_OK) st = sluice_tokenizer_train_files(&tok, &p, paths, num_paths, &text, &err);
    if (st == SLUICE_OK) st = sluice_tokenizer_save(tok, o->output, &err);
    code = st == SLUICE_OK ? report(o, tok, sluice__now() - start) : cli_fail("tokenize train", &err);
    sluice_tokenizer_free(tok);
    return code;
}

int tokenize_train(int argc, const char **argv) {
    options o = {.vocab_size = 32000, .text.max_document_mib = 1024};
    struct poptOption table[] = {
        {"output", 'o', POPT_ARG_STRING, &o.output, 0,
         "directory (tokenizer.json and tokenizer_config.json) or name of a .json file", "PATH"},
        {"vocab-size", '\0', POPT_ARG_INT, &o.vocab_size, 0,
         "tokens, special tokens and the 256 bytes included (default: 32000)", "N"},
        {"pattern", '\0', POPT_ARG_STRING, &o.pattern, 0,
         "how text is cut before merging: gpt2, qwen2, qwen3.5, llama3, or a regular expression (default: qwen2)",
         "PATTERN"},
        {"special-tokens", '\0', POPT_ARG_STRING, &o.special, 0,
         "special tokens, which get the first ids, with commas between them (default: <|endoftext|>); \"\" for none",
         "LIST"},
        {"min-frequency", '\0', POPT_ARG_LONGLONG, &o.min_frequency, 0,
         "pairs that occur less often are not merged (default: 0)", "N"},
        {"normalizer", '\0', POPT_ARG_STRING, &o.normalizer, 0, "none, NFC, NFD, NFKC or NFKD (default: none)", "NAME"},
        TOKENIZE_TEXT_OPTIONS(&o.text),
        CLI_COMMON_OPTIONS(&o.common),
        POPT_AUTOHELP POPT_TABLEEND};
    int code;
    const char **paths;
    poptContext ctx = cli_parse(
        argc, argv, table, "[OPTIONS] --output PATH TEXT...",
        "Trains a byte-level BPE tokenizer. The most frequent pair of neighbours is merged first; the file that is\n"
        "written loads in Hugging Face tokenizers and encodes alike there. TEXT are text or JSON-lines files, plain,\n"
        ".gz or .zst, directories of them, or - for standard input. The distinct words are held in memory, not the "
        "text.",
        "  sluice tokenize train --vocab-size 8192 --output tok corpus.txt more.jsonl.zst", &code);
    if (!ctx) return code;
    int n = tokenize_arguments(ctx, &paths);
    code = run(&o, paths, n);
    cli_finish(ctx, table);
    return code;
}
