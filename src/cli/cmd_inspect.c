/* SPDX-License-Identifier: Apache-2.0 */
/* sluice inspect: options into a job, the job's result into files and a table. */
#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/inspect.h"
#include "sluice/shards.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 1 << 30, MAX_MODELS = 1024 };
static const long long UNSET = LLONG_MIN; /* an option that was not given */

typedef struct options {
    cli_common common;
    cli_inspect_changes changes;
    char *text, *text_column, *prompt, *ids, *demo, *output, *report, *bos, *positions, *tokens;
    char *tokenizer;
    long long seq_len, windows, map_tokens;
    int light, no_weights;
} options;

/* What the job points into. */
typedef struct material {
    sluice_text text;
    int32_t *ids;
    size_t num_ids;
    int positions[CLI_INSPECT_LIST];
    int num_positions;
    const char *models[MAX_MODELS];
    sluice_inspect_change changes[CLI_INSPECT_LIST];
    char names[CLI_INSPECT_LIST][CLI_INSPECT_NAME];
} material;

/* ---- input ---- */

/* Whether the text is UTF-8 is checked with the job, wherever it came from. */
static sluice_status read_text(const options *o, material *m, sluice_error *err) {
    sluice_text_params params = sluice_text_params_default();
    const char *given = o->prompt ? o->prompt : o->text ? NULL : o->demo;
    if (!given) {
        if (o->text_column) params.text_key = o->text_column;
        params.allow_invalid = true;
        return sluice_text_read(&m->text, o->text, &params, TEXT_LIMIT, err);
    }
    size_t size = strlen(given);
    m->text.data = sluice__strdup(given);
    if (!m->text.data) return sluice__no_memory(err, size + 1, "the text");
    m->text.size = size;
    return SLUICE_OK;
}

/* A JSON array of ids. */
static sluice_status read_ids(const char *path, material *m, sluice_error *err) {
    json_error_t problem;
    json_t *root = json_load_file(path, 0, &problem);
    if (!root)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: line %d: %s", path, problem.line,
                            problem.text);
    size_t n = json_array_size(root);
    sluice_status st =
        n ? SLUICE_OK
          : sluice__fail(err, SLUICE_ERR_FORMAT, "%s: expected an array of token ids", path);
    if (st == SLUICE_OK) m->ids = sluice__calloc(n, sizeof *m->ids, SLUICE__MEM_DATA);
    if (st == SLUICE_OK && !m->ids) st = sluice__no_memory(err, n * sizeof *m->ids, "token ids");
    for (size_t i = 0; st == SLUICE_OK && i < n; i++) {
        const json_t *v = json_array_get(root, i);
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > INT32_MAX)
            st = sluice__fail(err, SLUICE_ERR_FORMAT,
                              "%s: element %zu: expected a token id of at least 0", path, i);
        else
            m->ids[i] = (int32_t)id;
    }
    m->num_ids = n;
    json_decref(root);
    return st;
}

/* ---- output ---- */

static int write_files(const options *o, const char *json, sluice_error *err) {
    const char *dir = o->output ? o->output : "inspect";
    char *data = sluice__path_join(dir, "inspect.json"),
         *page = sluice__path_join(dir, "inspect.html");
    sluice_status st =
        data && page ? sluice__make_dirs(dir, err) : sluice__no_memory(err, strlen(dir), "a path");
    if (st == SLUICE_OK) st = sluice__write_file(data, json, strlen(json), err);
    if (st == SLUICE_OK) st = sluice_inspect_page(json, strlen(json), page, err);
    if (st == SLUICE_OK && !o->common.json && !o->common.quiet)
        printf("results: %s\nreport: %s\n", data, page);
    sluice__free(data);
    sluice__free(page);
    return st == SLUICE_OK ? CLI_OK : cli_fail("inspect", err);
}

static int show(const options *o, const char *json, sluice_error *err) {
    json_t *root = json_loads(json, JSON_ALLOW_NUL, NULL);
    if (!root) return cli_usage("inspect", "the result is not JSON");
    if (o->common.json) {
        size_t i;
        json_t *model;
        json_array_foreach(json_object_get(root, "models"), i,
                           model) { /* pictures; inspect.json has them */
            json_object_del(model, "map");
            json_object_del(model, "surface");
        }
        json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        putchar('\n');
    } else if (!o->common.quiet) {
        cli_inspect_print(root);
    }
    json_decref(root);
    return write_files(o, json, err);
}

/* Draws the page of an earlier inspect.json again. */
static int redraw(const char *dir) {
    sluice_error err = {0};
    char *text = NULL, *data = sluice__path_join(dir, "inspect.json"),
         *page = sluice__path_join(dir, "inspect.html");
    size_t size = 0;
    sluice_status st = data && page ? sluice__read_file(&text, &size, data, TEXT_LIMIT, &err)
                                    : sluice__no_memory(&err, strlen(dir), "a path");
    if (st == SLUICE_OK) st = sluice_inspect_page(text, size, page, &err);
    if (st == SLUICE_OK) printf("%s\n", page);
    sluice__free(text);
    sluice__free(data);
    sluice__free(page);
    return st == SLUICE_OK ? CLI_OK : cli_fail("inspect", &err);
}

