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
static atomic_bool interrupted;

/* What a conversation is doing, under `turn`. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static enum { ELSEWHERE, TALKING, LISTENING, ANSWERING } doing;
static pthread_t talker;

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

/* While an answer comes, the first SIGINT stops it. Otherwise the conversation ends in good order, so that --save finds it;
 * before it has begun, and at the second request, the program ends at once. */
static void end_conversation(int number) {
    ssize_t ignored = write(STDERR_FILENO, "\n", 1);
    (void)ignored;
    if (doing == ELSEWHERE || atomic_load(&caught)) _exit(128 + number);
    atomic_store(&caught, number);
    atomic_store(&interrupted, true);
    if (doing == LISTENING) pthread_kill(talker, SIGUSR1); /* while it computes no handler may run on its stack */
}

static void *wait_for_interrupts(void *set) {
    for (int number; sigwait(set, &number) == 0;) {
        pthread_mutex_lock(&turn);
        if (number != SIGINT || doing != ANSWERING || atomic_exchange(&interrupted, true)) end_conversation(number);
        pthread_mutex_unlock(&turn);
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

void cli_watch_files(void) {
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write, not a death */
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

void cli_watch_signals(void) { watch(wait_for_signals); }

static void wake(int number) { (void)number; }

void cli_watch_answers(void) {
    struct sigaction action = {.sa_handler = wake}; /* without SA_RESTART: read returns */
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    talker = pthread_self();
    watch(wait_for_interrupts);
}

static void now_doing(int what) {
    pthread_mutex_lock(&turn);
    doing = what;
    if (what == ANSWERING) atomic_store(&interrupted, atomic_load(&caught) != 0);
    pthread_mutex_unlock(&turn);
}

void cli_answer_begins(void) { now_doing(ANSWERING); }

void cli_answer_ends(void) { now_doing(TALKING); }

void cli_listening_begins(void) { now_doing(LISTENING); }

void cli_listening_ends(void) { now_doing(TALKING); }

bool cli_answer_interrupted(void) { return atomic_load(&interrupted); }

bool cli_stop_requested(void *unused) {
    (void)unused;
    return atomic_load(&caught) != 0;
}

int cli_stop_code(void) {
    int number = atomic_load(&caught);
    return number ? 128 + number : CLI_FAILED;
}
