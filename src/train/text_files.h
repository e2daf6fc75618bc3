/* SPDX-License-Identifier: Apache-2.0 */
/* The list of text files that paths given by a user stand for. */
#ifndef SLUICE_TRAIN_TEXT_FILES_H
#define SLUICE_TRAIN_TEXT_FILES_H
#include "sluice/shards.h"

typedef struct sluice__text_file {
    char *path;
    bool jsonl;
} sluice__text_file;

typedef struct sluice__text_files {
    sluice__text_file *at;
    int count, capacity;
    int64_t bytes; /* on the disk; 0 when unknown (standard input) */
} sluice__text_files;

/* Directories are walked in order of name; in them only files with a known ending count. */
sluice_status sluice__text_files_list(sluice__text_files *out, const char *const *paths, int num_paths,
                                      sluice_text_format format, sluice_error *err);
void sluice__text_files_free(sluice__text_files *files);
#endif
