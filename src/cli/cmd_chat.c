/* SPDX-License-Identifier: Apache-2.0 */
/* sluice chat: a conversation on the terminal, or one that a script drives through --prompt or standard input. */
#include "cli/sampling.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "sluice/chat.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_MAX_NEW_TOKENS = 2048, MAX_FILE = 64 << 20 };

typedef struct options {
    cli_common common;
    cli_sampling sampling;
    char **prompts; /* turns of the user, NULL-terminated, or NULL */
    char *system, *tools, *thinking, *variables, *template_file, *messages, *load, *save;
    int print_prompt;
} options;

typedef struct talk {
    const options *o;
    sluice_chat *chat;
    sluice_tokenizer *tokenizer;
    sluice_chat_template *chat_template;
    sluice_generation_config defaults;
    sluice_answer_params answer;
    char *tools, *variables, *messages; /* JSON */
    json_t *turns;                      /* with --json */
    bool ends_with_newline;
} talk;

/* ---- answers ---- */

static int on_text(void *user, const char *text, size_t size) {
    talk *t = user;
    fwrite(text, 1, size, stdout);
    fflush(stdout);
    t->ends_with_newline = text[size - 1] == '\n';
    return ferror(stdout) != 0;
}

static int on_cancel(void *unused) { return cli_answer_interrupted() || cli_stop_requested(unused); }

static void note_turn(talk *t, const sluice_answer *a) {
    const char *stop = a->stopped_by_text ? "stop string" : cli_stop_name(a->stop);
    if (t->turns)
        json_array_append_new(t->turns,
                              json_pack("{s:s%, s:s, s:I, s:I, s:I}", "text", a->text.data, a->text.size, "stop", stop,
                                        "prompt_tokens", (json_int_t)a->prompt_tokens, "reused_tokens",
                                        (json_int_t)a->reused_tokens, "new_tokens", (json_int_t)a->new_tokens));
    else if (!t->o->common.quiet)
        fprintf(stderr, "[%lld tokens, %lld of them reused; %lld new, %.1f tokens/s; stopped by: %s]\n",
                (long long)a->prompt_tokens, (long long)a->reused_tokens, (long long)a->new_tokens,
                a->decode_seconds > 0 && a->new_tokens > 1 ? (double)(a->new_tokens - 1) / a->decode_seconds : 0.0,
                stop);
}

static sluice_status answer(talk *t, sluice_error *err) {
    sluice_answer a;
    t->ends_with_newline = true;
    cli_answer_begins();
    sluice_status st = sluice_chat_answer(t->chat, &t->answer, &a, err);
    cli_answer_ends();
    if (st != SLUICE_OK) return st;
    if (!t->turns && !t->ends_with_newline) putchar('\n');
    fflush(stdout);
    note_turn(t, &a);
    sluice_answer_free(&a);
    return ferror(stdout) ? sluice__fail(err, SLUICE_ERR_IO, "cannot write to standard output") : SLUICE_OK;
}

static sluice_status say(talk *t, const char *text, size_t size, sluice_error *err) {
    json_t *message = json_pack("{s:s, s:s%}", "role", "user", "content", text, size);
    char *one = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!one) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "a message: the text has to be UTF-8");
    sluice_status st = sluice_chat_add_json(t->chat, one, err);
    free(one);
    if (st != SLUICE_OK) return st;
    st = answer(t, err);
    if (st != SLUICE_OK) sluice_chat_undo(t->chat);
    return st;
}

/* ---- the terminal ---- */

static const char COMMANDS[] =
    "/reset        begin anew          /save FILE    keep conversation and cache in a file\n"
    "/undo         take a turn back    /load FILE    go on with a saved one\n"
    "/quit         leave (or Ctrl-D)   a line that ends with \\ goes on in the next; Ctrl-C stops an answer\n";

