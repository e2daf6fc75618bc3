/* SPDX-License-Identifier: Apache-2.0 */
/* base: allocation accounting, atomic files and directories, JSON errors, random streams. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <unistd.h>

static void memory_is_aligned_zeroed_and_counted(void **state) {
    (void)state;
    int64_t before = sluice__mem_in_use(SLUICE__MEM_DATA);
    for (size_t n = 1; n < 6000000; n = n * 7 + 1) {
        unsigned char *p = sluice__calloc(n, 1, SLUICE__MEM_DATA);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_int_equal(p[0] | p[n - 1] | p[n / 2], 0);
        assert_int_equal(sluice__mem_in_use(SLUICE__MEM_DATA) - before, (int64_t)n);
        sluice__free(p);
    }
    assert_null(sluice__calloc(SIZE_MAX / 2, 3, SLUICE__MEM_DATA));
    assert_int_equal(sluice__mem_in_use(SLUICE__MEM_DATA), before);
}

static void atomic_file_replaces_or_leaves(void **state) {
    (void)state;
    sluice_error err = {0};
    char path[256], *text;
    snprintf(path, sizeof path, "%s/f", test_temp_dir());
    assert_ok_err(sluice__write_file(path, "one", 3, &err), &err);
    sluice__atomic_file w;
    assert_ok_err(sluice__atomic_open(&w, path, &err), &err);
    fputs("two", w.stream);
    sluice__atomic_abort(&w);
    assert_ok_err(sluice__read_file(&text, NULL, path, 100, &err), &err);
    assert_string_equal(text, "one");
    sluice__free(text);
    assert_int_equal(sluice__read_file(&text, NULL, path, 2, &err), SLUICE_ERR_FORMAT);
    assert_int_equal(sluice__write_file("/proc/nowhere/x", "", 0, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "/proc/nowhere/x"));
}

/* What is replaced keeps who may read it; a name that is none, or a directory's, is refused. */
static void atomic_file_keeps_modes_and_refuses_names(void **state) {
    (void)state;
    sluice_error err = {0};
    char path[256], link[256], name[256];
    const char *dir = test_temp_dir();
    struct stat st;
    snprintf(path, sizeof path, "%s/private", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    assert_ok_err(sluice__write_file(path, "GGUF", 4, &err), &err);
    assert_int_equal(chmod(path, 0600), 0);
    assert_ok_err(sluice__write_file(path, "GGUF2", 5, &err), &err);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(sluice__write_file("", "x", 1, &err), SLUICE_ERR_ARGUMENT);
    snprintf(name, sizeof name, "%s/new/", dir);
    assert_int_equal(sluice__write_file(name, "x", 1, &err), SLUICE_ERR_ARGUMENT);
    assert_ok_err(sluice__check_replaceable(path, "GGUF", "a GGUF file", &err), &err);
    assert_ok_err(sluice__check_replaceable(name, "GGUF", "a GGUF file", &err), &err);
    assert_int_equal(sluice__check_replaceable(path, "SLUICE-S", "a session file", &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "not a session file"));
    assert_int_equal(symlink(path, link), 0);
    snprintf(name, sizeof name, "%s/.", dir);
    assert_true(sluice__is_in_dir(link, name) && !sluice__is_in_dir(link, "/") && !sluice__is_in_dir("/nonexistent", "/"));
}

static void atomic_dir_replaces_a_full_directory(void **state) {
    (void)state;
    sluice_error err = {0};
    char dir[256], file[300], *temporary, *text;
    snprintf(dir, sizeof dir, "%s/d", test_temp_dir());
    for (int i = 0; i < 3; i++) {
        assert_ok_err(sluice__atomic_dir_begin(&temporary, dir, &err), &err);
        snprintf(file, sizeof file, "%s/f", temporary);
        assert_ok_err(sluice__write_file(file, &"abc"[i], 1, &err), &err);
        assert_ok_err(sluice__atomic_dir_commit(temporary, dir, &err), &err);
    }
    snprintf(file, sizeof file, "%s/f", dir);
    assert_ok_err(sluice__read_file(&text, NULL, file, 10, &err), &err);
    assert_string_equal(text, "c");
    sluice__free(text);
}

static void json_errors_name_the_place(void **state) {
    (void)state;
    sluice_error err = {0};
    json_t *root;
    const char *text = "{\"a\": {\"b\": -1, \"s\": \"x\", \"r\": 2.5}}";
    assert_ok_err(sluice__json_parse(&root, text, strlen(text), "t.json", &err), &err);
    sluice__json top = sluice__json_view(root, "t.json"), a = sluice__json_get(&top, "a");
    int64_t n = 7;
    assert_int_equal(sluice__json_int(&a, "b", true, 1, 9, &n, &err), SLUICE_ERR_CONFIG);
    assert_string_equal(err.message, "t.json: a.b: found -1, expected 1..9");
    assert_int_equal(sluice__json_int(&a, "r", true, 1, 9, &n, &err), SLUICE_ERR_CONFIG);
    assert_ok_err(sluice__json_int(&a, "absent", false, 1, 9, &n, &err), &err);
    assert_int_equal(n, 7);
    assert_int_equal(sluice__json_int(&a, "absent", true, 1, 9, &n, &err), SLUICE_ERR_CONFIG);
    static const char *const choices[] = {"y", "z", NULL};
    int c;
    assert_int_equal(sluice__json_choice(&a, "s", true, choices, &c, &err), SLUICE_ERR_CONFIG);
    assert_string_equal(err.message, "t.json: a.s: found \"x\", expected one of y, z");
    json_decref(root);
    assert_int_equal(sluice__json_parse(&root, "{\"a\":1,\"a\":2}", 13, "d.json", &err), SLUICE_ERR_FORMAT);
}

/* Known-answer test of Philox4x32-10 (Random123, kat_vectors). */
static void philox_known_answers(void **state) {
    (void)state;
    uint32_t w[4];
    sluice__philox(0, 0, 0, w);
    assert_int_equal(w[0], 0x6627e8d5u);
    assert_int_equal(w[1], 0xe169c58du);
    assert_int_equal(w[2], 0xbc57ac4cu);
    assert_int_equal(w[3], 0x9b00dbd8u);
    sluice__philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, w);
    assert_int_equal(w[0], 0x408f276du);
}

