/* SPDX-License-Identifier: Apache-2.0 */
/* sluice info: what a model directory, a configuration or a weight file holds; without a path, what the program
 * runs on. */
#include "cli/cli.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/info.h"
#include "cli/model_options.h"
#include "sluice/train.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const long long UNSET = LLONG_MIN; /* an option that was not given */

typedef struct options {
    cli_common common;
    char *config;
    char *model; /* model options as JSON, or NULL */
    long long context;
    int tensors, check_finite, variants;
} options;

static const char about[] =
    "Without PATH: version, CPU, threads, memory, and the version of every kernel in use. PATH may be a model "
    "directory, a\n"
    "config.json, or a .gguf, .safetensors or pytorch_model.bin file. Of a model it prints family, sizes, kinds of "
    "layers, the form of\n"
    "the gate and where it is stored, parameters, work and memory, element types, and what keeps it from "
    "running here, if\n"
    "anything does. Files are only looked at; the weights are read with --check-finite alone.\n"
    "Instead of PATH, or over --config, model options may stand: those of `sluice train --help`\n"
    "(--hidden-size 512 --gate-position sdpa). --variants adds what every row of the paper's tables would cost.";
static const char example[] =
    "  sluice info run/model --context 8192\n  sluice info --config config.json --json\n"
    "  sluice info --config examples/15A2B.json --variants\n"
    "  sluice info --vocab-size 50304 --hidden-size 768 --num-hidden-layers 12 --num-attention-heads 12\n  sluice info";

static bool ends_with(const char *text, const char *tail) {
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && !strcasecmp(text + n - m, tail);
}

static int print(json_t *report, bool json) {
    int failed = 0;
    if (json) {
        failed = json_dumpf(report, stdout, JSON_INDENT(2)) != 0 || printf("\n") < 0;
    } else {
        if (json_object_get(report, "path")) printf("%s\n", json_string_value(json_object_get(report, "path")));
        const char *reason = json_string_value(json_object_get(report, "reason"));
        if (reason) printf("  %-18s%s\n", "not supported", reason);
        if (json_object_get(report, "config")) info_print_config(json_object_get(report, "config"));
        if (json_object_get(report, "variants")) info_print_variants(json_object_get(report, "variants"));
        if (json_object_get(report, "weights")) info_print_weights(json_object_get(report, "weights"));
        const json_t *bad = json_object_get(report, "nonfinite_tensors");
        if (bad && !json_array_size(bad)) printf("  %-18sall weights are finite\n", "check");
        for (size_t i = 0; i < json_array_size(bad); i++)
            printf("  %-18s%s has NaN or infinite values\n", "check",
                   json_string_value(json_array_get(bad, i)));
    }
    failed |= json_array_size(json_object_get(report, "nonfinite_tensors")) > 0;
    json_decref(report);
    return failed ? CLI_FAILED : CLI_OK;
}

/* The file, with options over it, or options alone. */
static sluice_status read_config(sluice_config *config, const char *path, const options *o, sluice_error *err) {
    if (!o->model) return sluice_config_load(config, path, err);
    sluice_train_params p = sluice_train_params_default();
    sluice_status st = path ? sluice_train_params_set(&p, "config_name", path, err) : SLUICE_OK;
    return st == SLUICE_OK ? sluice_train_model_config(config, NULL, &p, o->model, 0, err) : st;
}

/* A configuration that this version cannot compute is reported as such; one that is wrong is an error. */
static sluice_status add_config(json_t *report, const char *path, const options *o, sluice_error *err) {
    sluice_config config;
    sluice_status st = read_config(&config, path, o, err);
    json_object_set_new(report, "supported", json_boolean(st == SLUICE_OK));
    if (st == SLUICE_ERR_UNSUPPORTED) {
        json_object_set_new(report, "reason", json_string(err->message));
        return SLUICE_OK;
    }
    if (st != SLUICE_OK) return st;
    json_object_set_new(report, "config", info_config(&config, o->context));
    if (o->variants) json_object_set_new(report, "variants", info_variants(&config, o->context));
    sluice_config_free(&config);
    return SLUICE_OK;
}

