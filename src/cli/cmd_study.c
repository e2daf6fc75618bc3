/* SPDX-License-Identifier: Apache-2.0 */
/* sluice study: trains the arms of a recipe side by side and writes a report. */
#include "cli/cli.h"
#include "base/progress.h"
#include "sluice/study.h"
#include <math.h>
#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const long long UNSET = LLONG_MIN; /* an option that was not given */

typedef struct options {
    cli_common common;
    sluice_study_params params;
    char *recipe, *scale, *output, *seeds, *arms, *parallel, *show, *report;
    char **texts;
    long long max_steps;
    int overwrite, list;
} options;

/* ---- recipes ---- */

static int list_recipes(void) {
    const char *name;
    for (int i = 0; (name = sluice_study_recipe_name(i)); i++) {
        json_t *recipe = json_loads(sluice_study_recipe_text(name), 0, NULL);
        const char *title = json_string_value(json_object_get(recipe, "title")), *scale;
        json_t *scales = json_object_get(recipe, "scales"), *value;
        printf("%-14s %s%s\n", name, title ? title : "", i ? "" : " (default)");
        if (scales) printf("%-14s scales: normal", "");
        json_object_foreach(scales, scale, value) if (strcmp(scale, "normal")) printf(" %s", scale);
        if (scales) printf("\n");
        json_decref(recipe);
    }
    return CLI_OK;
}

static int list_recipes_as_json(void) {
    json_t *list = json_array();
    const char *name, *scale;
    for (int i = 0; (name = sluice_study_recipe_name(i)); i++) {
        json_t *recipe = json_loads(sluice_study_recipe_text(name), 0, NULL), *value;
        const char *title = json_string_value(json_object_get(recipe, "title"));
        json_t *scales = json_pack("[s]", "normal");
        json_object_foreach(json_object_get(recipe, "scales"), scale, value)
            if (strcmp(scale, "normal")) json_array_append_new(scales, json_string(scale));
        json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:o}", "name", name, "title", title ? title : "", "default",
                                              i == 0, "scales", scales));
        json_decref(recipe);
    }
    int bad = json_dumpf(list, stdout, JSON_INDENT(2)) != 0 || putchar('\n') == EOF;
    json_decref(list);
    return bad ? CLI_FAILED : CLI_OK;
}

static int show_recipe(const char *name) {
    const char *text = sluice_study_recipe_text(name);
    if (!text) return cli_usage("study", "--show-recipe: unknown recipe \"%s\"; --list-recipes lists them", name);
    fputs(text, stdout);
    return CLI_OK;
}

/* ---- the end ---- */

static void put_spread(char out[40], double mean, double sd, int digits) {
    if (!isfinite(mean))
        snprintf(out, 40, "-");
    else if (isfinite(sd))
        snprintf(out, 40, "%.*f ± %.*f", digits, mean, digits, sd);
    else
        snprintf(out, 40, "%.*f", digits, mean);
}

/* Columns count characters, and "±" is two bytes. */
static void cell(const char *text, int width) {
    int length = 0;
    for (const char *c = text; *c; c++) length += (*c & 0xc0) != 0x80;
    printf("  %s%*s", text, width > length ? width - length : 0, "");
}

static void print_arm(const sluice_study_arm *a) {
    char loss[40], share[40], gate[40], m_act[40], count[32], time[32], runs[16];
    put_spread(loss, a->loss, a->loss_sd, 3);
    put_spread(share, a->first_share, a->first_share_sd, 3);
    put_spread(gate, a->gate_mean, NAN, 3);
    put_spread(m_act, a->m_act, NAN, 2);
    snprintf(runs, sizeof runs, "%d/%d", a->measured, a->runs);
    printf("%-38.38s", a->label);
    cell(runs, 5);
    cell(sluice__format_count(count, (double)a->parameters), 10);
    cell(loss, 15);
    cell(share, 17);
    cell(gate, 9);
    cell(m_act, 7);
    printf("  %s\n", isfinite(a->seconds) ? sluice__format_seconds(time, a->seconds) : "-");
}