static void normal_stream_does_not_depend_on_the_split(void **state) {
    (void)state;
    float whole[1001], part[1001];
    sluice__rng_fill_normal(whole, 1001, 5, 9, 0, 1.0f, 2.0f);
    for (int64_t at = 0, n = 1; at < 1001; at += n, n = n * 3 % 17 + 1) {
        if (n > 1001 - at) n = 1001 - at;
        sluice__rng_fill_normal(part + at, n, 5, 9, at, 1.0f, 2.0f);
    }
    assert_memory_equal(whole, part, sizeof whole);
    double sum = 0, squares = 0;
    for (int i = 0; i < 1001; i++) sum += whole[i], squares += (whole[i] - 1.0) * (whole[i] - 1.0);
    assert_true(fabs(sum / 1001 - 1) < 0.25 && fabs(squares / 1001 - 4) < 0.6);
}

/* ---- what a kill leaves behind ---- */

static const char *in(const char *dir, const char *name) {
    static char paths[4][200];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void touch(const char *path) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

static void touch_below(const char *dir, const char *sub, const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s/%s", dir, sub, name);
    touch(path);
}

/* The number of a process that is gone. */
static int gone(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, NULL, 0);
    return (int)pid;
}

/* A name of ours as another process would have it. Takes `mine`. */
static void marked(char *out, size_t size, char *mine, int pid, const char *behind) {
    *strrchr(mine, '-') = '\0';
    snprintf(out, size, "%s-%d%s", mine, pid, behind);
    sluice__free(mine);
}

/* A writer that is killed in the middle; the next write of the same path removes what it left. */
static void remnants_of_the_dead_are_removed(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    char name[96], dead[96];
    pid_t pid = fork();
    if (pid == 0) {
        sluice__atomic_file w;
        if (sluice__atomic_open(&w, in(dir, "a"), NULL) != SLUICE_OK) _exit(1);
        fputs("half", w.stream);
        fflush(w.stream);
        raise(SIGKILL);
    }
    waitpid(pid, NULL, 0);
    marked(name, sizeof name, sluice__temporary_name("a"), (int)pid, "");
    assert_true(sluice__is_file(in(dir, name)));
    marked(dead, sizeof dead, sluice__temporary_name("d"), gone(), "");
    assert_ok(sluice__make_dirs(in(dir, dead), NULL));
    touch_below(dir, dead, "x");
    assert_ok(sluice__write_file(in(dir, "a"), "whole", 5, NULL));
    assert_false(sluice__is_file(in(dir, name)));
    assert_true(sluice__is_dir(in(dir, dead))); /* of another path */
    char *temporary;
    assert_ok(sluice__atomic_dir_begin(&temporary, in(dir, "d"), NULL));
    assert_ok(sluice__atomic_dir_commit(temporary, in(dir, "d"), NULL));
    assert_false(sluice__is_dir(in(dir, dead)));
}

