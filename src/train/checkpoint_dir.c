/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of checkpoints: which there are, the newest, what a kill has left, what may go. */
#include "base/file.h"
#include "base/memory.h"
#include "train/checkpoint.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *sluice__checkpoint_path(const char *output_dir, int64_t step) {
    return sluice__asprintf("%s/checkpoints/step-%" PRId64, output_dir, step);
}

/* The number of "step-<digits>", or -1 for any other name. */
static int64_t step_of(const char *name) {
    if (strncmp(name, "step-", 5) || strspn(name + 5, "0123456789") != strlen(name + 5) || !name[5] ||
        strlen(name) > 23)
        return -1;
    return (int64_t)strtoll(name + 5, NULL, 10);
}

/* Of a checkpoint; the directory is locked by its run, so that whoever left it is gone. */
static bool is_remnant(const char *name) {
    size_t digits = strncmp(name, "step-", 5) ? 0 : strspn(name + 5, "0123456789");
    return digits && sluice__is_remnant(name + 5 + digits);
}

/* Calls fn for every name in output_dir/checkpoints; a directory that is not there has none. */
static sluice_status each_name(const char *output_dir,
                               sluice_status (*fn)(void *user, const char *dir, const char *name, sluice_error *err),
                               void *user, sluice_error *err) {
    char *path = sluice__asprintf("%s/checkpoints", output_dir);
    if (!path) return sluice__no_memory(err, strlen(output_dir), "a path");
    DIR *dir = opendir(path);
    sluice_status st = SLUICE_OK;
    if (!dir && errno != ENOENT) st = sluice__fail(err, SLUICE_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    for (struct dirent *e; dir && st == SLUICE_OK && (e = readdir(dir));) st = fn(user, path, e->d_name, err);
    if (dir) closedir(dir);
    sluice__free(path);
    return st;
}

static sluice_status take_newest(void *user, const char *dir, const char *name, sluice_error *err) {
    (void)dir, (void)err;
    int64_t *newest = user, step = step_of(name);
    if (step > *newest) *newest = step;
    return SLUICE_OK;
}

sluice_status sluice__checkpoint_newest(const char *output_dir, int64_t *step, sluice_error *err) {
    *step = -1;
    return each_name(output_dir, take_newest, step, err);
}

static sluice_status remove_entry(const char *dir, const char *name, sluice_error *err) {
    char *path = sluice__path_join(dir, name);
    if (!path) return sluice__no_memory(err, strlen(dir), "a path");
    sluice_status st = sluice__remove_tree(path, err);
    sluice__free(path);
    return st;
}

static sluice_status clean_entry(void *user, const char *dir, const char *name, sluice_error *err) {
    (void)user;
    return is_remnant(name) ? remove_entry(dir, name, err) : SLUICE_OK;
}

sluice_status sluice__checkpoint_clean(const char *output_dir, sluice_error *err) {
    return each_name(output_dir, clean_entry, NULL, err);
}

typedef struct step_list {
    int64_t *steps;
    size_t count;
} step_list;

static sluice_status collect(void *user, const char *dir, const char *name, sluice_error *err) {
    (void)dir;
    step_list *list = user;
    int64_t step = step_of(name);
    if (step < 0) return SLUICE_OK;
    void *grown = sluice__realloc(list->steps, list->count + 1, sizeof *list->steps, SLUICE__MEM_OTHER);
    if (!grown) return sluice__no_memory(err, (list->count + 1) * sizeof *list->steps, "the list of checkpoints");
    list->steps = grown;
    list->steps[list->count++] = step;
    return SLUICE_OK;
}

static int descending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Renamed before it is emptied, so that a kill in between leaves no checkpoint with missing files. */
static sluice_status remove_checkpoint(const char *output_dir, int64_t step, sluice_error *err) {
    char *path = sluice__checkpoint_path(output_dir, step), *aside = path ? sluice__old_name(path) : NULL;
    sluice_status st = aside ? sluice__remove_tree(aside, err) : sluice__no_memory(err, strlen(output_dir), "a path");
    if (st == SLUICE_OK && rename(path, aside) != 0)
        st = sluice__fail(err, SLUICE_ERR_IO, "%s: cannot remove: %s", path, strerror(errno));
    if (st == SLUICE_OK) st = sluice__remove_tree(aside, err);
    sluice__free(path);
    sluice__free(aside);
    return st;
}

sluice_status sluice__checkpoint_before(const char *output_dir, int64_t step, int64_t *older, sluice_error *err) {
    step_list list = {0};
    *older = -1;
    sluice_status st = each_name(output_dir, collect, &list, err);
    if (list.count) qsort(list.steps, list.count, sizeof *list.steps, descending);
    for (size_t i = 0; i < list.count && st == SLUICE_OK && *older < 0; i++) {
        char *path = list.steps[i] < step ? sluice__checkpoint_path(output_dir, list.steps[i]) : NULL;
        if (path && sluice__checkpoint_is_whole(path)) *older = list.steps[i];
        sluice__free(path);
    }
    sluice__free(list.steps);
    return st;
}

sluice_status sluice__checkpoint_prune(const char *output_dir, int64_t keep, sluice_error *err) {
    step_list list = {0};
    if (keep <= 0) return SLUICE_OK;
    sluice_status st = each_name(output_dir, collect, &list, err);
    if (list.count) qsort(list.steps, list.count, sizeof *list.steps, descending);
    for (size_t i = (size_t)keep; i < list.count && st == SLUICE_OK; i++)
        st = remove_checkpoint(output_dir, list.steps[i], err);
    sluice__free(list.steps);
    return st;
}
