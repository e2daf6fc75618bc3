/* SPDX-License-Identifier: Apache-2.0 */
/* sluice generate: prompts in, text out. Texts are sequences of one session and go through the model in groups, a token of each
 * in turn; the first of a group is streamed as it comes, the others are shown when it has ended. With several texts of a prompt,
 * the prompt is evaluated once, in a sequence of its own, and copied. */
#include "cli/sampling.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/strbuf.h"
#include "sluice/stream.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A session has 1024 sequences at most, of which one holds a prompt. */
enum { MOST_TOGETHER = 1023 };

typedef struct options {
    cli_common common;
    cli_sampling sampling;
    char **prompts; /* NULL-terminated, or NULL */
    char *prompt_file;
    int num_return_sequences, parallel, logprobs, no_special;
} options;

/* One text in the making. */
typedef struct run {
    const options *o;
    const sluice_tokenizer *tokenizer;
    sluice_stream *stream;
    sluice_text text; /* all generated text; bytes [0, shown) are printed */
    size_t shown;
    const char *echo;    /* the prompt, printed in front of the first token; NULL = not or no longer */
    bool follows;        /* another text is printed in front of it */
    bool print, stopped; /* stopped: by a stop string */
    double logprob;
    json_t *steps; /* with --logprobs */
    sluice_error err;
} run;

static void print_echo(run *r) {
    if (r->follows) puts("----");
    if (r->echo) fputs(r->echo, stdout);
    r->echo = NULL;
    r->follows = false;
}

static int show(run *r) {
    if (!r->print) return 0;
    print_echo(r);
    if (r->text.size == r->shown) return 0;
    fwrite(r->text.data + r->shown, 1, r->text.size - r->shown, stdout);
    fflush(stdout);
    r->shown = r->text.size;
    return ferror(stdout) != 0;
}

static json_t *token_json(const run *r, int32_t id, double logprob) {
    size_t size = 0;
    const char *token = sluice_tokenizer_token(r->tokenizer, id, &size);
    return json_pack("{s:i, s:s%, s:f}", "id", id, "token", token ? token : "", size, "logprob", logprob);
}

static int deliver(void *user, const sluice_step *step) {
    run *r = user;
    r->logprob += step->logprob;
    if (r->steps) {
        json_t *one = token_json(r, step->token, step->logprob), *top = json_array();
        for (int i = 0; i < step->num_top; i++)
            json_array_append_new(top, token_json(r, step->top_ids[i], step->top_logprobs[i]));
        json_object_set_new(one, "top", top);
        json_array_append_new(r->steps, one);
    }
    if (sluice_stream_push(r->stream, step->token, &r->text, &r->stopped, &r->err) != SLUICE_OK) return 1;
    return show(r) || r->stopped;
}

/* Prompt `which` of those given, or the file, or standard input. */
static sluice_status read_prompt(const options *o, int which, sluice__strbuf *out, sluice_error *err) {
    if (o->prompts) {
        sluice__strbuf_puts(out, o->prompts[which]);
        return out->failed ? sluice__no_memory(err, strlen(o->prompts[which]), "the prompt") : SLUICE_OK;
    }
    return cli_read_text(o->prompt_file, out, err);
}

/* Prompt ids. A model that was trained with a token in front of every text gets it, unless the tokenizer puts it there.
 */
static sluice_status encode_prompt(const options *o, int which, const sluice_tokenizer *tok,
                                   const sluice_config *config, sluice_ids *ids, sluice_error *err) {
    sluice__strbuf text = {0};
    sluice_status st = read_prompt(o, which, &text, err);
    if (st == SLUICE_OK)
        st = sluice_tokenizer_encode(tok, text.data ? text.data : "", text.size,
                                     o->no_special ? 0 : SLUICE_ENCODE_ADD_SPECIAL | SLUICE_ENCODE_PARSE_SPECIAL, ids,
                                     err);
    sluice__strbuf_free(&text);
    if (st != SLUICE_OK || ids->count > 0) return st;
    if (config->bos_token_id < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "the prompt is empty and the model has no bos_token_id to start from");
    ids->data = sluice__calloc(1, sizeof *ids->data, SLUICE__MEM_DATA);
    if (!ids->data) return sluice__no_memory(err, sizeof *ids->data, "the prompt");
    ids->data[0] = config->bos_token_id;
    ids->count = ids->capacity = 1;
    return SLUICE_OK;
}

/* What all texts share. Text t is number t % num_return_sequences of prompt t / num_return_sequences. */
typedef struct job {
    const options *o;
    sluice_tokenizer *tokenizer;
    sluice_session *session;
    sluice_generation_config defaults;
    sluice_generate_params params;
    sluice_ids *prompts; /* [num_prompts] */
    int num_prompts, texts, together; /* texts: in all; in one group */
    json_t *results;
} job;

