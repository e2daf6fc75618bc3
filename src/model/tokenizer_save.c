/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of a trained tokenizer, in the form that the tokenizers package writes, and tokenizer_config.json. */
#include "model/tokenizer_save.h"
#include "base/file.h"
#include "base/memory.h"

void sluice__json_quote(sluice__strbuf *out, const char *text, size_t size) {
    sluice__strbuf_puts(out, "\"");
    for (const char *p = text, *end = text + size; p < end; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') sluice__strbuf_puts(out, "\\");
        if (c < 0x20)
            sluice__strbuf_printf(out, "\\u%04x", c);
        else
            sluice__strbuf_add(out, p, 1);
    }
    sluice__strbuf_puts(out, "\"");
}

static void added_tokens(sluice__strbuf *out, const sluice__vocab *v, int special) {
    sluice__strbuf_puts(out, "  \"added_tokens\": [");
    for (int id = 0; id < special; id++) {
        sluice__strbuf_printf(out, "%s\n    {\"id\": %d, \"content\": ", id ? "," : "", id);
        sluice__json_quote(out, sluice__token_text(v, id), v->tokens[id].text_size);
        sluice__strbuf_puts(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": "
                                 "false, \"special\": true}");
    }
    sluice__strbuf_puts(out, special ? "\n  ],\n" : "],\n");
}

static void pre_tokenizer(sluice__strbuf *out, const char *pattern, bool gpt2) {
    const char *level =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": %s}";
    sluice__strbuf_puts(out, "  \"pre_tokenizer\": ");
    if (gpt2) {
        sluice__strbuf_printf(out, level, "true");
    } else {
        sluice__strbuf_puts(
            out, "{\"type\": \"Sequence\", \"pretokenizers\": [\n    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        sluice__json_quote(out, pattern, strlen(pattern));
        sluice__strbuf_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n    ");
        sluice__strbuf_printf(out, level, "false");
        sluice__strbuf_puts(out, "\n  ]}");
    }
    sluice__strbuf_puts(out, ",\n  \"post_processor\": null,\n  \"decoder\": ");
    sluice__strbuf_printf(out, level, "true");
    sluice__strbuf_puts(out, ",\n");
}

static void model(sluice__strbuf *out, const sluice__vocab *v, const sluice__pair *merges, size_t num_merges) {
    sluice__strbuf_puts(
        out, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
             "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
             "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {");
    for (int32_t id = 0; id < v->size; id++) {
        sluice__strbuf_puts(out, id ? ",\n      " : "\n      ");
        sluice__json_quote(out, sluice__token_text(v, id), v->tokens[id].text_size);
        sluice__strbuf_printf(out, ": %d", id);
    }
    sluice__strbuf_puts(out, "\n    },\n    \"merges\": [");
    for (size_t i = 0; i < num_merges; i++) {
        int32_t left = (int32_t)merges[i].left, right = (int32_t)merges[i].right;
        sluice__strbuf_puts(out, i ? ",\n      [" : "\n      [");
        sluice__json_quote(out, sluice__token_text(v, left), v->tokens[left].text_size);
        sluice__strbuf_puts(out, ", ");
        sluice__json_quote(out, sluice__token_text(v, right), v->tokens[right].text_size);
        sluice__strbuf_puts(out, "]");
    }
    sluice__strbuf_puts(out, num_merges ? "\n    ]\n  }\n}\n" : "]\n  }\n}\n");
}

void sluice__tokenizer_json(sluice__strbuf *out, const sluice__vocab *v, int special, const char *normalizer,
                            const char *pattern, bool gpt2, const sluice__pair *merges, size_t num_merges) {
    sluice__strbuf_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    added_tokens(out, v, special);
    if (normalizer)
        sluice__strbuf_printf(out, "  \"normalizer\": {\"type\": \"%s\"},\n", normalizer);
    else
        sluice__strbuf_puts(out, "  \"normalizer\": null,\n");
    pre_tokenizer(out, pattern, gpt2);
    model(out, v, merges, num_merges);
}

sluice_status sluice__save_config(const sluice_tokenizer *tok, const char *path, sluice_error *err) {
    if (tok->config_json) return sluice__write_file(path, tok->config_json, tok->config_size, err);
    const struct {
        const char *key;
        int32_t id;
    } roles[] = {{"bos_token", tok->bos_id},
                 {"eos_token", tok->eos_id},
                 {"pad_token", tok->pad_id},
                 {"unk_token", sluice_tokenizer_unk_id(tok)}};
    sluice__strbuf out = {0};
    sluice__strbuf_puts(
        &out, "{\n  \"clean_up_tokenization_spaces\": false,\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (roles[i].id < 0) continue;
        sluice__strbuf_printf(&out, ",\n  \"%s\": ", roles[i].key);
        sluice__json_quote(&out, sluice__token_text(&tok->vocab, roles[i].id),
                           tok->vocab.tokens[roles[i].id].text_size);
    }
    sluice__strbuf_puts(&out, "\n}\n");
    sluice_status st =
        out.failed ? sluice__no_memory(err, out.size, path) : sluice__write_file(path, out.data, out.size, err);
    sluice__strbuf_free(&out);
    return st;
}
