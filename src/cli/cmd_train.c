/* SPDX-License-Identifier: Apache-2.0 */
/* sluice train: a command line made from the tables of options, signals, and the words at the end. The work is
 * sluice_train_job. */
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "sluice/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char usage[] = "[OPTIONS] [OPTIONS.json]";
static const char about[] =
    "Trains a language model on text, from scratch or from the weights of a Hugging Face directory,\n"
    "and writes a run directory: config.json (all options), metrics.jsonl, TensorBoard events,\n"
    "checkpoints/ and, at the end, model/, which opens in transformers.\n\n"
    "Options may also stand in a JSON file, spelt with underscores; those on the command line win.\n"
    "Underscores work on the command line too, --flag means --flag=true and --no-flag --flag=false;\n"
    "--model (or --from), --tokenizer and --block-size are short for --model-name-or-path,\n"
    "--tokenizer-name and --seq-len.\n\n"
    "Ctrl-C or SIGTERM finishes the update, writes a checkpoint and exits with 130 or 143; a second one\n"
    "exits at once. --resume continues from the newest checkpoint with the options of the run, bit for\n"
    "bit with the same number of threads.";
static const char example[] =
    "  sluice train --text book.txt --vocab-size 1024 --hidden-size 128 --num-hidden-layers 4 \\\n"
    "               --gate-position sdpa --gate-granularity headwise --max-steps 1000 --output-dir run\n"
    "  sluice train --output-dir run --resume\n"
    "  sluice generate run/model --prompt \"In the beginning\"";

/* ---- the command line from the tables ---- */

typedef struct option_list {
    int num_train, num_model;
    struct poptOption *train, *model; /* popt tables */
    char **texts, ***lists;           /* what popt stores, one for each option of both tables */
    char **owned;                     /* names and descriptions */
    int num_owned;
} option_list;

static char *keep(option_list *l, char *text) {
    if (text) l->owned[l->num_owned++] = text;
    return text;
}

static char *dashed(const char *name) {
    char *copy = sluice__strdup(name);
    for (char *c = copy; c && *c; c++)
        if (*c == '_') *c = '-';
    return copy;
}

/* "; one of a, b": commas leave room to break a line. */
static void list_choices(char *out, size_t size, const char *choices) {
    size_t n = (size_t)snprintf(out, size, "; one of ");
    for (const char *c = choices; *c && n + 3 < size; c++) {
        if (*c != '|') out[n++] = *c;
        else out[n++] = ',', out[n++] = ' ';
    }
    out[n] = '\0';
}

/* "help [unit] (one of a, b; default: x)" */
static char *describe(const sluice_option *o, const char *def) {
    char choices[256] = "";
    if (o->choices) list_choices(choices, sizeof choices, o->choices);
    if (o->kind == SLUICE_OPTION_BOOL) snprintf(choices, sizeof choices, "; true or false");
    const char *unit = o->kind == SLUICE_OPTION_PATH || o->kind == SLUICE_OPTION_LIST ? "" : o->unit;
    return sluice__asprintf("%s%s%s%s%s%s%s", o->help, *unit ? " [" : "", unit, *unit ? "]" : "", choices,
                            *def ? "; default " : "", def);
}

static const char *placeholder(const sluice_option *o) {
    switch (o->kind) {
    case SLUICE_OPTION_INT: return "N";
    case SLUICE_OPTION_REAL: return "X";
    case SLUICE_OPTION_BOOL: return "BOOL";
    case SLUICE_OPTION_CHOICE: return "WORD";
    default: return o->unit;
    }
}

static bool add_option(option_list *l, struct poptOption *at, int slot, const sluice_option *o, const char *def) {
    bool list = o->kind == SLUICE_OPTION_LIST;
    at->longName = keep(l, dashed(o->name));
    at->argInfo = list ? POPT_ARG_ARGV : POPT_ARG_STRING;
    at->arg = list ? (void *)&l->lists[slot] : (void *)&l->texts[slot];
    at->descrip = keep(l, describe(o, def));
    at->argDescrip = placeholder(o);
    return at->longName && at->descrip;
}

