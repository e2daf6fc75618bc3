/* SPDX-License-Identifier: Apache-2.0 */
/* The text that a study uses when the user gives none: the King James Bible, which Debian's package bible-kjv carries
 * in a compressed form that only its program `bible` reads. */
#ifndef SLUICE_STUDY_CORPUS_H
#define SLUICE_STUDY_CORPUS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct sluice__corpus {
    char *text;      /* all documents, one behind the other; owned */
    size_t *offsets; /* [count + 1] */
    int64_t count;
    char source[96]; /* for the report */
} sluice__corpus;

/* Runs `bible` (found by PATH) and reads its output from a pipe; nothing is written. When the program is missing the
 * error says which package has it and how to use another text. */
sluice_status sluice__corpus_embedded(sluice__corpus *out, sluice_error *err);
/* One document a book from lines like "Ge1:1 In the beginning ...": references go, the verses of a chapter form one
 * paragraph, chapters are lines. `name` stands for the source in messages. */
sluice_status sluice__corpus_from_verses(sluice__corpus *out, const char *lines, size_t size, const char *name,
                                         sluice_error *err);
void sluice__corpus_free(sluice__corpus *corpus);
#endif