/* Runs a command line; false = leave. Its errors are printed, the conversation goes on. */
static bool command(talk *t, char *line) {
    sluice_error err = {0};
    sluice_status st = SLUICE_OK;
    char *argument = line + strcspn(line, " ");
    if (*argument) *argument++ = 0;
    argument += strspn(argument, " ");
    for (size_t n = strlen(argument); n && argument[n - 1] == ' ';) argument[--n] = 0;
    bool file = !strcmp(line, "/save") || !strcmp(line, "/load");
    if (!strcmp(line, "/quit") || !strcmp(line, "/exit")) return false;
    if (file && !*argument)
        fprintf(stderr, "%s: which file?\n", line);
    else if (!strcmp(line, "/save"))
        st = sluice_chat_save(t->chat, argument, &err);
    else if (!strcmp(line, "/load"))
        st = sluice_chat_load(t->chat, argument, &err);
    else if (!strcmp(line, "/reset"))
        sluice_chat_reset(t->chat);
    else if (!strcmp(line, "/undo")) {
        if (sluice_chat_undo(t->chat)) sluice_chat_undo(t->chat); /* the answer and the question */
    } else {
        if (strcmp(line, "/help")) fprintf(stderr, "unknown command %s\n", line);
        fputs(COMMANDS, stderr);
        return true;
    }
    if (st != SLUICE_OK)
        fprintf(stderr, "%s\n", err.message);
    else if (file && *argument)
        fprintf(stderr, "%s: %d messages\n", argument, sluice_chat_num_messages(t->chat));
    return true;
}

/* A line, or several that end with a backslash, without the last newline; NULL at the end of input, and of the conversation. */
static char *read_turn(bool prompt, size_t *length) {
    char *turn = NULL, *line = NULL;
    size_t size = 0, room = 0;
    for (;;) {
        if (prompt) fputs(turn ? ". " : "> ", stderr);
        cli_listening_begins();
        ssize_t n = cli_stop_requested(NULL) ? -1 : getline(&line, &room, stdin);
        cli_listening_ends();
        if (n < 0) break;
        if (n > 0 && line[n - 1] == '\n') n--;
        bool more = n > 0 && line[n - 1] == '\\';
        n -= more;
        char *longer = realloc(turn, size + (size_t)n + 2);
        if (!longer) break;
        turn = longer;
        memcpy(turn + size, line, (size_t)n);
        size += (size_t)n;
        if (more) turn[size++] = '\n';
        turn[size] = 0;
        if (!more) break;
    }
    free(line);
    *length = size;
    if (!cli_stop_requested(NULL)) return turn;
    free(turn);
    return NULL;
}

static sluice_status converse(talk *t) {
    if (!t->o->common.quiet) fputs(COMMANDS, stderr);
    size_t size;
    for (char *turn; (turn = read_turn(true, &size)); free(turn)) {
        sluice_error err = {0};
        if (!size) continue;
        if (*turn == '/' && !command(t, turn)) {
            free(turn);
            break;
        }
        if (*turn != '/' && say(t, turn, size, &err) != SLUICE_OK) fprintf(stderr, "%s\n", err.message);
        if (ferror(stdout)) {
            free(turn);
            break;
        }
    }
    return SLUICE_OK;
}

/* ---- scripts ---- */

static sluice_status say_all_of_stdin(talk *t, sluice_error *err) {
    sluice__strbuf text = {0};
    sluice_status st = cli_read_text(NULL, &text, err);
    while (text.size > 0 && text.data[text.size - 1] == '\n') text.data[--text.size] = '\0';
    if (st == SLUICE_OK && !text.size)
        st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "standard input is empty; give --prompt, or talk on a terminal");
    if (st == SLUICE_OK) st = say(t, text.data, text.size, err);
    sluice__strbuf_free(&text);
    return st;
}

/* Turns that were given: --messages, --prompt, standard input. */
static sluice_status recite(talk *t, sluice_error *err) {
    if (!t->o->prompts && t->messages) return answer(t, err);
    if (!t->o->prompts) return say_all_of_stdin(t, err);
    for (int i = 0; t->o->prompts[i] && !cli_stop_requested(NULL); i++)
        SLUICE__TRY(say(t, t->o->prompts[i], strlen(t->o->prompts[i]), err));
    return SLUICE_OK;
}

