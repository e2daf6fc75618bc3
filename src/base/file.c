/* SPDX-License-Identifier: Apache-2.0 */
/* Files. Atomic replacement is the usual sequence: write a temporary name in the same directory, fsync it, rename,
 * fsync the directory, so that a crash at any moment leaves either the old content or the new one.
 *
 * Weights are read in the page cache, once a token, and a translation for every 4 KiB costs a third of the bandwidth
 * (docs/speed-log.md). File systems with large folios keep 2 MiB together when a file is written in such pieces, or read
 * for the first time through a map that asks for huge pages. */
#include "base/file.h"
#include "base/memory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static sluice_status io_error(sluice_error *err, const char *path, const char *what) {
    return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

sluice_status sluice__map_open(sluice__map *out, const char *path, sluice_error *err) {
    *out = (sluice__map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe that nobody writes to would wait for ever */
    if (fd < 0) return io_error(err, path, "open");
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return sluice__fail(err, SLUICE_ERR_IO, "%s: not a regular file", path);
    }
    if (st.st_size == 0) {
        close(fd);
        out->data = (const unsigned char *)"";
        return SLUICE_OK;
    }
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED) return io_error(err, path, "map");
    if (st.st_size >= SLUICE__HUGE_PAGE) madvise(p, (size_t)st.st_size, MADV_HUGEPAGE); /* for pages that are read now; a wish */
    *out = (sluice__map){p, (size_t)st.st_size};
    return SLUICE_OK;
}

void sluice__map_close(sluice__map *map) {
    if (map->size) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (sluice__map){0};
}

sluice_status sluice__read_file(char **text, size_t *size, const char *path, size_t limit, sluice_error *err) {
    *text = NULL;
    sluice__map map;
    SLUICE__TRY(sluice__map_open(&map, path, err));
    if (map.size > limit) {
        size_t found = map.size;
        sluice__map_close(&map);
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: %zu bytes, expected at most %zu", path, found, limit);
    }
    *text = sluice__strndup((const char *)map.data, map.size);
    if (size) *size = map.size;
    sluice__map_close(&map);
    return *text ? SLUICE_OK : sluice__no_memory(err, limit, path);
}

static sluice_status sync_parent(const char *path, sluice_error *err) {
    char *dir = sluice__path_parent(path);
    if (!dir) return sluice__no_memory(err, strlen(path), "a path");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sluice_status st = SLUICE_OK;
    /* Some file systems refuse fsync on a directory with EINVAL; there is nothing more to do on those. */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) st = io_error(err, dir, "sync");
    if (fd >= 0) close(fd);
    sluice__free(dir);
    return st;
}

/* The place itself, without slashes behind it: what a link points at, so that the link stays, and the name of ".", which
 * cannot be renamed. Something else than a file (or directory) that exists there, a device for one, is not replaced. */
static sluice_status target_of(char **out, const char *path, bool directory, sluice_error *err) {
    struct stat st;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    *out = sluice__strndup(path, n);
    if (!*out) return sluice__no_memory(err, n, "a path");
    bool dots = n > 0 && path[n - 1] == '.' && (n == 1 || path[n - 2] == '/' || path[n - 2] == '.');
    if (dots || (lstat(*out, &st) == 0 && S_ISLNK(st.st_mode))) {
        char *real = realpath(*out, NULL);
        sluice__free(*out);
        *out = real ? sluice__strdup(real) : NULL;
        free(real);
        if (!*out) return io_error(err, path, "follow");
    }
    if (stat(*out, &st) != 0 || (directory ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode))) return SLUICE_OK;
    sluice__free(*out);
    *out = NULL;
    return sluice__fail(err, SLUICE_ERR_IO, "%s: exists and is not a %s", path, directory ? "directory" : "regular file");
}

sluice_status sluice__check_replaceable(const char *path, const char *magic, const char *what, sluice_error *err) {
    char found[16] = "";
    size_t n = strlen(magic);
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || !st.st_size) return SLUICE_OK;
    FILE *old = fopen(path, "rbe");
    if (!old) return io_error(err, path, "read what would be replaced");
    bool same = n <= sizeof found && fread(found, n, 1, old) == 1 && !memcmp(found, magic, n);
    fclose(old);
    return same ? SLUICE_OK : sluice__fail(err, SLUICE_ERR_IO, "%s: exists and is not %s; give another name, or remove it first", path, what);
}

bool sluice__is_in_dir(const char *path, const char *dir) {
    char *file = realpath(path, NULL), *folder = realpath(dir, NULL);
    char *slash = file ? strrchr(file, '/') : NULL;
    if (slash) *slash = '\0';
    bool inside = slash && folder && !strcmp(file, folder);
    free(file);
    free(folder);
    return inside;
}

