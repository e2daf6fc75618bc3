/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT, SIGTERM and SIGHUP (a terminal that closes) as requests to stop in good order. They are blocked in every thread that computes and taken by
 * one thread that only waits for them: the JIT-compiled GEMM kernels of oneDNN use the stack pointer for their own
 * purposes, and a signal frame written there by a handler lands in the heap. */
#include "cli/cli.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int caught;
static atomic_bool answering, interrupted;

static void *wait_for_signals(void *set) {
    static const char words[] = "\ninterrupted: finishing and saving; once more to exit at once\n";
    for (int number; sigwait(set, &number) == 0;) {
        if (atomic_load(&caught)) _exit(128 + number);
        atomic_store(&caught, number);
        ssize_t ignored = write(STDERR_FILENO, words, sizeof words - 1);
        (void)ignored;
    }
    return NULL;
}

/* While an answer comes, the first SIGINT stops it; otherwise the program ends at once. */
static void *wait_for_interrupts(void *set) {
    for (int number; sigwait(set, &number) == 0;) {
        if (number != SIGINT || !atomic_load(&answering) || atomic_exchange(&interrupted, true)) {
            ssize_t ignored = write(STDERR_FILENO, "\n", 1);
            (void)ignored;
            _exit(128 + number);
        }
    }
    return NULL;
}

/* A signal that the parent ignores (nohup, a script's background job) stays ignored. */
static void add_unless_ignored(sigset_t *set, int number) {
    struct sigaction now;
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(set, number);
}

static void watch(void *(*wait)(void *set)) {
    static sigset_t set;
    pthread_t thread;
    sigemptyset(&set);
    add_unless_ignored(&set, SIGINT);
    add_unless_ignored(&set, SIGTERM);
    add_unless_ignored(&set, SIGHUP);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write, not a death */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, wait, &set) == 0) pthread_detach(thread);
    else pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Model files and shards are mapped. Where one is cut off by another program, reading behind its new end raises SIGBUS, which
 * nothing can go on from; what is said here stands in place of "Bus error". */
static void on_bus_error(int number, siginfo_t *info, void *context) {
    static const char cut[] = "\nsluice: a file that was being read has become shorter: was a model or data file truncated or overwritten "
                              "while in use? Replace files by renaming\n",
                      other[] = "\nsluice: bus error\n";
    (void)number, (void)context;
    bool gone = info->si_code == BUS_ADRERR;
    ssize_t ignored = write(STDERR_FILENO, gone ? cut : other, gone ? sizeof cut - 1 : sizeof other - 1);
    (void)ignored;
    _exit(CLI_FAILED);
}

void cli_name_bus_errors(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

void cli_watch_signals(void) { watch(wait_for_signals); }

void cli_watch_answers(void) { watch(wait_for_interrupts); }

void cli_answer_begins(void) {
    atomic_store(&interrupted, false);
    atomic_store(&answering, true);
}

void cli_answer_ends(void) { atomic_store(&answering, false); }

bool cli_answer_interrupted(void) { return atomic_load(&interrupted); }

bool cli_stop_requested(void *unused) {
    (void)unused;
    return atomic_load(&caught) != 0;
}

int cli_stop_code(void) {
    int number = atomic_load(&caught);
    return number ? 128 + number : CLI_FAILED;
}
