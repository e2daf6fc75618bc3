/* SPDX-License-Identifier: Apache-2.0 */
/* Training options: one table, walked for defaults, setting, printing, JSON and comparison. */
#include "train/options.h"
#include "base/memory.h"
#include "train/batches.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum resume_rule { LOCKED, FREE, SCHEDULE } resume_rule;

typedef struct option_row {
    sluice_option public;
    size_t offset;
    double def, least, most; /* of numbers, choices and booleans */
    const char *text;        /* default of texts */
    resume_rule resume;
} option_row;

#define DEF_INT(d) ((double)(d))
#define DEF_REAL(d) (d)
#define DEF_BOOL(d) (d)
#define DEF_CHOICE(d) (d)
#define DEF_PATH(d) 0
#define DEF_LIST(d) 0
#define TEXT_INT(d) NULL
#define TEXT_REAL(d) NULL
#define TEXT_BOOL(d) NULL
#define TEXT_CHOICE(d) NULL
#define TEXT_PATH(d) d
#define TEXT_LIST(d) d
static const option_row rows[] = {
#define OPTION(kind, name, def, least, most, choices, resume, unit, help)                                            \
    {{#name, SLUICE_OPTION_##kind, choices, unit, help},                                                             \
     offsetof(sluice_train_params, name),                                                                            \
     DEF_##kind(def),                                                                                                \
     (double)(least),                                                                                                \
     (double)(most),                                                                                                 \
     TEXT_##kind(def),                                                                                               \
     resume},
#include "sluice/train_options.def"
#undef OPTION
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

static void *field(const option_row *r, sluice_train_params *p) {
    return (char *)p + r->offset;
}

static const void *field_of(const option_row *r, const sluice_train_params *p) {
    return (const char *)p + r->offset;
}

static void set_number(const option_row *r, sluice_train_params *p, double v) {
    switch (r->public.kind) {
    case SLUICE_OPTION_REAL: *(double *)field(r, p) = v; break;
    case SLUICE_OPTION_BOOL: *(bool *)field(r, p) = v != 0; break;
    case SLUICE_OPTION_CHOICE: *(int *)field(r, p) = (int)v; break;
    default: *(int64_t *)field(r, p) = (int64_t)v;
    }
}

static bool is_text(const option_row *r) {
    return r->public.kind == SLUICE_OPTION_PATH || r->public.kind == SLUICE_OPTION_LIST;
}

sluice_train_params sluice_train_params_default(void) {
    sluice_train_params p;
    memset(&p, 0, sizeof p);
    for (int i = 0; i < NUM_ROWS; i++)
        if (is_text(&rows[i])) strcpy(field(&rows[i], &p), rows[i].text);
        else set_number(&rows[i], &p, rows[i].def);
    return p;
}

int sluice_train_num_options(void) {
    return NUM_ROWS;
}

sluice_option sluice_train_option(int index) {
    return rows[index].public;
}

static bool same_key(const char *name, const char *key) {
    while (*key == '-') key++;
    for (; *name && *key; name++, key++)
        if (*name != (*key == '-' ? '_' : *key)) return false;
    return *name == *key;
}

int sluice__train_option_find(const char *key) {
    for (int i = 0; i < NUM_ROWS; i++)
        if (same_key(rows[i].public.name, key)) return i;
    return -1;
}

static sluice_status out_of_range(const option_row *r, const char *key, const char *value, sluice_error *err) {
    if (r->most < 9e18)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found %.60s, expected %.10g to %.10g%s%s", key, value,
                            r->least, r->most, *r->public.unit ? " " : "", r->public.unit);
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found %.60s, expected at least %.10g%s%s", key, value,
                        r->least, *r->public.unit ? " " : "", r->public.unit);
}

static sluice_status set_int(const option_row *r, sluice_train_params *p, const char *key, const char *value,
                             sluice_error *err) {
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (errno) return out_of_range(r, key, value, err);
    if (*value == '\0' || *end != '\0') { /* 1e6 is an integer too */
        double d = strtod(value, &end);
        if (*value == '\0' || *end != '\0' || floor(d) != d || fabs(d) > 9e15)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found \"%.60s\", expected an integer", key, value);
        v = (long long)d;
    }
    if ((double)v < r->least || (double)v > r->most) return out_of_range(r, key, value, err);
    *(int64_t *)field(r, p) = v;
    return SLUICE_OK;
}

static sluice_status set_real(const option_row *r, sluice_train_params *p, const char *key, const char *value,
                              sluice_error *err) {
    char *end;
    double v = strtod(value, &end);
    if (*value == '\0' || *end != '\0')
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found \"%.60s\", expected a number", key, value);
    if (!(v >= r->least && v <= r->most)) return out_of_range(r, key, value, err);
    *(double *)field(r, p) = v;
    return SLUICE_OK;
}

