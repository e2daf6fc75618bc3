/* SPDX-License-Identifier: Apache-2.0 */
/* torch.save before PyTorch 1.6: five pickles in a row (magic number, protocol, system, dictionary, storage
 * keys), then every storage as a count of elements and its bytes, in the order of the keys. */
#include "base/memory.h"
#include "model/torch_bin_internal.h"
#include <stdlib.h>
#include <string.h>

enum { COUNT_FIELD = 8 };

static int by_key(const void *a, const void *b) {
    const legacy_storage *x = a, *y = b;
    int n = x->key_length < y->key_length ? x->key_length : y->key_length,
        order = memcmp(x->key, y->key, (size_t)n);
    return order ? order : x->key_length - y->key_length;
}

legacy_storage *sluice__torch_bin_find_storage(const sluice__torch_bin *b, const char *key, int length) {
    legacy_storage wanted = {.key = key, .key_length = length};
    return bsearch(&wanted, b->storages, (size_t)b->num_storages, sizeof *b->storages, by_key);
}

/* One after another behind the pickles: count, bytes. The element size comes from what refers to the key. */
static sluice_status lay_out_storages(sluice__torch_bin *b, sluice__pickle_value keys, size_t at,
                                      const int *sizes, sluice_error *err) {
    sluice__pickle_value v;
    for (int i = 0; sluice__pickle_next(b->pickle, keys, &i, NULL, &v);) {
        int length;
        const char *key = sluice__pickle_text(b->pickle, v, &length);
        legacy_storage *s = sluice__torch_bin_find_storage(b, key, length);
        if (b->map.size - at < COUNT_FIELD)
            return sluice__torch_bin_bad(b, err, "truncated: it ends before the last storage");
        uint64_t count = 0;
        for (int k = COUNT_FIELD - 1; k >= 0; k--) count = count << 8 | b->map.data[at + (size_t)k];
        at += COUNT_FIELD;
        size_t bytes = sluice__mul_size((size_t)count, (size_t)sizes[s - b->storages]);
        if (bytes > b->map.size - at)
            return sluice__torch_bin_bad(b, err, "truncated: a storage reaches past the end of the file");
        s->data = b->map.data + at;
        s->bytes = bytes;
        at += bytes;
    }
    return SLUICE_OK;
}

static sluice_status list_storages(sluice__torch_bin *b, sluice__pickle_value keys, sluice_error *err) {
    sluice__pickle_value v;
    int room = 0;
    if (sluice__pickle_kind_of(b->pickle, keys) != SLUICE__PICKLE_LIST)
        return sluice__torch_bin_bad(b, err, "damaged: no list of storages");
    for (int i = 0; sluice__pickle_next(b->pickle, keys, &i, NULL, &v); room++)
        if (sluice__pickle_kind_of(b->pickle, v) != SLUICE__PICKLE_TEXT)
            return sluice__torch_bin_bad(b, err, "damaged: a storage without a key");
    b->storages = sluice__calloc((size_t)room, sizeof *b->storages, SLUICE__MEM_OTHER);
    if (!b->storages) return sluice__no_memory(err, (size_t)room * sizeof *b->storages, b->path);
    for (int i = 0; sluice__pickle_next(b->pickle, keys, &i, NULL, &v);) {
        legacy_storage *s = &b->storages[b->num_storages++];
        s->key = sluice__pickle_text(b->pickle, v, &s->key_length);
    }
    qsort(b->storages, (size_t)room, sizeof *b->storages, by_key);
    for (int i = 1; i < room; i++)
        if (!by_key(&b->storages[i], &b->storages[i - 1]))
            return sluice__torch_bin_bad(b, err, "damaged: a storage key stands twice");
    return SLUICE_OK;
}

/* Element sizes of the storages come from the tensors that use them, and every storage is there because of one.
 */
