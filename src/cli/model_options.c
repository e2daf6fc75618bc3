/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/model_options.h"
#include "sluice/train.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Length of the option's name at the beginning of `arg`, which ends there or goes on with '='; 0 = another option. */
static size_t matches(const char *arg, const char *name) {
    size_t n = 0;
    while (name[n] && arg[n] && (arg[n] == name[n] || (arg[n] == '-' && name[n] == '_'))) n++;
    return !name[n] && (arg[n] == '\0' || arg[n] == '=') ? n : 0;
}

static int find(const char *arg, size_t *length) {
    for (int i = 0; i < sluice_model_num_options(); i++)
        if ((*length = matches(arg, sluice_model_option(i).name))) return i;
    return -1;
}

static int is_truth(const char *word) {
    return word && (!strcasecmp(word, "true") || !strcasecmp(word, "false") || !strcmp(word, "0") || !strcmp(word, "1"));
}

/* The value of option `index`, and whether it is the argument behind. NULL = there is none. */
static const char *value_of(int index, const char *arg, size_t length, const char *next, int *behind) {
    *behind = 0;
    if (arg[length] == '=') return arg + length + 1;
    if (sluice_model_option(index).kind == SLUICE_OPTION_BOOL && !is_truth(next)) return "true";
    *behind = next != NULL;
    return next;
}

static sluice_status take(const char *arg, const char *next, char **options, int *taken, sluice_error *err) {
    size_t length;
    int behind = 0, index = !strncmp(arg, "--", 2) ? find(arg + 2, &length) : -1;
    *taken = 0;
    if (index < 0 && !strncmp(arg, "--no-", 5)) {
        index = find(arg + 5, &length);
        if (index < 0 || sluice_model_option(index).kind != SLUICE_OPTION_BOOL || arg[5 + length]) return SLUICE_OK;
        *taken = 1;
        return sluice_train_set_model_option(options, sluice_model_option(index).name, "false", err);
    }
    if (index < 0) return SLUICE_OK;
    const char *value = value_of(index, arg + 2, length, next, &behind);
    *taken = 1 + behind;
    return sluice_train_set_model_option(options, sluice_model_option(index).name, value ? value : "", err);
}

sluice_status cli_take_model_options(int *argc, const char **argv, char **model_options, sluice_error *err) {
    int kept = 1;
    for (int i = 1, taken; i < *argc; i += taken ? taken : 1) {
        const char *next = i + 1 < *argc ? argv[i + 1] : NULL;
        sluice_status st = take(argv[i], next, model_options, &taken, err);
        if (st != SLUICE_OK) return st;
        if (!taken) argv[kept++] = argv[i];
    }
    *argc = kept;
    return SLUICE_OK;
}