static sluice_status set_bool(const option_row *r, sluice_train_params *p, const char *key, const char *value,
                              sluice_error *err) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (int i = 0; i < 8; i++)
        if (!strcasecmp(value, words[i])) return set_number(r, p, i % 2), SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found \"%.60s\", expected true or false", key, value);
}

static sluice_status set_choice(const option_row *r, sluice_train_params *p, const char *key, const char *value,
                                sluice_error *err) {
    size_t n = strlen(value);
    int index = 0;
    for (const char *c = r->public.choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL, index++)
        if (n && !strncmp(c, value, n) && (c[n] == '|' || c[n] == '\0')) return set_number(r, p, index), SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found \"%.60s\", expected one of %s", key, value,
                        r->public.choices);
}

static sluice_status set_text(const option_row *r, sluice_train_params *p, const char *key, const char *value,
                              sluice_error *err) {
    size_t room = r->public.kind == SLUICE_OPTION_PATH ? SLUICE_TRAIN_PATH : SLUICE_TRAIN_LIST, n = strlen(value);
    if (n >= room)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: %zu characters, expected less than %zu", key, n, room);
    if (r->public.kind == SLUICE_OPTION_PATH && strchr(value, '\n'))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: a line end in the name", key);
    memset(field(r, p), 0, room);
    memcpy(field(r, p), value, n);
    return SLUICE_OK;
}

static sluice_status set_row(const option_row *r, sluice_train_params *p, const char *key, const char *value,
                             sluice_error *err) {
    switch (r->public.kind) {
    case SLUICE_OPTION_INT: return set_int(r, p, key, value, err);
    case SLUICE_OPTION_REAL: return set_real(r, p, key, value, err);
    case SLUICE_OPTION_BOOL: return set_bool(r, p, key, value, err);
    case SLUICE_OPTION_CHOICE: return set_choice(r, p, key, value, err);
    default: return set_text(r, p, key, value, err);
    }
}

sluice_status sluice_train_params_set(sluice_train_params *p, const char *key, const char *value, sluice_error *err) {
    int i = sluice__train_option_find(key);
    if (i < 0) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%.60s: no such training option", key);
    return set_row(&rows[i], p, key, value, err);
}

/* The word at `index` of "a|b|c". */
static void choice_word(const char *choices, int index, char *out, size_t size) {
    for (; index > 0; index--) choices = strchr(choices, '|') + 1;
    snprintf(out, size, "%.*s", (int)strcspn(choices, "|"), choices);
}

void sluice_train_option_value(const sluice_train_params *p, int index, char *out, size_t size) {
    const option_row *r = &rows[index];
    const void *at = field_of(r, p);
    switch (r->public.kind) {
    case SLUICE_OPTION_INT: snprintf(out, size, "%" PRId64, *(const int64_t *)at); break;
    case SLUICE_OPTION_REAL: {
        double v = *(const double *)at;
        snprintf(out, size, "%.15g",
                 v); /* 17 digits only where 15 lose something: 0.1 reads better than 0.10000000000000001 */
        if (strtod(out, NULL) != v) snprintf(out, size, "%.17g", v);
        break;
    }
    case SLUICE_OPTION_BOOL: snprintf(out, size, "%s", *(const bool *)at ? "true" : "false"); break;
    case SLUICE_OPTION_CHOICE: choice_word(r->public.choices, *(const int *)at, out, size); break;
    default: snprintf(out, size, "%s", (const char *)at);
    }
}

/* ---- JSON ---- */

static json_t *list_to_json(const char *lines) {
    json_t *a = json_array();
    while (a && *lines) {
        size_t n = strcspn(lines, "\n");
        json_array_append_new(a, json_stringn_nocheck(lines, n)); /* file names need not be UTF-8 */
        lines += n + (lines[n] == '\n');
    }
    return a;
}

static json_t *row_to_json(const option_row *r, const sluice_train_params *p) {
    const void *at = field_of(r, p);
    char word[64];
    switch (r->public.kind) {
    case SLUICE_OPTION_INT: return json_integer(*(const int64_t *)at);
    case SLUICE_OPTION_REAL: return json_real(*(const double *)at);
    case SLUICE_OPTION_BOOL: return json_boolean(*(const bool *)at);
    case SLUICE_OPTION_CHOICE:
        choice_word(r->public.choices, *(const int *)at, word, sizeof word);
        return json_string(word);
    case SLUICE_OPTION_LIST: return list_to_json(at);
    default: return json_string_nocheck(at);
    }
}

