/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of attention maps. Keys that repeat the query's token are reached through a chain of earlier
 * occurrences, so that duplicate and induction scores cost as many steps as there are matches. */
#include "inspect/row_metrics.h"
#include "base/memory.h"
#include <math.h>
#include <stdlib.h>

sluice_status sluice__rows_new(sluice__row_metrics *m, int heads, int seq_len, int keys,
                               sluice_error *err) {
    *m = (sluice__row_metrics){.heads = heads, .seq_len = seq_len, .keys = keys};
    size_t early = sluice__mul_size((size_t)heads, (size_t)keys);
    m->head = sluice__calloc((size_t)heads, sizeof *m->head, SLUICE__MEM_OTHER);
    if (keys) m->key_sum = sluice__calloc(early, sizeof *m->key_sum, SLUICE__MEM_OTHER);
    if (m->head && (m->key_sum || !keys)) return SLUICE_OK;
    sluice__rows_free(m);
    return sluice__no_memory(err, early * sizeof(double), "attention statistics");
}

void sluice__rows_free(sluice__row_metrics *m) {
    sluice__free(m->head);
    sluice__free(m->key_sum);
    *m = (sluice__row_metrics){0};
}

typedef struct place {
    int32_t id, at;
} place;

static int by_id(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

sluice_status sluice__find_earlier(int32_t *earlier, const int32_t *ids, int batch, int seq_len,
                                   sluice_error *err) {
    place *sorted = sluice__calloc((size_t)seq_len, sizeof *sorted, SLUICE__MEM_OTHER);
    if (!sorted)
        return sluice__no_memory(err, (size_t)seq_len * sizeof *sorted, "attention statistics");
    for (int b = 0; b < batch; b++) {
        const int32_t *row = ids + (int64_t)b * seq_len;
        for (int t = 0; t < seq_len; t++) sorted[t] = (place){row[t], t};
        qsort(sorted, (size_t)seq_len, sizeof *sorted, by_id);
        for (int t = 0; t < seq_len; t++)
            earlier[(int64_t)b * seq_len + sorted[t].at] =
                t > 0 && sorted[t - 1].id == sorted[t].id ? sorted[t - 1].at : -1;
    }
    sluice__free(sorted);
    return SLUICE_OK;
}

static double sum_of(const float *p, int begin, int end) {
    double sum = 0;
    for (int k = begin; k < end; k++) sum += p[k];
    return sum;
}

/* Weight by distance: bin 0 is the query itself, bin b > 0 distances 2^(b-1) .. 2^b - 1. */
static void add_distances(sluice__row_head *h, const float *p, int q) {
    double mean = 0;
    for (int d = 1; d <= q; d++) mean += (double)d * p[q - d];
    h->distance += mean;
    h->by_distance[0] += p[q];
    for (int bin = 1, near = 1; near <= q; bin++, near *= 2) {
        int last = bin == SLUICE_DISTANCE_BINS - 1 || 2 * near - 1 > q ? q : 2 * near - 1;
        h->by_distance[bin] += sum_of(p, q - last, q - near + 1);
        if (last == q) break;
    }
}

static void add_row(sluice__row_head *h, const float *p, int q, const int32_t *earlier,
                    const uint8_t *marks) {
    add_distances(h, p, q);
    h->self += p[q];
    h->previous += p[q - 1];
    for (int k = earlier[q]; k >= 0; k = earlier[k]) {
        h->duplicate += p[k];
        h->induction += p[k + 1];
    }
    if (!marks) return;
    double marked = 0;
    for (int k = 0; k <= q; k++) marked += marks[k] ? p[k] : 0;
    h->marked += marked;
}

static void add_head(sluice__row_metrics *m, const sluice__probe_event *e,
                     const sluice__row_tokens *t, int head) {
    int64_t rows = e->shape[1], keys = e->shape[2];
    int64_t at = (int64_t)e->batch_row * t->seq_len;
    sluice__row_head *h = &m->head[head];
    for (int64_t r = 0; r < rows; r++) {
        int q = e->first_query + (int)r;
        const float *p = e->data + (head * rows + r) * keys;
        double *key = m->key_sum + (int64_t)head * m->keys;
        if (m->keys && q >= m->keys)
            for (int k = 0; k < m->keys; k++) key[k] += p[k];
        if (q == 0) continue;
        h->entropy += e->entropy[head * rows + r];
        h->entropy_share += e->entropy[head * rows + r] / log(q + 1.0);
        add_row(h, p, q, t->earlier + at, t->marks ? t->marks + at : NULL);
    }
}

void sluice__rows_add(sluice__row_metrics *m, const sluice__probe_event *e,
                      const sluice__row_tokens *t) {
    int heads = m->heads;
#pragma omp parallel for schedule(dynamic)
    for (int h = 0; h < heads; h++) add_head(m, e, t, h);
    m->marked = t->marks != NULL;
    for (int64_t r = 0; r < e->shape[1]; r++) {
        int q = e->first_query + (int)r;
        if (q == 0) {
            m->sequences++;
            continue;
        }
        bool seen = t->earlier[(int64_t)e->batch_row * t->seq_len + q] >= 0;
        m->queries++;
        m->duplicate_queries += seen;
        m->induction_queries += seen;
    }
}

static double ratio(double a, int64_t b) {
    return b ? a / (double)b : NAN;
}

static void head_result(const sluice__row_metrics *m, const sluice__row_head *h,
                        sluice_head_stats *out) {
    *out = (sluice_head_stats){.entropy = ratio(h->entropy, m->queries),
                               .entropy_share = ratio(h->entropy_share, m->queries),
                               .distance = ratio(h->distance, m->queries),
                               .self = ratio(h->self, m->queries),
                               .previous = ratio(h->previous, m->queries),
                               .duplicate = ratio(h->duplicate, m->duplicate_queries),
                               .induction = ratio(h->induction, m->induction_queries),
                               .marked = m->marked ? ratio(h->marked, m->queries) : NAN};
}

static double most_other(const sluice__row_metrics *m) {
    int64_t queries = m->sequences * (m->seq_len - m->keys);
    double most = NAN;
    if (queries <= 0) return NAN;
    for (int h = 0; h < m->heads; h++)
        for (int k = 1; k < m->keys; k++)
            most = fmax(most, m->key_sum[(int64_t)h * m->keys + k] / (double)queries);
    return most;
}

void sluice__rows_result(const sluice__row_metrics *m, sluice_inspect_layer *out) {
    for (int h = 0; h < m->heads; h++) {
        head_result(m, &m->head[h], &out->head_stats[h]);
        for (int i = 0; i < SLUICE_DISTANCE_BINS; i++)
            out->distance[i] += ratio(m->head[h].by_distance[i], m->queries * m->heads);
    }
    out->duplicate_queries = ratio((double)m->duplicate_queries, m->queries);
    out->induction_queries = ratio((double)m->induction_queries, m->queries);
    if (m->keys) out->max_other_key_share = most_other(m);
}

sluice_head_kind sluice_head_kind_of(const sluice_first_share *share,
                                     const sluice_head_stats *stats) {
    const double scores[] = {stats->previous, stats->duplicate, stats->induction, stats->self};
    static const sluice_head_kind kinds[] = {SLUICE_HEAD_PREVIOUS, SLUICE_HEAD_DUPLICATE,
                                             SLUICE_HEAD_INDUCTION, SLUICE_HEAD_SELF};
    if (share->from_1 > SLUICE_SINK_THRESHOLD) return SLUICE_HEAD_SINK;
    int best = -1;
    for (int i = 0; i < 4; i++)
        if (scores[i] > SLUICE_SINK_THRESHOLD && (best < 0 || scores[i] > scores[best])) best = i;
    return best < 0 ? SLUICE_HEAD_OTHER : kinds[best];
}