/* ---- setting up ---- */

static sluice_status read_json(char **out, const char *path, sluice_error *err) {
    size_t size;
    if (!path) return SLUICE_OK;
    SLUICE__TRY(sluice__read_file(out, &size, path, MAX_FILE, err));
    if (!memchr(*out, 0, size)) return SLUICE_OK; /* the escape \u0000 is fine; the byte would end the text here */
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: a byte 0, which JSON does not have", path);
}

/* --variables and --thinking in one object. */
static sluice_status make_variables(talk *t, sluice_error *err) {
    const options *o = t->o;
    json_error_t je;
    json_t *all = o->variables ? json_loads(o->variables, JSON_ALLOW_NUL, &je) : json_object();
    if (!json_is_object(all)) {
        json_decref(all);
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "--variables: expected a JSON object");
    }
    if (o->thinking) json_object_set_new(all, "enable_thinking", json_boolean(!strcmp(o->thinking, "on")));
    t->variables = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return t->variables ? SLUICE_OK : sluice__no_memory(err, 0, "template variables");
}

static sluice_status load_template(talk *t, const char *path, sluice_error *err) {
    const options *o = t->o;
    if (!o->template_file)
        SLUICE__TRY(sluice_chat_template_load(&t->chat_template, path, err));
    else {
        char *text;
        size_t size;
        SLUICE__TRY(sluice__read_file(&text, &size, o->template_file, MAX_FILE, err));
        sluice_status st = sluice_chat_template_new(&t->chat_template, text, size, NULL, o->template_file, err);
        sluice__free(text);
        SLUICE__TRY(st);
    }
    if (o->thinking && !o->common.quiet && !sluice_chat_template_mentions(t->chat_template, "enable_thinking"))
        fprintf(stderr, "warning: the model's template has no thinking switch; --thinking %s changes nothing\n",
                o->thinking);
    return SLUICE_OK;
}

/* --messages; an empty list without it. */
static sluice_status parse_messages(json_t **list, const talk *t, sluice_error *err) {
    json_error_t je = {.text = "it is no list"};
    *list = t->messages ? json_loads(t->messages, JSON_ALLOW_NUL, &je) : json_array();
    if (json_is_array(*list)) return SLUICE_OK;
    json_decref(*list);
    *list = NULL;
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: expected a JSON list of messages: %s", t->o->messages, je.text);
}

static sluice_status add_messages(talk *t, sluice_error *err) {
    json_t *list;
    SLUICE__TRY(parse_messages(&list, t, err));
    sluice_status st = SLUICE_OK;
    for (size_t i = 0; st == SLUICE_OK && i < json_array_size(list); i++) {
        char *one = json_dumps(json_array_get(list, i), JSON_COMPACT | JSON_ENCODE_ANY);
        st = one ? sluice_chat_add_json(t->chat, one, err) : sluice__no_memory(err, 0, "a message");
        free(one);
    }
    json_decref(list);
    return st;
}

static sluice_status set_up(talk *t, const char *path, const sluice_model *model, sluice_error *err) {
    const sluice_config *config = sluice_model_config(model);
    sluice_chat_params p = sluice_chat_params_default();
    t->answer = sluice_answer_params_default();
    t->answer.generate.max_new_tokens = DEFAULT_MAX_NEW_TOKENS;
    SLUICE__TRY(sluice_tokenizer_load(&t->tokenizer, path, err));
    sluice_check_tokenizer(model, t->tokenizer);
    SLUICE__TRY(sluice_generation_config_load(&t->defaults, path, config, err));
    cli_add_eos(&t->defaults, t->tokenizer);
    cli_sampling_apply(&t->o->sampling, &t->defaults, &t->answer.generate);
    SLUICE__TRY(sluice_sampling_params_check(&t->answer.generate.sampling, err));
    t->answer.generate.cancelled = on_cancel;
    t->answer.stops = (const char *const *)t->o->sampling.stops;
    t->answer.num_stops = cli_num_stops(&t->o->sampling);
    if (!t->o->common.json) t->answer.on_text = on_text;
    t->answer.text_user = t;
    cli_session_params(&t->o->sampling, config, &p.session);
    p.system = t->o->system;
    p.tools = t->tools;
    p.variables = t->variables;
    if (!t->o->common.quiet && !t->o->common.json) cli_print_plan(config, &p.session);
    SLUICE__TRY(sluice_chat_new(&t->chat, model, t->tokenizer, t->chat_template, &p, err));
    if (t->o->load) SLUICE__TRY(sluice_chat_load(t->chat, t->o->load, err));
    return add_messages(t, err);
}