static sluice_status place_storages(sluice__torch_bin *b, sluice__pickle_value keys, size_t at,
                                    sluice_error *err) {
    SLUICE__TRY(list_storages(b, keys, err));
    int *sizes = sluice__calloc((size_t)b->num_storages, sizeof *sizes, SLUICE__MEM_OTHER);
    if (!sizes) return sluice__no_memory(err, (size_t)b->num_storages * sizeof *sizes, b->path);
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < sluice__pickle_num_storages(b->pickle) && st == SLUICE_OK; i++) {
        const sluice__pickle_storage *s = sluice__pickle_storage_of(b->pickle, i);
        legacy_storage *found = sluice__torch_bin_find_storage(b, s->key, s->key_length);
        if (!found)
            st = sluice__torch_bin_bad(b, err, "damaged: a tensor refers to a storage that is not in the file");
        else
            sizes[found - b->storages] = sluice__dtype_size(s->dtype);
    }
    for (int i = 0; i < b->num_storages && st == SLUICE_OK; i++)
        if (!sizes[i]) st = sluice__torch_bin_bad(b, err, "damaged: a storage that no tensor uses");
    if (st == SLUICE_OK) st = lay_out_storages(b, keys, at, sizes, err);
    sluice__free(sizes);
    return st;
}

static bool is_magic(const sluice__torch_bin *b, sluice__pickle_value v) {
    static const unsigned char magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    int length;
    if (sluice__pickle_kind_of(b->pickle, v) != SLUICE__PICKLE_LONG) return false;
    const char *bytes = sluice__pickle_text(b->pickle, v, &length);
    return length == sizeof magic && !memcmp(bytes, magic, sizeof magic);
}

static sluice_status check_system(const sluice__torch_bin *b, sluice__pickle_value system, sluice_error *err) {
    sluice__pickle_value key, v;
    if (sluice__pickle_kind_of(b->pickle, system) != SLUICE__PICKLE_DICT)
        return sluice__torch_bin_bad(b, err, "damaged: no description of its system");
    for (int at = 0; sluice__pickle_next(b->pickle, system, &at, &key, &v);) {
        int length;
        if (sluice__pickle_kind_of(b->pickle, key) != SLUICE__PICKLE_TEXT) continue;
        const char *text = sluice__pickle_text(b->pickle, key, &length);
        bool order = length == 13 && !memcmp(text, "little_endian", 13);
        if (order &&
            !(sluice__pickle_kind_of(b->pickle, v) == SLUICE__PICKLE_BOOL && sluice__pickle_int(b->pickle, v)))
            return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: written on a big-endian machine", b->path);
    }
    return SLUICE_OK;
}

static sluice_status next_pickle(sluice__torch_bin *b, size_t *at, sluice__pickle_value *v, sluice_error *err) {
    size_t used, left = b->map.size - *at;
    SLUICE__TRY(sluice__pickle_run(b->pickle, b->map.data + *at,
                                   left < SLUICE__MAX_PICKLE ? left : SLUICE__MAX_PICKLE, &used, v, err));
    *at += used;
    return SLUICE_OK;
}

sluice_status sluice__torch_bin_read_legacy(sluice__torch_bin *b, sluice_error *err) {
    sluice__pickle_value v, dict;
    size_t at = 0;
    SLUICE__TRY(next_pickle(b, &at, &v, err));
    if (!is_magic(b, v))
        return sluice__torch_bin_bad(b, err, "not a PyTorch checkpoint: a pickle without its magic number");
    SLUICE__TRY(next_pickle(b, &at, &v, err));
    if (sluice__pickle_kind_of(b->pickle, v) != SLUICE__PICKLE_INT || sluice__pickle_int(b->pickle, v) != 1001)
        return sluice__torch_bin_bad(b, err, "not protocol 1001 of PyTorch");
    SLUICE__TRY(next_pickle(b, &at, &v, err));
    SLUICE__TRY(check_system(b, v, err));
    SLUICE__TRY(next_pickle(b, &at, &dict, err));
    SLUICE__TRY(next_pickle(b, &at, &v, err));
    SLUICE__TRY(place_storages(b, v, at, err));
    return sluice__torch_bin_list(b, dict, err);
}