static bool make_tables(option_list *l) {
    l->num_train = sluice_train_num_options();
    l->num_model = sluice_model_num_options();
    size_t n = (size_t)(l->num_train + l->num_model);
    l->train = sluice__calloc((size_t)l->num_train + 1, sizeof *l->train, SLUICE__MEM_OTHER);
    l->model = sluice__calloc((size_t)l->num_model + 1, sizeof *l->model, SLUICE__MEM_OTHER);
    l->texts = sluice__calloc(n, sizeof *l->texts, SLUICE__MEM_OTHER);
    l->lists = sluice__calloc(n, sizeof *l->lists, SLUICE__MEM_OTHER);
    l->owned = sluice__calloc(2 * n, sizeof *l->owned, SLUICE__MEM_OTHER);
    if (!l->train || !l->model || !l->texts || !l->lists || !l->owned) return false;
    sluice_train_params defaults = sluice_train_params_default();
    bool ok = true;
    for (int i = 0; i < l->num_train; i++) {
        char def[SLUICE_TRAIN_LIST];
        sluice_option o = sluice_train_option(i);
        sluice_train_option_value(&defaults, i, def, sizeof def);
        ok &= add_option(l, &l->train[i], i, &o, def);
    }
    for (int i = 0; i < l->num_model; i++) {
        sluice_option o = sluice_model_option(i);
        ok &= add_option(l, &l->model[i], l->num_train + i, &o, sluice_model_option_default(i));
    }
    return ok;
}

static void free_tables(option_list *l) {
    for (int i = 0; l->texts && i < l->num_train + l->num_model; i++) free(l->texts[i]);
    for (int i = 0; l->lists && i < l->num_train + l->num_model; i++)
        if (l->lists[i]) {
            for (char **s = l->lists[i]; *s; s++) free(*s);
            free(l->lists[i]);
        }
    for (int i = 0; i < l->num_owned; i++) sluice__free(l->owned[i]);
    sluice__free(l->train);
    sluice__free(l->model);
    sluice__free(l->texts);
    sluice__free(l->lists);
    sluice__free(l->owned);
}

/* ---- spelling ---- */

static bool is_bool_option(const char *name, size_t size) {
    int n = sluice_train_num_options(), m = sluice_model_num_options();
    for (int i = 0; i < n + m; i++) {
        sluice_option o = i < n ? sluice_train_option(i) : sluice_model_option(i - n);
        if (o.kind != SLUICE_OPTION_BOOL || strlen(o.name) != size) continue;
        size_t k = 0;
        while (k < size && (o.name[k] == name[k] || (o.name[k] == '_' && name[k] == '-'))) k++;
        if (k == size) return true;
    }
    return false;
}

static bool is_bool_word(const char *word) {
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "0", "1"};
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(word, words[i])) return true;
    return false;
}

/* One argument in the spelling of the tables: dashes in names, aliases resolved, --flag as --flag=true and --no-
 * flag as --flag=false. Owned by the caller. */
static char *respell(const char *arg, const char *next) {
    static const char *const aliases[][2] = {{"--model", "--model-name-or-path"},
                                             {"--from", "--model-name-or-path"},
                                             {"--tokenizer", "--tokenizer-name"},
                                             {"--block-size", "--seq-len"}};
    char *copy = sluice__strdup(arg);
    if (!copy || strncmp(arg, "--", 2) || !arg[2]) return copy;
    size_t name = strcspn(copy, "=");
    for (size_t i = 2; i < name; i++)
        if (copy[i] == '_') copy[i] = '-';
    char *out = NULL;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strlen(aliases[i][0]) == name && !strncmp(copy, aliases[i][0], name))
            out = sluice__asprintf("%s%s", aliases[i][1], copy + name);
    if (!out && copy[name] == '\0' && is_bool_option(copy + 2, name - 2) && !is_bool_word(next))
        out = sluice__asprintf("%s=true", copy);
    if (!out && copy[name] == '\0' && !strncmp(copy, "--no-", 5) && is_bool_option(copy + 5, name - 5))
        out = sluice__asprintf("--%s=false", copy + 5);
    if (!out) return copy;
    sluice__free(copy);
    return out;
}

/* ---- applying what was given ---- */

typedef struct command_line {
    option_list options;
    cli_common common;
    char *config_file;
    int resume, dry_run;
    char **args; /* respelt */
    int num_args;
} command_line;

static sluice_status set_list(sluice_train_params *p, const char *key, char *const *values, sluice_error *err) {
    char lines[SLUICE_TRAIN_LIST] = "";
    size_t used = 0;
    for (; *values; values++) {
        if (used + strlen(*values) + 2 > sizeof lines || strchr(*values, '\n') || !**values) {
            err->code = SLUICE_ERR_ARGUMENT;
            snprintf(err->message, sizeof err->message,
                     "%s: an empty name, a name with a line end, or names of more than %d "
                     "characters together (give a directory)",
                     key, SLUICE_TRAIN_LIST);
            return err->code;
        }
        used += (size_t)snprintf(lines + used, sizeof lines - used, "%s%s", used ? "\n" : "", *values);
    }
    return sluice_train_params_set(p, key, lines, err);
}

