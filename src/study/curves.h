/* SPDX-License-Identifier: Apache-2.0 */
/* Training curves of a run for results.json, read from its metrics.jsonl, so that an interrupted and continued run
 * gives the same curves as one that went through. */
#ifndef SLUICE_STUDY_CURVES_H
#define SLUICE_STUDY_CURVES_H
#include <jansson.h>
#include "base/error.h"
#include "sluice/train.h"

enum { SLUICE__CURVE_POINTS = 2000 };

/* The "train" object of a run: time, speed, curves thinned to CURVE_POINTS with spikes kept, probes, spikes. An empty
 * or absent file gives empty curves. */
sluice_status sluice__curves_read(json_t **out, const char *metrics_path, const sluice_train_params *p,
                                  sluice_error *err);
#endif