static sluice_status add_weights(json_t *report, const char *path, const options *o, sluice_error *err) {
    sluice_weight_files *files;
    sluice_status st = sluice_weight_files_open(&files, path, err);
    if (st != SLUICE_OK) return st;
    json_object_set_new(report, "weights", info_weights(files, o->tensors));
    sluice_weight_files_close(files);
    return SLUICE_OK;
}

static sluice_status add_check(json_t *report, const char *path, sluice_error *err) {
    sluice_model *model;
    sluice_load_params load = sluice_load_params_default();
    load.weights = SLUICE_LOAD_AS_STORED;
    sluice_status st = sluice_model_load(&model, path, &load, err);
    if (st != SLUICE_OK) return st;
    sluice_model_check_finite(model);
    json_object_set_new(report, "nonfinite_tensors", info_nonfinite(model));
    sluice_model_free(model);
    return SLUICE_OK;
}

/* The tensors of a GGUF file can be listed whether or not its metadata describes a model that we know. */
static sluice_status describe_gguf(json_t *report, const char *path, const options *o, sluice_error *err) {
    sluice_error reason = {0};
    sluice_status st = add_weights(report, path, o, err);
    if (st != SLUICE_OK) return st;
    if (add_config(report, path, o, &reason) != SLUICE_OK)
        json_object_set_new(report, "reason", json_string(reason.message));
    if (o->check_finite && json_is_true(json_object_get(report, "supported"))) st = add_check(report, path, err);
    return st;
}

static void give_reason(json_t *report, const sluice_error *why) {
    json_object_set_new(report, "supported", json_false());
    json_object_set_new(report, "reason", json_string(why->message));
}

/* Bytes of the weight files to the costs of the configuration. */
static void add_stored_bytes(json_t *report) {
    json_t *config = json_object_get(report, "config"), *weights = json_object_get(report, "weights");
    if (config && weights) json_object_set(config, "stored_bytes", json_object_get(weights, "bytes"));
}

/* A directory always gets its page; what keeps it from running is one line of that. */
static sluice_status describe_dir(json_t *report, const char *path, const options *o, sluice_error *err) {
    sluice_error why = {0};
    char *config = sluice__path_join(path, "config.json");
    if (!config) return sluice__no_memory(err, strlen(path), "a path");
    sluice_status read = add_config(report, config, o, &why);
    sluice__free(config);
    if (read != SLUICE_OK) give_reason(report, &why);
    bool runs = read == SLUICE_OK && json_is_true(json_object_get(report, "supported"));
    sluice_status st = add_weights(report, path, o, &why);
    if (st == SLUICE_OK && runs) st = sluice_model_check(path, &why);
    if (runs && st != SLUICE_OK) give_reason(report, &why);
    add_stored_bytes(report);
    return o->check_finite && runs && st == SLUICE_OK ? add_check(report, path, err) : SLUICE_OK;
}

static sluice_status not_a_model(sluice_error *err, const char *path, const char *what) {
    *err = (sluice_error){.code = SLUICE_ERR_ARGUMENT};
    snprintf(err->message, sizeof err->message, "%s: %s", path, what);
    return err->code;
}

/* JSON files that are no configuration of a model but look enough like one to be described as one. */
static sluice_status check_json(const char *path, sluice_error *err) {
    json_t *root = sluice__is_file(path) ? json_load_file(path, JSON_ALLOW_NUL, NULL) : NULL;
    const char *format = json_string_value(json_object_get(root, "format"));
    bool run = format && !strncmp(format, "sluice-", strlen("sluice-")), tokenizer = json_object_get(root, "added_tokens") != NULL;
    json_decref(root);
    if (run) return not_a_model(err, path, "belongs to a run or a study; the model is in the folder model beside it, or in one of checkpoints");
    if (tokenizer) return not_a_model(err, path, "a tokenizer; `sluice tokenize info` describes it");
    return SLUICE_OK;
}

static sluice_status describe_file(json_t *report, const char *path, const options *o, sluice_error *err) {
    static const char *const kinds[] = {".safetensors", ".bin", ".pt", ".pth"};
    if (ends_with(path, ".gguf")) return describe_gguf(report, path, o, err);
    if (ends_with(path, ".json")) {
        sluice_status st = check_json(path, err);
        return st == SLUICE_OK ? add_config(report, path, o, err) : st;
    }
    sluice_status st = add_weights(report, path, o, err);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (st == SLUICE_OK || !sluice__is_file(path) || ends_with(path, kinds[i])) return st;
    return not_a_model(err, path, "expected a model directory, a config.json, or a .gguf, .safetensors or pytorch_model.bin file");
}

