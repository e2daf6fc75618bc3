/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of sluice tokenize; argv[0] is "tokenize <name>". */
#ifndef SLUICE_CLI_TOKENIZE_H
#define SLUICE_CLI_TOKENIZE_H
#include "cli/cli.h"
#include "sluice/shards.h"

int tokenize_train(int argc, const char **argv);
int tokenize_encode(int argc, const char **argv);
int tokenize_decode(int argc, const char **argv);
int tokenize_pack(int argc, const char **argv);
int tokenize_info(int argc, const char **argv);

/* How text files are read: shared by train and pack. */
typedef struct tokenize_text_options {
    char *format, *text_key, *separator;
    int split_blank_lines, allow_invalid;
    long long max_document_mib;
} tokenize_text_options;
#define TOKENIZE_TEXT_OPTIONS(t)                                                                                         \
    {"format",     '\0', POPT_ARG_STRING,                                                                                \
     &(t)->format, 0,    "text, jsonl, or auto: .jsonl and .ndjson by name (default: auto)",                             \
     "FORMAT"},                                                                                                          \
        {"text-key",     '\0', POPT_ARG_STRING,                                                                          \
         &(t)->text_key, 0,    "member of a JSON line that holds the text (default: text)",                              \
         "KEY"},                                                                                                         \
        {"separator",     '\0', POPT_ARG_STRING,                                                                         \
         &(t)->separator, 0,    "plain text: a line that equals LINE parts documents (default: a file is one document)", \
         "LINE"},                                                                                                        \
        {"split-blank-lines",                                                                                            \
         '\0',                                                                                                           \
         POPT_ARG_NONE,                                                                                                  \
         &(t)->split_blank_lines,                                                                                        \
         0,                                                                                                              \
         "plain text: blank lines part documents",                                                                       \
         NULL},                                                                                                          \
        {"allow-invalid-utf8",                                                                                           \
         '\0',                                                                                                           \
         POPT_ARG_NONE,                                                                                                  \
         &(t)->allow_invalid,                                                                                            \
         0,                                                                                                              \
         "take bytes that are not UTF-8 as they are (default: an error that names file and line)",                       \
         NULL},                                                                                                          \
    {                                                                                                                    \
        "max-document-mib", '\0', POPT_ARG_LONGLONG, &(t)->max_document_mib, 0,                                          \
            "largest document that may have to be held in memory, in MiB (default: 1024)", "N"                           \
    }
/* CLI_OK, or a usage error that has been printed. */
int tokenize_text_params(const char *command, const tokenize_text_options *options, sluice_text_params *out);

/* Prints one JSON object and gives it up; the exit code. */
int tokenize_print_json(const char *command, json_t *root);
/* The command's arguments; NULL-terminated. */
int tokenize_arguments(poptContext ctx, const char ***args);
#endif
