/* SPDX-License-Identifier: Apache-2.0 */
/* Paths, temporary directories and child programs for tests. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUFFERS = 8, PATH_SIZE = 1024, TEMP_DIRS = 64 };

void test_check_ok(sluice_status st, const sluice_error *err, const char *expr, const char *file, int line) {
    if (st == SLUICE_OK) return;
    print_error("%s: %s: %s\n", expr, sluice_status_text(st), err ? err->message : "");
    _fail(file, line);
}

static char *next_buffer(void) {
    static char buffers[BUFFERS][PATH_SIZE];
    static int at;
    return buffers[at++ % BUFFERS];
}

const char *test_shared(const char *relative) {
    char *path = next_buffer();
    snprintf(path, PATH_SIZE, "%s/%s", SLUICE_SHARED_DIR, relative);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *test_data(const char *relative) {
    char *path = next_buffer();
    snprintf(path, PATH_SIZE, "%s/%s", SLUICE_TEST_DATA, relative);
    return path;
}

static char temp_dirs[TEMP_DIRS][64];
static int temp_count;

static void remove_temp_dirs(void) {
    for (int i = 0; i < temp_count; i++) sluice__remove_tree(temp_dirs[i], NULL);
}

const char *test_temp_dir(void) {
    if (temp_count == TEMP_DIRS) fail_msg("more than %d temporary directories", TEMP_DIRS);
    if (!temp_count) atexit(remove_temp_dirs);
    char *dir = temp_dirs[temp_count++];
    snprintf(dir, sizeof temp_dirs[0], "/tmp/sluice-test-XXXXXX");
    if (!mkdtemp(dir)) fail_msg("cannot create %s", dir);
    return dir;
}

int test_run(const char *command, char **output) {
    char *full = NULL;
    if (asprintf(&full, "{ %s\n} 2>&1", command) < 0) fail_msg("out of memory");
    FILE *p = popen(full, "r");
    free(full);
    if (!p) fail_msg("cannot run %s", command);
    size_t size = 0, capacity = 4096, n;
    char *text = malloc(capacity);
    while (text && (n = fread(text + size, 1, capacity - size - 1, p)) > 0) {
        size += n;
        if (capacity - size < 2) text = realloc(text, capacity *= 2);
    }
    if (!text) fail_msg("out of memory");
    text[size] = '\0';
    int status = pclose(p);
    if (output) *output = text;
    else free(text);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void test_write_book(const char *path) {
    static const char *const words[] = {"the ", "light ", "was ", "upon ", "waters, ", "and ", "evening ", "came.\n"};
    char *text = sluice__calloc(1, 64000, SLUICE__MEM_OTHER);
    unsigned r = 1;
    while (strlen(text) < 60000) strcat(text, words[(r = r * 1103515245u + 12345u) >> 16 & 7]);
    assert_ok(sluice__write_file(path, text, strlen(text), NULL));
    sluice__free(text);
}
