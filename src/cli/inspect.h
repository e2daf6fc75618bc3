/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of sluice inspect: options that change the inside, and the tables at the end. */
#ifndef SLUICE_CLI_INSPECT_H
#define SLUICE_CLI_INSPECT_H
#include <jansson.h>
#include <stdbool.h>
#include "sluice/inspect_report.h"

enum { CLI_INSPECT_LIST = 64, CLI_INSPECT_NAME = 64 };

typedef struct cli_inspect_changes {
    char **set; /* --set NAME=VALUE, any number */
    char *window, *sinks, *clip;
    int zero_massive, mean_massive, no_bos;
} cli_inspect_changes;

#define CLI_INSPECT_CHANGE_OPTIONS(c)                                                              \
    {"set",                                                                                        \
     '\0',                                                                                         \
     POPT_ARG_ARGV,                                                                                \
     &(c)->set,                                                                                    \
     0,                                                                                            \
     "also with every gate score at V, at its layer's mean, or each at its own mean over tokens; " \
     "may be repeated",                                                                            \
     "gate=V|mean|channel-mean"},                                                                  \
        {"zero-massive",                                                                           \
         '\0',                                                                                     \
         POPT_ARG_NONE,                                                                            \
         &(c)->zero_massive,                                                                       \
         0,                                                                                        \
         "also with massive activations set to 0",                                                 \
         NULL},                                                                                    \
        {"mean-massive",                                                                           \
         '\0',                                                                                     \
         POPT_ARG_NONE,                                                                            \
         &(c)->mean_massive,                                                                       \
         0,                                                                                        \
         "also with massive activations set to their means (Sun et al.)",                          \
         NULL},                                                                                    \
        {"window",     '\0', POPT_ARG_STRING,                                                      \
         &(c)->window, 0,    "also with attention cut to the last N keys",                         \
         "N,..."},                                                                                 \
        {"sinks",                                                                                  \
         '\0',                                                                                     \
         POPT_ARG_STRING,                                                                          \
         &(c)->sinks,                                                                              \
         0,                                                                                        \
         "first keys that stay visible behind --window; one row each (default: 0)",                \
         "0,4"},                                                                                   \
        {"no-bos",     '\0', POPT_ARG_NONE,                                                        \
         &(c)->no_bos, 0,    "also without the token in front of every window",                    \
         NULL},                                                                                    \
    {                                                                                              \
        "clip-residual", '\0', POPT_ARG_STRING, &(c)->clip, 0,                                     \
            "also with outputs of attention and MLP clipped to +-X", "X,..."                       \
    }

/* Options into rows of the table of interventions; names are kept in `names`. CLI_OK or a usage
 * error that was printed. */
int cli_inspect_collect(const cli_inspect_changes *c, sluice_inspect_change *out,
                        char (*names)[CLI_INSPECT_NAME], int *count);
void cli_inspect_free(cli_inspect_changes *c);
/* Numbers with commas between them: how many, or -1 when the text is not that. */
int cli_inspect_numbers(const char *text, double *out, int most);
bool cli_inspect_integer(const char *text, long long min, long long max, long long *out);

void cli_inspect_print(const json_t *root);
#endif
