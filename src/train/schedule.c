/* SPDX-License-Identifier: Apache-2.0 */
/* Learning-rate schedules: closed formulas, no state, so that resuming needs nothing but the step number. */
#include "train/schedule.h"
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static double cosine_between(double max, double min, double u) {
    const double pi = 3.141592653589793238462643383279502884;
    return min + (max - min) * 0.5 * (1.0 + cos(pi * u));
}

static double wsd(const sluice__schedule *s, int64_t step) {
    if (s->decay <= 0 || step <= s->total - s->decay) return s->max_lr;
    double u = (double)(step - (s->total - s->decay)) / (double)s->decay;
    switch (s->decay_shape) {
    case SLUICE__DECAY_LINEAR: return s->max_lr - (s->max_lr - s->min_lr) * u;
    case SLUICE__DECAY_SQRT: return s->max_lr - (s->max_lr - s->min_lr) * sqrt(u);
    case SLUICE__DECAY_COSINE: break;
    }
    return cosine_between(s->max_lr, s->min_lr, u);
}

double sluice__lr_at(const sluice__schedule *s, int64_t step) {
    assert(step >= 1);
    if (step > s->total) step = s->total;
    if (s->warmup > 0 && step <= s->warmup) return s->max_lr * (double)step / (double)s->warmup;
    int64_t rest = s->total - s->warmup;
    double u = (double)(step - s->warmup) / (double)(rest > 1 ? rest : 1);
    switch (s->kind) {
    case SLUICE__SCHEDULE_LINEAR: return s->max_lr - (s->max_lr - s->min_lr) * u;
    case SLUICE__SCHEDULE_COSINE: return cosine_between(s->max_lr, s->min_lr, u);
    case SLUICE__SCHEDULE_CONSTANT: return s->max_lr;
    case SLUICE__SCHEDULE_WSD: break;
    }
    return wsd(s, step);
}

typedef struct name_value {
    const char *name;
    int value;
} name_value;

static bool look_up(const name_value *table, const char *name, int *value) {
    for (; table->name; table++)
        if (!strcmp(table->name, name)) return *value = table->value, true;
    return false;
}

bool sluice__schedule_kind_of(const char *name, sluice__schedule_kind *kind) {
    static const name_value names[] = {
        {"linear", SLUICE__SCHEDULE_LINEAR},
        {"cosine", SLUICE__SCHEDULE_COSINE},
        {"cosine_with_min_lr", SLUICE__SCHEDULE_COSINE},
        {"constant", SLUICE__SCHEDULE_CONSTANT},
        {"constant_with_warmup", SLUICE__SCHEDULE_CONSTANT},
        {"warmup_stable_decay", SLUICE__SCHEDULE_WSD},
        {"wsd", SLUICE__SCHEDULE_WSD},
        {NULL, 0},
    };
    int value;
    if (!look_up(names, name, &value)) return false;
    *kind = (sluice__schedule_kind)value;
    return true;
}

bool sluice__decay_shape_of(const char *name, sluice__decay_shape *shape) {
    static const name_value names[] = {
        {"linear", SLUICE__DECAY_LINEAR},
        {"sqrt", SLUICE__DECAY_SQRT},
        {"1-sqrt", SLUICE__DECAY_SQRT},
        {"cosine", SLUICE__DECAY_COSINE},
        {NULL, 0},
    };
    int value;
    if (!look_up(names, name, &value)) return false;
    *shape = (sluice__decay_shape)value;
    return true;
}
