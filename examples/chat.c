/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation through the library: two turns with a model, streamed, the second reusing what the first computed.
 *
 *   chat MODEL [QUESTION [QUESTION]]      MODEL: a Hugging Face directory or GGUF file with a chat template */
#include <sluice/chat.h>
#include <stdio.h>

static int print_text(void *user, const char *text, size_t size) {
    fwrite(text, 1, size, user);
    return fflush(user);
}

static sluice_status ask(sluice_chat *chat, const char *question, const sluice_answer_params *params,
                         sluice_error *err) {
    sluice_answer answer;
    sluice_status st = sluice_chat_add(chat, "user", question, err);
    printf("> %s\n", question);
    if (st == SLUICE_OK) st = sluice_chat_answer(chat, params, &answer, err);
    if (st != SLUICE_OK) return st;
    printf("\n[%lld tokens, %lld of them reused]\n", (long long)answer.prompt_tokens, (long long)answer.reused_tokens);
    sluice_answer_free(&answer);
    return SLUICE_OK;
}

int main(int argc, char **argv) {
    sluice_error err = {0};
    sluice_model *model = NULL;
    sluice_tokenizer *tokenizer = NULL;
    sluice_chat_template *chat_template = NULL;
    sluice_chat *chat = NULL;
    sluice_load_params load = sluice_load_params_default();
    sluice_answer_params params = sluice_answer_params_default();
    sluice_generation_config defaults;
    if (argc < 2) {
        fprintf(stderr, "usage: chat MODEL [QUESTION [QUESTION]]\n");
        return 2;
    }
    load.weights = SLUICE_LOAD_AS_STORED;
    sluice_status st = sluice_model_load(&model, argv[1], &load, &err);
    if (st == SLUICE_OK) st = sluice_tokenizer_load(&tokenizer, argv[1], &err);
    if (st == SLUICE_OK) st = sluice_chat_template_load(&chat_template, argv[1], &err);
    if (st == SLUICE_OK) st = sluice_generation_config_load(&defaults, argv[1], sluice_model_config(model), &err);
    if (st == SLUICE_OK) st = sluice_chat_new(&chat, model, tokenizer, chat_template, NULL, &err);
    if (st == SLUICE_OK) {
        params.generate.sampling = defaults.sampling;
        params.generate.eos_ids = defaults.eos_ids;
        params.generate.num_eos = defaults.num_eos;
        params.on_text = print_text;
        params.text_user = stdout;
        st = ask(chat, argc > 2 ? argv[2] : "What is a sluice?", &params, &err);
    }
    if (st == SLUICE_OK) st = ask(chat, argc > 3 ? argv[3] : "And what is it for?", &params, &err);
    if (st != SLUICE_OK) fprintf(stderr, "chat: %s\n", err.message);
    sluice_chat_free(chat);
    sluice_chat_template_free(chat_template);
    sluice_tokenizer_free(tokenizer);
    sluice_model_free(model);
    return st != SLUICE_OK;
}
