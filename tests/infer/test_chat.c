/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations: what is reused from turn to turn, answers that are the same as without reuse, files, and the command.
 */
#include "support/small_model.h"
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "sluice/chat.h"
#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[256];

static const char PLAIN[] =
    "{\"vocab_size\": 300, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32, \"max_position_embeddings\": 2048,"
    "\"initializer_range\": 0.3}";
static const char HYBRID[] =
    "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": 300, \"hidden_size\": 32, \"intermediate_size\": 48, "
    "\"num_hidden_layers\": 2,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32, \"max_position_embeddings\": 2048,"
    "\"layer_types\": [\"linear_attention\", \"full_attention\"], \"linear_num_key_heads\": 2, "
    "\"linear_num_value_heads\": 4,"
    "\"linear_key_head_dim\": 8, \"linear_value_head_dim\": 8, \"linear_conv_kernel_dim\": 4, \"initializer_range\": "
    "0.3,"
    "\"rms_norm_eps\": 1e-6, \"attn_output_gate\": true,"
    "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000, \"partial_rotary_factor\": 0.25}}";
/* Thoughts of earlier turns go, as in Qwen's templates. */
static const char TEMPLATE[] =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and not loop.last and '</think>' in m.content %}"
    "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}</{{ m.role }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and enable_thinking %}think {% endif "
    "%}{% endif %}";

static int write_model(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_tokenizer *tok;
    char path[600];
    snprintf(dir, sizeof dir, "%.200s/model", test_temp_dir());
    assert_ok_err(sluice__make_dirs(dir, &err), &err);
    sluice_model *model = test_model_of(PLAIN, 1);
    assert_ok_err(sluice_model_save(model, dir, SLUICE_SAVE_AUTO, &err), &err);
    sluice_tokenizer_params p = sluice_tokenizer_params_default();
    p.vocab_size = 300;
    const char *sample = "the cat sat on the mat and the dog sat on the log";
    assert_ok_err(sluice_tokenizer_train_text(&tok, &p, sample, strlen(sample), &err), &err);
    assert_ok_err(sluice_tokenizer_save(tok, dir, &err), &err);
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    assert_ok_err(sluice__write_file(path, TEMPLATE, strlen(TEMPLATE), &err), &err);
    sluice_tokenizer_free(tok);
    sluice_model_free(model);
    return 0;
}

typedef struct setup {
    sluice_model *model;
    sluice_tokenizer *tok;
    sluice_chat_template *t;
    sluice_chat *chat;
} setup;

static sluice_chat *new_chat(const setup *s) {
    sluice_error err = {0};
    sluice_chat *chat;
    sluice_chat_params p = sluice_chat_params_default();
    p.system = "be brief";
    assert_ok_err(sluice_chat_new(&chat, s->model, s->tok, s->t, &p, &err), &err);
    return chat;
}

static setup begin(const char *config) {
    setup s = {.model = test_model_of(config, 1)};
    sluice_error err = {0};
    assert_ok_err(sluice_tokenizer_load(&s.tok, dir, &err), &err);
    assert_ok_err(sluice_chat_template_load(&s.t, dir, &err), &err);
    s.chat = new_chat(&s);
    return s;
}

static void end(setup *s) {
    sluice_chat_free(s->chat);
    sluice_chat_template_free(s->t);
    sluice_tokenizer_free(s->tok);
    sluice_model_free(s->model);
}

static sluice_answer_params brief(void) {
    sluice_answer_params p = sluice_answer_params_default();
    p.generate.sampling.temperature = 0;
    p.generate.max_new_tokens = 12;
    return p;
}

static sluice_answer ask(sluice_chat *chat, const char *text) {
    sluice_error err = {0};
    sluice_answer a;
    sluice_answer_params p = brief();
    assert_ok_err(sluice_chat_add(chat, "user", text, &err), &err);
    assert_ok_err(sluice_chat_answer(chat, &p, &a, &err), &err);
    return a;
}

