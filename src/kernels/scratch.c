/* SPDX-License-Identifier: Apache-2.0 */
/* Per-thread scratch. A pthread key owns the buffer, because its destructor runs when a thread of the user's ends,
 * which a plain _Thread_local pointer would leak; the thread-local copy beside it makes the usual call two loads. */
#include "kernels/scratch.h"
#include "base/memory.h"
#include <pthread.h>

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local float *buffer;
static _Thread_local size_t capacity;

static void make_key(void) {
    pthread_key_create(&key, sluice__free);
}

float *sluice__scratch(size_t count) {
    if (count <= capacity) return buffer;
    pthread_once(&once, make_key);
    sluice__free(buffer);
    buffer = sluice__calloc(count, sizeof *buffer, SLUICE__MEM_OTHER);
    capacity = buffer ? count : 0;
    if (buffer && pthread_setspecific(key, buffer) != 0) {
        sluice__free(buffer); /* nobody would free it */
        buffer = NULL;
        capacity = 0;
    }
    if (!buffer) pthread_setspecific(key, NULL);
    return buffer;
}