sluice_status sluice__atomic_open(sluice__atomic_file *w, const char *path, sluice_error *err) {
    *w = (sluice__atomic_file){0};
    size_t n = strlen(path);
    if (!n) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "a file without a name");
    if (path[n - 1] == '/') return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: the name of a directory, expected a file", path);
    SLUICE__TRY(target_of(&w->path, path, false, err));
    w->temporary = sluice__temporary_name(w->path);
    if (!w->temporary) {
        sluice__atomic_abort(w);
        return sluice__no_memory(err, strlen(path), "a path");
    }
    sluice__remove_stale(w->path);
    w->stream = fopen(w->temporary, "wbe");
    if (w->stream) {
        struct stat old; /* a private file stays private */
        if (stat(w->path, &old) == 0) fchmod(fileno(w->stream), old.st_mode & 0777);
        w->buffer = sluice__calloc(SLUICE__HUGE_PAGE, 1, SLUICE__MEM_OTHER);
        if (w->buffer) setvbuf(w->stream, w->buffer, _IOFBF, SLUICE__HUGE_PAGE);
        flock(fileno(w->stream), LOCK_EX | LOCK_NB); /* says that it is being written; where locks do not work the process' number does */
        return SLUICE_OK;
    }
    sluice_status st = io_error(err, w->path, "create");
    sluice__atomic_abort(w);
    return st;
}

sluice_status sluice__atomic_commit(sluice__atomic_file *w, sluice_error *err) {
    int bad = ferror(w->stream) | fflush(w->stream) | fsync(fileno(w->stream));
    int saved = errno;
    bad |= fclose(w->stream);
    w->stream = NULL;
    sluice__free(w->buffer);
    w->buffer = NULL;
    if (bad) {
        errno = saved;
        sluice_status st = io_error(err, w->path, "write");
        sluice__atomic_abort(w);
        return st;
    }
    sluice_status st = SLUICE_OK;
    if (rename(w->temporary, w->path) != 0) {
        st = io_error(err, w->path, "replace");
        sluice__atomic_abort(w);
        return st;
    }
    st = sync_parent(w->path, err);
    sluice__free(w->temporary);
    sluice__free(w->path);
    *w = (sluice__atomic_file){0};
    return st;
}

void sluice__atomic_abort(sluice__atomic_file *w) {
    if (w->stream) fclose(w->stream);
    sluice__free(w->buffer);
    if (w->temporary) unlink(w->temporary);
    sluice__free(w->temporary);
    sluice__free(w->path);
    *w = (sluice__atomic_file){0};
}

sluice_status sluice__write_file(const char *path, const void *data, size_t size, sluice_error *err) {
    sluice__atomic_file w;
    SLUICE__TRY(sluice__atomic_open(&w, path, err));
    fwrite(data, 1, size, w.stream);
    return sluice__atomic_commit(&w, err);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

sluice_status sluice__remove_tree(const char *path, sluice_error *err) {
    struct stat st;
    if (lstat(path, &st) != 0) return errno == ENOENT ? SLUICE_OK : io_error(err, path, "look at");
    return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 ? SLUICE_OK : io_error(err, path, "remove");
}

sluice_status sluice__make_dirs(const char *path, sluice_error *err) {
    char *copy = sluice__strdup(path);
    if (!copy) return sluice__no_memory(err, strlen(path), "a path");
    sluice_status st = SLUICE_OK;
    for (char *p = copy + (*copy == '/'); st == SLUICE_OK; p++) {
        if (*p != '/' && *p) continue;
        char keep = *p;
        *p = '\0';
        if (*copy && mkdir(copy, 0777) != 0 && errno != EEXIST) st = io_error(err, copy, "create directory");
        *p = keep;
        if (!keep) break;
    }
    sluice__free(copy);
    if (st == SLUICE_OK && !sluice__is_dir(path))
        st = sluice__fail(err, SLUICE_ERR_IO, "%s: exists and is not a directory", path);
    return st;
}

sluice_status sluice__make_parents(const char *path, sluice_error *err) {
    char *parent = sluice__path_parent(path);
    sluice_status st = parent ? sluice__make_dirs(parent, err) : sluice__no_memory(err, strlen(path), "a path");
    sluice__free(parent);
    return st;
}

sluice_status sluice__atomic_dir_begin(char **temporary, const char *path, sluice_error *err) {
    char *target;
    *temporary = NULL;
    SLUICE__TRY(target_of(&target, path, true, err));
    sluice__remove_stale(target);
    *temporary = sluice__temporary_name(target);
    sluice__free(target);
    if (!*temporary) return sluice__no_memory(err, strlen(path), "a path");
    sluice_status st = sluice__remove_tree(*temporary, err);
    if (st == SLUICE_OK) st = sluice__make_dirs(*temporary, err);
    if (st == SLUICE_OK) return st;
    sluice__free(*temporary);
    *temporary = NULL;
    return st;
}

static int sync_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)ftw;
    if (kind != FTW_F && kind != FTW_DP) return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int r = fsync(fd) != 0 && errno != EINVAL ? -1 : 0;
    close(fd);
    return r;
}

