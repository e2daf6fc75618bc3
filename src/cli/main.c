/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command and hands over. */
#include "cli/cli.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct command {
    const char *name, *about;
    int (*run)(int argc, const char **argv);
} command;

/* One line per command; keep the order in which a newcomer meets them. */
static const command commands[] = {
    {"study", "train a baseline and gated models on the same text and report what the gate changed", cmd_study},
    {"train", "train a model on text", cmd_train},
    {"generate", "continue a prompt with a model", cmd_generate},
    {"chat", "talk with a model, with its own chat template", cmd_chat},
    {"inspect", "see attention sinks, massive activations and gates of models, and what happens without them", cmd_inspect},
    {"convert", "convert a model between Hugging Face directories, GGUF and quantised forms", cmd_convert},
    {"verify", "recompute a reference case, or try a suspicious model directory", cmd_verify},
    {"info", "describe a model, a configuration, a weight file, or this machine", cmd_info},
    {"bench", "time kernels, matrix products and training steps on this machine", cmd_bench},
    {"tokenize", "train tokenizers, encode and decode text, pack text for training", cmd_tokenize},
    {NULL, NULL, NULL},
};

static int help(FILE *out) {
    fprintf(out, "Sluice %s: train, run and measure language models with gated attention.\n\n"
                 "usage: sluice COMMAND [OPTIONS]\n\ncommands:\n", SLUICE_VERSION);
    for (const command *c = commands; c->name; c++) {
        fprintf(out, "  %-10s ", c->name);
        cli_print_wrapped(out, c->about, 13, 13);
    }
    fprintf(out, "\n`sluice COMMAND --help` shows options, defaults and an example.\n");
    return out == stdout ? CLI_OK : CLI_USAGE;
}

/* A result that could not be written (a full disk, a closed pipe) is a failure, whatever the command thought of it. */
static int written(int code) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "sluice: cannot write to standard output: %s\n", strerror(errno));
    return code == CLI_OK ? CLI_FAILED : code;
}

int main(int argc, const char **argv) {
    if (argc < 2) return help(stderr);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) return written(help(stdout));
    if (!strcmp(argv[1], "--version")) return printf("sluice %s\n", SLUICE_VERSION) < 0;
    for (const command *c = commands; c->name; c++) {
        if (strcmp(c->name, argv[1])) continue;
        cli_limit_spinning(argv);
        cli_watch_files();
        return written(c->run(argc - 1, argv + 1));
    }
    fprintf(stderr, "sluice: unknown command \"%s\"; `sluice --help` lists them\n", argv[1]);
    return CLI_USAGE;
}
