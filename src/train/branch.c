/* SPDX-License-Identifier: Apache-2.0 */
/* Decay branches of warmup_stable_decay (Hu et al. 2024): one long stable run serves any number of budgets. Since the
 * rates of the past stay what they were, a branch is a resumed run with another plan for the rest. */
#include "train/branch.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/checkpoint.h"
#include "train/options.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What a checkpoint says about its run. */
typedef struct source {
    int64_t step;
    sluice_train_params before;
    sluice__schedule schedule;
} source;

static sluice_status read_params(sluice_train_params *out, const sluice__json *in, sluice_error *err) {
    sluice__json params = sluice__json_get(in, "params");
    const char *key;
    json_t *value;
    *out = sluice_train_params_default();
    if (!json_is_object(params.value)) return sluice__json_fail(in, "params", err, "missing");
    json_object_foreach(params.value, key, value) {
        int index = sluice__train_option_find(key);
        if (index < 0) return sluice__json_fail(&params, key, err, "no such training option");
        SLUICE__TRY(sluice__train_option_set_json(out, index, in->file, value, err));
    }
    return SLUICE_OK;
}

static sluice_status read_source(source *out, const sluice__json *in, sluice_error *err) {
    sluice__json data = sluice__json_get(in, "dataset");
    int64_t windows;
    SLUICE__TRY(sluice__json_int(in, "step", true, 1, INT64_MAX, &out->step, err));
    SLUICE__TRY(sluice__json_int(&data, "train_windows", true, 1, INT64_MAX, &windows, err));
    SLUICE__TRY(read_params(&out->before, in, err));
    return sluice__train_schedule(&out->schedule, &out->before, windows, err);
}

static sluice_status load_state(json_t **root, char **path, const char *dir, sluice_error *err) {
    *path = sluice__path_join(dir, "trainer_state.json");
    if (!*path) return sluice__no_memory(err, strlen(dir), "a path");
    sluice_status st = sluice__is_file(*path)
                           ? sluice__json_load(root, *path, err)
                           : sluice__fail(err, SLUICE_ERR_IO,
                                          "decay_from: %s holds no trainer_state.json; expected a checkpoint, like "
                                          "run/checkpoints/step-1000",
                                          dir);
    if (st != SLUICE_OK) sluice__free(*path);
    return st;
}

static sluice_status open_source(source *out, const char *dir, sluice_error *err) {
    char *path;
    json_t *root;
    SLUICE__TRY(load_state(&root, &path, dir, err));
    sluice__json in = sluice__json_view(root, path);
    sluice_status st = read_source(out, &in, err);
    json_decref(root);
    sluice__free(path);
    return st;
}

/* A branch leaves from where the rate is at its peak. */
static sluice_status check_stable(const source *s, const char *dir, sluice_error *err) {
    const sluice__schedule *c = &s->schedule;
    if (c->kind != SLUICE__SCHEDULE_WSD && c->kind != SLUICE__SCHEDULE_CONSTANT)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "decay_from: the run of %s has no stable phase (lr_scheduler_type); expected "
                            "warmup_stable_decay or constant",
                            dir);
    if (s->step < c->warmup)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "decay_from: %s is in the warm-up, which ends with update %" PRId64, dir, c->warmup);
    if (c->kind == SLUICE__SCHEDULE_WSD && s->step > c->total - c->decay)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "decay_from: %s is in the decay already, which began behind update %" PRId64, dir,
                            c->total - c->decay);
    return SLUICE_OK;
}

static int64_t decay_of(const sluice_train_params *p, const source *s) {
    return p->num_decay_steps > 0 ? p->num_decay_steps : s->step >= 4 ? s->step / 4 : 1; /* a fifth of all */
}

static sluice_status overridden(const sluice_train_params *p, const char *option, const char *why, sluice_error *err) {
    char given[64];
    sluice_train_option_value(p, sluice__train_option_find(option), given, sizeof given);
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found %s, which has no effect with decay_from %s: %s", option, given,
                        p->decay_from, why);
}

