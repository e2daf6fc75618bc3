/* SPDX-License-Identifier: Apache-2.0 */
/* Options of generation: checks, and what they make of the model's own settings. */
#include "cli/sampling.h"
#include "base/progress.h"
#include <stdio.h>
#include <string.h>

/* An option that leaves tokens out of the draw; NULL when there is none. */
static const char *sampling_option(const cli_sampling *s) {
    if (s->top_k != CLI_UNSET_INT && s->top_k > 0) return "--top-k";
    if (s->top_p != CLI_UNSET && s->top_p != 1) return "--top-p";
    if (s->min_p != CLI_UNSET && s->min_p != 0) return "--min-p";
    return s->typical_p != CLI_UNSET && s->typical_p != 1 ? "--typical-p" : NULL;
}

int cli_sampling_check(const char *command, const cli_sampling *s) {
    sluice_kv_dtype dtype;
    if (s->max_new_tokens != CLI_UNSET_INT && s->max_new_tokens < 1)
        return cli_usage(command, "--max-new-tokens: found %lld, expected >= 1", s->max_new_tokens);
    if (s->context != CLI_UNSET_INT && s->context < 1)
        return cli_usage(command, "--context: found %d, expected >= 1", s->context);
    if (s->top_k != CLI_UNSET_INT && s->top_k < 0)
        return cli_usage(command, "--top-k: found %d, expected >= 0", s->top_k);
    if (s->seed < 0) return cli_usage(command, "--seed: found %lld, expected >= 0", s->seed);
    const char *filter = sampling_option(s);
    if (s->greedy && s->temperature != CLI_UNSET)
        return cli_usage(command, "--greedy and --temperature exclude each other");
    if (filter && (s->greedy || s->temperature == 0))
        return cli_usage(command, "%s has no effect with %s, which takes the likeliest token", filter,
                         s->greedy ? "--greedy" : "--temperature 0");
    for (int i = 0; i < cli_num_stops(s); i++)
        if (!*s->stops[i]) return cli_usage(command, "--stop: found an empty text");
    if (s->cache_dtype && !sluice_kv_dtype_parse(&dtype, s->cache_dtype))
        return cli_usage(command, "--cache-dtype: found \"%s\", expected f32, f16, bf16 or q8_0", s->cache_dtype);
    if (s->dtype && strcmp(s->dtype, "auto") != 0 && strcmp(s->dtype, "float32") != 0)
        return cli_usage(command, "--dtype: found \"%s\", expected auto or float32", s->dtype);
    return CLI_OK;
}

int cli_num_stops(const cli_sampling *s) {
    int n = 0;
    while (s->stops && s->stops[n]) n++;
    return n;
}

sluice_load_params cli_load_params(const cli_sampling *s) {
    sluice_load_params load = sluice_load_params_default();
    bool widened = s->dtype && !strcmp(s->dtype, "float32");
    load.weights = widened ? SLUICE_LOAD_F32 : SLUICE_LOAD_AS_STORED;
    load.rope_override = s->rope_scaling;
    return load;
}

static void override(double *value, double given) {
    if (given != CLI_UNSET) *value = given;
}

void cli_sampling_apply(const cli_sampling *s, sluice_generation_config *defaults, sluice_generate_params *out) {
    sluice_sampling_params *p = &defaults->sampling;
    bool asked = s->temperature != CLI_UNSET || s->top_k != CLI_UNSET_INT || s->top_p != CLI_UNSET ||
                 s->min_p != CLI_UNSET || s->typical_p != CLI_UNSET;
    if (asked && p->temperature == 0) p->temperature = 1;
    override(&p->temperature, s->temperature);
    override(&p->top_p, s->top_p);
    override(&p->min_p, s->min_p);
    override(&p->typical_p, s->typical_p);
    override(&p->repetition_penalty, s->repetition_penalty);
    override(&p->presence_penalty, s->presence_penalty);
    override(&p->frequency_penalty, s->frequency_penalty);
    if (s->top_k != CLI_UNSET_INT) p->top_k = s->top_k;
    if (s->greedy) p->temperature = 0;
    p->seed = (uint64_t)s->seed;
    out->sampling = *p;
    if (defaults->max_new_tokens > 0) out->max_new_tokens = defaults->max_new_tokens;
    if (s->max_new_tokens != CLI_UNSET_INT) out->max_new_tokens = s->max_new_tokens;
    if (s->ignore_eos) return;
    out->eos_ids = defaults->eos_ids;
    out->num_eos = defaults->num_eos;
}

void cli_add_eos(sluice_generation_config *defaults, const sluice_tokenizer *tok) {
    int32_t eos = sluice_tokenizer_eos_id(tok);
    for (int i = 0; i < defaults->num_eos; i++)
        if (defaults->eos_ids[i] == eos) return;
    if (eos >= 0 && defaults->num_eos < SLUICE_MAX_EOS) defaults->eos_ids[defaults->num_eos++] = eos;
}

void cli_session_params(const cli_sampling *s, const sluice_config *config, sluice_session_params *out) {
    *out = sluice_session_params_default();
    if (s->context != CLI_UNSET_INT)
        out->capacity = s->context;
    else
        out->capacity = config->max_position_embeddings;
    if (s->cache_dtype) sluice_kv_dtype_parse(&out->cache_dtype, s->cache_dtype);
}

void cli_print_plan(const sluice_config *config, const sluice_session_params *params) {
    char bytes[32];
    sluice__format_bytes(bytes, (double)sluice_session_cache_bytes(config, params) * params->num_sequences);
    fprintf(stderr, "context %d tokens, cache of %s in %s when full", params->capacity, bytes,
            sluice_kv_dtype_name(params->cache_dtype));
    if (params->num_sequences > 1) fprintf(stderr, ", %d sequences", params->num_sequences);
    fputc('\n', stderr);
}

const char *cli_stop_name(sluice_stop_reason stop) {
    static const char *const names[] = {"length", "eos", "caller", "context full"};
    return names[stop];
}
