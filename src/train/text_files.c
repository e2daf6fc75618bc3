/* SPDX-License-Identifier: Apache-2.0 */
/* Paths to text files, directories walked. Hidden entries and links to directories are passed over, so a walk ends. */
#include "train/text_files.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH = 64 };

static bool ends_with(const char *name, size_t n, const char *end) {
    size_t k = strlen(end);
    return n > k && !strncmp(name + n - k, end, k);
}

/* Known endings, behind which .gz or .zst may stand. */
static bool text_name(const char *name, bool *jsonl) {
    static const char *const endings[] = {".jsonl", ".ndjson", ".txt", ".text", ".md"};
    size_t n = strlen(name);
    if (ends_with(name, n, ".gz"))
        n -= 3;
    else if (ends_with(name, n, ".zst"))
        n -= 4;
    for (int i = 0; i < 5; i++)
        if (ends_with(name, n, endings[i])) {
            *jsonl = i < 2;
            return true;
        }
    *jsonl = false;
    return false;
}

static sluice_status add(sluice__text_files *f, const char *path, bool jsonl, int64_t bytes, sluice_error *err) {
    if (f->count == f->capacity) {
        int n = f->capacity ? f->capacity * 2 : 16;
        void *more = sluice__realloc(f->at, (size_t)n, sizeof *f->at, SLUICE__MEM_DATA);
        if (!more) return sluice__no_memory(err, (size_t)n * sizeof *f->at, "a list of files");
        f->at = more;
        f->capacity = n;
    }
    char *copy = sluice__strdup(path);
    if (!copy) return sluice__no_memory(err, strlen(path), "a path");
    f->at[f->count++] = (sluice__text_file){copy, jsonl};
    f->bytes += bytes;
    return SLUICE_OK;
}

static sluice_status walk(sluice__text_files *f, const char *dir, sluice_text_format format, int depth,
                          sluice_error *err);

static sluice_status entry(sluice__text_files *f, const char *dir, const char *name, sluice_text_format format,
                           int depth, sluice_error *err) {
    if (*name == '.') return SLUICE_OK;
    char *path = sluice__path_join(dir, name);
    struct stat st, link;
    bool jsonl;
    if (!path) return sluice__no_memory(err, strlen(dir), "a path");
    sluice_status status = SLUICE_OK;
    if (stat(path, &st) != 0 || lstat(path, &link) != 0)
        status = sluice__fail(err, SLUICE_ERR_IO, "%s: cannot look at: %s", path, strerror(errno));
    else if (S_ISDIR(st.st_mode) && !S_ISLNK(link.st_mode))
        status = walk(f, path, format, depth + 1, err);
    else if (S_ISREG(st.st_mode) && text_name(name, &jsonl))
        status = add(f, path, format == SLUICE_TEXT_AUTO ? jsonl : format == SLUICE_TEXT_JSONL, st.st_size, err);
    sluice__free(path);
    return status;
}

static sluice_status walk(sluice__text_files *f, const char *dir, sluice_text_format format, int depth,
                          sluice_error *err) {
    struct dirent **names;
    if (depth > DEPTH) return sluice__fail(err, SLUICE_ERR_IO, "%s: directories nested more than %d deep", dir, DEPTH);
    int n = scandir(dir, &names, NULL, alphasort);
    if (n < 0) return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot read directory: %s", dir, strerror(errno));
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < n; i++) {
        if (st == SLUICE_OK) st = entry(f, dir, names[i]->d_name, format, depth, err);
        free(names[i]);
    }
    free(names);
    return st;
}

static sluice_status one_path(sluice__text_files *f, const char *path, sluice_text_format format, bool *unknown,
                              sluice_error *err) {
    struct stat st;
    bool jsonl;
    int before = f->count;
    text_name(path, &jsonl);
    if (format != SLUICE_TEXT_AUTO) jsonl = format == SLUICE_TEXT_JSONL;
    if (!strcmp(path, "-")) {
        *unknown = true;
        return add(f, path, jsonl, 0, err);
    }
    if (stat(path, &st) != 0) return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        *unknown |= !S_ISREG(st.st_mode);
        return add(f, path, jsonl, S_ISREG(st.st_mode) ? st.st_size : 0, err);
    }
    SLUICE__TRY(walk(f, path, format, 0, err));
    if (f->count > before) return SLUICE_OK;
    return sluice__fail(
        err, SLUICE_ERR_IO,
        "%s: no text in this directory; expected .txt, .text, .md, .jsonl or .ndjson files, also .gz or .zst", path);
}

sluice_status sluice__text_files_list(sluice__text_files *out, const char *const *paths, int num_paths,
                                      sluice_text_format format, sluice_error *err) {
    *out = (sluice__text_files){0};
    bool unknown = false;
    sluice_status st = num_paths > 0 ? SLUICE_OK : sluice__fail(err, SLUICE_ERR_ARGUMENT, "no text files given");
    for (int i = 0; i < num_paths && st == SLUICE_OK; i++) st = one_path(out, paths[i], format, &unknown, err);
    if (unknown) out->bytes = 0;
    if (st != SLUICE_OK) sluice__text_files_free(out);
    return st;
}

void sluice__text_files_free(sluice__text_files *files) {
    for (int i = 0; i < files->count; i++) sluice__free(files->at[i].path);
    sluice__free(files->at);
    *files = (sluice__text_files){0};
}
