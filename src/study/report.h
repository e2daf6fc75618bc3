/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML page of a study, drawn from nothing but its results.json (docs/report.md says what the
 * page shows). */
#ifndef SLUICE_STUDY_REPORT_H
#define SLUICE_STUDY_REPORT_H
#include <stddef.h>
#include "base/error.h"

/* Writes one file that opens without a network, atomically. Text that is not JSON, not a study's
 * results or has a field of the wrong type is refused with an error that names the field; fields
 * that a failed run lacks are no error. */
sluice_status sluice__report_write(const char *results_json_text, size_t size,
                                   const char *html_path, sluice_error *err);
#endif
