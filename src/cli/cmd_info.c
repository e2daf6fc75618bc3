/* SPDX-License-Identifier: Apache-2.0 */
/* sluice info: what a model directory, a configuration or a weight file holds; without a path, what the program
 * runs on. */
#include "cli/cli.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/info.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    cli_common common;
    char *config;
    long long context;
    int tensors, check_finite;
} options;

static const char about[] =
    "Without PATH: version, CPU, threads, memory, and the version of every kernel in use. PATH may be a model "
    "directory, a\n"
    "config.json, or a .gguf, .safetensors or pytorch_model.bin file. Of a model it prints family, sizes, kinds of "
    "layers, the form of\n"
    "the gate and where it is stored, parameters, work and memory, element types, and what keeps it from "
    "running here, if\n"
    "anything does. Files are only looked at; the weights are read with --check-finite alone.";
static const char example[] =
    "  sluice info out/quick/headwise --context 8192\n  sluice info --config config.json --json\n  sluice info";

static bool ends_with(const char *text, const char *tail) {
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && !strcmp(text + n - m, tail);
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
        if (json_object_get(report, "weights")) info_print_weights(json_object_get(report, "weights"));
        const json_t *bad = json_object_get(report, "nonfinite_tensors");
        if (bad && !json_array_size(bad)) printf("  %-18sall weights are finite\n", "check");
        for (size_t i = 0; i < json_array_size(bad); i++)
            printf("  %-18s%s has NaN or infinite values\n", "check",
                   json_string_value(json_array_get(bad, i)));
    }
    json_decref(report);
    return failed ? CLI_FAILED : CLI_OK;
}

/* A configuration that this version cannot compute is reported as such; one that is wrong is an error. */
static sluice_status add_config(json_t *report, const char *path, const options *o, sluice_error *err) {
    sluice_config config;
    sluice_status st = sluice_config_load(&config, path, err);
    json_object_set_new(report, "supported", json_boolean(st == SLUICE_OK));
    if (st == SLUICE_ERR_UNSUPPORTED) {
        json_object_set_new(report, "reason", json_string(err->message));
        return SLUICE_OK;
    }
    if (st != SLUICE_OK) return st;
    json_object_set_new(report, "config", info_config(&config, o->context));
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

static sluice_status describe(json_t *report, const char *path, const options *o, sluice_error *err) {
    if (ends_with(path, ".gguf")) return describe_gguf(report, path, o, err);
    if (!sluice__is_dir(path)) {
        if (ends_with(path, ".json")) return add_config(report, path, o, err);
        return add_weights(report, path, o, err);
    }
    char *config = sluice__path_join(path, "config.json");
    if (!config) return sluice__no_memory(err, strlen(path), "a path");
    sluice_status st = add_config(report, config, o, err);
    sluice__free(config);
    if (st == SLUICE_OK) st = add_weights(report, path, o, err);
    if (st == SLUICE_OK && o->check_finite && json_is_true(json_object_get(report, "supported")))
        st = add_check(report, path, err);
    return st;
}

static int run(const options *o, const char *path) {
    sluice_error err = {0};
    if (!path && !o->config) {
        json_t *machine = info_machine();
        if (o->common.json) return print(machine, true);
        info_print_machine(machine);
        json_decref(machine);
        return CLI_OK;
    }
    json_t *report = json_object();
    json_object_set_new(report, "path", json_string(path ? path : o->config));
    sluice_status st = path ? describe(report, path, o, &err) : add_config(report, o->config, o, &err);
    if (st == SLUICE_OK) return print(report, o->common.json);
    json_decref(report);
    return cli_fail("info", &err);
}

int cmd_info(int argc, const char **argv) {
    options o = {0};
    struct poptOption table[] = {
        {"config", '\0', POPT_ARG_STRING, &o.config, 0, "describe this config.json alone", "FILE"},
        {"context", '\0', POPT_ARG_LONGLONG, &o.context, 0,
         "tokens for memory and work (default: the model's positions, at most 4096)", "N"},
        {"tensors", '\0', POPT_ARG_NONE, &o.tensors, 0, "list every tensor", NULL},
        {"check-finite", '\0', POPT_ARG_NONE, &o.check_finite, 0,
         "load the weights and name tensors with NaN or infinite values", NULL},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_TABLEEND};
    int code;
    poptContext ctx = cli_parse(argc, argv, table, "[PATH] [OPTIONS]", about, example, &code);
    if (!ctx) return code;
    const char *path = poptGetArg(ctx);
    if (poptPeekArg(ctx))
        code = cli_usage("info", "one PATH at most");
    else if (path && o.config)
        code = cli_usage("info", "give PATH or --config, not both");
    else if (o.context < 0 || o.context > 1 << 30)
        code = cli_usage("info", "--context: found %lld, expected 1..%d", o.context, 1 << 30);
    else if (o.check_finite && !path)
        code = cli_usage("info", "--check-finite needs the PATH of a model directory");
    else {
        cli_common quiet = o.common;
        quiet.quiet = 1; /* nothing is computed: no line about the machine */
        code = cli_start(&quiet);
        if (code == CLI_OK) code = run(&o, path);
    }
    free(o.config);
    free(o.common.cpu);
    poptFreeContext(ctx);
    return code;
}
