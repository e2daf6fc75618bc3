/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share. Each command is one file cmd_<name>.c with `int cmd_<name>(int argc, const char **argv)`,
 * argv[0] being the command's name; main.c has their table. Exit codes: 0 done, 1 failed, 2 wrong usage. */
#ifndef SLUICE_CLI_H
#define SLUICE_CLI_H
#include <jansson.h>
#include <popt.h>
#include <stdbool.h>
#include <stdio.h>
#include "base/strbuf.h"
#include "sluice/status.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Options that every computing command takes: --threads, --cpu, --quiet, --json. Put CLI_COMMON_OPTIONS(c) into the popt
 * table, then call cli_start after parsing: it selects kernels and threads and, unless quiet or json, prints the line
 * "running on: ...". */
typedef struct cli_common {
    int threads; /* 0 = all cores */
    char *cpu;   /* NULL = best */
    int quiet, json;
} cli_common;
#define CLI_COMMON_OPTIONS(c)                                                                      \
    {"threads", '\0', POPT_ARG_INT, &(c)->threads, 0, "threads to use; 0 (default): all cores", "N"},  \
        {"cpu", '\0', POPT_ARG_STRING, &(c)->cpu, 0,                                               \
         "highest instruction set to use: ref, avx2, avx512 (default: the best there is)", "LEVEL"}, \
        {"quiet", 'q', POPT_ARG_NONE, &(c)->quiet, 0, "print errors only", NULL},                   \
        {"json", '\0', POPT_ARG_NONE, &(c)->json, 0, "print one JSON object on standard output", NULL}

int cli_start(const cli_common *c);

/* Starts the program once more, with threads that yield soon when they have to wait (spinning.c). argv: all of main's. */
void cli_limit_spinning(const char **argv);

/* Prints "sluice <command>: <text>" and returns CLI_FAILED or CLI_USAGE. */
int cli_fail(const char *command, const sluice_error *err);
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints text and a line end in lines of at most 80 columns: line ends in it count as spaces, two of them part paragraphs.
 * `at`: columns that the first line has already; later ones are indented. */
void cli_print_wrapped(FILE *out, const char *text, int at, int indent);

/* Parses options: returns the context (free with poptFreeContext), or NULL with *exit_code set (usage error, or --help
 * was printed). `usage` is the line behind "sluice <command>", `about` one paragraph, `example` one or more command
 * lines; all three appear in --help. */
poptContext cli_parse(int argc, const char **argv, struct poptOption *table, const char *usage, const char *about,
                      const char *example, int *exit_code);

/* Long-running commands. From here on the first SIGINT or SIGTERM is a request to stop and the second one an exit at once.
 * Call it before anything computes: threads made earlier would still get the signals. */
void cli_watch_signals(void);
/* Whether a stop was asked for; fits callbacks (`unused` is their user pointer). */
bool cli_stop_requested(void *unused);
/* Exit code of a command that stopped because it was asked to: 128 + the signal, as shells have it (130, 143). */
int cli_stop_code(void);

/* From here on a mapped file that another program cuts off ends this one with a message and CLI_FAILED, and a limit on the
 * size of files is an error of the write. */
void cli_watch_files(void);

/* Conversations: from here on SIGINT while an answer comes is a request to stop it; a second one, one at another time, SIGTERM
 * and SIGHUP are requests to end the conversation (cli_stop_requested), for which reading between listening_begins and _ends
 * fails. Before the first of these, and when asked twice, the program ends at once. */
void cli_watch_answers(void);
void cli_answer_begins(void);
void cli_answer_ends(void);
void cli_listening_begins(void);
void cli_listening_ends(void);
bool cli_answer_interrupted(void);

/* Appends the bytes of a file, or of standard input (path NULL or "-"). */
sluice_status cli_read_text(const char *path, sluice__strbuf *out, sluice_error *err);

/* Frees the context and what popt allocated for the table's POPT_ARG_STRING and POPT_ARG_ARGV options (set to NULL). */
void cli_finish(poptContext ctx, const struct poptOption *table);

int cmd_bench(int argc, const char **argv);
int cmd_convert(int argc, const char **argv);
int cmd_chat(int argc, const char **argv);
int cmd_generate(int argc, const char **argv);
int cmd_info(int argc, const char **argv);
int cmd_inspect(int argc, const char **argv);
int cmd_study(int argc, const char **argv);
int cmd_tokenize(int argc, const char **argv);
int cmd_train(int argc, const char **argv);
int cmd_verify(int argc, const char **argv);
#endif
