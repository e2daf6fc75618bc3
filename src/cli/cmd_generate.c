/* SPDX-License-Identifier: Apache-2.0 */
/* sluice generate: a prompt in, text out, streamed as it comes. */
#include "cli/cli.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "sluice/session.h"
#include "sluice/tokenizer.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options that were not given hold these values; then the model's generation_config.json decides. */
static const double UNSET = -INFINITY;
static const long long UNSET_INT = INT_MIN;

typedef struct options {
    cli_common common;
    char *prompt, *prompt_file;
    long long max_new_tokens, seed;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int top_k, context, greedy, ignore_eos, no_special;
} options;

typedef struct run {
    sluice_tokenizer *tokenizer;
    sluice_decode_stream *stream;
    sluice_text text; /* all generated text; bytes [0, shown) are printed */
    size_t shown;
    const char *echo; /* the prompt, printed in front of the first token; NULL = not or no longer */
    bool print;
    double logprob;
    sluice_error err;
} run;

static void print_echo(run *r) {
    if (r->echo) fputs(r->echo, stdout);
    r->echo = NULL;
}

static int deliver(void *user, int32_t token, double logprob) {
    run *r = user;
    r->logprob += logprob;
    if (sluice_decode_stream_push(r->stream, token, &r->text, &r->err) != SLUICE_OK) return 1;
    if (!r->print) return 0;
    print_echo(r);
    if (r->text.size == r->shown) return 0;
    fwrite(r->text.data + r->shown, 1, r->text.size - r->shown, stdout);
    fflush(stdout);
    r->shown = r->text.size;
    return ferror(stdout) != 0;
}

static sluice_status read_stream(FILE *f, const char *name, sluice__strbuf *out, sluice_error *err) {
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0) sluice__strbuf_add(out, block, n);
    if (ferror(f)) return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot read: %s", name, strerror(errno));
    return out->failed ? sluice__no_memory(err, out->size, name) : SLUICE_OK;
}

static sluice_status read_prompt(const options *o, sluice__strbuf *out, sluice_error *err) {
    if (o->prompt) {
        sluice__strbuf_puts(out, o->prompt);
        return out->failed ? sluice__no_memory(err, strlen(o->prompt), "the prompt") : SLUICE_OK;
    }
    if (!o->prompt_file || !strcmp(o->prompt_file, "-")) return read_stream(stdin, "standard input", out, err);
    FILE *f = fopen(o->prompt_file, "rbe");
    if (!f) return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot open: %s", o->prompt_file, strerror(errno));
    sluice_status st = read_stream(f, o->prompt_file, out, err);
    fclose(f);
    return st;
}

