/* SPDX-License-Identifier: Apache-2.0 */
/* What a killed process has left of an atomic write: PATH.tmp-PID, half written, and PATH.old-PID, which stepped aside for a
 * directory that takes its place. Only names of exactly that form beside the path are looked at, only those whose process is
 * gone, and files only when nobody holds the lock that a writer keeps on its temporary file: process numbers mean nothing on
 * another machine that shares the directory. */
#include "base/file.h"
#include "base/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number behind `name` in "<name><mark><number>"; 0 when the entry is none of these. */
static pid_t number_behind(const char *entry, const char *name, size_t size, const char *mark) {
    size_t n = strlen(mark);
    if (strncmp(entry, name, size) || strncmp(entry + size, mark, n)) return 0;
    const char *digits = entry + size + n;
    size_t count = strspn(digits, "0123456789");
    if (!count || count > 9 || digits[count]) return 0;
    return (pid_t)atoi(digits);
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
    if (!sluice__is_dir(path)) return;
    if (access(target, F_OK) == 0 || rename(path, target) != 0) sluice__remove_tree(path, NULL);
}

void sluice__remove_stale(const char *target) {
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    size_t size = strlen(name);
    char *dir = slash ? sluice__strndup(target, slash == target ? 1 : (size_t)(slash - target)) : sluice__strdup(".");
    DIR *entries = dir && size ? opendir(dir) : NULL;
    for (struct dirent *e; entries && (e = readdir(entries));) {
        bool temporary = is_gone(number_behind(e->d_name, name, size, ".tmp-"));
        bool old = is_gone(number_behind(e->d_name, name, size, ".old-"));
        char *path = temporary || old ? sluice__path_join(dir, e->d_name) : NULL;
        if (path && temporary) remove_temporary(path);
        if (path && old) settle_old(path, target);
        sluice__free(path);
    }
    if (entries) closedir(entries);
    sluice__free(dir);
}