static void print_table(const sluice_study_summary *s) {
    printf("%s\n\n%-38s  %-5s  %-10s  %-15s  %-17s  %-9s  %-7s  %s\n", s->title, "arm", "runs", "parameters", "loss",
           "first-token share", "gate mean", "M-Act", "time a run");
    for (int i = 0; i < s->num_arms; i++) print_arm(&s->arms[i]);
    if (s->num_arms) printf("\nUniform attention gives a first-token share of %.3f.", s->arms[0].uniform_share);
    if (s->failed) printf(" %d of %d runs diverged or failed.", s->failed, s->runs);
    printf("\nresults: %s\nreport: %s\n", s->results, s->report);
}

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static void print_json(const sluice_study_summary *s) {
    json_t *arms = json_array();
    for (int i = 0; i < s->num_arms; i++) {
        const sluice_study_arm *a = &s->arms[i];
        json_array_append_new(
            arms, json_pack("{s:s, s:s, s:I, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", a->name,
                            "label", a->label, "parameters", (json_int_t)a->parameters, "runs", a->runs, "measured",
                            a->measured, "loss", number(a->loss), "loss_sd", number(a->loss_sd), "first_token_share",
                            number(a->first_share), "first_token_share_sd", number(a->first_share_sd), "uniform_share",
                            number(a->uniform_share), "gate_mean", number(a->gate_mean), "m_act_mean", number(a->m_act),
                            "seconds", number(a->seconds)));
    }
    json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:f, s:i, s:i, s:o}", "title", s->title, "output_dir", s->output_dir,
                             "results", s->results, "report", s->report, "seconds", s->seconds, "runs", s->runs,
                             "failed", s->failed, "arms", arms);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(root);
}

static int redraw(const char *dir) {
    sluice_error err = {0};
    if (sluice_study_report(dir, &err) != SLUICE_OK) return cli_fail("study", &err);
    printf("%s/report.html\n", dir);
    return CLI_OK;
}

static int run(options *o) {
    sluice_study_summary summary;
    sluice_error err = {0};
    int code = cli_start(&o->common);
    if (code != CLI_OK) return code;
    cli_watch_signals();
    sluice_status st = sluice_study_run(&summary, &o->params, &err);
    if (st == SLUICE_INTERRUPTED) {
        fprintf(stderr, "sluice study: interrupted; the same command continues in %s\n", summary.output_dir);
        return cli_stop_code();
    }
    if (st != SLUICE_OK) return cli_fail("study", &err);
    if (o->common.json)
        print_json(&summary);
    else
        print_table(&summary);
    return CLI_OK;
}

/* Files given with --text, and words behind them: `--text a.txt b.txt`. */
static int collect_texts(options *o, poptContext ctx, const char **texts, int most) {
    int n = 0;
    for (char **t = o->texts; t && *t; t++) {
        if (n == most) return cli_usage("study", "--text: more than %d files; give a directory", most);
        texts[n++] = *t;
    }
    const char *word;
    while ((word = poptGetArg(ctx))) {
        if (!o->texts) return cli_usage("study", "unexpected argument \"%s\" (texts are given with --text)", word);
        if (n == most) return cli_usage("study", "--text: more than %d files; give a directory", most);
        texts[n++] = word;
    }
    o->params.texts = texts;
    o->params.num_texts = n;
    return CLI_OK;
}

static bool parse_parallel(options *o) {
    if (!o->parallel || !strcmp(o->parallel, "auto")) return true;
    char *end;
    long n = strtol(o->parallel, &end, 10);
    o->params.parallel_arms = n > 0 && n <= 1024 ? (int)n : 0;
    return end != o->parallel && !*end && n > 0 && n <= 1024;
}

