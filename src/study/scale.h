/* SPDX-License-Identifier: Apache-2.0 */
/* Scales: one recipe at several sizes, smallest for a first look and for tests, larger ones for a night. */
#ifndef SLUICE_STUDY_SCALE_H
#define SLUICE_STUDY_SCALE_H
#include <jansson.h>
#include "base/error.h"

/* The scale that a recipe has without saying so: its sections as they stand. */
#define SLUICE__SCALE_NORMAL "normal"

/* *out: the recipe `root` at this scale, its `scales` gone, its `scale` set to the name; owned by the caller.
 * Sections of the scale are laid over those of the recipe as in RFC 7386: objects key by key, null takes a key away;
 * `arms` is an object by names of arms, where null leaves the arm out. name NULL = normal. An unknown name is refused
 * with the list of known ones. `file` stands for the recipe in messages. */
sluice_status sluice__scale_apply(json_t **out, json_t *root, const char *name, const char *file, sluice_error *err);
#endif
