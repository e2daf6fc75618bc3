/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte string that doubles. */
#include "base/strbuf.h"
#include "base/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool reserve(sluice__strbuf *b, size_t more) {
    if (b->failed) return false;
    size_t need = b->size + more + 1;
    if (need <= b->capacity) return true;
    size_t capacity = b->capacity ? b->capacity : 256;
    while (capacity < need) capacity *= 2;
    char *data = sluice__realloc(b->data, capacity, 1, SLUICE__MEM_OTHER);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void sluice__strbuf_add(sluice__strbuf *b, const void *data, size_t size) {
    if (!reserve(b, size)) return;
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
    b->data[b->size] = '\0';
}

void sluice__strbuf_puts(sluice__strbuf *b, const char *text) {
    sluice__strbuf_add(b, text, strlen(text));
}

void sluice__strbuf_printf(sluice__strbuf *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->size, (size_t)n + 1, fmt, again);
        b->size += (size_t)n;
    }
    va_end(again);
}

void sluice__strbuf_free(sluice__strbuf *b) {
    sluice__free(b->data);
    *b = (sluice__strbuf){0};
}