static const char *stop_name(const run *r, sluice_stop_reason stop) {
    return r->stopped ? "stop string" : cli_stop_name(stop);
}

/* One text in a group: what is known about it before and after. */
typedef struct text {
    run r;
    int which; /* its prompt */
    const sluice_ids *prompt;
    double seconds; /* that the shared part of the prompt took for this text */
} text;

static void report(job *j, const text *t, const sluice_generation *g) {
    const run *r = &t->r;
    double seconds = t->seconds + g->prefill_seconds;
    double prefill = seconds > 0 ? (double)t->prompt->count / seconds : 0;
    double decode = g->decode_seconds > 0 && g->count > 1 ? (double)(g->count - 1) / g->decode_seconds : 0;
    if (!j->o->common.json) {
        if (r->text.size == 0 || r->text.data[r->text.size - 1] != '\n') putchar('\n');
        if (!j->o->common.quiet)
            fprintf(stderr, "prompt %zu tokens, %.1f tokens/s; generated %lld, %.1f tokens/s; stopped by: %s\n",
                    t->prompt->count, prefill, (long long)g->count, decode, stop_name(r, g->stop));
        return;
    }
    json_t *ids = json_array();
    for (int64_t i = 0; i < g->count; i++) json_array_append_new(ids, json_integer(g->tokens[i]));
    json_t *out =
        json_pack("{s:s%, s:o, s:I, s:s, s:f, s:f, s:f}", "text", r->text.data ? r->text.data : "", r->text.size,
                  "tokens", ids, "prompt_tokens", (json_int_t)t->prompt->count, "stop", stop_name(r, g->stop),
                  "sum_logprob", r->logprob, "prefill_tokens_per_second", prefill, "decode_tokens_per_second", decode);
    if (r->steps) json_object_set(out, "logprobs", r->steps);
    if (j->texts > 1) json_object_set_new(out, "prompt", json_integer(t->which));
    json_array_append_new(j->results, out);
}

/* The prompt but for its last token in the sequence behind those of the group, where it stays for the prompt's next texts,
 * and a copy of it in `slot`. */
static sluice_status share_prompt(job *j, int slot, const sluice_ids *ids, double *seconds, sluice_error *err) {
    sluice_session *s = j->session;
    int64_t kept, n = (int64_t)ids->count - 1;
    double start = sluice__now();
    if (n >= sluice_session_capacity(s))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the prompt: found %lld tokens, expected 1..%d (the context has %d places)",
                            (long long)n + 1, sluice_session_capacity(s), sluice_session_capacity(s));
    sluice_status st = sluice_session_select(s, j->together, err);
    if (st == SLUICE_OK) st = sluice_session_reuse(s, ids->data, n + 1, &kept, err);
    if (st == SLUICE_OK && kept < n) st = sluice_session_eval(s, ids->data + kept, n - kept, NULL, err);
    *seconds = sluice__now() - start;
    if (st == SLUICE_OK) st = sluice_session_select(s, slot, err);
    return st == SLUICE_OK ? sluice_session_copy(s, j->together, err) : st;
}

/* Text number t as sequence `slot` of a group. */
static sluice_status begin_text(job *j, int t, int slot, text *x, sluice_generate_request *request, sluice_error *err) {
    const options *o = j->o;
    int per_prompt = o->num_return_sequences;
    const sluice_ids *ids = &j->prompts[t / per_prompt];
    *x = (text){.which = t / per_prompt, .prompt = ids};
    x->r = (run){.o = o,
                 .tokenizer = j->tokenizer,
                 .follows = t > 0,
                 .print = !o->common.json && slot == 0,
                 .echo = !o->common.json && o->prompts ? o->prompts[x->which] : NULL,
                 .steps = o->logprobs >= 0 ? json_array() : NULL};
    sluice_status st = sluice_stream_new(&x->r.stream, j->tokenizer, (const char *const *)o->sampling.stops,
                                         cli_num_stops(&o->sampling), true, err);
    *request = (sluice_generate_request){slot, ids->data, (int64_t)ids->count, j->params};
    request->params.sampling.seed = (uint64_t)o->sampling.seed + (uint64_t)(t % per_prompt);
    request->params.on_step = deliver;
    request->params.user = &x->r;
    if (st == SLUICE_OK && per_prompt > 1 && ids->count > 1) {
        request->prompt += ids->count - 1;
        request->n = 1;
        return share_prompt(j, slot, ids, &x->seconds, err);
    }
    if (st == SLUICE_OK) st = sluice_session_select(j->session, slot, err);
    return st == SLUICE_OK ? sluice_session_truncate(j->session, 0, err) : st;
}