static int print_json(const talk *t) {
    sluice_text text = {0};
    sluice_error err = {0};
    json_t *messages = NULL;
    if (sluice_chat_messages(t->chat, &text, &err) == SLUICE_OK) sluice__json_parse(&messages, text.data, text.size, "messages", &err);
    if (!messages) return cli_fail("chat", &err);
    json_t *out = json_pack("{s:o, s:O}", "messages", messages, "turns", t->turns);
    int bad = !out || json_dumpf(out, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII) != 0 || putchar('\n') == EOF;
    json_decref(out);
    sluice_text_free(&text);
    return bad ? CLI_FAILED : CLI_OK;
}

static sluice_status talk_with(talk *t, const char *path, const sluice_model *model, int *code, sluice_error *err) {
    SLUICE__TRY(set_up(t, path, model, err));
    bool terminal = !t->o->prompts && !t->messages && !t->o->common.json && isatty(STDIN_FILENO);
    sluice_status st = terminal ? converse(t) : recite(t, err);
    /* What was said before a turn that failed is kept too. */
    if (t->o->save && st == SLUICE_OK) st = sluice_chat_save(t->chat, t->o->save, err);
    else if (t->o->save) sluice_chat_save(t->chat, t->o->save, NULL);
    SLUICE__TRY(st);
    *code = t->turns ? print_json(t) : CLI_OK;
    if (cli_stop_requested(NULL)) *code = cli_stop_code();
    return SLUICE_OK;
}

