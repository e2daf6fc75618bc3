/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation: 64-byte aligned, zeroed, overflow-checked, counted by category, so that a memory plan can be held
 * against what was really taken. */
#ifndef SLUICE_BASE_MEMORY_H
#define SLUICE_BASE_MEMORY_H
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

enum { SLUICE__HUGE_PAGE = 2 << 20 }; /* bytes */

typedef enum sluice__mem_category {
    SLUICE__MEM_WEIGHTS,
    SLUICE__MEM_GRADIENTS,
    SLUICE__MEM_OPTIMIZER,
    SLUICE__MEM_ACTIVATIONS,
    SLUICE__MEM_CACHE, /* KV cache and other sequence state */
    SLUICE__MEM_DATA,  /* tokens, text */
    SLUICE__MEM_OTHER,
    SLUICE__MEM_CATEGORIES
} sluice__mem_category;

/* count * size zeroed bytes aligned to 64; NULL when they cannot be had or the product overflows. count 0 gives a
 * pointer that may be freed. */
void *sluice__calloc(size_t count, size_t size, sluice__mem_category category);
/* Grows or shrinks, keeps the category; new bytes are zero. NULL leaves the old block as it was. */
void *sluice__realloc(void *ptr, size_t count, size_t size, sluice__mem_category category);
void sluice__free(void *ptr); /* NULL does nothing */
char *sluice__strdup(const char *text); /* free with sluice__free */
char *sluice__strndup(const char *text, size_t length);
char *sluice__asprintf(const char *fmt, ...) SLUICE__PRINTF(1, 2); /* NULL when out of memory */

int64_t sluice__mem_in_use(sluice__mem_category category); /* bytes now */
int64_t sluice__mem_peak(void);                            /* bytes of all categories together */
void sluice__mem_peak_restart(void);                       /* the peak is what is in use now */
int64_t sluice__mem_physical(void);                        /* bytes of RAM of this machine (or cgroup limit, if lower) */
int64_t sluice__mem_available(void);                       /* bytes that could be had now */

/* a * b, or SIZE_MAX on overflow (which no allocation can satisfy). */
size_t sluice__mul_size(size_t a, size_t b);
/* Fails with "cannot allocate <bytes> for <what>". */
sluice_status sluice__no_memory(sluice_error *err, size_t bytes, const char *what);
#endif
