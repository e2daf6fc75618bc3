/* SPDX-License-Identifier: Apache-2.0 */
/* Per-thread scratch. Pthread keys own the buffers, because their destructor runs when a thread of the user's ends,
 * which a plain _Thread_local pointer would leak; the thread-local copy beside it makes the usual call two loads. */
#include "kernels/scratch.h"
#include "base/memory.h"
#include <pthread.h>

enum { GENERAL, PRODUCT, BUFFERS };
static pthread_key_t keys[BUFFERS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct {
    float *data;
    size_t capacity;
} buffers[BUFFERS];

static void make_keys(void) {
    for (int i = 0; i < BUFFERS; i++) pthread_key_create(&keys[i], sluice__free);
}

static float *grow(int which, size_t count) {
    pthread_once(&once, make_keys);
    sluice__free(buffers[which].data);
    float *data = sluice__calloc(count, sizeof *data, SLUICE__MEM_OTHER);
    if (data && pthread_setspecific(keys[which], data) != 0) {
        sluice__free(data); /* nobody would free it */
        data = NULL;
    }
    if (!data) pthread_setspecific(keys[which], NULL);
    buffers[which].data = data;
    buffers[which].capacity = data ? count : 0;
    return data;
}

float *sluice__scratch(size_t count) {
    return count <= buffers[GENERAL].capacity ? buffers[GENERAL].data : grow(GENERAL, count);
}

float *sluice__product_scratch(size_t count) {
    return count <= buffers[PRODUCT].capacity ? buffers[PRODUCT].data : grow(PRODUCT, count);
}