/* What is left to show of a text, and the line or object about it. */
static sluice_status finish_text(job *j, text *x, const sluice_generation *g, sluice_error *err) {
    if (x->r.err.code != SLUICE_OK) {
        *err = x->r.err;
        return err->code;
    }
    sluice_status st = sluice_stream_finish(x->r.stream, &x->r.text, err);
    if (st != SLUICE_OK) return st;
    x->r.print = !j->o->common.json;
    show(&x->r);
    report(j, x, g);
    return SLUICE_OK;
}

static sluice_status run_group(job *j, int first, int count, text *texts, sluice_generate_request *requests,
                               sluice_generation *results, sluice_error *err) {
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < count && st == SLUICE_OK; i++) st = begin_text(j, first + i, i, &texts[i], &requests[i], err);
    if (st == SLUICE_OK) st = sluice_generate_batch(j->session, requests, count, results, err);
    for (int i = 0; i < count && st == SLUICE_OK; i++) st = finish_text(j, &texts[i], &results[i], err);
    return st;
}

static sluice_status one_group(job *j, int first, int count, sluice_error *err) {
    text *texts = sluice__calloc((size_t)count, sizeof *texts, SLUICE__MEM_OTHER);
    sluice_generate_request *requests = sluice__calloc((size_t)count, sizeof *requests, SLUICE__MEM_OTHER);
    sluice_generation *results = sluice__calloc((size_t)count, sizeof *results, SLUICE__MEM_OTHER);
    bool ok = texts && requests && results;
    sluice_status st = ok ? run_group(j, first, count, texts, requests, results, err)
                          : sluice__no_memory(err, (size_t)count * sizeof *texts, "the texts");
    for (int i = 0; i < count && ok; i++) {
        sluice_generation_free(&results[i]);
        sluice_stream_free(texts[i].r.stream);
        sluice_text_free(&texts[i].r.text);
        json_decref(texts[i].r.steps);
    }
    sluice__free(texts);
    sluice__free(requests);
    sluice__free(results);
    return st;
}

static sluice_status encode_prompts(job *j, const sluice_config *config, sluice_error *err) {
    sluice_status st = SLUICE_OK;
    j->num_prompts = 0;
    while (j->o->prompts && j->o->prompts[j->num_prompts]) j->num_prompts++;
    if (!j->o->prompts) j->num_prompts = 1;
    j->prompts = sluice__calloc((size_t)j->num_prompts, sizeof *j->prompts, SLUICE__MEM_OTHER);
    if (!j->prompts) return sluice__no_memory(err, (size_t)j->num_prompts * sizeof *j->prompts, "the prompts");
    for (int i = 0; i < j->num_prompts && st == SLUICE_OK; i++)
        st = encode_prompt(j->o, i, j->tokenizer, config, &j->prompts[i], err);
    if (st == SLUICE_OK && j->num_prompts > INT_MAX / j->o->num_return_sequences)
        st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "%d prompts: too many", j->num_prompts);
    if (st != SLUICE_OK) return st;
    j->texts = j->num_prompts * j->o->num_return_sequences;
    j->together = j->texts < j->o->parallel ? j->texts : j->o->parallel;
    return SLUICE_OK;
}

static int print_results(job *j) {
    if (!j->o->common.json) return ferror(stdout) ? CLI_FAILED : CLI_OK;
    bool single = json_array_size(j->results) == 1;
    json_t *out = single ? json_incref(json_array_get(j->results, 0)) : json_pack("{s:O}", "results", j->results);
    int bad = !out || json_dumpf(out, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII) != 0 || putchar('\n') == EOF;
    json_decref(out);
    return bad ? CLI_FAILED : CLI_OK;
}

/* Everything between a loaded model and the printed result. */
static sluice_status generate(const options *o, const char *path, const sluice_model *model, int *exit_code,
                              sluice_error *err) {
    const sluice_config *config = sluice_model_config(model);
    job j = {.o = o, .params = sluice_generate_params_default(), .results = json_array()};
    sluice_session_params sp;
    sluice_status st;
    SLUICE__TRY_GOTO(sluice_tokenizer_load(&j.tokenizer, path, err), out);
    sluice_check_tokenizer(model, j.tokenizer);
    SLUICE__TRY_GOTO(sluice_generation_config_load(&j.defaults, path, config, err), out);
    cli_sampling_apply(&o->sampling, &j.defaults, &j.params);
    SLUICE__TRY_GOTO(sluice_sampling_params_check(&j.params.sampling, err), out);
    if (o->num_return_sequences > 1 && j.params.sampling.temperature == 0) {
        st = sluice__fail(err, SLUICE_ERR_ARGUMENT,
                          "--num-return-sequences %d: the likeliest text is one; give --temperature",
                          o->num_return_sequences);
        goto out;
    }
    if (o->logprobs > config->vocab_size) {
        st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "--logprobs: found %d, expected 0..%d, the size of the vocabulary", o->logprobs,
                          config->vocab_size);
        goto out;
    }
    j.params.num_logprobs = o->logprobs > 0 ? o->logprobs : 0;
    cli_session_params(&o->sampling, config, &sp);
    SLUICE__TRY_GOTO(encode_prompts(&j, config, err), out);
    sp.num_sequences = j.together + (o->num_return_sequences > 1);
    if (!o->common.quiet && !o->common.json) cli_print_plan(config, &sp);
    SLUICE__TRY_GOTO(sluice_session_new(&j.session, model, &sp, err), out);
    for (int i = 0; i < j.texts; i += j.together)
        SLUICE__TRY_GOTO(one_group(&j, i, j.texts - i < j.together ? j.texts - i : j.together, err), out);
    *exit_code = print_results(&j);
