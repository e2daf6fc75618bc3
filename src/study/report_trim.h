/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a report small enough to send by mail: what a page of a big study leaves to its
 * results.json. */
#ifndef SLUICE_STUDY_REPORT_TRIM_H
#define SLUICE_STUDY_REPORT_TRIM_H
#include <jansson.h>
#include "base/error.h"

/* Changes checked results in place. Attention maps past a budget stay for one seed per arm, then
 * for evenly spread layers; training curves past theirs keep every n-th point and all spikes. What
 * was left out is said in words in root.page.left_out, an array of strings that the page shows. */
sluice_status sluice__report_trim(json_t *root, sluice_error *err);
#endif
