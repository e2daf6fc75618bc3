/* SPDX-License-Identifier: Apache-2.0 */
/* Log sink and progress lines share one lock and one idea of what stands on the terminal: up to SLOTS progress lines
 * that are redrawn in place; a log line wipes them, prints itself, and they come back with the next update. */
#include "base/progress.h"
#include "base/log.h"
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 32, LINE = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool enabled;
static sluice_log_fn log_fn;
static void *log_user;
static sluice_log_level stderr_level;
static struct {
    bool used;
    char text[LINE];
} slots[SLOTS];
static int lines_drawn;

double sluice__now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool on_terminal(void) {
    static int known = -1;
    if (known < 0) known = isatty(STDERR_FILENO);
    return known;
}

static void wipe(void) {
    for (int i = 0; i < lines_drawn; i++) fputs(i ? "\033[A\r\033[K" : "\r\033[K", stderr);
    lines_drawn = 0;
}

static void draw(void) {
    wipe();
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].used && *slots[i].text) fprintf(stderr, "%s%s", lines_drawn++ ? "\n" : "", slots[i].text);
    fflush(stderr);
}

void sluice_progress_enable(bool on) {
    enabled = on;
}

void sluice_log_set(sluice_log_fn fn, void *user) {
    pthread_mutex_lock(&lock);
    log_fn = fn;
    log_user = user;
    pthread_mutex_unlock(&lock);
}

static void to_stderr(void *user, sluice_log_level level, const char *line) {
    (void)user;
    if (level < stderr_level) return;
    if (on_terminal()) wipe();
    fprintf(stderr, "%s%s\n", level == SLUICE_LOG_WARNING ? "warning: " : "", line);
}

void sluice_log_to_stderr(sluice_log_level least) {
    stderr_level = least;
    sluice_log_set(to_stderr, NULL);
}

void sluice__log(sluice_log_level level, const char *fmt, ...) {
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    if (log_fn) log_fn(log_user, level, line);
    pthread_mutex_unlock(&lock);
}

static char *scaled(char *out, double x, const char *unit) {
    static const char prefix[] = " kMGTP";
    int i = 0;
    for (; fabs(x) >= 999.5 && i < 5; i++) x /= 1000;
    if (i) snprintf(out, 32, "%.3g %c%s", x, prefix[i], unit);
    else snprintf(out, 32, "%.3g%s%s", x, *unit ? " " : "", unit);
    return out;
}

char *sluice__format_bytes(char *out, double bytes) {
    return scaled(out, bytes, "B");
}

char *sluice__format_count(char *out, double n) {
    return scaled(out, n, "");
}

char *sluice__format_seconds(char *out, double s) {
    if (!(s >= 0) || s > 1e8) snprintf(out, 32, "?");
    else if (s < 59.5) snprintf(out, 32, "%.0f s", s);
    else if (s < 3570) snprintf(out, 32, "%.0f min %02.0f s", floor(round(s) / 60), fmod(round(s), 60));
    else snprintf(out, 32, "%.0f h %02.0f min", floor(round(s / 60) / 60), fmod(round(s / 60), 60));
    return out;
}

void sluice__progress_begin(sluice__progress *p, const char *label, const char *unit, int64_t total, int64_t first,
                            double per_step) {
    *p = (sluice__progress){.total = total, .first = first, .done = first, .per_step = per_step, .slot = -1};
    snprintf(p->label, sizeof p->label, "%s", label);
    snprintf(p->unit, sizeof p->unit, "%s", unit);
    p->start = sluice__now();
    p->last_shown = p->start - 8; /* the first plain line comes after two seconds */
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLOTS && p->slot < 0; i++)
        if (!slots[i].used) p->slot = i;
    if (p->slot >= 0) {
        slots[p->slot].used = true;
        slots[p->slot].text[0] = '\0';
    }
    pthread_mutex_unlock(&lock);
}

static void compose(const sluice__progress *p, char *line, const char *note, bool last) {
    double seconds = sluice__now() - p->start, steps = (double)(p->done - p->first);
    double rate = seconds > 0 ? steps / seconds : 0;
    char count[32], speed[32], eta[32];
    sluice__format_count(speed, rate * p->per_step);
    if (last || !p->total) sluice__format_seconds(eta, seconds);
    else sluice__format_seconds(eta, rate > 0 ? (double)(p->total - p->done) / rate : -1);
    if (p->total) snprintf(count, sizeof count, "%3.0f%%", 100.0 * (double)p->done / (double)p->total);
    else snprintf(count, sizeof count, "%lld", (long long)p->done);
    snprintf(line, LINE, "%s %s  %s %s/s  %s %s%s%s", p->label, count, speed, p->unit,
             last || !p->total ? "took" : "left", eta, *note ? "  " : "", note);
}

static void show(sluice__progress *p, const char *note, bool last) {
    if (!enabled) return;
    double now = sluice__now();
    if (!last && now - p->last_shown < (on_terminal() ? 0.2 : 10.0)) return;
    p->last_shown = now;
    char line[LINE];
    compose(p, line, note, last);
    pthread_mutex_lock(&lock);
    if (!on_terminal()) {
        fprintf(stderr, "%s\n", line);
    } else if (last) {
        wipe();
        if (p->slot >= 0) slots[p->slot].text[0] = '\0';
        fprintf(stderr, "%s\n", line);
        draw();
    } else if (p->slot >= 0) {
        snprintf(slots[p->slot].text, LINE, "%.110s", line);
        draw();
    }
    pthread_mutex_unlock(&lock);
}

void sluice__progress_update(sluice__progress *p, int64_t done, const char *note_fmt, ...) {
    p->done = done;
    char note[160];
    va_list ap;
    va_start(ap, note_fmt);
    vsnprintf(note, sizeof note, note_fmt, ap);
    va_end(ap);
    show(p, note, false);
}

void sluice__progress_end(sluice__progress *p, const char *note_fmt, ...) {
    char note[160];
    va_list ap;
    va_start(ap, note_fmt);
    vsnprintf(note, sizeof note, note_fmt, ap);
    va_end(ap);
    show(p, note, true);
    pthread_mutex_lock(&lock);
    if (p->slot >= 0) slots[p->slot].used = false;
    pthread_mutex_unlock(&lock);
}

/* ---- several runs ---- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sluice__best_and_median(double *seconds, int count, double *best, double *median) {
    qsort(seconds, (size_t)count, sizeof *seconds, by_size);
    *best = seconds[0];
    *median = count % 2 ? seconds[count / 2] : 0.5 * (seconds[count / 2 - 1] + seconds[count / 2]);
}