json_t *sluice__train_params_to_json(const sluice_train_params *p) {
    json_t *o = json_object();
    for (int i = 0; o && i < NUM_ROWS; i++) json_object_set_new(o, rows[i].public.name, row_to_json(&rows[i], p));
    return o;
}

/* ["a", "b"] as lines. */
static sluice_status set_json_list(const option_row *r, sluice_train_params *p, const char *where,
                                   const json_t *value, sluice_error *err) {
    char lines[SLUICE_TRAIN_LIST] = "";
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *s = json_string_value(json_array_get(value, i));
        if (!s || !*s || strchr(s, '\n'))
            return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: %s[%zu]: expected a file name", where, r->public.name,
                                i);
        if (used + strlen(s) + 2 > sizeof lines)
            return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: %s: more than %d characters of names", where,
                                r->public.name, SLUICE_TRAIN_LIST);
        used += (size_t)snprintf(lines + used, sizeof lines - used, "%s%s", used ? "\n" : "", s);
    }
    return set_row(r, p, r->public.name, lines, err);
}

sluice_status sluice__train_option_set_json(sluice_train_params *p, int index, const char *where, const json_t *value,
                                            sluice_error *err) {
    const option_row *r = &rows[index];
    char text[64];
    const char *given = text;
    if (json_is_integer(value)) snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value)) snprintf(text, sizeof text, "%.17g", json_real_value(value));
    else if (json_is_boolean(value)) given = json_is_true(value) ? "true" : "false";
    else if (json_is_string(value)) given = json_string_value(value);
    else if (json_is_array(value) && r->public.kind == SLUICE_OPTION_LIST)
        return set_json_list(r, p, where, value, err);
    else
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: %s: expected a number, a word or a list", where,
                            r->public.name);
    if (json_is_string(value) && strlen(given) != json_string_length(value))
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: %s: the string holds a NUL character", where,
                            r->public.name);
    sluice_status st = set_row(r, p, r->public.name, given, err);
    return st == SLUICE_OK ? st : sluice__fail_in(err, st, "%s", where);
}

/* ---- what fits together ---- */

sluice_status sluice_train_params_check(const sluice_train_params *p, sluice_error *err) {
    if (p->min_lr > p->learning_rate)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "min_lr %g is above learning_rate %g", p->min_lr,
                            p->learning_rate);
    if (p->max_steps == 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "max_steps: found 0, expected at least 1, or -1 for num_train_epochs");
    if (p->max_steps < 0 && p->num_train_epochs <= 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "num_train_epochs: found %g, expected more than 0",
                            p->num_train_epochs);
    if (p->muon_learning_rate > 0 && p->optim != SLUICE_OPTIM_MUON)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "muon_learning_rate: found %g, but optim is adamw",
                            p->muon_learning_rate);
    if (p->muon_learning_rate > 0 && p->learning_rate == 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "muon_learning_rate: found %g, but it follows the course of learning_rate, "
                            "which is 0",
                            p->muon_learning_rate);
    sluice__batches batches;
    SLUICE__TRY(sluice__batches_of(&batches, p, err));
    if (p->overwrite_output_dir && *p->resume_from_checkpoint)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "overwrite_output_dir: found true, which contradicts resume_from_checkpoint %s: a run is continued or "
                            "replaced",
                            p->resume_from_checkpoint);
    if (p->keep_optimizer && !*p->model_name_or_path)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "keep_optimizer: whose? give a checkpoint to continue from (model_name_or_path)");
    if (p->split == SLUICE_SPLIT_DOCUMENT && *p->validation_text)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "split: nothing can be split off where validation_text is given");
    return SLUICE_OK;
}

static int64_t share_of(double share, int64_t total) {
    return (int64_t)ceil(share * (double)total);
}

static sluice_status count_updates(int64_t *total, const sluice_train_params *p, int64_t windows, sluice_error *err) {
    *total = p->max_steps;
    if (p->max_steps > 0) return SLUICE_OK;
    sluice__batches batches;
    SLUICE__TRY(sluice__batches_of(&batches, p, err));
    int64_t updates = sluice__batches_covering(&batches, p->num_train_epochs * (double)windows);
    if (updates < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "num_train_epochs: %g epochs are more than 9e15 updates", p->num_train_epochs);
    *total = updates < 1 ? 1 : updates;
    return SLUICE_OK;
}

