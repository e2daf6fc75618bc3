/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the section "extension". */
#include "study/extension.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

static const char *const keys[] = {"seq_len",       "rope_theta", "lengths", "length_tokens",
                                   "questions",     "training",   NULL};

static bool is_key(const char *key) {
    for (const char *const *k = keys; *k; k++)
        if (!strcmp(*k, key)) return true;
    return false;
}

sluice_status sluice__extension_check(const sluice__json *root, bool (*is_training_key)(const char *),
                                      sluice_error *err) {
    sluice__json at = sluice__json_get(root, "extension"), training;
    const char *key;
    json_t *value;
    if (!at.value) return SLUICE_OK;
    if (!json_is_object(at.value)) return sluice__json_fail(&at, NULL, err, "expected an object");
    json_object_foreach(at.value, key, value) {
        if (!is_key(key)) return sluice__json_fail(&at, key, err, "unknown key");
    }
    training = sluice__json_get(&at, "training");
    if (!training.value) return SLUICE_OK;
    if (!json_is_object(training.value)) return sluice__json_fail(&training, NULL, err, "expected an object");
    json_object_foreach(training.value, key, value) {
        if (!is_training_key(key)) return sluice__json_fail(&training, key, err, "unknown key");
    }
    return SLUICE_OK;
}

static void set_default(json_t *object, const char *key, json_t *value) {
    if (json_object_get(object, key)) json_decref(value);
    else json_object_set_new(object, key, value);
}

void sluice__extension_complete(json_t *recipe, const json_t *given) {
    if (!recipe || !given || json_is_null(given)) return;
    json_t *e = json_deep_copy(given);
    set_default(e, "rope_theta", json_real(1e6));
    set_default(e, "lengths", json_pack("[i, i, i, i]", 1, 2, 4, 8));
    set_default(e, "length_tokens", json_integer(65536));
    set_default(e, "questions", json_integer(256));
    set_default(e, "training", json_object());
    json_object_set_new(recipe, "extension", e);
}

sluice_status sluice__extension_read(sluice__extension *out, const sluice__json *root, sluice_error *err) {
    sluice__json at = sluice__json_get(root, "extension");
    *out = (sluice__extension){0};
    if (!at.value) return SLUICE_OK;
    out->on = true;
    SLUICE__TRY(sluice__json_int(&at, "seq_len", true, 2, 1 << 24, &out->seq_len, err));
    SLUICE__TRY(sluice__json_real(&at, "rope_theta", true, 1.000001, 1e15, &out->rope_theta, err));
    SLUICE__TRY(sluice__read_lengths(out->lengths, &out->num_lengths, &at, err));
    SLUICE__TRY(sluice__json_int(&at, "length_tokens", true, 1, INT64_C(1) << 40, &out->length_tokens, err));
    SLUICE__TRY(sluice__json_int(&at, "questions", true, 0, 1 << 20, &out->questions, err));
    out->training = json_object_get(at.value, "training");
    if (out->num_lengths) return SLUICE_OK;
    return sluice__json_fail(&at, "lengths", err, "expected at least one multiple of the training length");
}

sluice_status sluice__extension_params(sluice_train_params *out, const sluice__extension *extension,
                                       const sluice__arm *arm, int64_t seed, sluice_error *err) {
    sluice__arm longer = *arm;
    sluice_train_params before;
    SLUICE__TRY(sluice__arm_params(&before, arm, seed, err));
    if (extension->seq_len % before.seq_len)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "extension.seq_len: found %lld, expected a multiple of %lld",
                            (long long)extension->seq_len, (long long)before.seq_len);
    longer.training = json_deep_copy(arm->training);
    longer.data = json_deep_copy(arm->data);
    if (!longer.training || !longer.data) return sluice__no_memory(err, sizeof longer, "an arm");
    json_object_update(longer.training, extension->training);
    json_object_set_new(longer.data, "seq_len", json_integer(extension->seq_len));
    sluice_status st = sluice__arm_params(out, &longer, seed, err);
    json_decref(longer.training);
    json_decref(longer.data);
    return st == SLUICE_OK ? st : sluice__fail_in(err, st, "extension");
}
