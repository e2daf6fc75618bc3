/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line changes in a recipe that is complete already: which arms, which seeds, how many updates. */
#include "study/recipe.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

/* By its name, or by that of the arm that it is a rung of. */
static bool is_called(const json_t *arm, const char *word) {
    const char *name = json_string_value(json_object_get(arm, "name")),
               *of = json_string_value(json_object_get(json_object_get(arm, "rung"), "of"));
    return !strcmp(word, name) || (of && !strcmp(word, of));
}

/* Adds the arms called so; false when one of them is there already. */
static bool keep(json_t *kept, json_t *arms, const char *word) {
    json_t *arm, *other;
    size_t i, j;
    json_array_foreach(arms, i, arm) {
        if (!is_called(arm, word)) continue;
        json_array_foreach(kept, j, other) if (other == arm) return false;
        json_array_append(kept, arm);
    }
    return true;
}

static sluice_status keep_arms(json_t *root, const char *list, sluice_error *err) {
    json_t *arms = json_object_get(root, "arms"), *kept = json_array();
    char *copy = sluice__strdup(list), *rest = copy, *word;
    sluice_status st = copy ? SLUICE_OK : sluice__no_memory(err, strlen(list), "a list of arms");
    while (st == SLUICE_OK && (word = strsep(&rest, ","))) {
        size_t before = json_array_size(kept);
        if (!keep(kept, arms, word))
            st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "arms: \"%s\" stands twice", word);
        else if (json_array_size(kept) == before)
            st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "arms: the recipe has no arm \"%s\"", word);
    }
    sluice__free(copy);
    if (st == SLUICE_OK) json_object_set(root, "arms", kept);
    json_decref(kept);
    return st;
}

static sluice_status set_seeds(json_t *root, const char *list, sluice_error *err) {
    json_t *seeds = json_array();
    const char *at = list;
    for (;;) {
        char *end;
        long long v = strtoll(at, &end, 10);
        if (end == at || v < 0 || (*end && *end != ',')) {
            json_decref(seeds);
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "seeds: found \"%s\", expected numbers from 0 like 1,2,3",
                                list);
        }
        json_array_append_new(seeds, json_integer(v));
        if (!*end) break;
        at = end + 1;
    }
    json_object_set_new(root, "seeds", seeds);
    return SLUICE_OK;
}

static void set_max_steps(json_t *root, int64_t steps) {
    json_object_set_new(json_object_get(root, "training"), "max_steps", json_integer(steps));
    size_t i;
    json_t *arm;
    json_array_foreach(json_object_get(root, "arms"), i, arm)
        json_object_del(json_object_get(arm, "training"), "max_steps");
}

sluice_status sluice__recipe_change(json_t *root, const sluice__recipe_changes *c, sluice_error *err) {
    if (c->arms) SLUICE__TRY(keep_arms(root, c->arms, err));
    if (c->seeds) SLUICE__TRY(set_seeds(root, c->seeds, err));
    if (c->max_steps) set_max_steps(root, c->max_steps);
    return SLUICE_OK;
}
