/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the commands that generate text: sampling, length, stop strings, the cache. What is not given, the model's
 * generation_config.json decides. */
#ifndef SLUICE_CLI_SAMPLING_H
#define SLUICE_CLI_SAMPLING_H
#include <limits.h>
#include <math.h>
#include "cli/cli.h"
#include "sluice/session.h"
#include "sluice/tokenizer.h"

#define CLI_UNSET (-INFINITY)
enum { CLI_UNSET_INT = INT_MIN };

typedef struct cli_sampling {
    double temperature, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty;
    long long max_new_tokens, seed;
    int top_k, greedy, ignore_eos, context;
    char **stops; /* NULL-terminated, or NULL */
    char *cache_dtype, *rope_scaling, *dtype;
} cli_sampling;
#define CLI_SAMPLING_UNSET                                                                                     \
    {.temperature = CLI_UNSET, .top_p = CLI_UNSET, .min_p = CLI_UNSET, .typical_p = CLI_UNSET,                 \
     .repetition_penalty = CLI_UNSET, .presence_penalty = CLI_UNSET, .frequency_penalty = CLI_UNSET,           \
     .max_new_tokens = CLI_UNSET_INT, .top_k = CLI_UNSET_INT, .context = CLI_UNSET_INT}

#define CLI_SAMPLING_OPTIONS(s)                                                                                            \
    {"max-new-tokens", 'n', POPT_ARG_LONGLONG, &(s)->max_new_tokens, 0, "tokens to generate at most (default: the model's generation_config.json, else 128; chat: 2048)", "N"}, \
        {"temperature", '\0', POPT_ARG_DOUBLE, &(s)->temperature, 0, "divides the logits; 0 = greedy (default: the model's, else greedy)", "X"}, \
        {"top-k", '\0', POPT_ARG_INT, &(s)->top_k, 0, "keep the K likeliest tokens; 0 = off", "K"},                        \
        {"top-p", '\0', POPT_ARG_DOUBLE, &(s)->top_p, 0, "keep the smallest set of tokens with this probability, 0..1", "P"}, \
        {"min-p", '\0', POPT_ARG_DOUBLE, &(s)->min_p, 0, "drop tokens below P times the likeliest one, 0..1", "P"},        \
        {"typical-p", '\0', POPT_ARG_DOUBLE, &(s)->typical_p, 0, "keep the tokens nearest to the entropy that have this probability, 0..1", "P"}, \
        {"repetition-penalty", '\0', POPT_ARG_DOUBLE, &(s)->repetition_penalty, 0, "above 0; 1 = off", "X"},               \
        {"presence-penalty", '\0', POPT_ARG_DOUBLE, &(s)->presence_penalty, 0, "subtracted once from seen tokens", "X"},   \
        {"frequency-penalty", '\0', POPT_ARG_DOUBLE, &(s)->frequency_penalty, 0, "subtracted per occurrence", "X"},        \
        {"greedy", '\0', POPT_ARG_NONE, &(s)->greedy, 0, "always the likeliest token", NULL},                             \
        {"seed", '\0', POPT_ARG_LONGLONG, &(s)->seed, 0, "of the draws (default: 0)", "N"},                               \
        {"stop", '\0', POPT_ARG_ARGV, &(s)->stops, 0, "end where this text comes; not part of the result; may be repeated", "TEXT"}, \
        {"ignore-eos", '\0', POPT_ARG_NONE, &(s)->ignore_eos, 0, "do not stop at end tokens", NULL},                      \
        {"context", 'c', POPT_ARG_INT, &(s)->context, 0, "tokens that prompt and text may have together (default: max_position_embeddings)", "N"}, \
        {"cache-dtype", '\0', POPT_ARG_STRING, &(s)->cache_dtype, 0, "of cached keys and values: f32, f16, bf16 or q8_0 (default: f32)", "TYPE"}, \
        {"dtype", '\0', POPT_ARG_STRING, &(s)->dtype, 0, "of the weights: auto, as the file has them, or float32: everything computed in fp32 (default: auto)", "TYPE"}, \
        {"rope-scaling", '\0', POPT_ARG_STRING, &(s)->rope_scaling, 0, "rotary positions in place of the model's, in the form of rope_parameters; rope_theta stays unless given: {\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 4096}", "JSON"}

/* CLI_OK, or a usage error that names the option. */
int cli_sampling_check(const char *command, const cli_sampling *s);
int cli_num_stops(const cli_sampling *s);
/* How to load the model. */
sluice_load_params cli_load_params(const cli_sampling *s);
/* The model's defaults overridden by what was given. eos_ids of *out point into *defaults. */
void cli_sampling_apply(const cli_sampling *s, sluice_generation_config *defaults, sluice_generate_params *out);
/* Adds the tokenizer's end token to those of the model. */
void cli_add_eos(sluice_generation_config *defaults, const sluice_tokenizer *tok);
void cli_session_params(const cli_sampling *s, const sluice_config *config, sluice_session_params *out);
/* "context 4096 tokens, cache 96.0 MB of f16" on standard error. */
void cli_print_plan(const sluice_config *config, const sluice_session_params *params);
const char *cli_stop_name(sluice_stop_reason stop);
#endif