/* --print-prompt: no weights are needed. */
static sluice_status print_prompt(talk *t, sluice_error *err) {
    json_t *list = json_array(), *given;
    sluice_chat_render_params p = sluice_chat_render_params_default();
    sluice_text out = {0};
    p.tools = t->tools;
    p.variables = t->variables;
    sluice_status st = parse_messages(&given, t, err);
    if (t->o->system) json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system", "content", t->o->system));
    json_array_extend(list, given);
    for (int i = 0; t->o->prompts && t->o->prompts[i]; i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", t->o->prompts[i]));
    char *text = json_dumps(list, JSON_COMPACT);
    if (st == SLUICE_OK)
        st = text ? sluice_chat_render(t->chat_template, text, &p, &out, err) : sluice__no_memory(err, 0, "messages");
    if (st == SLUICE_OK) fwrite(out.data, 1, out.size, stdout);
    free(text);
    json_decref(given);
    json_decref(list);
    sluice_text_free(&out);
    return st;
}

static int run(const options *o, const char *path) {
    talk t = {.o = o, .turns = o->common.json ? json_array() : NULL};
    sluice_error err = {0};
    sluice_model *model = NULL;
    sluice_load_params load = cli_load_params(&o->sampling);
    int code = CLI_OK;
    sluice_status st = read_json(&t.tools, o->tools, &err);
    if (st == SLUICE_OK) st = read_json(&t.messages, o->messages, &err);
    if (st == SLUICE_OK) st = make_variables(&t, &err);
    if (st == SLUICE_OK) st = load_template(&t, path, &err);
    if (st == SLUICE_OK && o->print_prompt) {
        st = print_prompt(&t, &err);
    } else if (st == SLUICE_OK) {
        cli_watch_answers();
        if (o->save) st = sluice_session_check_target(o->save, &err);
        if (st == SLUICE_OK) st = sluice_model_load(&model, path, &load, &err);
        if (st == SLUICE_OK) st = talk_with(&t, path, model, &code, &err);
    }
    if (st != SLUICE_OK) code = cli_fail("chat", &err);
    sluice_chat_free(t.chat);
    sluice_chat_template_free(t.chat_template);
    sluice_tokenizer_free(t.tokenizer);
    sluice_model_free(model);
    sluice__free(t.tools);
    sluice__free(t.messages);
    free(t.variables);
    json_decref(t.turns);
    return code;
}

static int check_options(const options *o) {
    if (o->thinking && strcmp(o->thinking, "on") && strcmp(o->thinking, "off"))
        return cli_usage("chat", "--thinking: found \"%s\", expected on or off", o->thinking);
    if (o->load && o->system)
        return cli_usage("chat", "--system has no effect with --load: the saved conversation has its own system message");
    if ((o->load || o->save) && o->print_prompt)
        return cli_usage("chat", "--%s has no effect with --print-prompt, which shows --system, --messages and --prompt",
                         o->load ? "load" : "save");
    if (o->print_prompt && !o->prompts && !o->messages)
        return cli_usage("chat", "--print-prompt needs --prompt or --messages");
    return cli_sampling_check("chat", &o->sampling);
}

int cmd_chat(int argc, const char **argv) {
    options o = {.sampling = CLI_SAMPLING_UNSET};
    struct poptOption table[] = {
        {"prompt", 'p', POPT_ARG_ARGV, &o.prompts, 0,
         "what the user says, then end; may be repeated (default: the terminal, or all of standard input)", "TEXT"},
        {"system", 's', POPT_ARG_STRING, &o.system, 0, "system prompt (default: the template's, if it has one)",
         "TEXT"},
        {"thinking", '\0', POPT_ARG_STRING, &o.thinking, 0,
         "on or off: enable_thinking of the template (default: the template's)", "WHICH"},
        {"tools", '\0', POPT_ARG_STRING, &o.tools, 0, "JSON list of the functions that the model may call", "FILE"},
        {"variables", '\0', POPT_ARG_STRING, &o.variables, 0, "JSON object of further variables of the template",
         "JSON"},
        {"template", '\0', POPT_ARG_STRING, &o.template_file, 0, "chat template in place of the model's", "FILE"},
        {"messages", '\0', POPT_ARG_STRING, &o.messages, 0,
         "JSON list of messages to begin with; without --prompt they are answered", "FILE"},
        {"load", '\0', POPT_ARG_STRING, &o.load, 0, "go on with a saved conversation", "FILE"},
        {"save", '\0', POPT_ARG_STRING, &o.save, 0, "save conversation and cache at the end", "FILE"},
        {"print-prompt", '\0', POPT_ARG_NONE, &o.print_prompt, 0,
         "print what the template makes of --system, --messages and --prompt, and end", NULL},
        CLI_SAMPLING_OPTIONS(&o.sampling),
        CLI_COMMON_OPTIONS(&o.common),
        POPT_TABLEEND};
    int code = CLI_FAILED;
    poptContext ctx = cli_parse(
        argc, argv, table, "[OPTIONS] MODEL",
        "Talks with a model directory or GGUF file, with the model's own chat template. From turn to turn only new "
        "tokens are\n"
        "computed. On a terminal /help lists commands; Ctrl-C stops an answer, and leaves when there is none.",
        "  sluice chat Qwen3-0.6B --thinking off\n"
        "  sluice chat model.gguf --prompt \"Name three rivers\" --prompt \"And their lengths?\" --seed 1 --json",
        &code);
    if (!ctx) return code;
    const char *path = poptGetArg(ctx);
    if (!path)
        code = cli_usage(argv[0], "which model? Give its directory");
    else if (poptPeekArg(ctx))
        code = cli_usage(argv[0], "one model only, found also \"%s\"", poptPeekArg(ctx));
    else if ((code = check_options(&o)) == CLI_OK && (o.print_prompt || (code = cli_start(&o.common)) == CLI_OK))
        code = run(&o, path);
    cli_finish(ctx, table);
    return code;
}