/* Only the new turn is computed, and the answer is that of a chat that computes everything. */
static void turns_reuse_what_came_before(void **state) {
    (void)state;
    sluice_error err = {0};
    for (int kind = 0; kind < 2; kind++) {
        setup s = begin(kind ? HYBRID : PLAIN);
        int64_t before = 0;
        for (int turn = 0; turn < 4; turn++) {
            sluice_answer a = ask(s.chat, turn ? "the dog sat on the log" : "the cat");
            sluice_text messages = {0};
            sluice_chat *fresh = new_chat(&s);
            assert_ok_err(sluice_chat_messages(s.chat, &messages, &err), &err);
            json_t *list = json_loads(messages.data, 0, NULL);
            for (size_t i = 1; i + 1 < json_array_size(list); i++) {
                char *one = json_dumps(json_array_get(list, i), 0);
                assert_ok_err(sluice_chat_add_json(fresh, one, &err), &err);
                free(one);
            }
            sluice_answer b;
            sluice_answer_params p = brief();
            assert_ok_err(sluice_chat_answer(fresh, &p, &b, &err), &err);
            assert_string_equal(a.text.data, b.text.data);
            assert_int_equal(a.prompt_tokens, b.prompt_tokens);
            assert_int_equal(b.reused_tokens, 0);
            assert_true(a.reused_tokens >= before && a.reused_tokens < a.prompt_tokens);
            if (turn) assert_true(a.reused_tokens > 0);
            before = a.prompt_tokens - 12; /* the invitation to answer is rendered anew */
            sluice_answer_free(&a);
            sluice_answer_free(&b);
            sluice_text_free(&messages);
            json_decref(list);
            sluice_chat_free(fresh);
        }
        end(&s);
    }
}

typedef struct pieces {
    char text[4096];
    int count, stop_after;
} pieces;

static int on_text(void *user, const char *text, size_t size) {
    pieces *p = user;
    strncat(p->text, text, size);
    return ++p->count == p->stop_after;
}

static void text_is_delivered_and_can_be_stopped(void **state) {
    (void)state;
    sluice_error err = {0};
    setup s = begin(PLAIN);
    pieces got = {0};
    sluice_answer a;
    sluice_answer_params p = brief();
    p.on_text = on_text;
    p.text_user = &got;
    assert_ok_err(sluice_chat_add(s.chat, "user", "cat", &err), &err);
    assert_ok_err(sluice_chat_answer(s.chat, &p, &a, &err), &err);
    assert_string_equal(a.text.data, got.text);
    size_t middle = a.text.size / 2;
    while (middle < a.text.size && ((unsigned char)a.text.data[middle] & 0xC0) == 0x80) middle++;
    char *half = strdup(a.text.data + middle);
    assert_true(sluice_chat_undo(s.chat));
    assert_int_equal(sluice_chat_num_messages(s.chat), 2);
    sluice_answer_free(&a);
    if (*half) {
        const char *stops[] = {half};
        p.stops = stops;
        p.num_stops = 1;
        p.on_text = NULL;
        assert_ok_err(sluice_chat_answer(s.chat, &p, &a, &err), &err);
        assert_true(a.stopped_by_text && a.stop == SLUICE_STOP_CALLER);
        assert_null(strstr(a.text.data, half));
        sluice_answer_free(&a);
        sluice_chat_undo(s.chat);
    }
    free(half);
    p = brief();
    got = (pieces){.stop_after = 2};
    p.on_text = on_text;
    p.text_user = &got;
    assert_ok_err(sluice_chat_answer(s.chat, &p, &a, &err), &err);
    assert_int_equal(a.stop, SLUICE_STOP_CALLER);
    assert_int_equal(sluice_chat_num_messages(s.chat), 3); /* what there was is kept */
    sluice_answer_free(&a);
    sluice_chat_reset(s.chat);
    assert_int_equal(sluice_chat_num_messages(s.chat), 1);
    assert_false(sluice_chat_undo(s.chat));
    end(&s);
}

static void saved_conversations_go_on(void **state) {
    (void)state;
    sluice_error err = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/talk", test_temp_dir());
    for (int kind = 0; kind < 2; kind++) {
        setup s = begin(kind ? HYBRID : PLAIN);
        sluice_answer a = ask(s.chat, "the cat"), b, c;
        sluice_answer_free(&a);
        assert_ok_err(sluice_chat_save(s.chat, path, &err), &err);
        b = ask(s.chat, "and the dog");
        sluice_chat *other = new_chat(&s);
        assert_ok_err(sluice_chat_load(other, path, &err), &err);
        assert_int_equal(sluice_chat_num_messages(other), 3);
        c = ask(other, "and the dog");
        assert_string_equal(b.text.data, c.text.data);
        if (!kind) assert_int_equal(c.reused_tokens, b.reused_tokens);
        sluice_answer_free(&b);
        sluice_answer_free(&c);
        assert_int_not_equal(sluice_chat_load(other, dir, &err), SLUICE_OK);
        assert_int_equal(sluice_chat_num_messages(other), 5);
        sluice_chat_free(other);
        end(&s);
    }
}

