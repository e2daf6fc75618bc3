/* SPDX-License-Identifier: Apache-2.0 */
/* Page assembly: the template is copied up to each {{mark}}, the mark is replaced, and so on;
 * nothing is held in memory but what jansson holds. Data comes from runs of untrusted models, so it
 * must not be able to end the element it stands in: JSON allows '<' only inside strings, where
 * \u003c means the same, and everything outside ASCII (U+2028 with it) is written as an escape. */
#include "base/page.h"
#include "base/asset.h"
#include "base/file.h"
#include <stdbool.h>
#include <string.h>

enum { REAL_DIGITS = 6 }; /* enough for every figure; 17 would double the file */

static sluice_status put_asset(FILE *to, const char *name, sluice_error *err) {
    const sluice__asset_entry *a = sluice__asset(name);
    if (!a) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "no embedded file is called %s", name);
    fwrite(a->data, 1, a->size, to);
    return SLUICE_OK;
}

static sluice_status put_assets(FILE *to, const char *const *names, sluice_error *err) {
    for (; *names; names++) SLUICE__TRY(put_asset(to, *names, err));
    return SLUICE_OK;
}

static void put_text(FILE *to, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", to);
            break;
        case '>':
            fputs("&gt;", to);
            break;
        case '&':
            fputs("&amp;", to);
            break;
        case '"':
            fputs("&quot;", to);
            break;
        default:
            fputc(*text, to);
        }
    }
}

static int put_json_piece(const char *buffer, size_t size, void *stream) {
    FILE *to = stream;
    const char *end = buffer + size, *less;
    while ((less = memchr(buffer, '<', (size_t)(end - buffer)))) {
        fwrite(buffer, 1, (size_t)(less - buffer), to);
        fputs("\\u003c", to);
        buffer = less + 1;
    }
    fwrite(buffer, 1, (size_t)(end - buffer), to);
    return 0;
}

static sluice_status put_data(FILE *to, const json_t *data, sluice_error *err) {
    size_t flags = JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(REAL_DIGITS);
    if (json_dump_callback(data, put_json_piece, to, flags) == 0) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                        "the data of a page has to be a JSON object or array");
}

static sluice_status put_mark(FILE *to, const sluice__page *page, const char *mark, size_t size,
                              sluice_error *err) {
    static const char *const names[] = {"title", "styles", "library", "scripts", "data"};
    size_t i = 0;
    while (i < 5 && (strlen(names[i]) != size || memcmp(names[i], mark, size) != 0)) i++;
    switch (i) {
    case 0:
        put_text(to, page->title);
        return SLUICE_OK;
    case 1:
        return put_assets(to, page->styles, err);
    case 2:
        return put_asset(to, "chart.min.js", err);
    case 3:
        return put_assets(to, page->scripts, err);
    case 4:
        return put_data(to, page->data, err);
    default:
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: unknown mark {{%.*s}}",
                            page->template_name, (int)(size > 40 ? 40 : size), mark);
    }
}

static sluice_status put_page(FILE *to, const sluice__page *page, sluice_error *err) {
    const sluice__asset_entry *a = sluice__asset(page->template_name);
    if (!a)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "no embedded file is called %s",
                            page->template_name);
    const char *at = (const char *)a->data, *open;
    while ((open = strstr(at, "{{"))) {
        const char *close = strstr(open, "}}");
        if (!close)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: a mark does not end",
                                page->template_name);
        fwrite(at, 1, (size_t)(open - at), to);
        SLUICE__TRY(put_mark(to, page, open + 2, (size_t)(close - open - 2), err));
        at = close + 2;
    }
    fputs(at, to);
    return SLUICE_OK;
}

sluice_status sluice__page_write(const sluice__page *page, const char *path, sluice_error *err) {
    sluice__atomic_file w;
    SLUICE__TRY(sluice__atomic_open(&w, path, err));
    sluice_status st = put_page(w.stream, page, err);
    if (st == SLUICE_OK) return sluice__atomic_commit(&w, err);
    sluice__atomic_abort(&w);
    return st;
}
