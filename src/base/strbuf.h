/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte string. An allocation failure is sticky: check `failed` once, at the end. */
#ifndef SLUICE_BASE_STRBUF_H
#define SLUICE_BASE_STRBUF_H
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

typedef struct sluice__strbuf {
    char *data; /* NUL-terminated once something was added; NULL before */
    size_t size, capacity;
    bool failed;
} sluice__strbuf;

void sluice__strbuf_add(sluice__strbuf *b, const void *data, size_t size);
void sluice__strbuf_puts(sluice__strbuf *b, const char *text);
void sluice__strbuf_printf(sluice__strbuf *b, const char *fmt, ...) SLUICE__PRINTF(2, 3);
void sluice__strbuf_free(sluice__strbuf *b); /* leaves it empty and usable */
#endif
