/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded corpus. The program is started without a shell and its output is treated like any other input file. */
#include "study/corpus.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_LIMIT = 64 << 20, LEAST_OUTPUT = 1 << 20, MAX_BOOKS = 1024 };

extern char **environ;

void sluice__corpus_free(sluice__corpus *c) {
    sluice__free(c->text);
    sluice__free(c->offsets);
    *c = (sluice__corpus){0};
}

/* ---- verses ---- */

typedef struct verse {
    const char *book, *chapter, *text; /* "Ge", "1", "In the beginning ..." */
    size_t book_size, chapter_size, text_size;
} verse;

/* Book: a digit perhaps, then letters; chapter; colon; number; space; text. */
static bool parse_verse(verse *v, const char *line, size_t size) {
    size_t i = 0, start;
    if (i < size && isdigit((unsigned char)line[i])) i++;
    for (start = i; i < size && isalpha((unsigned char)line[i]); i++) {
    }
    if (i == start) return false;
    v->book = line;
    v->book_size = i;
    for (start = i; i < size && isdigit((unsigned char)line[i]); i++) {
    }
    v->chapter = line + start;
    v->chapter_size = i - start;
    if (i == start || i == size || line[i++] != ':') return false;
    for (start = i; i < size && isdigit((unsigned char)line[i]); i++) {
    }
    if (i == start || i == size || line[i++] != ' ') return false;
    v->text = line + i;
    v->text_size = size - i;
    return true;
}

static bool same(const char *a, size_t a_size, const char *b, size_t b_size) {
    return a_size == b_size && memcmp(a, b, a_size) == 0;
}

static sluice_status add_verse(sluice__corpus *c, sluice__strbuf *text, const verse *last, const verse *v,
                               const char *name, sluice_error *err) {
    bool new_book = c->count == 0 || !same(last->book, last->book_size, v->book, v->book_size);
    bool new_chapter = new_book || !same(last->chapter, last->chapter_size, v->chapter, v->chapter_size);
    if (new_book && c->count == MAX_BOOKS)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: more than %d books", name, MAX_BOOKS);
    if (new_book) {
        if (c->count) sluice__strbuf_puts(text, "\n");
        c->offsets[c->count++] = text->size;
    } else {
        sluice__strbuf_puts(text, new_chapter ? "\n" : " ");
    }
    sluice__strbuf_add(text, v->text, v->text_size);
    return SLUICE_OK;
}

static sluice_status read_verses(sluice__corpus *c, sluice__strbuf *text, const char *lines, size_t size,
                                 const char *name, sluice_error *err) {
    verse last = {0}, v;
    int64_t number = 1;
    for (size_t at = 0; at < size; number++) {
        const char *end = memchr(lines + at, '\n', size - at);
        size_t length = end ? (size_t)(end - lines) - at : size - at;
        if (!parse_verse(&v, lines + at, length))
            return sluice__fail(err, SLUICE_ERR_FORMAT,
                                "%s: line %lld: found \"%.*s\", expected a verse like \"Ge1:1 In the\"", name,
                                (long long)number, length < 40 ? (int)length : 40, lines + at);
        SLUICE__TRY(add_verse(c, text, &last, &v, name, err));
        last = v;
        at += length + 1;
    }
    sluice__strbuf_puts(text, "\n");
    if (c->count == 0) return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: no text", name);
    c->offsets[c->count] = text->size;
    return text->failed ? sluice__no_memory(err, size, "the corpus") : SLUICE_OK;
}

sluice_status sluice__corpus_from_verses(sluice__corpus *out, const char *lines, size_t size, const char *name,
                                         sluice_error *err) {
    *out = (sluice__corpus){0};
    sluice__strbuf text = {0};
    out->offsets = sluice__calloc(MAX_BOOKS + 1, sizeof *out->offsets, SLUICE__MEM_DATA);
    sluice_status st = out->offsets ? read_verses(out, &text, lines, size, name, err)
                                    : sluice__no_memory(err, MAX_BOOKS * sizeof *out->offsets, "the corpus");
    out->text = text.data;
    if (st != SLUICE_OK) sluice__corpus_free(out);
    return st;
}

/* ---- the program ---- */

static sluice_status missing(int code, sluice_error *err) {
    return sluice__fail(
        err, SLUICE_ERR_IO,
        "the built-in text comes from the program `bible`, which cannot be started (%s): install it with "
        "`apt install bible-kjv` (or `make setup`), or give texts of your own with --text FILE",
        strerror(code));
}

static sluice_status start(pid_t *pid, int *output, sluice_error *err) {
    char program[] = "bible", format[] = "-f", range[] = "gen1:1-rev22:21";
    char *argv[] = {program, format, range, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return missing(errno, err);
    posix_spawn_file_actions_t actions;
    int code = posix_spawn_file_actions_init(&actions);
    if (code == 0) {
        code = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (code == 0) code = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (code == 0) code = posix_spawnp(pid, program, &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (code != 0) close(ends[0]);
    *output = ends[0];
    return code == 0 ? SLUICE_OK : missing(code, err);
}

static sluice_status drain(sluice__strbuf *out, int fd, sluice_error *err) {
    char block[65536];
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return sluice__fail(err, SLUICE_ERR_IO, "bible: cannot read its output: %s", strerror(errno));
        if (n == 0) break;
        sluice__strbuf_add(out, block, (size_t)n);
        if (out->size > OUTPUT_LIMIT)
            return sluice__fail(err, SLUICE_ERR_FORMAT,
                                "bible: more than %d bytes of output: not the program of bible-kjv", OUTPUT_LIMIT);
    }
    return out->failed ? sluice__no_memory(err, out->size, "the corpus") : SLUICE_OK;
}

static sluice_status wait_for(pid_t pid, sluice_error *err) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return sluice__fail(err, SLUICE_ERR_IO, "bible: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return SLUICE_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return missing(ENOENT, err);
    return sluice__fail(err, SLUICE_ERR_IO, "bible: ended with %s %d", WIFEXITED(status) ? "exit code" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

sluice_status sluice__corpus_embedded(sluice__corpus *out, sluice_error *err) {
    *out = (sluice__corpus){0};
    pid_t pid = -1;
    int fd = -1;
    sluice__strbuf lines = {0};
    SLUICE__TRY(start(&pid, &fd, err));
    sluice_status st = drain(&lines, fd, err);
    close(fd);
    sluice_status ended = wait_for(pid, st == SLUICE_OK ? err : NULL);
    if (st == SLUICE_OK) st = ended;
    if (st == SLUICE_OK && lines.size < LEAST_OUTPUT)
        st = sluice__fail(err, SLUICE_ERR_FORMAT,
                          "bible: %zu bytes of output, expected about 4400000: not the program of "
                          "bible-kjv?",
                          lines.size);
    if (st == SLUICE_OK) st = sluice__corpus_from_verses(out, lines.data, lines.size, "bible", err);
    if (st == SLUICE_OK)
        snprintf(out->source, sizeof out->source, "King James Bible (program bible of Debian's bible-kjv)");
    sluice__strbuf_free(&lines);
    return st;
}
