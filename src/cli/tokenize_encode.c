/* SPDX-License-Identifier: Apache-2.0 */
/* sluice tokenize encode and decode */
#include "cli/tokenize.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    cli_common common;
    char *tokenizer, *text;
    int no_add_special, no_parse_special, skip_special, tokens, lines;
} options;

static const char *name_of(const char *path) {
    return !path ? "--text" : strcmp(path, "-") ? path : "standard input";
}

/* ---- encode ---- */
static json_t *bytes_as_json(const char *data, size_t size) {
    json_t *text = json_stringn(data, size); /* NULL when it is not UTF-8 */
    if (text) return text;
    json_t *list = json_array();
    for (size_t i = 0; i < size; i++) json_array_append_new(list, json_integer((unsigned char)data[i]));
    return list;
}

static json_t *ids_as_json(const sluice_ids *ids) {
    json_t *list = json_array();
    for (size_t i = 0; i < ids->count; i++) json_array_append_new(list, json_integer(ids->data[i]));
    return list;
}

static json_t *encoded_as_json(const options *o, const sluice_tokenizer *tok, const char *name, size_t bytes,
                               const sluice_ids *ids) {
    json_t *one = json_pack("{s:s, s:I, s:o}", "source", name, "bytes", (json_int_t)bytes, "ids", ids_as_json(ids));
    if (!one || !o->tokens) return one;
    json_t *list = json_array();
    for (size_t i = 0; i < ids->count; i++) {
        size_t size = 0;
        const char *token = sluice_tokenizer_bytes(tok, ids->data[i], &size);
        json_array_append_new(list, bytes_as_json(token, size));
    }
    json_object_set_new(one, "tokens", list);
    return one;
}

/* A token's bytes between quotation marks; what does not print is escaped. */
static void print_token(const sluice_tokenizer *tok, int32_t id) {
    size_t size = 0;
    const char *p = sluice_tokenizer_bytes(tok, id, &size);
    json_t *text = json_stringn(p, size);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    printf("%d\t", id);
    if (quoted) fputs(quoted, stdout);
    for (size_t i = 0; i < size && !quoted; i++)
        printf(p[i] >= 0x20 && p[i] < 0x7F ? "%s%c" : "%s\\x%02x", i ? "" : "\"", (unsigned char)p[i]);
    puts(quoted ? "" : "\"");
    free(quoted);
    json_decref(text);
}

static void print_ids(const options *o, const sluice_tokenizer *tok, const sluice_ids *ids) {
    for (size_t i = 0; i < ids->count && o->tokens; i++) print_token(tok, ids->data[i]);
    if (o->tokens) return;
    for (size_t i = 0; i < ids->count; i++) printf(i ? " %d" : "%d", ids->data[i]);
    putchar('\n');
}

static unsigned flags_of(const options *o) {
    return (o->no_add_special ? 0u : SLUICE_ENCODE_ADD_SPECIAL) |
           (o->no_parse_special ? 0u : SLUICE_ENCODE_PARSE_SPECIAL);
}

/* Every line of the input is a JSON string; every line of the output the JSON array of its ids. */
static sluice_status encode_lines(const options *o, const sluice_tokenizer *tok, const char *name,
                                  const sluice__strbuf *in, sluice_error *err) {
    int64_t number = 1;
    sluice_ids ids = {0};
    sluice_status st = SLUICE_OK;
    for (const char *p = in->data, *end = p + in->size; in->size && p < end && st == SLUICE_OK; number++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);
        json_error_t je;
        json_t *text = json_loadb(p, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
        p += n + 1;
        ids.count = 0;
        if (!json_is_string(text))
            st = sluice__fail(err, SLUICE_ERR_FORMAT, "%s: line %lld: expected a JSON string", name, (long long)number);
        else
            st =
                sluice_tokenizer_encode(tok, json_string_value(text), json_string_length(text), flags_of(o), &ids, err);
        json_decref(text);
        for (size_t i = 0; i < ids.count && st == SLUICE_OK; i++) printf(i ? ",%d" : "[%d", ids.data[i]);
        if (st == SLUICE_OK) puts(ids.count ? "]" : "[]");
    }
    sluice_ids_free(&ids);
    return st;
}

