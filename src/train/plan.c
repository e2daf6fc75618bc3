/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan: what training will take, before it takes it. */
#include "base/memory.h"
#include "base/progress.h"
#include "layers/transformer.h"
#include "train/optimizer.h"
#include "train/dataset.h"
#include "train/options.h"
#include <inttypes.h>

/* a * b, or INT64_MAX. */
static int64_t times(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

static int64_t plus(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}

static int64_t store_bytes(const sluice_dataset *d) {
    int64_t bytes = 0;
    for (int i = 0; i < d->num_stores; i++) bytes += d->stores[i].count * d->stores[i].width;
    return bytes;
}

sluice_train_plan sluice_train_get_plan(const sluice_config *config, const sluice_train_params *p,
                                        const sluice_dataset *dataset) {
    int64_t batch = p->per_device_train_batch_size, cells = times(batch, p->seq_len),
            n = sluice_config_num_parameters(config);
    sluice_train_plan plan = {.parameters = n, .available = sluice__mem_available()};
    plan.weights = plan.gradients = times(n, (int64_t)sizeof(float));
    plan.optimizer = sluice__optimizer_bytes(config, p->optim);
    plan.activations =
        cells > INT32_MAX ? INT64_MAX : sluice__workspace_bytes(config, (int)batch, (int)p->seq_len, sluice__train_mode(p));
    plan.activations = plus(plan.activations, times(cells, (int64_t)sizeof(float)));
    plan.data = times(times(cells, p->gradient_accumulation_steps), 4 * (int64_t)sizeof(int32_t));
    plan.total = plus(plus(plus(plan.weights, plan.gradients), plus(plan.optimizer, plan.activations)), plan.data);
    plan.data = plus(plan.data, store_bytes(dataset)); /* held already, so not part of what has to fit */
    return plan;
}

sluice_status sluice_train_check_plan(const sluice_train_plan *plan, const sluice_train_params *p,
                                      sluice_error *err) {
    char need[32], have[32], activations[32];
    if (plan->total <= plan->available) return SLUICE_OK;
    return sluice__fail(
        err, SLUICE_ERR_MEMORY,
        "training needs %s (%s of it activations), but %s are available: give a smaller "
        "per_device_train_batch_size (%" PRId64 ", gradient_accumulation_steps makes up for it), seq_len (%" PRId64
        ") or model (%" PRId64 " parameters)",
        sluice__format_bytes(need, (double)plan->total), sluice__format_bytes(activations, (double)plan->activations),
        sluice__format_bytes(have, (double)plan->available), p->per_device_train_batch_size, p->seq_len,
        plan->parameters);
}
