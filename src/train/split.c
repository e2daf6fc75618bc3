/* SPDX-License-Identifier: Apache-2.0 */
/* The held-out split, by document or by parts of the whole. */
#include "train/split.h"
#include "base/memory.h"
#include "train/order.h"
#include <math.h>

enum { DOCUMENTS_FROM = 20 }; /* AUTO: from this many documents on whole ones are held out */

static const uint64_t SPLIT_KEY = 0x73706c6974u;

sluice__split_rule sluice__split_rule_of(const sluice_train_params *p) {
    sluice__split_rule r = {p->split, p->validation_split_percentage / 100, p->split_parts, 0};
    r.seed = (uint64_t)(p->data_seed >= 0 ? p->data_seed : p->seed);
    if (*p->validation_text || r.share <= 0) r.split = SLUICE_SPLIT_NONE;
    return r;
}

typedef struct piece_list {
    sluice__piece *items;
    int64_t count, capacity;
} piece_list;

static sluice_status add(piece_list *list, sluice__piece piece, sluice_error *err) {
    if (piece.begin == piece.end) return SLUICE_OK;
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? list->capacity * 2 : 64;
        void *items = sluice__realloc(list->items, (size_t)capacity, sizeof piece, SLUICE__MEM_DATA);
        if (!items) return sluice__no_memory(err, (size_t)capacity * sizeof piece, "the table of documents");
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = piece;
    return SLUICE_OK;
}

static sluice_status by_document(piece_list *list, const sluice__split_rule *rule, const int64_t *sizes, int64_t n,
                                 sluice_error *err) {
    double share = rule->split == SLUICE_SPLIT_NONE ? 0 : rule->share, least = 2, most = -1;
    int64_t lowest = 0, highest = 0;
    for (int64_t d = 0; d < n; d++) {
        if (!sizes[d]) continue;
        double u = sluice__draw_uniform(d, rule->seed, SPLIT_KEY);
        if (u < least) least = u, lowest = list->count;
        if (u > most) most = u, highest = list->count;
        SLUICE__TRY(add(list, (sluice__piece){d, 0, sizes[d], u < share, true, true}, err));
    }
    if (share > 0 && list->count > 0) { /* at least one on each side, the training side first */
        list->items[lowest].held = true;
        list->items[highest].held = false;
    }
    return SLUICE_OK;
}

/* Boundary number i: where the held-out end of part i / 2 begins (even i), where that part ends (odd i), in units
 * of all data; behind the last part the end of everything. */
static int64_t boundary_at(const sluice__split_rule *rule, int64_t total, int64_t i) {
    int64_t k = i / 2;
    if (k >= rule->parts) return total;
    int64_t begin = (int64_t)((__int128)total * k / rule->parts),
            end = (int64_t)((__int128)total * (k + 1) / rule->parts);
    return i % 2 ? end : end - (int64_t)floor(rule->share * (double)(end - begin) + 0.5);
}

static sluice_status by_parts(piece_list *list, const sluice__split_rule *rule, const int64_t *sizes, int64_t n,
                              sluice__cut_fn cut, const void *user, sluice_error *err) {
    int64_t total = 0, before = 0, next = 0; /* units before this document; number of the next boundary */
    for (int64_t d = 0; d < n; d++) total += sizes[d];
    for (int64_t d = 0; d < n; before += sizes[d], d++) {
        int64_t at = 0;
        do {
            int64_t end = sizes[d], wanted = boundary_at(rule, total, next) - before;
            bool cuts = next < 2 * rule->parts && wanted < end;
            if (cuts) end = cut && wanted > 0 ? cut(user, d, wanted) : wanted;
            if (end < at) end = at;
            if (end > sizes[d]) end = sizes[d];
            SLUICE__TRY(add(list, (sluice__piece){d, at, end, next % 2 == 1, at == 0, end == sizes[d]}, err));
            at = end;
            next += cuts;
        } while (at < sizes[d]);
    }
    return SLUICE_OK;
}

sluice_status sluice__split(sluice__piece **pieces, int64_t *num_pieces, const sluice__split_rule *rule,
                            const int64_t *sizes, int64_t num_documents, sluice__cut_fn cut, const void *user,
                            sluice_error *err) {
    piece_list list = {0};
    bool parts = rule->split == SLUICE_SPLIT_PARTS ||
                 (rule->split == SLUICE_SPLIT_AUTO && num_documents < DOCUMENTS_FROM);
    sluice_status st = parts ? by_parts(&list, rule, sizes, num_documents, cut, user, err)
                             : by_document(&list, rule, sizes, num_documents, err);
    if (st != SLUICE_OK) {
        sluice__free(list.items);
        list = (piece_list){0};
    }
    *pieces = list.items;
    *num_pieces = list.count;
    return st;
}