static sluice_status encode_one(const options *o, const sluice_tokenizer *tok, const char *path, json_t *results,
                                sluice_error *err) {
    sluice__strbuf text = {0};
    sluice_ids ids = {0};
    sluice_status st = SLUICE_OK;
    if (path)
        st = cli_read_text(path, &text, err);
    else
        sluice__strbuf_puts(&text, o->text);
    if (st == SLUICE_OK && o->lines) {
        st = encode_lines(o, tok, name_of(path), &text, err);
    } else if (st == SLUICE_OK) {
        st = sluice_tokenizer_encode(tok, text.data ? text.data : "", text.size, flags_of(o), &ids, err);
        if (st == SLUICE_OK && o->common.json)
            json_array_append_new(results, encoded_as_json(o, tok, name_of(path), text.size, &ids));
        else if (st == SLUICE_OK)
            print_ids(o, tok, &ids);
    }
    sluice_ids_free(&ids);
    sluice__strbuf_free(&text);
    return st;
}

static int encode(const options *o, const sluice_tokenizer *tok, const char **paths, int num_paths) {
    static const char *input[] = {"-", NULL};
    sluice_error err = {0};
    sluice_status st = SLUICE_OK;
    json_t *results = json_array();
    if (o->text)
        st = encode_one(o, tok, NULL, results, &err);
    else if (!num_paths)
        paths = input, num_paths = 1;
    for (int i = 0; i < num_paths && st == SLUICE_OK; i++) st = encode_one(o, tok, paths[i], results, &err);
    int code = st == SLUICE_OK ? CLI_OK : cli_fail("tokenize encode", &err);
    if (code == CLI_OK && o->common.json && !o->lines) {
        bool one = json_array_size(results) == 1;
        code = tokenize_print_json("tokenize encode", one ? json_incref(json_array_get(results, 0))
                                                          : json_pack("{s:O}", "texts", results));
    }
    json_decref(results);
    return code;
}

/* ---- decode ---- */
static sluice_status parse_ids(const sluice_tokenizer *tok, const char *name, const char *p, const char *end,
                               sluice_ids *ids, sluice_error *err) {
    static const char between[] = " \t\r\n,[]";
    while (p < end) {
        if (*p && strchr(between, *p)) {
            p++;
            continue;
        }
        char *stop;
        errno = 0;
        long id = strtol(p, &stop, 10);
        if (stop == p || (stop < end && *stop && !strchr(between, *stop)) || errno || id < 0 || id > INT32_MAX ||
            !sluice_tokenizer_token(tok, (int32_t)id, NULL)) {
            int n = (int)strcspn(p, between);
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found \"%.*s\", expected ids of the tokenizer, 0..%d",
                                name, n > 40 ? 40 : n, p, sluice_tokenizer_vocab_size(tok) - 1);
        }
        if (ids->count == ids->capacity) {
            size_t n = ids->capacity ? ids->capacity * 2 : 64;
            void *more = sluice__realloc(ids->data, n, sizeof *ids->data, SLUICE__MEM_DATA);
            if (!more) return sluice__no_memory(err, n * sizeof *ids->data, "ids");
            ids->data = more;
            ids->capacity = n;
        }
        ids->data[ids->count++] = (int32_t)id;
        p = stop;
    }
    return SLUICE_OK;
}

static sluice_status print_text(const options *o, const sluice_tokenizer *tok, const sluice_ids *ids, bool quoted,
                                sluice_error *err) {
    sluice_text text = {0};
    SLUICE__TRY(sluice_tokenizer_decode(tok, ids->data, ids->count, o->skip_special, &text, err));
    json_t *value = quoted ? json_stringn(text.data, text.size) : NULL;
    char *dump = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    if (dump)
        puts(dump);
    else
        fwrite(text.data, 1, text.size, stdout);
    free(dump);
    json_decref(value);
    sluice_text_free(&text);
    return SLUICE_OK;
}

/* lines: each line of ids is a text of its own and comes out as a JSON string. */
static sluice_status decode_text(const options *o, const sluice_tokenizer *tok, const char *name,
                                 const sluice__strbuf *in, sluice_error *err) {
    sluice_ids ids = {0};
    sluice_status st = SLUICE_OK;
    const char *p = in->data ? in->data : "", *end = p + in->size;
    while (p < end && st == SLUICE_OK && o->lines) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
        ids.count = 0;
        st = parse_ids(tok, name, p, stop, &ids, err);
        if (st == SLUICE_OK) st = print_text(o, tok, &ids, true, err);
        p = stop + 1;
    }
    if (!o->lines) {
        st = parse_ids(tok, name, p, end, &ids, err);
        if (st == SLUICE_OK) st = print_text(o, tok, &ids, o->common.json, err);
        if (st == SLUICE_OK && !o->common.json && name) putchar('\n');
    }
    sluice_ids_free(&ids);
    return st;
}

