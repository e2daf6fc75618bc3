/* SPDX-License-Identifier: Apache-2.0 */
/* Documents from files. One buffer holds the unread part of the present file; a document is a range of it. Plain text
 * is checked to be UTF-8 as it comes in, JSON lines by their parser. */
#include "train/text_source.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/utf8.h"
#include "train/byte_reader.h"
#include "train/text_files.h"
#include <limits.h>
#include <string.h>

enum { FILL = 256 << 10, LEAST_PIECE = 64 };
static const int64_t DEFAULT_LIMIT = (int64_t)1 << 30;

struct sluice__text_source {
    sluice__text_files files;
    sluice_text_params params;
    size_t max_piece;
    int file; /* index of the one that is open or comes next */
    sluice__byte_reader *reader;
    int64_t consumed; /* of finished files */
    char *buffer;
    size_t at, size, capacity; /* unread part [at, size) */
    size_t checked;            /* [at, checked) is UTF-8 */
    bool eof;                  /* of the file */
    bool inside;               /* the next piece continues a document */
    int64_t line, document, document_bytes;
    json_t *row; /* holds the text of the last JSON line */
};

sluice_text_params sluice_text_params_default(void) {
    return (sluice_text_params){.text_key = "text", .max_document_bytes = DEFAULT_LIMIT};
}

sluice_status sluice__text_source_open(sluice__text_source **out, const char *const *paths, int num_paths,
                                       const sluice_text_params *params, size_t max_piece, sluice_error *err) {
    *out = NULL;
    sluice__text_source *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_DATA);
    if (!s) return sluice__no_memory(err, sizeof *s, "a text source");
    s->params = params ? *params : sluice_text_params_default();
    if (!s->params.text_key) s->params.text_key = "text";
    if (s->params.max_document_bytes <= 0) s->params.max_document_bytes = DEFAULT_LIMIT;
    s->max_piece = max_piece && max_piece < LEAST_PIECE ? LEAST_PIECE : max_piece;
    sluice_status st = sluice__text_files_list(&s->files, paths, num_paths, s->params.format, err);
    if (st == SLUICE_OK)
        *out = s;
    else
        sluice__text_source_close(s);
    return st;
}

void sluice__text_source_close(sluice__text_source *s) {
    if (!s) return;
    sluice__byte_reader_close(s->reader);
    sluice__text_files_free(&s->files);
    sluice__free(s->buffer);
    json_decref(s->row);
    sluice__free(s);
}

void sluice__text_source_progress(const sluice__text_source *s, int64_t *done, int64_t *total) {
    *done = s->consumed + (s->reader ? sluice__byte_reader_consumed(s->reader) : 0);
    *total = s->files.bytes;
}

static const char *file_name(const sluice__text_source *s) {
    const char *path = s->files.at[s->file].path;
    return strcmp(path, "-") ? path : "standard input";
}

static int64_t count_lines(const char *data, size_t size) {
    int64_t n = 0;
    for (const char *p = data, *end = data + size; p < end && (p = memchr(p, '\n', (size_t)(end - p))); p++) n++;
    return n;
}

/* ---- the buffer ---- */
/* UTF-8 of what came in; a character that only lacks its end waits. */
static sluice_status check_utf8(sluice__text_source *s, sluice_error *err) {
    const char *p = s->buffer + s->checked;
    size_t left = s->size - s->checked, good = sluice__utf8_valid_prefix(p, left);
    s->checked += good;
    if (good == left) return SLUICE_OK;
    bool cut;
    sluice__utf8_bad_length((const unsigned char *)p + good, (const unsigned char *)p + left, &cut);
    if (cut && !s->eof) return SLUICE_OK;
    if (s->params.allow_invalid) {
        s->checked = s->size;
        return SLUICE_OK;
    }
    int64_t line = s->line + count_lines(s->buffer + s->at, s->checked - s->at);
    return sluice__fail(err, SLUICE_ERR_FORMAT,
                        "%s: line %lld: byte 0x%02X is not UTF-8; convert the file, or allow invalid bytes",
                        file_name(s), (long long)line, (unsigned char)s->buffer[s->checked]);
}

