/* SPDX-License-Identifier: Apache-2.0 */
/* generation_config.json of a model directory. Keys that this program does not act on are left alone, as they are in
 * transformers when a caller overrides them; keys that it acts on are checked. */
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "sluice/session.h"
#include <math.h>

/* An id or a list of ids. */
static sluice_status read_eos(const sluice__json *root, int vocab, sluice_generation_config *out, sluice_error *err) {
    sluice__json eos = sluice__json_get(root, "eos_token_id");
    if (!eos.value) return SLUICE_OK;
    out->num_eos = 0;
    bool list = json_is_array(eos.value);
    size_t n = list ? json_array_size(eos.value) : 1;
    if (n > SLUICE_MAX_EOS)
        return sluice__json_fail(&eos, NULL, err, "found %zu ids, expected at most %d", n, SLUICE_MAX_EOS);
    for (size_t i = 0; i < n; i++) {
        sluice__json item = list ? sluice__json_at(&eos, i) : eos;
        if (!json_is_integer(item.value)) return sluice__json_fail(&item, NULL, err, "expected a token id");
        json_int_t id = json_integer_value(item.value);
        if (id < 0 || id >= vocab)
            return sluice__json_fail(&item, NULL, err, "found id %lld, expected 0..%d", (long long)id, vocab - 1);
        out->eos_ids[out->num_eos++] = (int32_t)id;
    }
    return SLUICE_OK;
}

static sluice_status read_sampling(const sluice__json *root, sluice_generation_config *out, sluice_error *err) {
    sluice_sampling_params *s = &out->sampling;
    bool do_sample = false;
    int64_t top_k = 50; /* the default of transformers when sampling */
    SLUICE__TRY(sluice__json_bool(root, "do_sample", false, &do_sample, err));
    SLUICE__TRY(sluice__json_real(root, "repetition_penalty", false, 1e-6, 1e6, &s->repetition_penalty, err));
    SLUICE__TRY(sluice__json_int(root, "max_new_tokens", false, 1, INT32_MAX, &out->max_new_tokens, err));
    if (!do_sample) {
        s->temperature = 0;
        return SLUICE_OK;
    }
    SLUICE__TRY(sluice__json_real(root, "temperature", false, 0, 1e6, &s->temperature, err));
    SLUICE__TRY(sluice__json_int(root, "top_k", false, 0, INT32_MAX, &top_k, err));
    SLUICE__TRY(sluice__json_real(root, "top_p", false, 1e-12, 1, &s->top_p, err));
    SLUICE__TRY(sluice__json_real(root, "min_p", false, 0, 1, &s->min_p, err));
    SLUICE__TRY(sluice__json_real(root, "typical_p", false, 1e-12, 1, &s->typical_p, err));
    s->top_k = (int)top_k;
    return SLUICE_OK;
}

sluice_status sluice_generation_config_load(sluice_generation_config *out, const char *dir, const sluice_config *config,
                                            sluice_error *err) {
    *out = (sluice_generation_config){.sampling = sluice_sampling_params_default()};
    out->sampling.temperature = 0;
    if (config->eos_token_id >= 0 && config->eos_token_id < config->vocab_size)
        out->eos_ids[out->num_eos++] = config->eos_token_id;
    for (int i = 0; i < config->num_other_eos; i++)
        if (config->other_eos[i] < config->vocab_size) out->eos_ids[out->num_eos++] = config->other_eos[i];
    char *path = sluice__path_join(dir, "generation_config.json");
    if (!path) return sluice__no_memory(err, 0, "a path");
    sluice_status st = SLUICE_OK;
    json_t *root = NULL;
    if (sluice__is_file(path)) {
        st = sluice__json_load(&root, path, err);
        sluice__json view = sluice__json_view(root, path);
        out->sampling.temperature = 1;
        if (st == SLUICE_OK) st = read_eos(&view, config->vocab_size, out, err);
        if (st == SLUICE_OK) st = read_sampling(&view, out, err);
        json_decref(root);
    }
    sluice__free(path);
    return st;
}