/* A directory cannot be renamed over a full one, so an old one steps aside first. Its name tells a reader what it is. */
static sluice_status put_in_place(const char *temporary, const char *target, sluice_error *err) {
    char *old = sluice__is_dir(target) ? sluice__old_name(target) : NULL;
    if (!old && sluice__is_dir(target)) return sluice__no_memory(err, strlen(target), "a path");
    sluice_status st = SLUICE_OK;
    if (old && rename(target, old) != 0) {
        st = io_error(err, target, "replace");
    } else if (rename(temporary, target) != 0) {
        st = io_error(err, target, "create");
        if (old && rename(old, target) != 0) st = sluice__fail(err, SLUICE_ERR_IO, "%s: cannot create; the old one is %s", target, old);
    } else {
        st = sync_parent(target, err);
        if (old) sluice__remove_tree(old, NULL);
    }
    sluice__free(old);
    return st;
}

/* The system renames a directory over nothing, or over an empty one. */
static sluice_status put_if_free(const char *temporary, const char *target, sluice_error *err) {
    if (rename(temporary, target) == 0) return sync_parent(target, err);
    if (errno == ENOTEMPTY || errno == EEXIST)
        return sluice__fail(err, SLUICE_ERR_IO, "%s: something has come there meanwhile; it is not replaced", target);
    return io_error(err, target, "create");
}

static sluice_status commit(char *temporary, const char *path,
                            sluice_status (*put)(const char *temporary, const char *target, sluice_error *err),
                            sluice_error *err) {
    char *target = NULL;
    sluice_status st = target_of(&target, path, true, err);
    if (st == SLUICE_OK && nftw(temporary, sync_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) st = io_error(err, temporary, "sync");
    if (st == SLUICE_OK) st = put(temporary, target, err);
    if (st != SLUICE_OK) sluice__remove_tree(temporary, NULL);
    sluice__free(target);
    sluice__free(temporary);
    return st;
}

sluice_status sluice__atomic_dir_commit(char *temporary, const char *path, sluice_error *err) {
    return commit(temporary, path, put_in_place, err);
}

sluice_status sluice__atomic_dir_commit_new(char *temporary, const char *path, sluice_error *err) {
    return commit(temporary, path, put_if_free, err);
}

void sluice__atomic_dir_discard(char *temporary) {
    if (!temporary) return;
    sluice__remove_tree(temporary, NULL);
    sluice__free(temporary);
}

bool sluice__is_free(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return errno == ENOENT;
    DIR *dir = opendir(path);
    if (!dir) return false;
    int entries = 0;
    while (entries < 3 && readdir(dir)) entries++; /* . and .. */
    closedir(dir);
    return entries < 3;
}

bool sluice__is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool sluice__is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

char *sluice__path_parent(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? sluice__strndup(path, slash == path ? 1 : (size_t)(slash - path)) : sluice__strdup(".");
}

char *sluice__path_join(const char *dir, const char *name) {
    size_t n = strlen(dir);
    return sluice__asprintf(n && dir[n - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

sluice_status sluice__check_writable_dir(const char *path, sluice_error *err) {
    SLUICE__TRY(sluice__make_dirs(path, err));
    char *probe = sluice__asprintf("%s/.probe-%d", path, (int)getpid());
    if (!probe) return sluice__no_memory(err, strlen(path), "a path");
    int fd = open(probe, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    sluice_status st = fd < 0 ? io_error(err, path, "write into directory") : SLUICE_OK;
    if (fd >= 0) {
        close(fd);
        unlink(probe);
    }
    sluice__free(probe);
    return st;
}

long long sluice__free_disk(const char *path) {
    char *at = sluice__strdup(path);
    struct statvfs vfs;
    long long found = -1;
    while (at && found < 0) {
        if (statvfs(*at ? at : ".", &vfs) == 0) {
            found = (long long)vfs.f_bavail * (long long)vfs.f_frsize;
            break;
        }
        char *slash = strrchr(at, '/');
        if (!slash) {
            if (!*at) break;
            *at = '\0';
        } else {
            *(slash == at ? slash + 1 : slash) = '\0';
            if (slash == at && statvfs("/", &vfs) != 0) break;
        }
    }
    sluice__free(at);
    return found;
}