/* Reads more behind what is there. */
static sluice_status fill(sluice__text_source *s, sluice_error *err) {
    if (s->at && (s->at > s->size / 2 || s->at == s->size)) {
        memmove(s->buffer, s->buffer + s->at, s->size - s->at);
        s->size -= s->at;
        s->checked -= s->at;
        s->at = 0;
    }
    if (s->capacity - s->size < FILL) {
        size_t n = s->capacity ? s->capacity * 2 : 2 * FILL;
        void *more = sluice__realloc(s->buffer, n, 1, SLUICE__MEM_DATA);
        if (!more) return sluice__no_memory(err, n, "text");
        s->buffer = more;
        s->capacity = n;
    }
    size_t got;
    SLUICE__TRY(sluice__byte_reader_read(s->reader, s->buffer + s->size, s->capacity - s->size, &got, err));
    s->size += got;
    s->eof = got == 0;
    return s->files.at[s->file].jsonl ? SLUICE_OK : check_utf8(s, err);
}

static sluice_status begin_file(sluice__text_source *s, sluice_error *err) {
    SLUICE__TRY(sluice__byte_reader_open(&s->reader, s->files.at[s->file].path, err));
    s->at = s->size = s->checked = 0;
    s->eof = s->inside = false;
    s->line = 1;
    while (s->size < 3 && !s->eof) SLUICE__TRY(fill(s, err));
    if (s->size >= 3 && !memcmp(s->buffer, "\xEF\xBB\xBF", 3)) s->at = 3; /* a byte order mark is not text */
    if (s->checked < s->at) s->checked = s->at;
    return SLUICE_OK;
}

static void end_file(sluice__text_source *s) {
    s->consumed += sluice__byte_reader_consumed(s->reader);
    sluice__byte_reader_close(s->reader);
    s->reader = NULL;
    s->file++;
}

static sluice_status too_long(const sluice__text_source *s, sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_FORMAT,
                        "%s: line %lld: a document of more than %lld bytes; part it, or raise the limit", file_name(s),
                        (long long)s->line, (long long)s->params.max_document_bytes);
}

/* Gives out `size` bytes and passes over `skip` more behind them. */
static void give(sluice__text_source *s, sluice__text_piece *piece, size_t size, size_t skip, bool ends) {
    *piece = (sluice__text_piece){s->buffer + s->at, size, !s->inside, ends, s->document, file_name(s), s->line};
    s->line += count_lines(s->buffer + s->at, size + skip);
    s->at += size + skip;
    if (s->checked < s->at) s->checked = s->at;
    s->inside = !ends;
    s->document += ends;
}

/* ---- plain text ---- */
/* The first parting line that begins at or behind *line; [*line, seen) is known to hold no line end. Found: *line is
 * its start and *after what follows it. Otherwise *line is the start of the last line. */
static bool find_parting(const sluice__text_source *s, size_t *line, size_t seen, size_t *after) {
    const char *mark = s->params.separator;
    size_t n = strlen(mark);
    for (;; seen = *line) {
        const char *p = s->buffer + *line, *nl = memchr(s->buffer + seen, '\n', s->size - seen);
        if (!nl && !s->eof) return false;
        size_t length = nl ? (size_t)(nl - p) : s->size - *line,
               bare = length && p[length - 1] == '\r' ? length - 1 : length;
        if (bare == n && !memcmp(p, mark, n) && (nl || length)) {
            *after = *line + length + (nl ? 1 : 0);
            return true;
        }
        if (!nl) return false;
        *line += length + 1;
    }
}

/* The line end in front of a parting line or, for a document that is parted by lines, at the end of the file belongs to
 * neither. */
static size_t without_line_end(const sluice__text_source *s, size_t end) {
    if (end > s->at && s->buffer[end - 1] == '\n') end--;
    if (end > s->at && s->buffer[end - 1] == '\r') end--;
    return end;
}

static sluice_status parted(sluice__text_source *s, sluice__text_piece *piece, sluice_error *err) {
    size_t line = s->at, seen = s->at, after = 0;
    for (;;) {
        bool found = find_parting(s, &line, seen > line ? seen : line, &after);
        if (found || s->eof) {
            size_t end = without_line_end(s, found ? line : s->size);
            give(s, piece, end - s->at, (found ? after : s->size) - end, true);
            return SLUICE_OK;
        }
        if ((int64_t)(s->size - s->at) > s->params.max_document_bytes) return too_long(s, err);
        size_t line_ahead = line - s->at, seen_ahead = s->size - s->at;
        SLUICE__TRY(fill(s, err));
        line = s->at + line_ahead;
        seen = s->at + seen_ahead;
    }
}

