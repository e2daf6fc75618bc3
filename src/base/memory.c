/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned, counted allocation. Each block carries a 64-byte header with its size and category. Blocks of 2 MiB and more
 * are aligned to 2 MiB and offered to the kernel as huge pages: GEMM operands of a real model touch hundreds of
 * megabytes per step, where 4 KiB pages cost TLB misses. */
#include "base/memory.h"
#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 64 };

typedef struct header {
    void *base; /* what malloc returned */
    size_t bytes;
    sluice__mem_category category;
} header;
_Static_assert(sizeof(header) <= ALIGN, "the header fits in front of an aligned block");

static _Atomic int64_t in_use[SLUICE__MEM_CATEGORIES];
static _Atomic int64_t total, peak;

static header *header_of(void *ptr) {
    return (header *)(void *)((char *)ptr - ALIGN);
}

static void account(sluice__mem_category category, int64_t bytes) {
    atomic_fetch_add(&in_use[category], bytes);
    int64_t now = atomic_fetch_add(&total, bytes) + bytes, seen = atomic_load(&peak);
    while (now > seen && !atomic_compare_exchange_weak(&peak, &seen, now)) {
    }
}

size_t sluice__mul_size(size_t a, size_t b) {
    size_t r;
    return __builtin_mul_overflow(a, b, &r) ? SIZE_MAX : r;
}

void *sluice__calloc(size_t count, size_t size, sluice__mem_category category) {
    size_t bytes = sluice__mul_size(count, size);
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t align = bytes >= SLUICE__HUGE_PAGE ? SLUICE__HUGE_PAGE : ALIGN;
    char *base = calloc(1, bytes + ALIGN + align);
    if (!base) return NULL;
    char *ptr = base + ALIGN;
    ptr += (align - (uintptr_t)ptr % align) % align;
    if (align == SLUICE__HUGE_PAGE) madvise(ptr, bytes & ~(size_t)(SLUICE__HUGE_PAGE - 1), MADV_HUGEPAGE);
    *header_of(ptr) = (header){base, bytes, category};
    account(category, (int64_t)bytes);
    return ptr;
}

void *sluice__realloc(void *ptr, size_t count, size_t size, sluice__mem_category category) {
    if (!ptr) return sluice__calloc(count, size, category);
    void *fresh = sluice__calloc(count, size, header_of(ptr)->category);
    if (!fresh) return NULL;
    size_t old = header_of(ptr)->bytes, now = header_of(fresh)->bytes;
    memcpy(fresh, ptr, old < now ? old : now);
    sluice__free(ptr);
    return fresh;
}

void sluice__free(void *ptr) {
    if (!ptr) return;
    header *h = header_of(ptr);
    account(h->category, -(int64_t)h->bytes);
    free(h->base);
}

char *sluice__strndup(const char *text, size_t length) {
    char *copy = sluice__calloc(length + 1, 1, SLUICE__MEM_OTHER);
    if (copy) memcpy(copy, text, length);
    return copy;
}

char *sluice__strdup(const char *text) {
    return sluice__strndup(text, strlen(text));
}

char *sluice__asprintf(const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = n < 0 ? NULL : sluice__calloc((size_t)n + 1, 1, SLUICE__MEM_OTHER);
    if (text) vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

int64_t sluice__mem_in_use(sluice__mem_category category) {
    assert(category < SLUICE__MEM_CATEGORIES);
    return atomic_load(&in_use[category]);
}

int64_t sluice__mem_peak(void) {
    return atomic_load(&peak);
}

void sluice__mem_peak_restart(void) {
    atomic_store(&peak, atomic_load(&total));
}

static int64_t read_number(const char *path, const char *key) {
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    char line[256];
    int64_t value = -1;
    while (value < 0 && fgets(line, sizeof line, f)) {
        long long v;
        size_t skip = strlen(key);
        if (strncmp(line, key, skip) == 0 && sscanf(line + skip, "%lld", &v) == 1) value = v;
    }
    fclose(f);
    return value;
}

int64_t sluice__mem_physical(void) {
    int64_t ram = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    int64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
    return limit > 0 && limit < ram ? limit : ram;
}

int64_t sluice__mem_available(void) {
    int64_t kib = read_number("/proc/meminfo", "MemAvailable:"), all = sluice__mem_physical();
    if (kib < 0) return all;
    int64_t free_now = kib * 1024, used = read_number("/sys/fs/cgroup/memory.current", "");
    int64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
    if (limit > 0 && used >= 0 && limit - used < free_now) free_now = limit - used;
    return free_now;
}

sluice_status sluice__no_memory(sluice_error *err, size_t bytes, const char *what) {
    return sluice__fail(err, SLUICE_ERR_MEMORY, "cannot allocate %zu bytes for %s", bytes, what);
}
