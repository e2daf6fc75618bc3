/* SPDX-License-Identifier: Apache-2.0 */
/* Batch-size warm-up (the small batches of the first updates of large runs): stages of a few passes each, then all. */
#include "train/batches.h"
#include "base/error.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static sluice_status bad(const sluice_train_params *p, const char *expected, sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "batch_size_warmup: found \"%.200s\", expected %s",
                        p->batch_size_warmup, expected);
}

static bool number(const char **text, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(*text, &end, 10);
    bool ok = end != *text && !errno && *out >= 1 && *out <= INT64_C(1) << 40;
    *text = end;
    return ok;
}

sluice_status sluice__batches_of(sluice__batches *out, const sluice_train_params *p, sluice_error *err) {
    static const char form[] = "stages like 1:100,2:200 (passes:updates)";
    *out = (sluice__batches){.last = p->gradient_accumulation_steps, .micro = p->per_device_train_batch_size};
    for (const char *at = p->batch_size_warmup; *at;) {
        int i = out->stages++;
        if (i == SLUICE__MAX_BATCH_STAGES) return bad(p, "at most 16 stages", err);
        if (!number(&at, &out->passes[i]) || *at++ != ':' || !number(&at, &out->batches[i])) return bad(p, form, err);
        if (*at && (*at++ != ',' || !*at)) return bad(p, form, err);
        if (out->passes[i] > out->last)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                                "batch_size_warmup: a stage of %" PRId64
                                " passes, expected at most gradient_accumulation_steps (%" PRId64 ")",
                                out->passes[i], out->last);
    }
    return SLUICE_OK;
}

int64_t sluice__batches_passes(const sluice__batches *b, int64_t batch) {
    for (int i = 0; i < b->stages; i++) {
        if (batch < b->batches[i]) return b->passes[i];
        batch -= b->batches[i];
    }
    return b->last;
}

int64_t sluice__batches_before(const sluice__batches *b, int64_t batch) {
    int64_t windows = 0;
    for (int i = 0; i < b->stages; i++) {
        int64_t n = batch < b->batches[i] ? batch : b->batches[i];
        windows += n * b->passes[i] * b->micro;
        batch -= n;
    }
    return windows + batch * b->last * b->micro;
}

int64_t sluice__batches_covering(const sluice__batches *b, double windows) {
    double batches = 0;
    for (int i = 0; i < b->stages && windows > 0; i++) {
        double each = (double)(b->passes[i] * b->micro), n = fmin(ceil(windows / each), (double)b->batches[i]);
        batches += n;
        windows -= n * each;
    }
    if (windows > 0) batches += ceil(windows / (double)(b->last * b->micro));
    return batches > 9e15 ? -1 : (int64_t)batches;
}