static void every_end_token_is_known(void **state) {
    (void)state;
    static const struct {
        const char *config, *generation;
        int count;
        int32_t ids[3];
    } cases[] = {{"\"eos_token_id\": [3, 5]", NULL, 2, {3, 5}},
                 {"\"eos_token_id\": [3, 5]",
                  "{\"eos_token_id\": [1, 2, 9], \"do_sample\": true, \"typical_p\": 0.5}",
                  3,
                  {1, 2, 9}},
                 {"\"eos_token_id\": 7", "{\"max_new_tokens\": 5}", 1, {7}}};
    sluice_error err = {0};
    sluice_generation_config g;
    char path[600];
    const char *where = test_temp_dir();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        sluice_config config;
        snprintf(text, sizeof text, "{%s, %s", cases[i].config, PLAIN + 1);
        assert_ok_err(sluice_config_parse(&config, text, "config.json", &err), &err);
        snprintf(path, sizeof path, "%s/generation_config.json", where);
        remove(path);
        if (cases[i].generation)
            assert_ok_err(sluice__write_file(path, cases[i].generation, strlen(cases[i].generation), &err), &err);
        assert_ok_err(sluice_generation_config_load(&g, where, &config, &err), &err);
        assert_int_equal(g.num_eos, cases[i].count);
        assert_memory_equal(g.eos_ids, cases[i].ids, (size_t)g.num_eos * sizeof *g.eos_ids);
        assert_true(g.sampling.typical_p == (i == 1 ? 0.5 : 1));
        sluice_config_free(&config);
    }
}

/* ---- the command ---- */

static void run(const char *before, const char *arguments, int code, const char *mention) {
    char command[2048], *output;
    snprintf(command, sizeof command, "%s %s %s;", before, SLUICE_PROGRAM, arguments);
    int found = test_run(command, &output);
    if (found != code || (mention && !strstr(output, mention)))
        fail_msg("%s\nexit code %d, expected %d, and \"%s\" in: %s", command, found, code, mention ? mention : "",
                 output);
    free(output);
}

/* The file is cut once it is mapped; what stands behind the cut is read then. */
static void a_model_cut_off_while_in_use_is_named(void **state) {
    (void)state;
    char before[1600], line[600];
    snprintf(before, sizeof before,
             "cp -r %s %s-cut && (for i in $(seq 200); do grep -qs %s-cut/model.safetensors /proc/[0-9]*/maps && break; sleep 0.05; done; "
             "sleep 0.3; truncate -s 4096 %s-cut/model.safetensors; echo cat) |",
             dir, dir, dir, dir);
    snprintf(line, sizeof line, "chat -q -n 1 %s-cut", dir);
    run(before, line, 1, "has become shorter");
}

/* Reads what a terminal shows until `text` has come `times` times; false: the end, or nothing for a minute. */
static bool shows(int terminal, const char *text, int times) {
    char all[1 << 16] = "";
    size_t n = 0;
    for (struct pollfd p = {terminal, POLLIN, 0}; n + 1 < sizeof all && poll(&p, 1, 60000) == 1;) {
        ssize_t more = read(terminal, all + n, sizeof all - n - 1);
        if (more <= 0) return false;
        if (!*text) return true;
        all[n += (size_t)more] = 0;
        int found = 0;
        for (const char *at = all; (at = strstr(at, text)); at++) found++;
        if (found >= times) return true;
    }
    return false;
}