/* A document is the rest of the file, whole or as much as a piece may hold. */
static sluice_status unparted(sluice__text_source *s, sluice__text_piece *piece, sluice_error *err) {
    size_t most = s->max_piece ? s->max_piece : SIZE_MAX;
    while (!s->eof && s->size - s->at <= most) {
        if (!s->max_piece && (int64_t)(s->size - s->at) > s->params.max_document_bytes) return too_long(s, err);
        SLUICE__TRY(fill(s, err));
    }
    size_t n = s->size - s->at;
    if (n <= most) {
        give(s, piece, n, 0, true);
        return SLUICE_OK;
    }
    n = most;
    for (int i = 0; i < 3 && ((unsigned char)s->buffer[s->at + n] & 0xC0) == 0x80; i++)
        n--; /* not inside a character */
    give(s, piece, n, 0, false);
    return SLUICE_OK;
}

/* ---- JSON lines ---- */
static sluice_status parse_row(sluice__text_source *s, size_t size, sluice__text_piece *piece, sluice_error *err) {
    const char *key = s->params.text_key, *file = file_name(s);
    json_error_t je;
    json_decref(s->row);
    s->row = json_loadb(s->buffer + s->at, size, JSON_ALLOW_NUL, &je);
    if (!s->row)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: line %lld: not a JSON object: column %d: %s", file,
                            (long long)s->line, je.column, je.text);
    json_t *text = json_object_get(s->row, key);
    if (!json_is_string(text))
        return sluice__fail(
            err, SLUICE_ERR_FORMAT, "%s: line %lld: %s \"%s\" with a string; the key can be chosen (text key)", file,
            (long long)s->line, json_is_object(s->row) ? "expected a member" : "expected an object with a member", key);
    *piece = (sluice__text_piece){
        json_string_value(text), json_string_length(text), true, true, s->document++, file, s->line};
    return SLUICE_OK;
}

/* The next line that is not blank; data NULL when the file has none. */
static sluice_status json_line(sluice__text_source *s, sluice__text_piece *piece, sluice_error *err) {
    size_t scanned = s->at;
    for (;;) {
        const char *p = s->buffer + s->at,
                   *nl = scanned < s->size ? memchr(s->buffer + scanned, '\n', s->size - scanned) : NULL;
        if (!nl && !s->eof) {
            if ((int64_t)(s->size - s->at) > s->params.max_document_bytes) return too_long(s, err);
            size_t ahead = s->size - s->at;
            SLUICE__TRY(fill(s, err));
            scanned = s->at + ahead;
            continue;
        }
        size_t length = nl ? (size_t)(nl - p) : s->size - s->at, blank = 0;
        while (blank < length && (p[blank] == ' ' || p[blank] == '\t' || p[blank] == '\r')) blank++;
        sluice_status st = blank < length ? parse_row(s, length, piece, err) : SLUICE_OK;
        s->at += length + (nl ? 1 : 0);
        s->line += nl ? 1 : 0;
        scanned = s->at;
        if (st != SLUICE_OK || blank < length || !nl) return st;
    }
}

/* ---- next ---- */
static sluice_status next_in_file(sluice__text_source *s, sluice__text_piece *piece, sluice_error *err) {
    if (s->files.at[s->file].jsonl) return json_line(s, piece, err);
    if (s->at == s->size && !s->eof) SLUICE__TRY(fill(s, err));
    if (s->at == s->size && s->eof) return SLUICE_OK;
    return s->params.separator ? parted(s, piece, err) : unparted(s, piece, err);
}

sluice_status sluice__text_source_next(sluice__text_source *s, sluice__text_piece *piece, sluice_error *err) {
    for (;;) {
        *piece = (sluice__text_piece){0};
        if (!s->reader) {
            if (s->file == s->files.count) return SLUICE_OK;
            SLUICE__TRY(begin_file(s, err));
        }
        SLUICE__TRY(next_in_file(s, piece, err));
        if (!piece->data)
            end_file(s);
        else if (piece->size)
            return SLUICE_OK;
        else
            s->document--; /* a document without a byte */
    }
}

sluice_status sluice__text_source_document(void *source, const char **text, size_t *size, sluice_error *err) {
    sluice__text_piece piece;
    sluice_status st = sluice__text_source_next(source, &piece, err);
    *text = st == SLUICE_OK ? piece.data : NULL;
    *size = piece.size;
    return st;
}
