/* SPDX-License-Identifier: Apache-2.0 */
/* train: kill -9 at fifty random moments, many of them while a checkpoint is being written (every second update
 * writes one). Every checkpoint that survives is complete, the run goes on after each kill, and its final weights,
 * moments and metrics are those of a run that nobody disturbed. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/safetensors.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLS = 50, STEPS = 1000, MOST_STEPS = 10, POLL = 300 /* us */, TEXT = 40000 };

static char dir[128];

static void put_book(void) {
    char path[256], *text = sluice__calloc(1, TEXT + 16, SLUICE__MEM_OTHER);
    static const char *const words[] = {"the ", "light ", "was ", "upon ", "waters, ", "and ", "evening ", "came.\n"};
    sluice__rng r = {5, 0, 0};
    size_t n = 0;
    while (n < TEXT) n += (size_t)sprintf(text + n, "%s", words[sluice__rng_below(&r, 8)]);
    snprintf(path, sizeof path, "%s/book.txt", dir);
    assert_ok(sluice__write_file(path, text, n, NULL));
    sluice__free(text);
}

static pid_t start(const char *output_dir) {
    char steps[32], output[256];
    snprintf(steps, sizeof steps, "--max-steps=%d", STEPS);
    snprintf(output, sizeof output, "--output-dir=%s", output_dir);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child) return child;
    if (chdir(dir) != 0 || !freopen("log", "w", stderr) || !freopen("out", "w", stdout)) _exit(99);
    execl(SLUICE_PROGRAM, "sluice", "train", "--quiet", "--threads=1", "--text=book.txt", "--vocab-size=264",
          "--hidden-size=16", "--num-hidden-layers=2", "--num-attention-heads=2", "--seq-len=16",
          "--per-device-train-batch-size=2", steps, "--gate-position=sdpa", "--eval-steps=5", "--max-eval-samples=4",
          "--probe-steps=7", "--probe-samples=2", "--save-steps=2", "--save-total-limit=2", "--learning-rate=3e-3",
          "--resume", output, (char *)NULL);
    _exit(99);
}

static void show_log(void) {
    char path[256], *text;
    snprintf(path, sizeof path, "%s/log", dir);
    if (sluice__read_file(&text, NULL, path, 1 << 20, NULL) == SLUICE_OK) print_error("%s\n", text);
}

/* True when the child ended by itself, which must be in success. */
static bool ended(pid_t child, bool wait) {
    int status;
    if (waitpid(child, &status, wait ? 0 : WNOHANG) != child) return false;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        show_log();
        fail_msg("sluice train ended with status %x", status);
    }
    return true;
}

static bool is_checkpoint(const char *name) {
    return !strncmp(name, "step-", 5) && strspn(name + 5, "0123456789") == strlen(name + 5);
}

/* Step of the newest checkpoint, or -1. */
static int newest_checkpoint(const char *run) {
    char path[256];
    int newest = -1;
    snprintf(path, sizeof path, "%s/%s/checkpoints", dir, run);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_checkpoint(e->d_name) && atoi(e->d_name + 5) > newest) newest = atoi(e->d_name + 5);
    if (d) closedir(d);
    return newest;
}

/* Every step-N directory holds files that open. */
static int count_good_checkpoints(const char *run) {
    static const char *const weights[] = {"model.safetensors", "optimizer.safetensors"};
    char path[600];
    int count = 0;
    snprintf(path, sizeof path, "%s/%s/checkpoints", dir, run);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!is_checkpoint(e->d_name)) continue;
        for (int i = 0; i < 2; i++) {
            sluice__safetensors *file;
            sluice_error err = {0};
            snprintf(path, sizeof path, "%s/%s/checkpoints/%s/%s", dir, run, e->d_name, weights[i]);
            assert_ok_err(sluice__safetensors_open(&file, path, &err), &err);
            sluice__safetensors_close(file);
        }
        snprintf(path, sizeof path, "%s/%s/checkpoints/%s/trainer_state.json", dir, run, e->d_name);
        assert_true(sluice__is_file(path));
        count++;
    }
    if (d) closedir(d);
    return count;
}

static void assert_same_file(const char *name) {
    char a[256], b[256], *x, *y;
    size_t n, m;
    snprintf(a, sizeof a, "%s/whole/%s", dir, name);
    snprintf(b, sizeof b, "%s/killed/%s", dir, name);
    assert_ok(sluice__read_file(&x, &n, a, 1 << 24, NULL));
    assert_ok(sluice__read_file(&y, &m, b, 1 << 24, NULL));
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    sluice__free(x);
    sluice__free(y);
}

/* The lines without the figures that depend on the clock. */
static char *metrics(const char *run) {
    char path[256], *text, *out;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", dir, run);
    assert_ok(sluice__read_file(&text, NULL, path, 1 << 24, NULL));
    out = text;
    for (char *p = text; *p;) {
        if (!strncmp(p, ", \"tokens_per_second\"", 21)) p += 2 + strcspn(p + 2, ",");
        else *out++ = *p++;
    }
    *out = '\0';
    return text;
}

/* Starts the run and kills it: at any moment from the start on (one in five), or up to 60 ms after it has written
 * its first new checkpoint. A run that has gone on for MOST_STEPS is killed at once, so that the run outlives fifty
 * kills on a fast machine too. True when it was faster all the same and ended. */
static bool start_and_kill(sluice__rng *r) {
    int before = newest_checkpoint("killed");
    bool early = sluice__rng_below(r, 5) == 0, first = early;
    int patience = (int)sluice__rng_below(r, early ? 400000 : 60000);
    pid_t child = start("killed");
    for (int waited = 0; first ? waited < patience : waited < 60000000; waited += POLL) {
        usleep(POLL);
        int newest = newest_checkpoint("killed");
        if (newest >= before + MOST_STEPS) break;
        if (!first && newest != before) first = true, waited = 0;
        if (ended(child, false)) return true;
    }
    kill(child, SIGKILL);
    return ended(child, true);
}

static void kills_lose_nothing(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    put_book();
    assert_true(ended(start("whole"), true));
    sluice__rng r = {50, 0, 0}; /* the load of the machine makes the moments other ones every time */
    int kills = 0, with_checkpoint = 0;
    bool done = false;
    while (kills < KILLS && !done) {
        done = start_and_kill(&r);
        kills += !done;
        with_checkpoint += count_good_checkpoints("killed") > 0;
    }
    print_message("%d kills, %d found a checkpoint to go on from\n", kills, with_checkpoint);
    assert_int_equal(kills, KILLS);
    assert_true(with_checkpoint >= KILLS / 2);
    if (!done) assert_true(ended(start("killed"), true));
    char name[64];
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                        "tokenizer.json"};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "checkpoints/step-%d/%s", STEPS, files[i]);
        assert_same_file(name);
    }
    assert_same_file("model/model.safetensors");
    char *a = metrics("whole"), *b = metrics("killed");
    assert_string_equal(a, b);
    sluice__free(a);
    sluice__free(b);
    assert_int_equal(count_good_checkpoints("killed"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kills_lose_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