/* A conversation on a terminal that ends by a signal is saved, answering or waiting for the next line. */
static void a_conversation_that_a_signal_ends_is_saved(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGHUP, SIGINT};
    for (size_t i = 0; i < 6; i++) {
        char file[600];
        int terminal, status, number = signals[i % 3];
        bool answering = i >= 3;
        snprintf(file, sizeof file, "%s/by-signal-%d", test_temp_dir(), (int)i);
        pid_t child = forkpty(&terminal, NULL, NULL, NULL);
        if (!child) {
            execl(SLUICE_PROGRAM, SLUICE_PROGRAM, "chat", "-q", "--save", file, "--threads", "1", "-n", answering ? "2000" : "3", "--ignore-eos", dir,
                  (char *)NULL);
            _exit(127);
        }
        assert_true(shows(terminal, "> ", 1));
        assert_int_equal(write(terminal, "cat\n", 4), 4);
        if (answering) assert_true(shows(terminal, "cat\r\n", 1) && shows(terminal, "", 1));
        else assert_true(shows(terminal, "> ", 1));
        assert_int_equal(kill(child, number), 0);
        if (answering && number == SIGINT) { /* the first one stops the answer */
            usleep(20000);
            kill(child, number);
        }
        while (shows(terminal, "never", 1)) {}
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 128 + number) fail_msg("case %d: status %x", (int)i, status);
        char line[1600];
        snprintf(line, sizeof line, "chat -q -p log -n 5 --greedy --json --load %s %s", file, dir);
        run("", line, 0, "\"content\": \"cat\"");
        close(terminal);
    }
}

/* What was said before a turn that fails is saved. */
static void turns_before_a_failure_are_saved(void **state) {
    (void)state;
    char line[1600], file[600];
    snprintf(file, sizeof file, "%s/before-failure", test_temp_dir());
    snprintf(line, sizeof line, "chat -q -p cat -p dog -p dog -p dog -n 20 --ignore-eos -c 96 --save %s %s", file, dir);
    run("", line, 1, "context");
    snprintf(line, sizeof line, "chat -q -p log -n 5 --greedy --json --load %s %s", file, dir);
    run("", line, 0, "\"content\": \"cat\"");
}

static void commands_do_what_they_say(void **state) {
    (void)state;
    char line[1600], file[600];
    snprintf(file, sizeof file, "%s/saved", test_temp_dir());
    snprintf(line, sizeof line, "chat -q -p cat --print-prompt --thinking on -s brief %s", dir);
    run("", line, 0, "<system>brief</system>\n<user>cat</user>\n<assistant>think ");
    snprintf(line, sizeof line, "chat -q -p cat -p dog -n 5 --greedy --json --save %s %s", file, dir);
    run("", line, 0, "\"reused_tokens\": 0");
    snprintf(line, sizeof line, "chat -q -p log -n 5 --greedy --json --load %s %s", file, dir);
    run("", line, 0, "\"content\": \"dog\"");
    snprintf(line, sizeof line, "chat -q -n 5 --greedy --json %s", dir);
    run("printf 'the mat\\n' |", line, 0, "\"content\": \"the mat\"");
    run(": |", line, 1, "empty");
    snprintf(line, sizeof line, "chat -q -p cat -n 5 --greedy --cache-dtype q8_0 %s", dir);
    run("", line, 0, NULL);
    snprintf(line, sizeof line, "chat -q -p cat -n 5 --cache-dtype f8 %s", dir);
    run("", line, 2, "f8");
    snprintf(line, sizeof line, "chat -q -p cat --thinking maybe %s", dir);
    run("", line, 2, "maybe");
    snprintf(line, sizeof line, "chat -q -p cat --load %s/config.json %s", dir, dir);
    run("", line, 1, "not a session file");
    snprintf(line, sizeof line, "chat -q -p cat --save %s/config.json %s", dir, dir);
    run("", line, 1, "config.json: exists and is not a session file");
    snprintf(line, sizeof line, "chat -q -p cat -n 1 --save %s --load %s %s", file, file, dir);
    run("", line, 0, NULL);
    snprintf(line, sizeof line, "chat -q -p cat -n 1 --save /dev/null/x %s", dir);
    run("", line, 1, "/dev/null");
    snprintf(line, sizeof line,
             "generate -q -p cat -p dog -n 4 --temperature 1 --num-return-sequences 2 --logprobs 2 --json %s", dir);
    run("", line, 0, "\"top\"");
    snprintf(line, sizeof line, "generate -q -p cat -p dog -n 4 --greedy --parallel 2 %s", dir);
    run("", line, 0, "\n----\ndog");
    snprintf(line, sizeof line, "generate -q -p cat -n 4 --parallel 0 %s", dir);
    run("", line, 2, "--parallel");
    snprintf(line, sizeof line, "generate -q -p cat -n 4 --greedy --num-return-sequences 2 %s", dir);
    run("", line, 1, "temperature");
    snprintf(line, sizeof line, "generate -q -p cat -n 4 --logprobs 2 %s", dir);
    run("", line, 2, "--json");
    snprintf(line, sizeof line, "generate -q -p cat -n 4 --stop '' %s", dir);
    run("", line, 2, "--stop");
}