static sluice_status describe(json_t *report, const char *path, const options *o, sluice_error *err) {
    if (!sluice__is_dir(path)) return describe_file(report, path, o, err);
    char *config = sluice__path_join(path, "config.json");
    sluice_status st = config ? check_json(config, err) : sluice__no_memory(err, strlen(path), "a path");
    sluice__free(config);
    return st == SLUICE_OK ? describe_dir(report, path, o, err) : st;
}

static int run(const options *o, const char *path) {
    sluice_error err = {0};
    if (!path && !o->config && !o->model) {
        json_t *machine = info_machine();
        if (o->common.json) return print(machine, true);
        info_print_machine(machine);
        json_decref(machine);
        return CLI_OK;
    }
    json_t *report = json_object();
    if (path || o->config) json_object_set_new(report, "path", json_string(path ? path : o->config));
    sluice_status st = path ? describe(report, path, o, &err) : add_config(report, o->config, o, &err);
    if (st == SLUICE_OK) return print(report, o->common.json);
    json_decref(report);
    return cli_fail("info", &err);
}

static int parse(options *o, int argc, const char **argv) {
    struct poptOption table[] = {
        {"config", '\0', POPT_ARG_STRING, &o->config, 0, "describe this config.json alone", "FILE"},
        {"context", '\0', POPT_ARG_LONGLONG, &o->context, 0,
         "tokens for memory and work (default: the model's positions, at most 4096)", "N"},
        {"variants", '\0', POPT_ARG_NONE, &o->variants, 0,
         "counts, work and memory of every variant of the paper on top of this model", NULL},
        {"tensors", '\0', POPT_ARG_NONE, &o->tensors, 0, "list every tensor", NULL},
        {"check-finite", '\0', POPT_ARG_NONE, &o->check_finite, 0,
         "load the weights and name tensors with NaN or infinite values; exit status 1 when there are any", NULL},
        CLI_COMMON_OPTIONS(&o->common),
        POPT_TABLEEND};
    int code;
    poptContext ctx = cli_parse(argc, argv, table, "[PATH] [OPTIONS]", about, example, &code);
    if (!ctx) return code;
    const char *path = poptGetArg(ctx);
    if (poptPeekArg(ctx))
        code = cli_usage("info", "one PATH at most");
    else if (path && o->config)
        code = cli_usage("info", "give PATH or --config, not both");
    else if (o->context != UNSET && (o->context < 1 || o->context > 1 << 30))
        code = cli_usage("info", "--context: found %lld, expected 1..%d", o->context, 1 << 30);
    else if (o->model && path)
        code = cli_usage("info", "model options stand over --config or alone, not over PATH");
    else if (o->variants && !path && !o->config && !o->model)
        code = cli_usage("info", "--variants needs PATH, --config or model options");
    else if (o->check_finite && !path)
        code = cli_usage("info", "--check-finite needs the PATH of a model directory");
    else {
        cli_common quiet = o->common;
        quiet.quiet = 1; /* nothing is computed: no line about the machine */
        if (o->context == UNSET) o->context = 0;
        code = cli_start(&quiet);
        if (code == CLI_OK) code = run(o, path);
    }
    free(o->config);
    free(o->common.cpu);
    poptFreeContext(ctx);
    return code;
}

int cmd_info(int argc, const char **argv) {
    options o = {.context = UNSET};
    sluice_error err = {0};
    const char **args = sluice__calloc((size_t)argc + 1, sizeof *args, SLUICE__MEM_OTHER);
    if (!args) return CLI_FAILED;
    memcpy(args, argv, (size_t)argc * sizeof *args);
    int code = cli_take_model_options(&argc, args, &o.model, &err) == SLUICE_OK ? CLI_OK
                                                                                : cli_usage("info", "%s", err.message);
    args[argc] = NULL;
    if (code == CLI_OK) code = parse(&o, argc, args);
    sluice_train_free_text(o.model);
    sluice__free((void *)args);
    return code;
}
