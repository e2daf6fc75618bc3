/* SPDX-License-Identifier: Apache-2.0 */
/* DIR/arms/NAME/plan.json holds the arm's model, data, training and evaluation settings and a hash of the tokens. A
 * continued study compares before it does anything. */
#include "study/plan.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- lock ---- */

sluice_status sluice__study_lock_take(sluice__study_lock *lock, const char *dir, sluice_error *err) {
    SLUICE__TRY(sluice__make_dirs(dir, err));
    char *path = sluice__path_join(dir, "study.lock");
    if (!path) return sluice__no_memory(err, strlen(dir), "a path");
    lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    sluice_status st = SLUICE_OK;
    if (lock->fd < 0)
        st = sluice__fail(err, SLUICE_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    else if (flock(lock->fd, LOCK_EX | LOCK_NB) != 0)
        st = sluice__fail(err, SLUICE_ERR_IO, "%s: another study is running in this directory", dir);
    if (st != SLUICE_OK && lock->fd >= 0) close(lock->fd);
    sluice__free(path);
    return st;
}

void sluice__study_lock_release(sluice__study_lock *lock) { close(lock->fd); }

static int is_something(const struct dirent *e) {
    return strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "study.lock");
}

void sluice__study_dir_withdraw(const char *dir) {
    struct dirent **list = NULL;
    int n = scandir(dir, &list, is_something, alphasort);
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
    char *path = n == 0 ? sluice__path_join(dir, "study.lock") : NULL;
    if (path) {
        unlink(path);
        rmdir(dir);
    }
    sluice__free(path);
}

/* ---- differences ---- */

static void short_text(char out[64], const json_t *v) {
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
    snprintf(out, 64, "%.60s", text ? text : "absent");
    free(text);
}

static bool same_number(const json_t *a, const json_t *b) {
    return json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b);
}

static void extend(char path[256], const char *key) {
    size_t n = strlen(path);
    snprintf(path + n, 256 - n, "%s%s", n ? "." : "", key);
}

static bool object_difference(const json_t *a, const json_t *b, char path[256], char a_text[64], char b_text[64]);

bool sluice__json_difference(const json_t *a, const json_t *b, char path[256], char a_text[64], char b_text[64]) {
    if (json_is_object(a) && json_is_object(b)) return object_difference(a, b, path, a_text, b_text);
    if (same_number(a, b) || json_equal(a, b)) return false;
    short_text(a_text, a);
    short_text(b_text, b);
    return true;
}

/* Walks the keys of one object; with `missing_only` those alone that the other lacks. `swapped`: `in` is the second
 * one. */
static bool keys_difference(const json_t *in, const json_t *other, bool missing_only, char path[256], char in_text[64],
                            char other_text[64]) {
    const char *key;
    json_t *value;
    size_t length = strlen(path);
    for (void *i = json_object_iter((json_t *)(uintptr_t)in); i;
         i = json_object_iter_next((json_t *)(uintptr_t)in, i)) {
        key = json_object_iter_key(i);
        value = json_object_iter_value(i);
        json_t *match = json_object_get(other, key);
        if (missing_only && match) continue;
        extend(path, key);
        if (sluice__json_difference(value, match, path, in_text, other_text)) return true;
        path[length] = '\0';
    }
    return false;
}

static bool object_difference(const json_t *a, const json_t *b, char path[256], char a_text[64], char b_text[64]) {
    return keys_difference(a, b, false, path, a_text, b_text) || keys_difference(b, a, true, path, b_text, a_text);
}

/* ---- plans ---- */

static json_t *plan_of(const sluice__recipe *recipe, const sluice__material *m, int arm) {
    const sluice__arm *a = &recipe->arms[arm];
    char hash[32];
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)sluice_dataset_get_info(m->entries[m->entry_of_arm[arm]].dataset).hash);
    json_t *extension = json_object_get(recipe->root, "extension");
    json_t *plan = json_pack("{s:O, s:O, s:O, s:O, s:s}", "model", a->config, "data", a->data, "training", a->training,
                             "evaluation", json_object_get(recipe->root, "evaluation"), "tokens_hash", hash);
    if (plan && extension) json_object_set(plan, "extension", extension);
    return plan;
}

static sluice_status compare(const json_t *now, const char *path, sluice_error *err) {
    json_t *before;
    char where[256] = "", then_text[64], now_text[64];
    SLUICE__TRY(sluice__json_load(&before, path, err));
    bool differs = sluice__json_difference(before, now, where, then_text, now_text);
    json_decref(before);
    if (!differs) return SLUICE_OK;
    bool text = !strcmp(where, "tokens_hash");
    return sluice__fail(
        err, SLUICE_ERR_CONFIG,
        "%s: the directory holds a study with other %s: %s was %s and is %s now; choose another output directory, "
        "or overwrite",
        path, text ? "text" : "settings", where, then_text, now_text);
}

static sluice_status open_arm(const char *dir, const sluice__recipe *recipe, const sluice__material *m, int arm,
                              bool write, sluice_error *err) {
    char *path = sluice__asprintf("%s/arms/%s/plan.json", dir, recipe->arms[arm].name);
    char *folder = sluice__asprintf("%s/arms/%s", dir, recipe->arms[arm].name);
    json_t *plan = plan_of(recipe, m, arm);
    sluice_status st = path && folder && plan ? SLUICE_OK : sluice__no_memory(err, 0, "a plan");
    bool there = st == SLUICE_OK && sluice__is_file(path);
    if (there && !write) st = compare(plan, path, err);
    if (st == SLUICE_OK && write && !there) {
        st = sluice__make_dirs(folder, err);
        if (st == SLUICE_OK) st = sluice__json_save(plan, path, err);
    }
    json_decref(plan);
    sluice__free(path);
    sluice__free(folder);
    return st;
}

