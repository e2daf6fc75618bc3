/* SPDX-License-Identifier: Apache-2.0 */
/* sluice verify: recomputes a reference case and prints every error beside its limit. */
#include "cli/cli.h"
#include "sluice/verify.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double UNSET = -DBL_MAX; /* an option that was not given */
static const char *const kinds[] = {"loaded", "model", "training"};
static const char *const measures[] = {"max abs", "relative L2", "relative", "mismatches"};

static void print_item(const sluice_verify_item *item) {
    if (*item->note) {
        printf("%-58s %s  FAIL\n", item->name, item->note);
        return;
    }
    printf("%-58s %10.2e %10.2e %10.1e  %-11s %s\n", item->name, item->max_abs, item->error, item->limit,
           measures[item->measure], item->passed ? "ok" : "FAIL");
}

static void print_report(const sluice_verify_report *r, const char *dir, int quiet) {
    if (!quiet) {
        printf("%s: %s, %d layers, %lld parameters, vocabulary %d", dir, *r->model_type ? r->model_type : "own format",
               r->num_hidden_layers, (long long)r->num_parameters, r->vocab_size);
        if (r->tokenizer_size) printf(", tokenizer with %d ids", r->tokenizer_size);
        printf("\n");
        if (r->num_items) printf("%-58s %10s %10s %10s  %s\n", "", "max abs", "error", "limit", "measure");
        for (int i = 0; i < r->num_items; i++) print_item(&r->items[i]);
    }
    if (r->kind == SLUICE_VERIFY_LOADED && r->num_failed)
        printf("%d tensor%s with NaN or infinite values\n", r->num_failed, r->num_failed == 1 ? "" : "s");
    else if (r->kind == SLUICE_VERIFY_LOADED)
        printf("loaded; there is no golden.safetensors to compare with (--reference DIR names a directory that has one)\n");
    else printf("%d compared, %d failed\n", r->num_items, r->num_failed);
}

/* A number, or a string where JSON has none. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "nan" : "inf"); }

static json_t *item_json(const sluice_verify_item *item) {
    json_t *j = json_object();
    json_object_set_new(j, "name", json_string(item->name));
    json_object_set_new(j, "passed", json_boolean(item->passed));
    if (*item->note) {
        json_object_set_new(j, "note", json_string(item->note));
        return j;
    }
    json_object_set_new(j, "measure", json_string(measures[item->measure]));
    json_object_set_new(j, "error", number(item->error));
    json_object_set_new(j, "limit", number(item->limit));
    json_object_set_new(j, "max_abs", number(item->max_abs));
    return j;
}

static void print_json(const sluice_verify_report *r, const char *dir) {
    json_t *root = json_object(), *items = json_array();
    json_object_set_new(root, "directory", json_string(dir));
    json_object_set_new(root, "kind", json_string(kinds[r->kind]));
    json_object_set_new(root, "model_type", json_string(r->model_type));
    json_object_set_new(root, "num_hidden_layers", json_integer(r->num_hidden_layers));
    json_object_set_new(root, "num_parameters", json_integer(r->num_parameters));
    json_object_set_new(root, "vocab_size", json_integer(r->vocab_size));
    json_object_set_new(root, "tokenizer_size", json_integer(r->tokenizer_size));
    json_object_set_new(root, "compared", json_integer(r->num_items));
    json_object_set_new(root, "failed", json_integer(r->num_failed));
    for (int i = 0; i < r->num_items; i++) json_array_append_new(items, item_json(&r->items[i]));
    json_object_set_new(root, "comparisons", items);
    json_dumpf(root, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(root);
}

static int verify(const char *dir, const sluice_verify_params *params, const cli_common *common) {
    sluice_verify_report report;
    sluice_error err = {0};
    sluice_status st = sluice_verify(&report, dir, params, &err);
    bool compared = st == SLUICE_OK || st == SLUICE_ERR_MISMATCH;
    if (compared && common->json) print_json(&report, dir);
    else if (compared) print_report(&report, dir, common->quiet);
    int code = st == SLUICE_OK ? CLI_OK : cli_fail("verify", &err);
    bool idle = params->dump_path || params->tolerance >= 0;
    if (st == SLUICE_OK && report.kind == SLUICE_VERIFY_LOADED && idle)
        code = cli_usage("verify", "%s has no effect: nothing was compared", params->dump_path ? "--dump" : "--tolerance");
    else if (compared && params->dump_path && !common->quiet && !common->json)
        printf("written: %s\n", params->dump_path);
    sluice_verify_report_free(&report);
    return code;
}

int cmd_verify(int argc, const char **argv) {
    cli_common common = {0};
    sluice_verify_params params = sluice_verify_params_default();
    double tolerance = UNSET;
    char *dump_path = NULL, *reference = NULL;
    struct poptOption table[] = {{"tolerance", '\0', POPT_ARG_DOUBLE, &tolerance, 0,
                                  "largest error that passes; 0: equal bits alone (default: 3e-4 for models; for training 5e-5 on "
                                  "logits, 1e-5 on the loss, 3e-5 on "
                                  "gradients, 1e-3 on final tensors)",
                                  "X"},
                                 {"reference", 'r', POPT_ARG_STRING, &reference, 0,
                                  "directory with the recorded results, for a model that is stored elsewhere: a GGUF file, a "
                                  "converted directory (default: the model's own)",
                                  "DIR"},
                                 {"dump", '\0', POPT_ARG_STRING, &dump_path, 0,
                                  "write what was computed as safetensors, under the golden's names", "FILE"},
                                 CLI_COMMON_OPTIONS(&common),
                                 POPT_TABLEEND};
    int code;
    poptContext ctx = cli_parse(
        argc, argv, table, "DIR|FILE.gguf [OPTIONS]",
        "Loads every file of a model directory, or a GGUF file, and, where there are recorded results "
        "(golden.safetensors, in the directory or in that of --reference), "
        "computes them again: one pass over the prompt, the same prompt through the cache in several "
        "splits, greedy decoding; or, for a training case, loss, gradients and optimiser steps. Exit "
        "status 1 when anything is past its limit or a file is damaged.",
        "  sluice verify models/qwen3 --dump got.safetensors\n"
        "  sluice verify qwen3.gguf --reference models/qwen3", &code);
    if (!ctx) return code;
    const char *dir = poptGetArg(ctx);
    if (!dir || poptPeekArg(ctx)) code = cli_usage("verify", "expected one directory or GGUF file");
    else if (tolerance != UNSET && (!(tolerance >= 0) || isinf(tolerance)))
        code = cli_usage("verify", "--tolerance: found %g, expected a number of at least 0", tolerance);
    else if ((code = cli_start(&common)) == CLI_OK) {
        params.tolerance = tolerance;
        params.dump_path = dump_path;
        params.reference = reference;
        code = verify(dir, &params, &common);
    }
    cli_finish(ctx, table);
    return code;
}
