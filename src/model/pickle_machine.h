/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the pickle machine and the moves that every opcode is made of. */
#ifndef SLUICE_MODEL_PICKLE_MACHINE_H
#define SLUICE_MODEL_PICKLE_MACHINE_H
#include "base/memory.h"
#include "model/pickle.h"

enum { MAX_BYTES = 32 << 20, MAX_MEMO = 1 << 21, MAX_TEXT = 1 << 16 };

typedef struct chain {
    int first, last, count; /* items; first 0 = empty */
} chain;

typedef struct value {
    sluice__pickle_kind kind;
    union {
        int64_t integer;
        double real;
        struct {
            const char *data;
            int length;
        } text;
        chain items;
        int index;
    };
} value;

typedef struct item {
    int key, value, next; /* key -1 in tuples and lists; next 0 = last */
} item;

typedef struct vector {
    void *data;
    int count, capacity;
} vector;

struct sluice__pickle {
    const char *file;
    vector values, items, tensors, storages; /* of value, item, sluice__pickle_tensor, sluice__pickle_storage */
    vector stack, memo;                      /* of int */
    const unsigned char *at, *end;
};

typedef sluice__pickle machine;
typedef sluice_status (*handler)(machine *m, sluice_error *err);

static inline sluice_status refuse(const machine *m, sluice_error *err, const char *what) {
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: damaged pickle: %s", m->file, what);
}

static inline sluice_status reserve(const machine *m, vector *v, int count, size_t size, sluice_error *err) {
    int most = (int)(MAX_BYTES / size);
    if (count > most) return refuse(m, err, "more values than a dictionary of tensors needs");
    if (count <= v->capacity) return SLUICE_OK;
    int capacity = v->capacity ? v->capacity * 2 : 256;
    while (capacity < count) capacity *= 2;
    if (capacity > most) capacity = most;
    void *data = sluice__realloc(v->data, (size_t)capacity, size, SLUICE__MEM_OTHER);
    if (!data) return sluice__no_memory(err, (size_t)capacity * size, m->file);
    *v = (vector){data, v->count, capacity};
    return SLUICE_OK;
}

static inline value *value_at(const machine *m, int index) {
    return (value *)m->values.data + index;
}

static inline item *item_at(const machine *m, int index) {
    return (item *)m->items.data + index;
}

static inline sluice_status push_index(machine *m, int index, sluice_error *err) {
    SLUICE__TRY(reserve(m, &m->stack, m->stack.count + 1, sizeof(int), err));
    ((int *)m->stack.data)[m->stack.count++] = index;
    return SLUICE_OK;
}

static inline sluice_status push(machine *m, value v, sluice_error *err) {
    SLUICE__TRY(reserve(m, &m->values, m->values.count + 1, sizeof v, err));
    *value_at(m, m->values.count) = v;
    return push_index(m, m->values.count++, err);
}

static inline sluice_status pop(machine *m, int *index, sluice_error *err) {
    *index = 0;
    if (!m->stack.count) return refuse(m, err, "the stack is empty");
    *index = ((int *)m->stack.data)[--m->stack.count];
    if (value_at(m, *index)->kind == SLUICE__PICKLE_MARK)
        return refuse(m, err, "a mark where a value is expected");
    return SLUICE_OK;
}

static inline sluice_status append(machine *m, int container, int key, int element, sluice_error *err) {
    if (!m->items.count) m->items.count = 1; /* item 0 means none */
    SLUICE__TRY(reserve(m, &m->items, m->items.count + 1, sizeof(item), err));
    int index = m->items.count++;
    *item_at(m, index) = (item){key, element, 0};
    chain *c = &value_at(m, container)->items;
    if (c->first)
        item_at(m, c->last)->next = index;
    else
        c->first = index;
    c->last = index;
    c->count++;
    return SLUICE_OK;
}

/* Opcodes that make objects (pickle_objects.c). */
sluice_status sluice__pickle_push_global(machine *m, const char *module, int module_length, const char *name,
                                         int name_length, sluice_error *err);
sluice_status sluice__pickle_op_persistent(machine *m, sluice_error *err);
sluice_status sluice__pickle_op_reduce(machine *m, sluice_error *err);
sluice_status sluice__pickle_op_build(machine *m, sluice_error *err);
#endif
