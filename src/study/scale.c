/* SPDX-License-Identifier: Apache-2.0 */
/* A scale changes a recipe before anything of it is read, so that what follows (checks, defaults, plans of arms) sees
 * one recipe that is complete in itself. Arms are changed by name: their order and number belong to the recipe. */
#include "study/scale.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include <string.h>

static const char *const sections[] = {"title",    "about",      "seeds", "model", "data",
                                       "training", "evaluation", "extension", "arms", "ladder", NULL};

static bool is_section(const char *key) {
    for (const char *const *s = sections; *s; s++)
        if (!strcmp(*s, key)) return true;
    return false;
}

/* patch over target[key], as RFC 7386 has it. */
static void merge(json_t *target, const char *key, json_t *patch) {
    json_t *inside = json_object_get(target, key), *value;
    const char *name;
    if (json_is_null(patch)) {
        json_object_del(target, key);
        return;
    }
    if (!json_is_object(patch)) {
        json_object_set_new(target, key, json_deep_copy(patch));
        return;
    }
    if (!json_is_object(inside)) json_object_set_new(target, key, json_object());
    inside = json_object_get(target, key);
    json_object_foreach(patch, name, value) merge(inside, name, value);
}

static json_t *arm_named(json_t *arms, const char *name, size_t *index) {
    json_t *arm;
    size_t i;
    json_array_foreach(arms, i, arm) {
        const char *other = json_string_value(json_object_get(arm, "name"));
        *index = i;
        if (other && !strcmp(other, name)) return arm;
    }
    return NULL;
}

static sluice_status change_arms(json_t *root, const sluice__json *changes, sluice_error *err) {
    json_t *arms = json_object_get(root, "arms"), *change, *value;
    const char *name, *key;
    if (!json_is_object(changes->value))
        return sluice__json_fail(changes, NULL, err, "expected an object with names of arms");
    json_object_foreach(changes->value, name, change) {
        size_t index;
        json_t *arm = arm_named(arms, name, &index);
        if (!arm) return sluice__json_fail(changes, name, err, "the recipe has no such arm");
        if (json_is_null(change)) {
            json_array_remove(arms, index);
            continue;
        }
        if (!json_is_object(change)) return sluice__json_fail(changes, name, err, "expected an object or null");
        json_object_foreach(change, key, value) {
            if (!strcmp(key, "name"))
                return sluice__json_fail(changes, name, err, "an arm keeps its name at every scale");
            merge(arm, key, value);
        }
    }
    return SLUICE_OK;
}

static sluice_status change(json_t *root, const sluice__json *scale, sluice_error *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(scale->value)) return sluice__json_fail(scale, NULL, err, "expected an object");
    json_object_foreach(scale->value, key, value) {
        if (!is_section(key)) return sluice__json_fail(scale, key, err, "unknown key");
        if (strcmp(key, "arms")) {
            merge(root, key, value);
        } else {
            sluice__json arms = sluice__json_get(scale, key);
            SLUICE__TRY(change_arms(root, &arms, err));
        }
    }
    return SLUICE_OK;
}

static sluice_status unknown(const sluice__json *scales, const char *name, sluice_error *err) {
    sluice__strbuf known = {0};
    const char *key;
    json_t *value;
    sluice__strbuf_puts(&known, SLUICE__SCALE_NORMAL);
    json_object_foreach(scales->value, key, value) if (strcmp(key, SLUICE__SCALE_NORMAL))
        sluice__strbuf_printf(&known, ", %s", key);
    sluice_status st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: no scale \"%s\"; the recipe has %s", scales->file,
                                    name, known.data ? known.data : "?");
    sluice__strbuf_free(&known);
    return st;
}

sluice_status sluice__scale_apply(json_t **out, json_t *root, const char *name, const char *file, sluice_error *err) {
    sluice__json view = sluice__json_view(root, file), scales = sluice__json_get(&view, "scales");
    *out = NULL;
    if (!name) name = SLUICE__SCALE_NORMAL;
    if (scales.value && !json_is_object(scales.value))
        return sluice__json_fail(&scales, NULL, err, "expected an object with names of scales");
    bool normal = !strcmp(name, SLUICE__SCALE_NORMAL);
    if (!normal && !json_object_get(scales.value, name)) return unknown(&scales, name, err);
    json_t *copy = json_deep_copy(root);
    if (!copy) return sluice__no_memory(err, 0, "a recipe");
    json_object_del(copy, "scales");
    sluice__json scale = sluice__json_get(&scales, name);
    sluice_status st = scale.value ? change(copy, &scale, err) : SLUICE_OK;
    if (st != SLUICE_OK) {
        json_decref(copy);
        return st;
    }
    json_object_set_new(copy, "scale", json_string(name));
    *out = copy;
    return SLUICE_OK;
}