out:
    for (int i = 0; j.prompts && i < j.num_prompts; i++) sluice_ids_free(&j.prompts[i]);
    sluice__free(j.prompts);
    sluice_session_free(j.session);
    sluice_tokenizer_free(j.tokenizer);
    json_decref(j.results);
    return st;
}

static int check_options(const options *o) {
    int code = cli_sampling_check("generate", &o->sampling);
    if (code != CLI_OK) return code;
    if (o->num_return_sequences < 1 || o->num_return_sequences > 1024)
        return cli_usage("generate", "--num-return-sequences: found %d, expected 1..1024", o->num_return_sequences);
    if (o->parallel < 1 || o->parallel > MOST_TOGETHER)
        return cli_usage("generate", "--parallel: found %d, expected 1..%d", o->parallel, MOST_TOGETHER);
    bool logprobs = o->logprobs != CLI_UNSET_INT;
    if (logprobs && o->logprobs < 0)
        return cli_usage("generate", "--logprobs: found %d, expected 0..the size of the vocabulary", o->logprobs);
    if (logprobs && !o->common.json) return cli_usage("generate", "--logprobs is shown with --json only");
    return CLI_OK;
}

int cmd_generate(int argc, const char **argv) {
    options o = {.sampling = CLI_SAMPLING_UNSET, .num_return_sequences = 1, .parallel = 8, .logprobs = CLI_UNSET_INT};
    struct poptOption table[] = {
        {"prompt", 'p', POPT_ARG_ARGV, &o.prompts, 0,
         "text to continue (default: read standard input); may be repeated", "TEXT"},
        {"prompt-file", 'f', POPT_ARG_STRING, &o.prompt_file, 0, "file that holds it; - is standard input", "FILE"},
        CLI_SAMPLING_OPTIONS(&o.sampling),
        {"num-return-sequences", '\0', POPT_ARG_INT, &o.num_return_sequences, 0,
         "texts for every prompt, drawn with seed, seed + 1, ... (default: 1)", "N"},
        {"parallel", '\0', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &o.parallel, 0,
         "texts that go through the model together; each takes a cache of its own", "N"},
        {"logprobs", '\0', POPT_ARG_INT, &o.logprobs, 0,
         "with --json: log-probability of every token, and of the N likeliest in its place", "N"},
        {"no-special-tokens", '\0', POPT_ARG_NONE, &o.no_special, 0,
         "take the prompt as plain text: nothing put around it, special tokens not recognised", NULL},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_TABLEEND};
    int code = CLI_FAILED;
    poptContext ctx = cli_parse(
        argc, argv, table, "[OPTIONS] MODEL",
        "Continues prompts with a model directory or GGUF file, printing text as it comes. Without sampling options "
        "the model's\n"
        "generation_config.json decides, and without that file the likeliest token is taken each time; giving "
        "--temperature,\n"
        "--top-k, --top-p, --min-p or --typical-p switches sampling on. The same seed gives the same text.",
        "  sluice generate run/model --prompt \"In the beginning\" --temperature 0.8 --top-p 0.95 --seed 1", &code);
    if (!ctx) return code;
    const char *path = poptGetArg(ctx);
    if (!path)
        code = cli_usage(argv[0], "which model? Give its directory");
    else if (poptPeekArg(ctx))
        code = cli_usage(argv[0], "one model only, found also \"%s\"", poptPeekArg(ctx));
    else if (o.prompts && o.prompt_file)
        code = cli_usage(argv[0], "--prompt and --prompt-file exclude each other");
    else if ((code = check_options(&o)) == CLI_OK && (code = cli_start(&o.common)) == CLI_OK) {
        sluice_error err = {0};
        sluice_model *model = NULL;
        sluice_load_params load = cli_load_params(&o.sampling);
        sluice_status st = sluice_model_load(&model, path, &load, &err);
        if (st == SLUICE_OK) st = generate(&o, path, model, &code, &err);
        if (st != SLUICE_OK) code = cli_fail(argv[0], &err);
        sluice_model_free(model);
    }
    cli_finish(ctx, table);
    return code;
}