static sluice_status apply_options(const option_list *l, sluice_train_params *p, char **model_options,
                                   sluice_error *err) {
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < l->num_train + l->num_model && st == SLUICE_OK; i++) {
        bool train = i < l->num_train;
        char key[96];
        snprintf(key, sizeof key, "--%s", train ? l->train[i].longName : l->model[i - l->num_train].longName);
        if (l->lists[i]) st = set_list(p, key, l->lists[i], err);
        else if (l->texts[i] && train) st = sluice_train_params_set(p, key, l->texts[i], err);
        else if (l->texts[i]) st = sluice_train_set_model_option(model_options, key, l->texts[i], err);
    }
    return st;
}

/* The options of the run that is continued: that in output_dir, unless it has not begun, else the one that decay_from
 * leaves from. */
static sluice_status read_run(sluice_train_params *p, char **model_options, const char *output_dir,
                              const char *decay_from, sluice_error *err) {
    char *path = output_dir ? sluice__path_join(output_dir, "config.json") : NULL;
    sluice_status st = SLUICE_OK;
    if (path && sluice__is_file(path)) st = sluice_train_read_options(p, model_options, path, err);
    else if (decay_from) st = sluice_train_read_checkpoint(p, model_options, decay_from, err);
    sluice__free(path);
    return st;
}

static const char *given_text(const option_list *l, const char *name) {
    for (int i = 0; i < l->num_train; i++)
        if (!strcmp(l->train[i].longName, name)) return l->texts[i];
    return NULL;
}

/* Defaults, then the run that is resumed, then the file, then the command line. Exit code. */
static int collect(const command_line *c, const char *file, sluice_train_params *p, char **model_options) {
    sluice_error err = {0};
    const option_list *l = &c->options;
    *p = sluice_train_params_default();
    sluice_status st = SLUICE_OK;
    bool resumes = c->resume || given_text(l, "resume-from-checkpoint");
    const char *decay_from = given_text(l, "decay-from");
    if (resumes || decay_from)
        st = read_run(p, model_options, resumes ? given_text(l, "output-dir") : NULL, decay_from, &err);
    if (st == SLUICE_OK && file) st = sluice_train_read_options(p, model_options, file, &err);
    if (st != SLUICE_OK) return cli_fail("train", &err);
    st = apply_options(l, p, model_options, &err);
    if (st != SLUICE_OK) return cli_usage("train", "%s", err.message);
    if (c->resume && !*p->resume_from_checkpoint) sluice_train_params_set(p, "resume_from_checkpoint", "last", NULL);
    return CLI_OK;
}

/* ---- the end ---- */

static json_t *number(double v) {
    return v - v == 0 ? json_real(v) : json_null();
}

static int print_json(const sluice_train_result *r, const sluice_train_params *p, bool planned) {
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "parameters", (json_int_t)r->plan.parameters,
                          "memory_bytes", (json_int_t)r->plan.total, "train_tokens", (json_int_t)r->data.train_tokens,
                          "train_windows", (json_int_t)r->data.train_windows, "heldout_tokens",
                          (json_int_t)r->data.heldout_tokens, "steps", (json_int_t)r->steps);
    if (!planned) {
        json_object_set_new(o, "output_dir", json_string_nocheck(p->output_dir));
        json_object_set_new(o, "model", json_string_nocheck(r->model_dir));
        json_object_set_new(o, "seconds", number(r->seconds));
        json_object_set_new(o, "loss", number(r->loss));
        json_object_set_new(o, "spikes", json_integer(r->spikes));
        json_object_set_new(o, "spike_events", json_integer(r->spike_events));
        json_object_set_new(o, "skipped", json_integer(r->skipped));
        json_object_set_new(o, "rewinds", json_integer(r->rewinds));
    }
    if (r->eval.tokens)
        json_object_set_new(o, "eval",
                            json_pack("{s:o, s:o, s:o, s:I, s:I}", "loss", number(r->eval.loss), "perplexity",
                                      number(r->eval.perplexity), "bits_per_byte",
                                      r->eval.bytes ? number(r->eval.bits_per_byte) : json_null(), "tokens",
                                      (json_int_t)r->eval.tokens, "bytes", (json_int_t)r->eval.bytes));
    int bad = json_dumpf(o, stdout, JSON_INDENT(2)) | (putchar('\n') == EOF);
    json_decref(o);
    return bad ? CLI_FAILED : CLI_OK;
}

