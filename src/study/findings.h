/* SPDX-License-Identifier: Apache-2.0 */
/* What a study may say. All rules stand in findings.c; they see nothing but the numbers of results.json. */
#ifndef SLUICE_STUDY_FINDINGS_H
#define SLUICE_STUDY_FINDINGS_H
#include "study/digest.h"

/* [{"id", "verdict": "observed" | "not observed" | "mixed", "text"}]; NULL when out of memory. */
json_t *sluice__findings(const sluice__digest *d);
#endif