/* ---- the job ---- */

static int parse_bos(const char *text, int32_t *out) {
    long long id;
    *out = SLUICE_BOS_AUTO;
    if (!text || !strcmp(text, "auto")) return CLI_OK;
    *out = SLUICE_BOS_OMIT;
    if (!strcmp(text, "none")) return CLI_OK;
    if (!cli_inspect_integer(text, 0, INT32_MAX, &id))
        return cli_usage("inspect", "--bos: found \"%s\", expected auto, none or a token id", text);
    *out = (int32_t)id;
    return CLI_OK;
}

static int parse_positions(const char *text, material *m) {
    double v[CLI_INSPECT_LIST];
    if (!text) return CLI_OK;
    m->num_positions = cli_inspect_numbers(text, v, CLI_INSPECT_LIST);
    for (int i = 0; i < m->num_positions; i++) {
        m->positions[i] = (int)v[i];
        if (v[i] < 0 || v[i] > 1 << 24 || v[i] != m->positions[i]) m->num_positions = -1;
    }
    if (m->num_positions > 0) return CLI_OK;
    return cli_usage(
        "inspect", "--positions: found \"%s\", expected positions of 0 or more with commas", text);
}

static int check_options(const options *o) {
    int texts = (o->text != NULL) + (o->prompt != NULL) + (o->ids != NULL);
    if (texts > 1) return cli_usage("inspect", "--text, --prompt and --ids exclude each other");
    if (o->text_column && !o->text)
        return cli_usage("inspect", "--text-column belongs to --text");
    if (!texts && !o->demo)
        return cli_usage(
            "inspect",
            "no text: give --text FILE (- for standard input), --prompt TEXT or --demo TEXT");
    if (o->seq_len != UNSET && (o->seq_len < 1 || o->seq_len > 1 << 24))
        return cli_usage("inspect", "--seq-len: found %lld, expected 1..%d", o->seq_len, 1 << 24);
    if (o->windows != UNSET && (o->windows < 1 || o->windows > 1 << 30))
        return cli_usage("inspect", "--windows: found %lld, expected 1..%d", o->windows, 1 << 30);
    if (o->map_tokens != UNSET && (o->map_tokens < 0 || o->map_tokens > SLUICE_MAP_MAX_TOKENS))
        return cli_usage("inspect", "--map-tokens: found %lld, expected 0..%d", o->map_tokens,
                         SLUICE_MAP_MAX_TOKENS);
    return CLI_OK;
}

static int collect(options *o, poptContext ctx, material *m, sluice_inspect_job *job) {
    const char *word;
    while ((word = poptGetArg(ctx))) {
        if (job->num_models == MAX_MODELS)
            return cli_usage("inspect", "more than %d models", MAX_MODELS);
        m->models[job->num_models++] = word;
    }
    if (!job->num_models) return cli_usage("inspect", "expected at least one model directory");
    int code = check_options(o);
    if (code == CLI_OK) code = parse_bos(o->bos, &job->bos);
    if (code == CLI_OK) code = parse_positions(o->positions, m);
    if (code == CLI_OK)
        code = cli_inspect_collect(&o->changes, m->changes, m->names, &job->num_changes);
    job->models = m->models;
    job->changes = m->changes;
    job->seq_len = o->seq_len == UNSET ? 0 : (int)o->seq_len;
    job->windows = o->windows == UNSET ? 0 : o->windows;
    job->map_tokens = o->map_tokens == UNSET ? 0 : o->map_tokens == 0 ? -1 : (int)o->map_tokens;
    job->map_text = o->demo;
    job->tokenizer = o->tokenizer;
    job->mark_positions = m->positions;
    job->num_mark_positions = m->num_positions;
    job->mark_tokens = o->tokens;
    job->weights = !o->no_weights && !o->light;
    if (o->light) job->measures = SLUICE_MEASURE_LIGHT | SLUICE_MEASURE_LOSS;
    job->stop_requested = cli_stop_requested;
    return code;
}

static int run(const options *o, material *m, sluice_inspect_job *job) {
    sluice_error err = {0};
    char *json = NULL;
    int code = cli_start(&o->common);
    if (code != CLI_OK) return code;
    cli_watch_signals();
    sluice_status st = sluice__check_writable_dir(o->output ? o->output : "inspect", &err);
    if (st == SLUICE_OK) st = o->ids ? read_ids(o->ids, m, &err) : read_text(o, m, &err);
    job->text = o->ids ? NULL : m->text.data ? m->text.data : "";
    job->text_size = m->text.size;
    job->text_name = o->text && strcmp(o->text, "-") ? o->text
                     : o->ids                        ? o->ids
                     : o->prompt                     ? "--prompt"
                     : o->text                       ? "standard input"
                                                     : "--demo";
    job->ids = m->ids;
    job->num_ids = m->num_ids;
    if (st == SLUICE_OK) st = sluice_inspect_run(&json, job, &err);
    if (st == SLUICE_INTERRUPTED) return cli_stop_code();
    if (st != SLUICE_OK) return cli_fail("inspect", &err);
    code = show(o, json, &err);
    free(json);
    return code;
}