/* Reads from the terminal until `want` has come `times` times, in at most a minute. */
static void await(int terminal, char *seen, size_t room, const char *want, int times) {
    for (size_t size = strlen(seen); size + 1 < room;) {
        int found = 0;
        for (const char *p = seen; (p = strstr(p, want)); p++) found++;
        if (found >= times) return;
        struct pollfd wait = {.fd = terminal, .events = POLLIN};
        if (poll(&wait, 1, 60000) < 1) break;
        ssize_t n = read(terminal, seen + size, room - size - 1 < 4096 ? room - size - 1 : 4096);
        if (n < 1) break;
        for (ssize_t i = 0; i < n; i++)
            if (!seen[size + (size_t)i]) seen[size + (size_t)i] = '?';
        size += (size_t)n;
        seen[size] = 0;
    }
    fail_msg("waited for \"%s\"; the end of what came: %s", want, seen + (strlen(seen) > 400 ? strlen(seen) - 400 : 0));
}

static void type(int terminal, const char *text) {
    assert_int_equal(write(terminal, text, strlen(text)), (ssize_t)strlen(text));
}

/* Ctrl-C stops the answer, not the program; the next one comes. */
static void an_answer_can_be_interrupted(void **state) {
    (void)state;
    enum { ROOM = 16 << 20 };
    char *seen = calloc(1, ROOM);
    int terminal, status;
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);
    assert_true(child >= 0);
    assert_non_null(seen);
    if (child == 0) {
        execl(SLUICE_PROGRAM, "sluice", "chat", "--ignore-eos", "-n", "200000", "--context", "300000", "--greedy", dir,
              (char *)NULL);
        _exit(127);
    }
    await(terminal, seen, ROOM, "> ", 1);
    type(terminal, "cat\n");
    await(terminal, seen, ROOM, "cat\r\n", 1);
    usleep(300000);
    type(terminal, "\x03");
    await(terminal, seen, ROOM, "stopped by: caller", 1);
    type(terminal, "/undo\n/nonsense\n");
    await(terminal, seen, ROOM, "unknown command", 1);
    type(terminal, "/quit\n");
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(terminal);
    free(seen);
}

static void the_example_talks(void **state) {
    (void)state;
    char command[1000], *output;
    snprintf(command, sizeof command, "%s %s 'the cat' 'the dog' 2>&1;", SLUICE_EXAMPLE_CHAT, dir);
    assert_int_equal(test_run(command, &output), 0);
    assert_non_null(strstr(output, "> the dog"));
    free(output);
}

/* The i-th text of a prompt is what the same prompt gives alone with that seed. */
static void sequences_have_seeds_of_their_own(void **state) {
    (void)state;
    char line[1000], *all, *one;
    snprintf(line, sizeof line,
             "%s generate -q -p 'the cat' -n 8 --temperature 1 --seed 5 --num-return-sequences 3 --parallel 2 --json %s;",
             SLUICE_PROGRAM, dir);
    assert_int_equal(test_run(line, &all), 0);
    json_t *root = json_loads(all, 0, NULL), *results = json_object_get(root, "results");
    assert_int_equal(json_array_size(results), 3);
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "%s generate -q -p 'the cat' -n 8 --temperature 1 --seed %d --json %s;",
                 SLUICE_PROGRAM, 5 + i, dir);
        assert_int_equal(test_run(line, &one), 0);
        json_t *alone = json_loads(one, 0, NULL);
        assert_true(json_equal(json_object_get(alone, "tokens"),
                               json_object_get(json_array_get(results, (size_t)i), "tokens")));
        json_decref(alone);
        free(one);
    }
    json_decref(root);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_reuse_what_came_before),
        cmocka_unit_test(text_is_delivered_and_can_be_stopped),
        cmocka_unit_test(saved_conversations_go_on),
        cmocka_unit_test(every_end_token_is_known),
        cmocka_unit_test(commands_do_what_they_say),
        cmocka_unit_test(a_model_cut_off_while_in_use_is_named),
        cmocka_unit_test(a_conversation_that_a_signal_ends_is_saved),
        cmocka_unit_test(turns_before_a_failure_are_saved),
        cmocka_unit_test(an_answer_can_be_interrupted),
        cmocka_unit_test(the_example_talks),
        cmocka_unit_test(sequences_have_seeds_of_their_own),
    };
    return cmocka_run_group_tests(tests, write_model, NULL);
}