/* Names that only look alike, and those of processes that live, stay. */
static void only_remnants_are_removed(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    char alive[96], longer[96], locked[96], elsewhere[96], years[96];
    int dead = gone(), fd;
    marked(alive, sizeof alive, sluice__temporary_name("a"), (int)getppid(), "");
    marked(longer, sizeof longer, sluice__temporary_name("a"), dead, "x");
    marked(locked, sizeof locked, sluice__temporary_name("a"), dead, "");
    marked(elsewhere, sizeof elsewhere, sluice__temporary_name("a"), dead, ""); /* of another machine */
    elsewhere[strlen("a.sluice-tmp-")] ^= 1;
    snprintf(years, sizeof years, "a.tmp-%d", dead); /* a user's own */
    const char *const names[] = {alive, longer, locked, elsewhere, years, "a.old-2019", "a.sluice-tmp-", "a.sluice-tmp-00000000-0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) touch(in(dir, names[i]));
    fd = open(in(dir, locked), O_RDONLY); /* a writer on another machine */
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_ok(sluice__write_file(in(dir, "a"), "whole", 5, NULL));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!sluice__is_file(in(dir, names[i]))) fail_msg("%s: removed", names[i]);
    close(fd);
    assert_ok(sluice__write_file(in(dir, "a"), "again", 5, NULL));
    assert_false(sluice__is_file(in(dir, locked)));
}

/* Killed between its two renames, a replacement has left nothing in place: the old one comes back. */
static void what_stepped_aside_comes_back(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    char aside[96], *temporary;
    marked(aside, sizeof aside, sluice__old_name("d"), gone(), "");
    assert_ok(sluice__make_dirs(in(dir, aside), NULL));
    touch_below(dir, aside, "precious");
    assert_ok(sluice__atomic_dir_begin(&temporary, in(dir, "d"), NULL));
    assert_true(sluice__is_file(in(dir, "d/precious")));
    sluice__atomic_dir_discard(temporary);
    assert_ok(sluice__make_dirs(in(dir, aside), NULL));
    sluice__remove_stale(in(dir, "d"));
    assert_true(sluice__is_file(in(dir, "d/precious")) && !sluice__is_dir(in(dir, aside)));
}

/* A link that has such a name is not followed, and what it points at stays. */
static void links_are_not_followed(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    char aside[96], *temporary;
    marked(aside, sizeof aside, sluice__old_name("d"), gone(), "");
    assert_ok(sluice__make_dirs(in(dir, "real"), NULL));
    touch_below(dir, "real", "keep");
    assert_int_equal(symlink("real", in(dir, aside)), 0);
    assert_ok(sluice__atomic_dir_begin(&temporary, in(dir, "d"), NULL));
    assert_ok(sluice__atomic_dir_commit(temporary, in(dir, "d"), NULL));
    assert_true(sluice__is_file(in(dir, "real/keep")));
}

/* What came to the place of a new directory while it was written stays. */
static void a_new_directory_replaces_nothing(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    char *temporary;
    sluice_error err = {0};
    assert_ok(sluice__atomic_dir_begin(&temporary, in(dir, "d"), NULL));
    assert_ok(sluice__make_dirs(in(dir, "d"), NULL));
    touch_below(dir, "d", "precious");
    assert_int_equal(sluice__atomic_dir_commit_new(temporary, in(dir, "d"), &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "not replaced"));
    assert_true(sluice__is_file(in(dir, "d/precious")));
    assert_ok(sluice__make_dirs(in(dir, "e"), NULL));
    assert_ok(sluice__atomic_dir_begin(&temporary, in(dir, "e"), NULL));
    assert_ok(sluice__atomic_dir_commit_new(temporary, in(dir, "e"), NULL)); /* empty */
}

static void median_of_even_and_odd_counts(void **state) {
    (void)state;
    double four[] = {4, 1, 3, 2}, three[] = {9, 7, 8}, best, median;
    sluice__best_and_median(four, 4, &best, &median);
    assert_true(best == 1 && median == 2.5);
    sluice__best_and_median(three, 3, &best, &median);
    assert_true(best == 7 && median == 8);
    sluice__best_and_median(three, 1, &best, &median);
    assert_true(best == 7 && median == 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remnants_of_the_dead_are_removed),
        cmocka_unit_test(only_remnants_are_removed),
        cmocka_unit_test(what_stepped_aside_comes_back),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(a_new_directory_replaces_nothing),
        cmocka_unit_test(median_of_even_and_odd_counts),
        cmocka_unit_test(memory_is_aligned_zeroed_and_counted),
        cmocka_unit_test(atomic_file_replaces_or_leaves),
        cmocka_unit_test(atomic_file_keeps_modes_and_refuses_names),
        cmocka_unit_test(atomic_dir_replaces_a_full_directory),
        cmocka_unit_test(json_errors_name_the_place),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(normal_stream_does_not_depend_on_the_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