/* What a study writes into its directory, besides the lock. */
static const char *const study_files[] = {"arms", "results.json", "results.csv", "report.html"};
enum { STUDY_FILES = sizeof study_files / sizeof *study_files };

sluice_status sluice__plan_remove(const char *dir, sluice_error *err) {
    for (int i = 0; i < STUDY_FILES; i++) {
        char *path = sluice__path_join(dir, study_files[i]);
        if (!path) return sluice__no_memory(err, strlen(dir), "a path");
        sluice_status st = SLUICE_OK;
        if (sluice__is_dir(path))
            st = sluice__remove_tree(path, err);
        else if (sluice__is_file(path) && unlink(path) != 0)
            st = sluice__fail(err, SLUICE_ERR_IO, "%s: cannot be removed: %s", path, strerror(errno));
        sluice__free(path);
        SLUICE__TRY(st);
    }
    return SLUICE_OK;
}

static sluice_status foreign(const char *path, sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                        "%s: was not written by a study, and this one would replace it; give another output directory",
                        path);
}

/* arms/: nothing but directories with a plan. */
static sluice_status check_arms(const char *arms, bool *ours, sluice_error *err) {
    DIR *d = opendir(arms);
    if (!d) return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot read: %s", arms, strerror(errno));
    sluice_status st = SLUICE_OK;
    for (struct dirent *e; st == SLUICE_OK && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char *path = sluice__asprintf("%s/%s", arms, e->d_name), *plan = sluice__asprintf("%s/%s/plan.json", arms, e->d_name);
        if (!path || !plan) st = sluice__no_memory(err, strlen(arms), "a path");
        else if (!sluice__is_file(plan)) st = foreign(path, err);
        else *ours = true;
        sluice__free(path);
        sluice__free(plan);
    }
    closedir(d);
    return st;
}

static sluice_status check_results(const char *results, bool *ours, sluice_error *err) {
    json_t *root = NULL;
    const char *format = NULL;
    if (sluice__json_load(&root, results, NULL) == SLUICE_OK) format = json_string_value(json_object_get(root, "format"));
    *ours = format && !strncmp(format, "sluice-study-", 13);
    json_decref(root);
    return *ours ? SLUICE_OK : foreign(results, err);
}

/* Refuses a directory in which files of somebody else bear the names of ours. */
static sluice_status check_directory(const char *dir, sluice_error *err) {
    char *paths[STUDY_FILES];
    sluice_status st = SLUICE_OK;
    bool ours = false;
    for (int i = 0; i < STUDY_FILES; i++)
        if (!(paths[i] = sluice__path_join(dir, study_files[i]))) st = sluice__no_memory(err, strlen(dir), "a path");
    if (st == SLUICE_OK && sluice__is_file(paths[0])) st = foreign(paths[0], err);
    if (st == SLUICE_OK && sluice__is_dir(paths[0])) st = check_arms(paths[0], &ours, err);
    if (st == SLUICE_OK && sluice__is_file(paths[1])) st = check_results(paths[1], &ours, err);
    for (int i = 2; i < STUDY_FILES && st == SLUICE_OK; i++)
        if (!ours && sluice__is_file(paths[i])) st = foreign(paths[i], err);
    for (int i = 0; i < STUDY_FILES; i++) sluice__free(paths[i]);
    return st;
}

sluice_status sluice__plan_check(const char *dir, const sluice__recipe *recipe, const sluice__material *material,
                                 bool overwrite, sluice_error *err) {
    SLUICE__TRY(check_directory(dir, err));
    for (int a = 0; !overwrite && a < recipe->num_arms; a++)
        SLUICE__TRY(open_arm(dir, recipe, material, a, false, err));
    return SLUICE_OK;
}

static bool has_arm(const sluice__recipe *recipe, const char *name) {
    for (int i = 0; i < recipe->num_arms; i++)
        if (!strcmp(recipe->arms[i].name, name)) return true;
    return false;
}

void sluice__plan_tell_others(const char *dir, const sluice__recipe *recipe) {
    char *path = sluice__path_join(dir, "arms");
    struct dirent **list = NULL;
    int n = path ? scandir(path, &list, NULL, alphasort) : 0;
    sluice__strbuf names = {0};
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        if (name[0] != '.' && !has_arm(recipe, name))
            sluice__strbuf_printf(&names, "%s%s", names.size ? ", " : "", name);
        free(list[i]);
    }
    if (names.size && !names.failed)
        sluice__log(SLUICE_LOG_WARNING,
                    "%s: results and report will hold the arms that were asked for; left out, their runs stay: %s", dir,
                    names.data);
    sluice__strbuf_free(&names);
    free(list);
    sluice__free(path);
}

sluice_status sluice__plan_write(const char *dir, const sluice__recipe *recipe, const sluice__material *material,
                                 sluice_error *err) {
    for (int a = 0; a < recipe->num_arms; a++) SLUICE__TRY(open_arm(dir, recipe, material, a, true, err));
    return SLUICE_OK;
}