/* What the branch decides itself may be given as the run had it, at its default, or as it will be. */
static sluice_status check_course(const sluice_train_params *p, const source *s, sluice_error *err) {
    const sluice_train_params *b = &s->before, usual = sluice_train_params_default();
    int64_t decay = decay_of(p, s), last = s->step + decay;
    char why[160];
    snprintf(why, sizeof why, "the branch ends with update %" PRId64 ", its checkpoint's %" PRId64 " and num_decay_steps %" PRId64,
             last, s->step, decay);
    if (p->max_steps != usual.max_steps && p->max_steps != b->max_steps && p->max_steps != last)
        return overridden(p, "max_steps", why, err);
    if (p->num_train_epochs != usual.num_train_epochs && p->num_train_epochs != b->num_train_epochs)
        return overridden(p, "num_train_epochs", why, err);
    if (p->warmup_steps != usual.warmup_steps && p->warmup_steps != b->warmup_steps && p->warmup_steps != s->schedule.warmup)
        return overridden(p, "warmup_steps", "the warm-up is past", err);
    if (p->warmup_ratio != 0 && p->warmup_ratio != usual.warmup_ratio && p->warmup_ratio != b->warmup_ratio)
        return overridden(p, "warmup_ratio", "the warm-up is past", err);
    if (p->lr_scheduler_type != b->lr_scheduler_type && p->lr_scheduler_type != SLUICE_LR_WSD &&
        p->lr_scheduler_type != SLUICE_LR_WARMUP_STABLE_DECAY)
        return overridden(p, "lr_scheduler_type", "a branch is a warmup_stable_decay", err);
    return SLUICE_OK;
}

static void plan_branch(sluice_train_params *p, const source *s) {
    int64_t decay = decay_of(p, s);
    p->lr_scheduler_type = SLUICE_LR_WSD;
    p->num_decay_steps = decay;
    p->max_steps = s->step + decay;
    p->warmup_steps = s->schedule.warmup;
    p->warmup_ratio = 0;
    memcpy(p->resume_from_checkpoint, p->decay_from, sizeof p->resume_from_checkpoint);
}

static bool asks_for_newest(const char *from) {
    return !strcmp(from, "true") || !strcmp(from, "True") || !strcmp(from, "last");
}

sluice_status sluice__branch(sluice_train_params *p, sluice_error *err) {
    source s;
    if (!*p->decay_from) return SLUICE_OK;
    if (*p->resume_from_checkpoint && !asks_for_newest(p->resume_from_checkpoint))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "resume_from_checkpoint: decay_from names a checkpoint already");
    if (p->overwrite_output_dir)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "overwrite_output_dir: decay_from begins a run in a directory of its own");
    if (p->match_parameters) return overridden(p, "match_parameters", "the branch has the model of its checkpoint", err);
    if (*p->resume_from_checkpoint) {
        int64_t newest;
        SLUICE__TRY(sluice__checkpoint_newest(p->output_dir, &newest, err));
        if (newest >= 0) return SLUICE_OK;
    }
    SLUICE__TRY(open_source(&s, p->decay_from, err));
    SLUICE__TRY(check_stable(&s, p->decay_from, err));
    SLUICE__TRY(check_course(p, &s, err));
    plan_branch(p, &s);
    return SLUICE_OK;
}

sluice_status sluice_train_read_checkpoint(sluice_train_params *p, char **model_options, const char *dir,
                                           sluice_error *err) {
    static const char *const of_that_call[] = {"output_dir", "overwrite_output_dir", "resume_from_checkpoint",
                                               "decay_from"};
    char *path, *config = sluice__path_join(dir, "config.json");
    json_t *root, *model = NULL;
    if (!config) return sluice__no_memory(err, strlen(dir), "a path");
    sluice_status st = load_state(&root, &path, dir, err);
    if (st == SLUICE_OK) {
        sluice__json in = sluice__json_view(root, path);
        for (int i = 0; i < 4; i++) json_object_del(json_object_get(root, "params"), of_that_call[i]);
        st = read_params(p, &in, err);
        json_decref(root);
        sluice__free(path);
    }
    if (st == SLUICE_OK) st = sluice__json_load(&model, config, err);
    if (st == SLUICE_OK) st = sluice__model_options_text(model_options, model, err);
    json_decref(model);
    sluice__free(config);
    return st;
}