static int dispatch(options *o, poptContext ctx) {
    if (o->report) return redraw(o->report);
    material *m = sluice__calloc(1, sizeof *m, SLUICE__MEM_OTHER);
    sluice_inspect_job job = sluice_inspect_job_default();
    if (!m) return CLI_FAILED;
    int code = collect(o, ctx, m, &job);
    if (code == CLI_OK) code = run(o, m, &job);
    sluice_text_free(&m->text);
    sluice__free(m->ids);
    sluice__free(m);
    return code;
}

static const char about[] = "Measures what models do inside on a text: attention on the first "
                            "token (layer by layer, head by head), massive "
                            "activations, gate scores, sparsity, what kind of head each one is, "
                            "experts, rounding to 8 bits; the same with "
                            "something inside changed, one row of a table for each change asked "
                            "for; and several models, or the checkpoints "
                            "of one run, side by side. Writes inspect.json and the page "
                            "inspect.html. docs/inspect.md defines every number.";
static const char example[] =
    "  sluice inspect models/smollm2 --text book.txt --zero-massive --window 256 --sinks 0,4\n"
    "  sluice inspect baseline gated --text book.txt -o compare\n"
    "  sluice inspect run/checkpoints/* --text heldout.txt\n"
    "  sluice inspect models/gated --demo \"Sparse gating mechanism mitigates attention sink.\"";

int cmd_inspect(int argc, const char **argv) {
    options o = {.seq_len = UNSET, .windows = UNSET, .map_tokens = UNSET};
    struct poptOption table[] = {
        {"text", 't', POPT_ARG_STRING, &o.text, 0,
         "text to read (UTF-8): .txt, .jsonl, each also .gz or .zst, or a directory of them; - is "
         "standard input",
         "FILE"},
        {"text-column", '\0', POPT_ARG_STRING, &o.text_column, 0,
         "member of a .jsonl line that holds its text (default: text)", "KEY"},
        {"prompt", 'p', POPT_ARG_STRING, &o.prompt, 0, "the text itself", "TEXT"},
        {"ids", '\0', POPT_ARG_STRING, &o.ids, 0, "token ids as a JSON array, in place of a text",
         "FILE"},
        {"demo", '\0', POPT_ARG_STRING, &o.demo, 0,
         "the paper's picture: maps of four layers, mean over heads, of this text", "TEXT"},
        {"output", 'o', POPT_ARG_STRING, &o.output, 0,
         "directory of the results (default: inspect)", "DIR"},
        {"seq-len", '\0', POPT_ARG_LONGLONG, &o.seq_len, 0,
         "tokens of a window (default: 512, less for short texts)", "N"},
        {"windows", '\0', POPT_ARG_LONGLONG, &o.windows, 0, "most windows (default: 8)", "N"},
        {"bos", '\0', POPT_ARG_STRING, &o.bos, 0,
         "token in front of every window (default: auto, what the tokenizer or the "
         "model's own training puts there)",
         "auto|none|ID"},
        {"tokenizer", '\0', POPT_ARG_STRING, &o.tokenizer, 0,
         "tokenizer.json for all models (default: their own)", "PATH"},
        CLI_INSPECT_CHANGE_OPTIONS(&o.changes),
        {"positions", '\0', POPT_ARG_STRING, &o.positions, 0,
         "also the attention on these positions", "0,1,..."},
        {"tokens", '\0', POPT_ARG_STRING, &o.tokens, 0,
         "and on tokens made of these characters, for example \".,;\" for delimiters", "CHARS"},
        {"map-tokens", '\0', POPT_ARG_LONGLONG, &o.map_tokens, 0,
         "tokens of attention maps (default: up to 96, by size of the model; 0 = no maps)", "N"},
        {"light", '\0', POPT_ARG_NONE, &o.light, 0,
         "one pass: shares, norms, gates and the loss alone", NULL},
        {"no-weights", '\0', POPT_ARG_NONE, &o.no_weights, 0,
         "leave out what int8 would do to the weights", NULL},
        {"report", '\0', POPT_ARG_STRING, &o.report, 0,
         "draw DIR/inspect.html again from DIR/inspect.json", "DIR"},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_AUTOHELP POPT_TABLEEND};
    int code;
    poptContext ctx = cli_parse(argc, argv, table, "MODEL... [OPTIONS]", about, example, &code);
    if (!ctx) {
        cli_inspect_free(&o.changes);
        return code;
    }
    code = dispatch(&o, ctx);
    cli_finish(ctx, table);
    cli_inspect_free(&o.changes);
    return code;
}
