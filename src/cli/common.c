/* SPDX-License-Identifier: Apache-2.0 */
/* Shared start of every command: option parsing with help, kernel and thread choice, error printing. */
#include "cli/cli.h"
#include "base/memory.h"
#include "sluice/cpu.h"
#include "sluice/log.h"
#include "sluice/progress.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The command that parsed its options last: what cli_start says is about those. */
static const char *command_name = "";

int cli_fail(const char *command, const sluice_error *err) {
    fprintf(stderr, "sluice %s: %s\n", command, *err->message ? err->message : sluice_status_text(err->code));
    return CLI_FAILED;
}

int cli_usage(const char *command, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "sluice %s: ", command);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n`sluice %s --help` shows the options\n", command);
    va_end(ap);
    return CLI_USAGE;
}

/* Bytes of the word at `text`, and the columns that it takes. */
static size_t word_at(const char *text, int *columns) {
    size_t n = strcspn(text, " \n");
    *columns = 0;
    for (size_t i = 0; i < n; i++) *columns += (text[i] & 0xc0) != 0x80;
    return n;
}

void cli_print_wrapped(FILE *out, const char *text, int at, int indent) {
    enum { WIDTH = 80 };
    bool begun = false;
    while (*text) {
        int columns;
        size_t n = word_at(text, &columns);
        if (n && begun && at + 1 + columns > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (n && begun) {
            fputc(' ', out);
            at++;
        }
        fwrite(text, 1, n, out);
        begun |= n > 0;
        at += columns;
        text += n;
        if (!strncmp(text, "\n\n", 2)) {
            fprintf(out, "\n\n%*s", indent, "");
            at = indent;
            begun = false;
        }
        text += strspn(text, " \n");
    }
    fputc('\n', out);
}

static bool asks_for_help(int argc, const char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

/* popt prints argv[0] in its help: the arguments with "sluice COMMAND" there. They live as long as the program. */
static const char **with_full_name(int argc, const char **argv) {
    static const char **copy;
    static char name[64];
    free(copy);
    copy = calloc((size_t)argc + 1, sizeof *copy);
    if (!copy) return argv;
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    snprintf(name, sizeof name, "sluice %s", argv[0]);
    copy[0] = name;
    return copy;
}

static sluice_status read_stream(FILE *f, const char *name, sluice__strbuf *out, sluice_error *err) {
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0) sluice__strbuf_add(out, block, n);
    if (ferror(f)) return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot read: %s", name, strerror(errno));
    return out->failed ? sluice__no_memory(err, out->size, name) : SLUICE_OK;
}

sluice_status cli_read_text(const char *path, sluice__strbuf *out, sluice_error *err) {
    if (!path || !strcmp(path, "-")) return read_stream(stdin, "standard input", out, err);
    FILE *f = fopen(path, "rbe");
    if (!f) return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    sluice_status st = read_stream(f, path, out, err);
    fclose(f);
    return st;
}

void cli_finish(poptContext ctx, const struct poptOption *table) {
    poptFreeContext(ctx);
    for (const struct poptOption *o = table; o->longName || o->shortName || o->arg; o++) {
        if ((o->argInfo & POPT_ARG_MASK) == POPT_ARG_STRING) {
            char **text = o->arg;
            free(*text);
            *text = NULL;
        } else if ((o->argInfo & POPT_ARG_MASK) == POPT_ARG_ARGV) {
            char ***list = o->arg;
            for (char **text = *list; text && *text; text++) free(*text);
            free(*list);
            *list = NULL;
        }
    }
}

poptContext cli_parse(int argc, const char **argv, struct poptOption *table, const char *usage, const char *about,
                      const char *example, int *exit_code) {
    command_name = argv[0];
    poptContext ctx = poptGetContext("sluice", argc, with_full_name(argc, argv), table, 0);
    poptSetOtherOptionHelp(ctx, usage);
    if (asks_for_help(argc, argv)) {
        poptPrintHelp(ctx, stdout, 0);
        putchar('\n');
        cli_print_wrapped(stdout, about, 0, 0);
        printf("\nExample:\n%s\n", example);
        cli_finish(ctx, table);
        *exit_code = CLI_OK;
        return NULL;
    }
    int rc;
    while ((rc = poptGetNextOpt(ctx)) >= 0) {
    }
    if (rc == -1) return ctx;
    *exit_code = cli_usage(argv[0], "%s: %s", poptBadOption(ctx, POPT_BADOPTION_NOALIAS), poptStrerror(rc));
    cli_finish(ctx, table);
    return NULL;
}

int cli_start(const cli_common *c) {
    sluice_error err = {0};
    sluice_status st = sluice_cpu_select(c->cpu, &err);
    if (st == SLUICE_ERR_ARGUMENT) return cli_usage(command_name, "--cpu: %s", err.message);
    if (st != SLUICE_OK) return cli_fail(command_name, &err);
    if (c->threads < 0 || c->threads > 1024)
        return cli_usage(command_name, "--threads: found %d, expected 1..1024, or 0 for all cores", c->threads);
    sluice_set_num_threads(c->threads);
    sluice_log_to_stderr(c->quiet ? SLUICE_LOG_WARNING : SLUICE_LOG_INFO);
    sluice_progress_enable(!c->quiet);
    if (c->quiet || c->json) return CLI_OK;
    char cpu[256];
    sluice_cpu_describe(cpu, sizeof cpu);
    fprintf(stderr, "running on: %s, %d thread%s\n", cpu, sluice_get_num_threads(), sluice_get_num_threads() == 1 ? "" : "s");
    return CLI_OK;
}
