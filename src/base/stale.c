/* SPDX-License-Identifier: Apache-2.0 */
/* What a killed process has left of an atomic write: PATH.sluice-tmp-PLACE-PID, half written, and PATH.sluice-old-PLACE-PID,
 * which stepped aside for a directory that takes its place. Only names of exactly that form beside the path are looked at, never
 * through a link, and only those whose process is gone. PLACE stands for the machine and its table of processes, because a
 * number says nothing about a process on another machine, or in another container, that shares the directory; what those have
 * left is left alone. Files go only when nobody holds the lock that a writer keeps on them. */
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char temporary_mark[] = ".sluice-tmp-", old_mark[] = ".sluice-old-";

/* Of the host's name and the process namespace, as eight hexadecimal digits. */
static void place_of(char out[9]) {
    char host[256] = "";
    struct stat space = {0};
    gethostname(host, sizeof host - 1);
    stat("/proc/self/ns/pid", &space);
    uint64_t number = space.st_ino;
    snprintf(out, 9, "%08x", (unsigned)sluice__hash_bytes(&number, sizeof number, sluice__hash_text(host)));
}

static char *marked_name(const char *path, const char *mark) {
    char place[9];
    place_of(place);
    return sluice__asprintf("%s%s%s-%d", path, mark, place, (int)getpid());
}

char *sluice__temporary_name(const char *path) { return marked_name(path, temporary_mark); }

char *sluice__old_name(const char *path) { return marked_name(path, old_mark); }

/* Whether `text` is "<mark><eight hexadecimal digits>-<number>"; *place and *pid say which. */
static bool is_marked(const char *text, const char *mark, const char **place, pid_t *pid) {
    size_t n = strlen(mark);
    if (strncmp(text, mark, n) || strspn(text + n, "0123456789abcdef") != 8 || text[n + 8] != '-') return false;
    const char *digits = text + n + 9;
    size_t count = strspn(digits, "0123456789");
    if (!count || count > 9 || digits[count]) return false;
    *place = text + n;
    *pid = (pid_t)atoi(digits);
    return true;
}

bool sluice__is_remnant(const char *mark) {
    const char *place;
    pid_t pid;
    return is_marked(mark, temporary_mark, &place, &pid) || is_marked(mark, old_mark, &place, &pid);
}

static bool is_gone(pid_t pid) { return pid > 0 && pid != getpid() && kill(pid, 0) != 0 && errno == ESRCH; }

static bool is_locked(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return true;
    bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0;
    close(fd);
    return locked;
}

static void remove_temporary(const char *path) {
    struct stat st;
    if (lstat(path, &st) != 0) return;
    if (S_ISREG(st.st_mode) && !is_locked(path)) unlink(path);
    if (S_ISDIR(st.st_mode)) sluice__remove_tree(path, NULL);
}

/* The kill came between two renames: what stepped aside goes back. */
static void settle_old(const char *path, const char *target) {
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return;
    if (access(target, F_OK) == 0 || rename(path, target) != 0) sluice__remove_tree(path, NULL);
}

/* Whether the entry is of this target, with this mark, by a process of this place that is gone. */
static bool is_left(const char *entry, const char *name, size_t size, const char *mark) {
    const char *place;
    char here[9];
    pid_t pid;
    if (strncmp(entry, name, size) || !is_marked(entry + size, mark, &place, &pid)) return false;
    place_of(here);
    return !strncmp(place, here, 8) && is_gone(pid);
}

void sluice__remove_stale(const char *target) {
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    size_t size = strlen(name);
    char *dir = sluice__path_parent(target);
    DIR *entries = dir && size ? opendir(dir) : NULL;
    for (struct dirent *e; entries && (e = readdir(entries));) {
        bool temporary = is_left(e->d_name, name, size, temporary_mark);
        bool old = is_left(e->d_name, name, size, old_mark);
        char *path = temporary || old ? sluice__path_join(dir, e->d_name) : NULL;
        if (path && temporary) remove_temporary(path);
        if (path && old) settle_old(path, target);
        sluice__free(path);
    }
    if (entries) closedir(entries);
    sluice__free(dir);
}
