/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights are NaN or infinite. Loading says so of what it copies; looking at matrices that stay in a mapped file would
 * make starting as slow as reading all of it, so that is done when somebody asks, or when results are not numbers. */
#include "base/log.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "model/dtype.h"
#include "model/model.h"

static bool matrix_is_finite(const sluice__matrix *m) {
    static const sluice__dtype plain[] = {
        [SLUICE__WEIGHT_F32] = SLUICE__F32, [SLUICE__WEIGHT_F16] = SLUICE__F16, [SLUICE__WEIGHT_BF16] = SLUICE__BF16};
    int64_t count = m->rows * m->columns;
    if (m->type == SLUICE__WEIGHT_QUANT) return sluice__quant_finite(m->quant, m->data, count);
    return !sluice__any_nonfinite(plain[m->type], m->data, count);
}

static bool tensor_is_finite(const sluice_model *m, int i) {
    const sluice__tensor *t = &m->tensors[i];
    if (m->nonfinite[i]) return false;
    if (m->matrices[i].data) return matrix_is_finite(&m->matrices[i]);
    return t->offset < 0 || !sluice__any_nonfinite(SLUICE__F32, m->flat + t->offset, t->count);
}

/* bad: [num_tensors]; returns how many are. */
static int find_nonfinite(const sluice_model *m, bool *bad) {
    int count = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : count)
    for (int i = 0; i < m->num_tensors; i++) {
        bad[i] = !tensor_is_finite(m, i);
        count += bad[i];
    }
    return count;
}

int sluice_model_check_finite(sluice_model *m) {
    return find_nonfinite(m, m->nonfinite);
}

void sluice__warn_nonfinite(const char *where, int count, const char *names, bool more) {
    sluice__log(SLUICE_LOG_WARNING, "%s: %d tensor%s NaN or infinite values: %s%s", where, count, count == 1 ? " has" : "s have",
                names ? names : "", more ? ", ..." : "");
}

void sluice__model_blame(const sluice_model *m, const char *what) {
    enum { NAMED = 4 };
    bool *bad = sluice__calloc((size_t)m->num_tensors, sizeof *bad, SLUICE__MEM_OTHER);
    int count = bad ? find_nonfinite(m, bad) : 0, named = 0;
    sluice__strbuf names = {0};
    for (int i = 0; i < m->num_tensors && named < count && named < NAMED; i++)
        if (bad[i]) sluice__strbuf_printf(&names, "%s%s", named++ ? ", " : "", m->tensors[i].name);
    if (count)
        sluice__log(SLUICE_LOG_WARNING, "%s are NaN or infinite: %d tensor%s such values: %s%s", what, count,
                    count == 1 ? " has" : "s have", names.data ? names.data : "", count > NAMED ? ", ..." : "");
    else
        sluice__log(SLUICE_LOG_WARNING, "%s are NaN or infinite, although all weights are finite", what);
    sluice__strbuf_free(&names);
    sluice__free(bad);
}
