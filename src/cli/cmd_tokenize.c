/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tokenize: finds the subcommand; what the subcommands share. */
#include "cli/tokenize.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *about;
    int (*run)(int argc, const char **argv);
} subcommands[] = {
    {"train", "train a byte-level BPE tokenizer on text", tokenize_train},
    {"encode", "text to token ids", tokenize_encode},
    {"decode", "token ids to text", tokenize_decode},
    {"pack", "text files to token shards for training", tokenize_pack},
    {"info", "facts about a tokenizer or a shard", tokenize_info},
};
enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static int help(FILE *out) {
    fprintf(out, "usage: sluice tokenize SUBCOMMAND [OPTIONS]\n\n"
                 "Byte-level BPE tokenizers in Hugging Face's tokenizer.json: training them, using\n"
                 "them, packing text with them.\n\n");
    for (int i = 0; i < SUBCOMMANDS; i++) fprintf(out, "  %-8s %s\n", subcommands[i].name, subcommands[i].about);
    fprintf(out, "\nExample:\n  sluice tokenize train --vocab-size 8192 --output tok corpus.txt\n"
                 "  sluice tokenize pack --tokenizer tok --append-eod --output data/corpus corpus.txt\n"
                 "\n`sluice tokenize SUBCOMMAND --help` shows the options of each.\n");
    return out == stdout ? CLI_OK : CLI_USAGE;
}

int cmd_tokenize(int argc, const char **argv) {
    if (argc < 2) return help(stderr);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) return help(stdout);
    for (int i = 0; i < SUBCOMMANDS; i++) {
        if (strcmp(argv[1], subcommands[i].name)) continue;
        char name[32];
        snprintf(name, sizeof name, "tokenize %s", argv[1]);
        argv[1] = name;
        int code = subcommands[i].run(argc - 1, argv + 1);
        bool lost = ferror(stdout) || fflush(stdout) != 0;
        return code == CLI_OK && lost
                   ? cli_fail(name, &(sluice_error){SLUICE_ERR_IO, "cannot write to standard output"})
                   : code;
    }
    return cli_usage("tokenize", "unknown subcommand \"%.40s\"; expected train, encode, decode, pack or info", argv[1]);
}

int tokenize_text_params(const char *command, const tokenize_text_options *options, sluice_text_params *out) {
    static const char *const formats[] = {"auto", "text", "jsonl"};
    *out = sluice_text_params_default();
    int format = 0;
    while (options->format && format < 3 && strcmp(options->format, formats[format])) format++;
    if (format == 3)
        return cli_usage(command, "--format: found \"%.40s\", expected auto, text or jsonl", options->format);
    if (options->separator && options->split_blank_lines)
        return cli_usage(command, "--separator and --split-blank-lines exclude each other");
    if (options->separator && !*options->separator)
        return cli_usage(command, "--separator: found an empty line; --split-blank-lines parts at those");
    if (options->max_document_mib < 1 || options->max_document_mib > 1 << 20)
        return cli_usage(command, "--max-document-mib: found %lld, expected 1..%d", options->max_document_mib, 1 << 20);
    out->format = (sluice_text_format)format;
    if (options->text_key) out->text_key = options->text_key;
    out->separator = options->split_blank_lines ? "" : options->separator;
    out->allow_invalid = options->allow_invalid;
    out->max_document_bytes = options->max_document_mib << 20;
    return CLI_OK;
}

int tokenize_print_json(const char *command, json_t *root) {
    char *text = root ? json_dumps(root, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(root);
    if (!text) return cli_fail(command, &(sluice_error){SLUICE_ERR_MEMORY, "cannot build the JSON result"});
    puts(text);
    free(text);
    return CLI_OK;
}

int tokenize_arguments(poptContext ctx, const char ***args) {
    static const char *none[1];
    const char **found = poptGetArgs(ctx);
    *args = found ? found : none;
    int n = 0;
    while ((*args)[n]) n++;
    return n;
}
