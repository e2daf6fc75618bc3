/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a study: results.json, results.csv, report.html, and the summary for the table. */
#ifndef SLUICE_STUDY_RESULTS_H
#define SLUICE_STUDY_RESULTS_H
#include "study/digest.h"
#include "study/material.h"

typedef struct sluice__run_facts {
    int threads, parallel_arms;
    double seconds;
} sluice__run_facts;

/* runs [num_arms][num_seeds]: what every run left, or NULL. Borrowed. The result is owned by the caller. */
sluice_status sluice__study_results_new(json_t **out, const sluice__recipe *recipe, const sluice__material *material,
                                        json_t *const *runs, const sluice__run_facts *facts, sluice_error *err);
/* Writes the three files into dir. */
sluice_status sluice__study_results_write(const json_t *results, const char *dir, sluice_error *err);
void sluice__study_results_summary(sluice_study_summary *out, const json_t *results);
/* Differences of every arm from the reference at equal seeds. */
json_t *sluice__comparisons(const sluice__digest *d);
#endif
