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
json_t *sluice__inspection_to_json(const sluice_inspection *inspection); /* NULL when out of memory */
/* {"layers": [[base64 of T*T bytes, round(255 p), per head]], "gate": null | [[per head: [T scores]]]} */
json_t *sluice__map_to_json(const sluice_attention_map *map);
#endif
