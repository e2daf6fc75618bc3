/* SPDX-License-Identifier: Apache-2.0 */
/* Files: whole-file reads, read-only maps, and writes that either happen completely or not at all. */
#ifndef SLUICE_BASE_FILE_H
#define SLUICE_BASE_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "base/error.h"

/* A read-only view of a whole file. size 0 has data non-NULL. */
typedef struct sluice__map {
    const unsigned char *data;
    size_t size;
} sluice__map;

sluice_status sluice__map_open(sluice__map *out, const char *path, sluice_error *err);
void sluice__map_close(sluice__map *map);

/* Reads a regular file of at most `limit` bytes; *text is NUL-terminated beyond *size, freed with sluice__free. */
sluice_status sluice__read_file(char **text, size_t *size, const char *path, size_t limit, sluice_error *err);

/* Atomic replacement of one file: open gives a stream on a temporary neighbour, commit flushes, fsyncs and renames it
 * over path (and fsyncs the directory), abort removes it. Exactly one of commit or abort ends the life of *w. */
typedef struct sluice__atomic_file {
    FILE *stream;
    char *path, *temporary;
    char *buffer; /* of the stream; NULL: its own */
} sluice__atomic_file;
sluice_status sluice__atomic_open(sluice__atomic_file *w, const char *path, sluice_error *err);
/* Before a file of a kind that begins with `magic` is replaced: fails unless at path is such a file ("a GGUF file"), an empty
 * one or nothing. A mistyped name must not cost somebody's file. What is no regular file is for sluice__atomic_open to refuse. */
sluice_status sluice__check_replaceable(const char *path, const char *magic, const char *what, sluice_error *err);
/* Whether path leads to a file that is there in directory dir, links followed. */
bool sluice__is_in_dir(const char *path, const char *dir);
sluice_status sluice__atomic_commit(sluice__atomic_file *w, sluice_error *err);
void sluice__atomic_abort(sluice__atomic_file *w);
sluice_status sluice__write_file(const char *path, const void *data, size_t size, sluice_error *err); /* atomic */

/* The same for a directory: write files into the returned temporary path, then commit renames it to path (an existing
 * directory there is replaced) or discard removes it. *temporary is freed by either. */
sluice_status sluice__atomic_dir_begin(char **temporary, const char *path, sluice_error *err);
sluice_status sluice__atomic_dir_commit(char *temporary, const char *path, sluice_error *err);
/* The same for a path where nothing is, or an empty directory; whatever has come there meanwhile stays, and it fails. */
sluice_status sluice__atomic_dir_commit_new(char *temporary, const char *path, sluice_error *err);
void sluice__atomic_dir_discard(char *temporary);

/* Names of this process for what is half written, and for what steps aside (stale.c); NULL when out of memory; freed with
 * sluice__free. */
char *sluice__temporary_name(const char *path);
char *sluice__old_name(const char *path);
/* Whether `mark`, the end of a name, is what such names end with, of any process. */
bool sluice__is_remnant(const char *mark);
/* Removes what processes that are gone have left of such writes beside a path (stale.c); begin and open do it. */
void sluice__remove_stale(const char *path);

sluice_status sluice__make_dirs(const char *path, sluice_error *err); /* mkdir -p */
sluice_status sluice__make_parents(const char *path, sluice_error *err); /* the directories above path */
sluice_status sluice__remove_tree(const char *path, sluice_error *err);
bool sluice__is_dir(const char *path);
/* Whether nothing is there, or an empty directory: what a new directory may take the place of. */
bool sluice__is_free(const char *path);
bool sluice__is_file(const char *path);
/* dir/name; NULL when out of memory; freed with sluice__free. */
char *sluice__path_join(const char *dir, const char *name);
/* What stands before the last slash: "/" for what is in the root, "." without a slash; likewise. */
char *sluice__path_parent(const char *path);
/* Fails when path cannot be created or written as a directory, before any work starts. */
sluice_status sluice__check_writable_dir(const char *path, sluice_error *err);
/* Free bytes of the file system that holds path (or its nearest existing parent); -1 when unknown. */
long long sluice__free_disk(const char *path);
#endif