/* Prompt ids. A model that was trained with a token in front of every text gets it, unless the tokenizer puts it there. */
static sluice_status encode_prompt(const options *o, const run *r, const sluice_config *config, sluice_ids *ids,
                                   sluice_error *err) {
    sluice__strbuf text = {0};
    sluice_status st = read_prompt(o, &text, err);
    if (st == SLUICE_OK)
        st = sluice_tokenizer_encode(r->tokenizer, text.data ? text.data : "", text.size,
                                     o->no_special ? 0 : SLUICE_ENCODE_ADD_SPECIAL | SLUICE_ENCODE_PARSE_SPECIAL, ids, err);
    sluice__strbuf_free(&text);
    if (st != SLUICE_OK || ids->count > 0) return st;
    if (config->bos_token_id < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the prompt is empty and the model has no bos_token_id to start from");
    ids->data = sluice__calloc(1, sizeof *ids->data, SLUICE__MEM_DATA);
    if (!ids->data) return sluice__no_memory(err, sizeof *ids->data, "the prompt");
    ids->data[0] = config->bos_token_id;
    ids->count = ids->capacity = 1;
    return SLUICE_OK;
}

static void choose_sampling(const options *o, sluice_sampling_params *s) {
    bool asked = o->temperature != UNSET || o->top_k != UNSET_INT || o->top_p != UNSET || o->min_p != UNSET;
    if (asked && s->temperature == 0) s->temperature = 1;
    if (o->temperature != UNSET) s->temperature = o->temperature;
    if (o->top_k != UNSET_INT) s->top_k = o->top_k;
    if (o->top_p != UNSET) s->top_p = o->top_p;
    if (o->min_p != UNSET) s->min_p = o->min_p;
    if (o->repetition_penalty != UNSET) s->repetition_penalty = o->repetition_penalty;
    if (o->presence_penalty != UNSET) s->presence_penalty = o->presence_penalty;
    if (o->frequency_penalty != UNSET) s->frequency_penalty = o->frequency_penalty;
    if (o->greedy) s->temperature = 0;
    s->seed = (uint64_t)o->seed;
}

static const char *stop_name(sluice_stop_reason stop) {
    static const char *const names[] = {"length", "eos", "caller", "context full"};
    return names[stop];
}

static int print_result(const options *o, const run *r, const sluice_ids *prompt, const sluice_generation *g) {
    double prefill = g->prefill_seconds > 0 ? (double)prompt->count / g->prefill_seconds : 0;
    double decode = g->decode_seconds > 0 ? (double)(g->count - 1) / g->decode_seconds : 0;
    if (!o->common.json) {
        if (r->text.size == 0 || r->text.data[r->text.size - 1] != '\n') putchar('\n');
        if (!o->common.quiet)
            fprintf(stderr, "prompt %zu tokens, %.1f tokens/s; generated %lld, %.1f tokens/s; stopped by: %s\n",
                    prompt->count, prefill, (long long)g->count, decode > 0 ? decode : 0, stop_name(g->stop));
        return ferror(stdout) ? CLI_FAILED : CLI_OK;
    }
    json_t *ids = json_array();
    for (int64_t i = 0; i < g->count; i++) json_array_append_new(ids, json_integer(g->tokens[i]));
    json_t *out = json_pack("{s:s%, s:o, s:I, s:s, s:f, s:f, s:f}", "text", r->text.data ? r->text.data : "", r->text.size,
                            "tokens", ids, "prompt_tokens", (json_int_t)prompt->count, "stop", stop_name(g->stop),
                            "sum_logprob", r->logprob, "prefill_tokens_per_second", prefill, "decode_tokens_per_second",
                            decode > 0 ? decode : 0.0);
    int bad = !out || json_dumpf(out, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII) != 0 || putchar('\n') == EOF;
    json_decref(out);
    return bad ? CLI_FAILED : CLI_OK;
}

/* Everything between a loaded model and the printed result. */
static sluice_status generate(const options *o, const char *path, const sluice_model *model, run *r, int *exit_code,
                              sluice_error *err) {
    const sluice_config *config = sluice_model_config(model);
    sluice_session *session = NULL;
    sluice_generation result = {0};
    sluice_ids ids = {0};
    sluice_generation_config defaults;
    sluice_status st;
    SLUICE__TRY_GOTO(sluice_tokenizer_load(&r->tokenizer, path, err), out);
    SLUICE__TRY_GOTO(sluice_decode_stream_new(&r->stream, r->tokenizer, true, err), out);
    SLUICE__TRY_GOTO(sluice_generation_config_load(&defaults, path, config, err), out);
    choose_sampling(o, &defaults.sampling);
    SLUICE__TRY_GOTO(sluice_sampling_params_check(&defaults.sampling, err), out);
    SLUICE__TRY_GOTO(encode_prompt(o, r, config, &ids, err), out);
    sluice_generate_params p = sluice_generate_params_default();
    p.sampling = defaults.sampling;
    if (defaults.max_new_tokens > 0) p.max_new_tokens = defaults.max_new_tokens;
    if (o->max_new_tokens != UNSET_INT) p.max_new_tokens = o->max_new_tokens;
    p.eos_ids = defaults.eos_ids;
    p.num_eos = o->ignore_eos ? 0 : defaults.num_eos;
    p.on_token = deliver;
    p.user = r;
    sluice_session_params sp = sluice_session_params_default();
    sp.capacity = o->context == UNSET_INT ? 0 : o->context;
    if (sp.capacity > config->max_position_embeddings && !o->common.quiet)
        fprintf(stderr, "warning: --context %d is beyond the model's max_position_embeddings of %d\n", sp.capacity,
                config->max_position_embeddings);
    SLUICE__TRY_GOTO(sluice_session_new(&session, model, &sp, err), out);
    r->echo = r->print ? o->prompt : NULL;
    SLUICE__TRY_GOTO(sluice_generate(session, ids.data, (int64_t)ids.count, &p, &result, err), out);
    if (r->err.code != SLUICE_OK) {
        *err = r->err;
        st = r->err.code;
        goto out;
    }
    SLUICE__TRY_GOTO(sluice_decode_stream_finish(r->stream, &r->text, err), out);
    print_echo(r);
    if (r->print && r->text.size > r->shown) fwrite(r->text.data + r->shown, 1, r->text.size - r->shown, stdout);
    *exit_code = print_result(o, r, &ids, &result);
out:
    sluice_generation_free(&result);
    sluice_session_free(session);
    sluice_ids_free(&ids);
    return st;
}

static int check_options(const options *o) {
    if (o->max_new_tokens != UNSET_INT && o->max_new_tokens < 1)
        return cli_usage("generate", "--max-new-tokens: found %lld, expected >= 1", o->max_new_tokens);
    if (o->context != UNSET_INT && o->context < 1)
        return cli_usage("generate", "--context: found %d, expected >= 1", o->context);
    if (o->top_k != UNSET_INT && o->top_k < 0) return cli_usage("generate", "--top-k: found %d, expected >= 0", o->top_k);
    if (o->seed < 0) return cli_usage("generate", "--seed: found %lld, expected >= 0", o->seed);
    if (o->greedy && o->temperature != UNSET)
        return cli_usage("generate", "--greedy and --temperature exclude each other");
    return CLI_OK;
}

int cmd_generate(int argc, const char **argv) {
    options o = {.max_new_tokens = UNSET_INT, .temperature = UNSET, .top_p = UNSET, .min_p = UNSET,
                 .repetition_penalty = UNSET, .presence_penalty = UNSET, .frequency_penalty = UNSET, .top_k = (int)UNSET_INT,
                 .context = (int)UNSET_INT};
    struct poptOption table[] = {
        {"prompt", 'p', POPT_ARG_STRING, &o.prompt, 0, "text to continue (default: read standard input)", "TEXT"},
        {"prompt-file", 'f', POPT_ARG_STRING, &o.prompt_file, 0, "file that holds it; - is standard input", "FILE"},
        {"max-new-tokens", 'n', POPT_ARG_LONGLONG, &o.max_new_tokens, 0,
         "tokens to generate at most (default: the model's generation_config.json, else 128)", "N"},
        {"temperature", '\0', POPT_ARG_DOUBLE, &o.temperature, 0,
         "divides the logits; 0 = greedy (default: the model's, else greedy)", "X"},
        {"top-k", '\0', POPT_ARG_INT, &o.top_k, 0, "keep the K likeliest tokens; 0 = off", "K"},
        {"top-p", '\0', POPT_ARG_DOUBLE, &o.top_p, 0, "keep the smallest set of tokens with this probability, 0..1", "P"},
        {"min-p", '\0', POPT_ARG_DOUBLE, &o.min_p, 0, "drop tokens below P times the likeliest one, 0..1", "P"},
        {"repetition-penalty", '\0', POPT_ARG_DOUBLE, &o.repetition_penalty, 0, "above 0; 1 = off", "X"},
        {"presence-penalty", '\0', POPT_ARG_DOUBLE, &o.presence_penalty, 0, "subtracted once from seen tokens", "X"},
        {"frequency-penalty", '\0', POPT_ARG_DOUBLE, &o.frequency_penalty, 0, "subtracted per occurrence", "X"},
        {"greedy", '\0', POPT_ARG_NONE, &o.greedy, 0, "always the likeliest token", NULL},
        {"seed", '\0', POPT_ARG_LONGLONG, &o.seed, 0, "of the draws (default: 0)", "N"},
        {"ignore-eos", '\0', POPT_ARG_NONE, &o.ignore_eos, 0, "do not stop at end tokens", NULL},
        {"no-special-tokens", '\0', POPT_ARG_NONE, &o.no_special, 0,
         "take the prompt as plain text: nothing put around it, special tokens not recognised", NULL},
        {"context", 'c', POPT_ARG_INT, &o.context, 0,
         "tokens that prompt and text may have together (default: max_position_embeddings)", "N"},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_TABLEEND};
    int code = CLI_FAILED;
    poptContext ctx = cli_parse(
        argc, argv, table, "[OPTIONS] MODEL",
        "Continues a prompt with a model directory, printing text as it comes. Without sampling options the model's\n"
        "generation_config.json decides, and without that file the likeliest token is taken each time; giving --temperature,\n"
        "--top-k, --top-p or --min-p switches sampling on. The same seed gives the same text.",
        "  sluice generate run/model --prompt \"In the beginning\" --temperature 0.8 --top-p 0.95 --seed 1", &code);
    if (!ctx) return code;
    const char *path = poptGetArg(ctx);
    if (!path) code = cli_usage(argv[0], "which model? Give its directory");
    else if (poptPeekArg(ctx)) code = cli_usage(argv[0], "one model only, found also \"%s\"", poptPeekArg(ctx));
    else if (o.prompt && o.prompt_file) code = cli_usage(argv[0], "--prompt and --prompt-file exclude each other");
    else if ((code = check_options(&o)) == CLI_OK && (code = cli_start(&o.common)) == CLI_OK) {
        run r = {.print = !o.common.json};
        sluice_error err = {0};
        sluice_model *model = NULL;
        sluice_load_params load = sluice_load_params_default();
        load.weights = SLUICE_LOAD_AS_STORED;
        sluice_status st = sluice_model_load(&model, path, &load, &err);
        if (st == SLUICE_OK) st = generate(&o, path, model, &r, &code, &err);
        if (st != SLUICE_OK) code = cli_fail(argv[0], &err);
        sluice_decode_stream_free(r.stream);
        sluice_tokenizer_free(r.tokenizer);
        sluice_text_free(&r.text);
        sluice_model_free(model);
    }
    cli_finish(ctx, table);
    return code;
}