static int dispatch(options *o, poptContext ctx) {
    const char *texts[256];
    if (o->list) return o->common.json ? list_recipes_as_json() : list_recipes();
    if (o->show) return show_recipe(o->show);
    if (o->report) return redraw(o->report);
    int code = collect_texts(o, ctx, texts, 256);
    if (code != CLI_OK) return code;
    if (o->max_steps != UNSET && o->max_steps < 1)
        return cli_usage("study", "--max-steps: found %lld, expected at least 1", o->max_steps);
    if (!parse_parallel(o))
        return cli_usage("study", "--parallel-arms: found \"%s\", expected 1..1024 or auto", o->parallel);
    if (o->recipe) o->params.recipe = o->recipe;
    o->params.scale = o->scale;
    o->params.output_dir = o->output;
    o->params.seeds = o->seeds;
    o->params.arms = o->arms;
    o->params.max_steps = o->max_steps == UNSET ? 0 : o->max_steps;
    o->params.overwrite = o->overwrite;
    o->params.stop_requested = cli_stop_requested;
    return run(o);
}

static void free_options(options *o) {
    free(o->recipe);
    free(o->scale);
    free(o->output);
    free(o->seeds);
    free(o->arms);
    free(o->parallel);
    free(o->show);
    free(o->report);
    free(o->common.cpu);
    for (char **t = o->texts; t && *t; t++) free(*t);
    free((void *)o->texts);
}

int cmd_study(int argc, const char **argv) {
    options o = {.params = sluice_study_params_default(), .max_steps = UNSET};
    struct poptOption table[] = {
        {"recipe", 'r', POPT_ARG_STRING, &o.recipe, 0, "built-in recipe or a JSON file (default: quick)", "NAME|FILE"},
        {"scale", '\0', POPT_ARG_STRING, &o.scale, 0,
         "size of the study, of those that the recipe has: smallest, normal, large (default: normal)", "NAME"},
        {"text", 't', POPT_ARG_ARGV, &o.texts, 0,
         "text to train on: .txt, .jsonl, each also .gz or .zst, or directories of them; may be repeated (default: the "
         "King "
         "James Bible)",
         "FILE"},
        {"output", 'o', POPT_ARG_STRING, &o.output, 0, "directory of the results (default: study-RECIPE, with another scale study-RECIPE-SCALE)", "DIR"},
        {"seeds", '\0', POPT_ARG_STRING, &o.seeds, 0, "seeds, with commas (default: the recipe's)", "1,2,3"},
        {"arms", '\0', POPT_ARG_STRING, &o.arms, 0, "arms, with commas (default: all)", "A,B"},
        {"max-steps", '\0', POPT_ARG_LONGLONG, &o.max_steps, 0, "updates per run (default: the recipe's)", "N"},
        {"parallel-arms", '\0', POPT_ARG_STRING, &o.parallel, 0,
         "runs at the same time (default: auto, one per thread while models are small, else one)", "N|auto"},
        {"overwrite", '\0', POPT_ARG_NONE, &o.overwrite, 0, "remove an earlier study in the output directory", NULL},
        {"list-recipes", '\0', POPT_ARG_NONE, &o.list, 0, "list the built-in recipes", NULL},
        {"show-recipe", '\0', POPT_ARG_STRING, &o.show, 0, "print a built-in recipe, to be changed and given as a file",
         "NAME"},
        {"report", '\0', POPT_ARG_STRING, &o.report, 0, "draw DIR/report.html again from DIR/results.json", "DIR"},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_AUTOHELP POPT_TABLEEND};
    int code;
    poptContext ctx = cli_parse(
        argc, argv, table, "[OPTIONS]",
        "Trains every arm of a recipe (by default: a model without a gate, one with a headwise and one "
        "with an elementwise gate on the attention output) on the same text in the same order, measures "
        "them on held-out text, and writes results.json, results.csv, report.html and the models. An "
        "interrupted study continues when the same command is given again.",
        "  sluice study\n  sluice study --recipe sink --text book.txt --seeds 1,2,3 --output my-study", &code);
    if (ctx) {
        code = dispatch(&o, ctx);
        poptFreeContext(ctx);
    }
    free_options(&o);
    return code;
}