static void print_words(const sluice_train_result *r, const sluice_train_params *p) {
    char took[32];
    printf("%lld updates in %s", (long long)r->steps, sluice__format_seconds(took, r->seconds));
    if (r->loss - r->loss == 0) printf("; training loss %.4f", r->loss);
    if (r->eval.tokens) printf("; held-out loss %.4f, perplexity %.2f", r->eval.loss, r->eval.perplexity);
    if (r->eval.bytes) printf(", %.4f bits per byte", r->eval.bits_per_byte);
    if (r->spike_events) printf("; %lld loss spikes", (long long)r->spike_events);
    printf("\nmodel:   %s\nmetrics: %s/metrics.jsonl\n", r->model_dir, p->output_dir);
}

static int run(const command_line *c, const char *file) {
    sluice_train_params p;
    char *model_options = NULL;
    int code = collect(c, file, &p, &model_options);
    if (code == CLI_OK) code = cli_start(&c->common);
    if (code == CLI_OK) {
        sluice_error err = {0};
        sluice_train_result result;
        sluice_train_callbacks callbacks = {.stop_requested = cli_stop_requested};
        cli_watch_signals();
        sluice_status st = sluice_train_job(&result, &p, model_options, &callbacks, c->dry_run, &err);
        if (st != SLUICE_OK) code = cli_fail("train", &err);
        if (st == SLUICE_INTERRUPTED) code = cli_stop_code();
        if (st == SLUICE_OK && c->common.json) code = print_json(&result, &p, c->dry_run);
        else if (st == SLUICE_OK && !c->common.quiet && !c->dry_run) print_words(&result, &p);
    }
    sluice_train_free_text(model_options);
    return code;
}

static int parse_and_run(command_line *c) {
    struct poptOption table[] = {
        {"config-file", '\0', POPT_ARG_STRING, &c->config_file, 0,
         "JSON file of options (as the last argument may be)", "FILE"},
        {"resume", '\0', POPT_ARG_NONE, &c->resume, 0, "continue the run in --output-dir from its newest checkpoint",
         NULL},
        {"dry-run", '\0', POPT_ARG_NONE, &c->dry_run, 0, "check everything, print the memory plan, train nothing",
         NULL},
        CLI_COMMON_OPTIONS(&c->common),
        {NULL, '\0', POPT_ARG_INCLUDE_TABLE, c->options.train, 0, "Training:", NULL},
        {NULL, '\0', POPT_ARG_INCLUDE_TABLE, c->options.model, 0, "Model (fields of its config.json):", NULL},
        POPT_TABLEEND,
    };
    int code;
    const char **args = sluice__calloc((size_t)c->num_args + 1, sizeof *args, SLUICE__MEM_OTHER);
    if (!args) return CLI_FAILED;
    for (int i = 0; i < c->num_args; i++) args[i] = c->args[i];
    poptContext ctx = cli_parse(c->num_args, args, table, usage, about, example, &code);
    if (ctx) {
        const char *file = poptGetArg(ctx);
        if (poptPeekArg(ctx)) code = cli_usage("train", "%s: one file of options is enough", poptPeekArg(ctx));
        else if (file && c->config_file) code = cli_usage("train", "%s: --config-file is given already", file);
        else code = run(c, file ? file : c->config_file);
        poptFreeContext(ctx);
    }
    free(c->config_file);
    free(c->common.cpu);
    sluice__free((void *)args);
    return code;
}

int cmd_train(int argc, const char **argv) {
    command_line c = {.num_args = argc};
    bool ok = make_tables(&c.options), literal = false;
    c.args = sluice__calloc((size_t)argc, sizeof *c.args, SLUICE__MEM_OTHER);
    for (int i = 0; ok && c.args && i < argc; i++) {
        literal |= i > 0 && !strcmp(argv[i - 1], "--");
        c.args[i] = literal ? sluice__strdup(argv[i]) : respell(argv[i], i + 1 < argc ? argv[i + 1] : NULL);
        ok = c.args[i] != NULL;
    }
    sluice_error err = {SLUICE_ERR_MEMORY, ""};
    int code = ok && c.args ? parse_and_run(&c) : cli_fail("train", &err);
    for (int i = 0; c.args && i < argc; i++) sluice__free(c.args[i]);
    sluice__free(c.args);
    free_tables(&c.options);
    return code;
}
