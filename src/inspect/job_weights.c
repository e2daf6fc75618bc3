/* SPDX-License-Identifier: Apache-2.0 */
/* How well the weight matrices bear 8 bits: symmetric rounding to -127..127 with one scale for the
 * tensor, and with one for each row (output channel); |w - int8(w)| / |w| of both, and how far the
 * largest weight stands out. */
#include "base/memory.h"
#include "inspect/int8.h"
#include "inspect/job.h"
#include <math.h>

typedef struct errors {
    double squares, per_tensor, per_channel, most;
} errors;

static errors errors_of(const float *w, int64_t rows, int64_t width) {
    errors e = {.most = sluice__largest_magnitude(w, rows * width)};
    for (int64_t r = 0; r < rows; r++) {
        const float *row = w + r * width;
        e.per_tensor += sluice__int8_error(row, width, (float)e.most);
        e.per_channel += sluice__int8_error(row, width, sluice__largest_magnitude(row, width));
        for (int64_t i = 0; i < width; i++) e.squares += (double)row[i] * row[i];
    }
    return e;
}

static void add_tensor(json_t *all, const sluice_tensor_info *t, const float *w) {
    errors e = errors_of(w, t->shape[0], t->shape[1]);
    if (!(e.squares > 0)) return;
    json_array_append_new(all,
                          json_pack("{s:s, s:[I,I], s:f, s:f, s:f}", "name", t->name, "shape",
                                    (json_int_t)t->shape[0], (json_int_t)t->shape[1], "per_tensor",
                                    sqrt(e.per_tensor / e.squares), "per_channel",
                                    sqrt(e.per_channel / e.squares), "max_over_rms",
                                    e.most / sqrt(e.squares / (double)t->count)));
}

sluice_status sluice__job_add_weights(json_t *entry, const sluice_model *model, sluice_error *err) {
    json_t *all = json_array();
    json_object_set_new(entry, "weights", all);
    for (int i = 0; i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        if (t.ndim != 2) continue;
        float *w = sluice__calloc((size_t)t.count, sizeof *w, SLUICE__MEM_OTHER);
        if (!w) return sluice__no_memory(err, (size_t)t.count * sizeof *w, t.name);
        sluice_model_tensor_read(model, i, w);
        add_tensor(all, &t, w);
        sluice__free(w);
    }
    return SLUICE_OK;
}
