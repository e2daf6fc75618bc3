/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of inspections and maps, in the form that results.json of a study has (docs/study.md). */
#ifndef SLUICE_INSPECT_INSPECTION_JSON_H
#define SLUICE_INSPECT_INSPECTION_JSON_H
#include <jansson.h>
#include "sluice/inspect.h"

/* A real, or null when it is not finite. */
json_t *sluice__json_number(double v);
json_t *sluice__json_numbers(const double *v, int count);
json_t *sluice__share_to_json(const sluice_first_share *share);
json_t *
sluice__inspection_to_json(const sluice_inspection *inspection); /* NULL when out of memory */
/* {"layers": [[base64 of T*T bytes, round(255 p), per head]], "gate": null | [[per head: [T
 * scores]]]} */
json_t *sluice__map_to_json(const sluice_attention_map *map);
/* The same with the T(T+1)/2 bytes on and below the diagonal, row after row, and "packing":
 * "lower". */
json_t *sluice__map_to_json_lower(const sluice_attention_map *map);
/* base64 of round(255 v), v cut to 0..1. */
json_t *sluice__bytes_to_json(const float *v, size_t count);
/* What a table of interventions and a curve over checkpoints need: means, loss, and arrays over
 * layers. */
json_t *sluice__inspection_brief(const sluice_inspection *inspection);
#endif
