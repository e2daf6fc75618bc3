/* SPDX-License-Identifier: Apache-2.0 */
/* The list of families, and the model types that are known but need layers which this version lacks. */
#include "model/family.h"
#include <string.h>

const sluice__family *const sluice__families[] = {
    &sluice__family_sluice,
    &sluice__family_paper,
    &sluice__family_llama,
    &sluice__family_qwen2,
    &sluice__family_qwen3,
    &sluice__family_qwen3_moe,
    &sluice__family_qwen2_moe,
    &sluice__family_qwen3_next,
    &sluice__family_qwen3_5,
    &sluice__family_qwen3_5_wrapped,
    &sluice__family_qwen3_5_moe,
    &sluice__family_qwen3_5_moe_wrapped,
    &sluice__family_olmo_hybrid,
    &sluice__family_smollm3,
    &sluice__family_mistral,
    &sluice__family_mixtral,
    &sluice__family_afmoe,
    &sluice__family_gpt_oss,
    &sluice__family_laguna,
    &sluice__family_step3p5,
    &sluice__family_step3p7,
    &sluice__family_muse_glimmer,
    &sluice__family_muse_glimmer_text,
    &sluice__family_spark2_5,
    NULL};

/* model_type, what it needs */
static const char *const later[][2] = {
    {"qwen4_exp", "linear_attention (gated delta rule) layers and hyper-connections"},
};

static bool has_type(const sluice__family *f, const char *type) {
    for (int i = 0; f->model_types[i]; i++)
        if (!strcmp(f->model_types[i], type)) return true;
    return false;
}

static bool claims(const sluice__family *f, const char *type, const sluice__json *root) {
    if (!has_type(f, type)) return false;
    sluice__json json = f->nested ? sluice__json_get(root, f->nested) : *root;
    return !f->claims || f->claims(&json);
}

sluice_status sluice__family_find(const sluice__family **out, const sluice__json *root, sluice_error *err) {
    const char *type = NULL;
    SLUICE__TRY(sluice__json_string(root, "model_type", false, &type, err));
    if (!type && sluice__json_has(root, "architectures"))
        return sluice__json_fail(root, "model_type", err, "missing");
    if (!type) type = "sluice";
    for (int i = 0; sluice__families[i]; i++) {
        if (!claims(sluice__families[i], type, root)) continue;
        *out = sluice__families[i];
        return SLUICE_OK;
    }
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (!strcmp(later[i][0], type))
            return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                                "%s: model_type: %s needs %s, which this version does not support", root->file,
                                type, later[i][1]);
    return sluice__family_unknown(root, type, err);
}
