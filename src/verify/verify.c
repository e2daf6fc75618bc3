/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a whole directory and choosing what can be verified in it. */
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/gguf_model.h"
#include "sluice/tokenizer.h"
#include "verify/cases.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sluice_verify_params sluice_verify_params_default(void) { return (sluice_verify_params){.tolerance = -1}; }

void sluice_verify_report_free(sluice_verify_report *report) {
    sluice__free(report->items);
    *report = (sluice_verify_report){0};
}

static bool ends_with(const char *text, const char *ending) {
    size_t n = strlen(text), e = strlen(ending);
    return n >= e && !strcmp(text + n - e, ending);
}

static bool has_file(const char *dir, const char *name) {
    char *path = sluice__path_join(dir, name);
    bool there = path && sluice__is_file(path);
    sluice__free(path);
    return there;
}

static int is_checked_by_name(const struct dirent *entry) {
    return ends_with(entry->d_name, ".json") || ends_with(entry->d_name, ".safetensors");
}

static sluice_status check_file(const char *path, sluice_error *err) {
    if (!sluice__is_file(path)) return SLUICE_OK;
    if (ends_with(path, ".json")) {
        json_t *root;
        SLUICE__TRY(sluice__json_load(&root, path, err));
        json_decref(root);
        return SLUICE_OK;
    }
    sluice__safetensors *file;
    SLUICE__TRY(sluice__safetensors_open(&file, path, err));
    sluice__safetensors_close(file);
    return SLUICE_OK;
}

/* Files that neither model nor tokenizer asked for: well-formed at least. */
static sluice_status check_rest(const char *dir, sluice_error *err) {
    struct dirent **list = NULL;
    int n = scandir(dir, &list, is_checked_by_name, alphasort);
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < n; i++) {
        char *path = st == SLUICE_OK ? sluice__path_join(dir, list[i]->d_name) : NULL;
        if (path) st = check_file(path, err);
        sluice__free(path);
        free(list[i]);
    }
    free(list);
    return st;
}

/* Whether there is one: a GGUF file may say that it has none. */
static sluice_status has_tokenizer(bool *out, const char *path, sluice_error *err) {
    *out = has_file(path, "tokenizer.json");
    if (sluice__is_dir(path)) return SLUICE_OK;
    sluice__gguf *g;
    sluice__gguf_text kind = {0};
    SLUICE__TRY(sluice__gguf_open(&g, path, err));
    *out = sluice__gguf_string(sluice__gguf_find(g, "tokenizer.ggml.model"), &kind) &&
           (kind.size != 4 || memcmp(kind.data, "none", 4));
    sluice__gguf_close(g);
    return SLUICE_OK;
}

static sluice_status load_tokenizer(sluice_verify_report *out, const char *path, sluice_error *err) {
    bool there;
    SLUICE__TRY(has_tokenizer(&there, path, err));
    if (!there) return SLUICE_OK;
    sluice_tokenizer *tokenizer;
    SLUICE__TRY(sluice_tokenizer_load(&tokenizer, path, err));
    out->tokenizer_size = sluice_tokenizer_vocab_size(tokenizer);
    sluice_tokenizer_free(tokenizer);
    return SLUICE_OK;
}

static void describe(sluice_verify_report *out, const sluice_model *model) {
    const sluice_config *config = sluice_model_config(model);
    snprintf(out->model_type, sizeof out->model_type, "%s", config->model_type);
    out->num_hidden_layers = config->num_hidden_layers;
    out->vocab_size = config->vocab_size;
    out->num_parameters = sluice_config_num_parameters(config);
}

/* A model with NaN or infinity in it computes nothing that could be held against anything. */
static sluice_status check_weights(const sluice__verify_run *run, sluice_model *model) {
    sluice_model_check_finite(model);
    for (int i = 0; i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        if (t.nonfinite) SLUICE__TRY(sluice__report_problem(run, t.name, "NaN or infinite values in the file"));
    }
    return SLUICE_OK;
}

static bool is_training(const char *dir) {
    return has_file(dir, "batch.safetensors") && has_file(dir, "golden.json");
}

static sluice_status run_case(const sluice__verify_run *run, sluice_model *model) {
    if (!has_file(run->dir, "golden.safetensors")) return SLUICE_OK;
    bool training = is_training(run->dir);
    run->report->kind = training ? SLUICE_VERIFY_TRAINING : SLUICE_VERIFY_MODEL;
    return training ? sluice__verify_training(run, model) : sluice__verify_model(run, model);
}

/* "3 of 20 comparisons failed, first: hidden.1 (error 0.1, limit 0.0003)" */
static sluice_status verdict(const sluice_verify_report *report, sluice_error *err) {
    if (!report->num_failed) return SLUICE_OK;
    const sluice_verify_item *item = report->items;
    while (item->passed) item++;
    char why[192];
    if (*item->note) snprintf(why, sizeof why, "%s", item->note);
    else snprintf(why, sizeof why, "error %.3g, limit %.3g", item->error, item->limit);
    return sluice__fail(err, SLUICE_ERR_MISMATCH, "%d of %d comparisons failed, first: %s (%s)", report->num_failed,
                        report->num_items, item->name, why);
}

/* What stands in the way of comparing, before anything is loaded. */
static sluice_status check_paths(const char *path, const char *reference, sluice_error *err) {
    if (!sluice__is_dir(path) && !sluice__is_gguf(path))
        return sluice__fail(err, SLUICE_ERR_IO, "%s: neither a directory nor a GGUF file", path);
    if (!reference) return SLUICE_OK;
    if (!has_file(reference, "golden.safetensors"))
        return sluice__fail(err, SLUICE_ERR_IO, "%s: no golden.safetensors in it to compare with", reference);
    if (is_training(reference))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: a training case, which has its own weights: verify it alone", reference);
    return SLUICE_OK;
}

sluice_status sluice_verify(sluice_verify_report *out, const char *path, const sluice_verify_params *params,
                            sluice_error *err) {
    sluice_verify_params usual = sluice_verify_params_default();
    const sluice_verify_params *p = params ? params : &usual;
    *out = (sluice_verify_report){0};
    SLUICE__TRY(check_paths(path, p->reference, err));
    sluice__verify_run run = {p->reference ? p->reference : path, p, out, err};
    sluice_model *model;
    /* A record of these very weights holds what they give exactly, so they are computed with as fp32: products with BF16 weights as
     * stored round their inputs. A conversion that is held against a record of another directory is judged as it runs. */
    sluice_load_params load = sluice_load_params_default();
    if (p->reference || !has_file(run.dir, "golden.safetensors")) load.weights = SLUICE_LOAD_AS_STORED;
    SLUICE__TRY(sluice_model_load(&model, path, &load, err));
    describe(out, model);
    sluice_status st = load_tokenizer(out, path, err);
    if (st == SLUICE_OK && sluice__is_dir(path)) st = check_rest(path, err);
    if (st == SLUICE_OK) st = check_weights(&run, model);
    if (st == SLUICE_OK) st = run_case(&run, model);
    sluice_model_free(model);
    if (st != SLUICE_OK) {
        sluice_verify_report_free(out);
        return st;
    }
    return verdict(out, err);
}