sluice_status sluice__train_schedule(sluice__schedule *out, const sluice_train_params *p, int64_t windows_per_epoch,
                                     sluice_error *err) {
    char word[64];
    sluice__schedule s = {.max_lr = p->learning_rate, .min_lr = p->min_lr};
    sluice_train_option_value(p, sluice__train_option_find("lr_scheduler_type"), word, sizeof word);
    sluice__schedule_kind_of(word, &s.kind);
    sluice_train_option_value(p, sluice__train_option_find("decay_type"), word, sizeof word);
    sluice__decay_shape_of(word, &s.decay_shape);
    SLUICE__TRY(count_updates(&s.total, p, windows_per_epoch, err));
    s.warmup = p->warmup_steps > 0 ? p->warmup_steps : share_of(p->warmup_ratio, s.total);
    if (s.warmup > s.total)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "warmup_steps: found %" PRId64 ", but there are only %" PRId64 " updates", s.warmup,
                            s.total);
    if (s.kind == SLUICE__SCHEDULE_WSD) {
        s.decay = p->num_decay_steps >= 0 ? p->num_decay_steps : s.total / 5;
        if (s.decay > s.total - s.warmup)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                                "num_decay_steps: found %" PRId64 ", but only %" PRId64 " of %" PRId64
                                " updates follow the warm-up",
                                s.decay, s.total - s.warmup, s.total);
    }
    *out = s;
    return SLUICE_OK;
}

bool sluice__train_in_bf16(const sluice_train_params *p) {
    return p->dtype == SLUICE_DTYPE_BFLOAT16 || p->dtype == SLUICE_DTYPE_BF16;
}

sluice__mode sluice__train_mode(const sluice_train_params *p) {
    return SLUICE__TRAIN | (sluice__train_in_bf16(p) ? SLUICE__IN_BF16 : 0);
}

static bool row_equal(const option_row *r, const sluice_train_params *a, const sluice_train_params *b) {
    if (field_of(r, a) == (const void *)&a->dtype) return sluice__train_in_bf16(a) == sluice__train_in_bf16(b);
    static const size_t sizes[] = {sizeof(int64_t), sizeof(double),    sizeof(bool),
                                   sizeof(int),     SLUICE_TRAIN_PATH, SLUICE_TRAIN_LIST};
    return !memcmp(field_of(r, a), field_of(r, b), sizes[r->public.kind]);
}

static sluice_status differs(const option_row *r, const sluice_train_params *before, const sluice_train_params *now,
                             const char *why, sluice_error *err) {
    char a[256], b[256];
    int index = (int)(r - rows);
    sluice_train_option_value(before, index, a, sizeof a);
    sluice_train_option_value(now, index, b, sizeof b);
    return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: the run was started with \"%.200s\", found \"%.200s\"%s",
                        r->public.name, a, b, why);
}

static int64_t first_change(const sluice__schedule *before, const sluice__schedule *now, int64_t steps) {
    for (int64_t i = 1; i <= steps; i++)
        if (sluice__lr_at(before, i) != sluice__lr_at(now, i)) return i;
    return 0;
}

/* Whether the past stays as it was when this option alone is put back. */
static bool is_to_blame(const option_row *r, const sluice__schedule *before, const sluice__schedule *now, int64_t steps) {
    sluice__schedule s = *now;
    switch (r->offset) {
    case offsetof(sluice_train_params, learning_rate): s.max_lr = before->max_lr; break;
    case offsetof(sluice_train_params, min_lr): s.min_lr = before->min_lr; break;
    case offsetof(sluice_train_params, lr_scheduler_type): s.kind = before->kind; break;
    case offsetof(sluice_train_params, decay_type): s.decay_shape = before->decay_shape; break;
    case offsetof(sluice_train_params, num_decay_steps): s.decay = before->decay; break;
    case offsetof(sluice_train_params, warmup_steps):
    case offsetof(sluice_train_params, warmup_ratio): s.warmup = before->warmup; break;
    default: s.total = before->total;
    }
    return !first_change(before, &s, steps);
}

sluice_status sluice__train_params_continue(const sluice_train_params *before, const sluice_train_params *now,
                                            const sluice__schedule *schedule_before,
                                            const sluice__schedule *schedule_now, int64_t steps, sluice_error *err) {
    int64_t changed = first_change(schedule_before, schedule_now, steps);
    const option_row *first = NULL, *blamed = NULL;
    for (int i = 0; i < NUM_ROWS; i++) {
        const option_row *r = &rows[i];
        if (r->resume == FREE || row_equal(r, before, now)) continue;
        if (r->resume == LOCKED) return differs(r, before, now, "; give it as before, or start a new run", err);
        if (!first) first = r;
        if (changed && !blamed && is_to_blame(r, schedule_before, schedule_now, steps)) blamed = r;
    }
    if (!changed || !first) return SLUICE_OK;
    char why[128];
    snprintf(why, sizeof why, ", which changes the learning rate of update %" PRId64 " of %" PRId64 " that were done", changed,
             steps);
    return differs(blamed ? blamed : first, before, now, why, err);
}