static int decode(const options *o, const sluice_tokenizer *tok, const char **args, int num_args) {
    sluice__strbuf in = {0};
    sluice_error err = {0};
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < num_args; i++) sluice__strbuf_printf(&in, "%s ", args[i]);
    if (!num_args) st = cli_read_text(NULL, &in, &err);
    if (st == SLUICE_OK) st = decode_text(o, tok, num_args ? "ids" : "standard input", &in, &err);
    sluice__strbuf_free(&in);
    return st == SLUICE_OK ? CLI_OK : cli_fail("tokenize decode", &err);
}

/* ---- both ---- */
static int with_tokenizer(options *o, const char *command, poptContext ctx,
                          int (*run)(const options *, const sluice_tokenizer *, const char **, int)) {
    const char **args;
    int n = tokenize_arguments(ctx, &args), quiet = o->common.quiet;
    if (!o->tokenizer)
        return cli_usage(command, "--tokenizer: missing; expected a tokenizer.json or a directory that holds one");
    o->common.quiet = 1; /* the result alone goes to the terminal */
    int code = cli_start(&o->common);
    o->common.quiet = quiet;
    if (code != CLI_OK) return code;
    sluice_error err = {0};
    sluice_tokenizer *tok;
    if (sluice_tokenizer_load(&tok, o->tokenizer, &err) != SLUICE_OK) return cli_fail(command, &err);
    code = run(o, tok, args, n);
    sluice_tokenizer_free(tok);
    return code;
}

int tokenize_encode(int argc, const char **argv) {
    options o = {0};
    struct poptOption table[] = {
        {"tokenizer", 't', POPT_ARG_STRING, &o.tokenizer, 0, "tokenizer.json, or a directory that holds one", "PATH"},
        {"text", '\0', POPT_ARG_STRING, &o.text, 0, "text to encode (default: FILES, or standard input)", "TEXT"},
        {"no-add-special-tokens", '\0', POPT_ARG_NONE, &o.no_add_special, 0,
         "leave out what the tokenizer's post-processor puts around a text", NULL},
        {"no-parse-special-tokens", '\0', POPT_ARG_NONE, &o.no_parse_special, 0,
         "special tokens written in the text are text", NULL},
        {"tokens", '\0', POPT_ARG_NONE, &o.tokens, 0, "one line a token: id and text", NULL},
        {"lines", '\0', POPT_ARG_NONE, &o.lines, 0,
         "every line is a JSON string; its ids come out as a JSON array on a line", NULL},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_AUTOHELP POPT_TABLEEND};
    int code;
    poptContext ctx =
        cli_parse(argc, argv, table, "[OPTIONS] --tokenizer PATH [FILE...]",
                  "Prints the token ids of a text, with spaces between them. Any bytes are accepted: what is not UTF-8 "
                  "is encoded\n"
                  "byte by byte. --json gives {\"source\", \"bytes\", \"ids\"} (with --tokens also \"tokens\").",
                  "  sluice tokenize encode --tokenizer tok --text 'Hello, world'", &code);
    if (!ctx) return code;
    code = with_tokenizer(&o, "tokenize encode", ctx, encode);
    cli_finish(ctx, table);
    return code;
}

int tokenize_decode(int argc, const char **argv) {
    options o = {0};
    struct poptOption table[] = {
        {"tokenizer", 't', POPT_ARG_STRING, &o.tokenizer, 0, "tokenizer.json, or a directory that holds one", "PATH"},
        {"skip-special-tokens", '\0', POPT_ARG_NONE, &o.skip_special, 0, "leave special tokens out", NULL},
        {"lines", '\0', POPT_ARG_NONE, &o.lines, 0,
         "every line of standard input is a text of its own and comes out as a JSON string", NULL},
        CLI_COMMON_OPTIONS(&o.common),
        POPT_AUTOHELP POPT_TABLEEND};
    int code;
    poptContext ctx = cli_parse(
        argc, argv, table, "[OPTIONS] --tokenizer PATH [ID...]",
        "Prints the text of token ids, which may be written with spaces, commas or as a JSON array (default: standard\n"
        "input). Bytes that are not UTF-8 come out as U+FFFD. --json prints a JSON string.",
        "  sluice tokenize decode --tokenizer tok 9707 11 1879", &code);
    if (!ctx) return code;
    code = with_tokenizer(&o, "tokenize decode", ctx, decode);
    cli_finish(ctx, table);
    return code;
}
