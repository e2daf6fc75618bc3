/* SPDX-License-Identifier: Apache-2.0 */
/* What a pickle may build: ordered dictionaries, storages by persistent id, tensors over them. The list of
 * globals is the whole of what is known; every other name is refused, and none is ever looked up or called. */
#include "model/pickle_machine.h"
#include <string.h>

typedef enum global {
    GLOBAL_ORDERED_DICT,
    GLOBAL_REBUILD_TENSOR,    /* (storage, offset, size, stride) */
    GLOBAL_REBUILD_TENSOR_V2, /* (storage, offset, size, stride, requires_grad, hooks[, metadata]) */
    GLOBAL_REBUILD_PARAMETER, /* (tensor, requires_grad, hooks) */
    GLOBAL_STORAGE            /* + dtype */
} global;

static const struct {
    const char *module, *name;
    int value;
} globals[] = {
    {"collections", "OrderedDict", GLOBAL_ORDERED_DICT},
    {"torch._utils", "_rebuild_tensor", GLOBAL_REBUILD_TENSOR},
    {"torch._utils", "_rebuild_tensor_v2", GLOBAL_REBUILD_TENSOR_V2},
    {"torch._utils", "_rebuild_parameter", GLOBAL_REBUILD_PARAMETER},
    {"torch", "DoubleStorage", GLOBAL_STORAGE + SLUICE__F64},
    {"torch", "FloatStorage", GLOBAL_STORAGE + SLUICE__F32},
    {"torch", "HalfStorage", GLOBAL_STORAGE + SLUICE__F16},
    {"torch", "BFloat16Storage", GLOBAL_STORAGE + SLUICE__BF16},
    {"torch", "LongStorage", GLOBAL_STORAGE + SLUICE__I64},
    {"torch", "IntStorage", GLOBAL_STORAGE + SLUICE__I32},
    {"torch", "ShortStorage", GLOBAL_STORAGE + SLUICE__I16},
    {"torch", "CharStorage", GLOBAL_STORAGE + SLUICE__I8},
    {"torch", "ByteStorage", GLOBAL_STORAGE + SLUICE__U8},
    {"torch", "BoolStorage", GLOBAL_STORAGE + SLUICE__BOOL},
};

sluice_status sluice__pickle_push_global(machine *m, const char *module, int module_length, const char *name,
                                         int name_length, sluice_error *err) {
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        if (strlen(globals[i].module) != (size_t)module_length ||
            memcmp(globals[i].module, module, (size_t)module_length))
            continue;
        if (strlen(globals[i].name) != (size_t)name_length ||
            memcmp(globals[i].name, name, (size_t)name_length))
            continue;
        return push(m, (value){.kind = SLUICE__PICKLE_GLOBAL, .integer = globals[i].value}, err);
    }
    return sluice__fail(err, SLUICE_ERR_FORMAT,
                        "%s: the pickle asks for %.*s.%.*s, refused: only dictionaries of tensors are read, "
                        "and nothing is executed",
                        m->file, module_length < 100 ? module_length : 100, module,
                        name_length < 100 ? name_length : 100, name);
}

/* The items of a tuple or list into out, at most `room`; their number, or -1 when there are more or it is no
 * sequence. */
static int unpack(const machine *m, int container, int *out, int room) {
    const value *v = value_at(m, container);
    if (v->kind != SLUICE__PICKLE_TUPLE && v->kind != SLUICE__PICKLE_LIST) return -1;
    if (v->items.count > room) return -1;
    int n = 0;
    for (int i = v->items.first; i; i = item_at(m, i)->next) out[n++] = item_at(m, i)->value;
    return n;
}

static bool is_text(const machine *m, int index, const char *text) {
    const value *v = value_at(m, index);
    return v->kind == SLUICE__PICKLE_TEXT && v->text.length == (int)strlen(text) &&
           !memcmp(v->text.data, text, strlen(text));
}

/* ("storage", class, key, place, elements[, view]) */
sluice_status sluice__pickle_op_persistent(machine *m, sluice_error *err) {
    int id, part[6];
    SLUICE__TRY(pop(m, &id, err));
    int n = unpack(m, id, part, 6);
    bool shaped =
        n >= 5 && is_text(m, part[0], "storage") && value_at(m, part[1])->kind == SLUICE__PICKLE_GLOBAL &&
        value_at(m, part[1])->integer >= GLOBAL_STORAGE && value_at(m, part[2])->kind == SLUICE__PICKLE_TEXT &&
        value_at(m, part[4])->kind == SLUICE__PICKLE_INT && value_at(m, part[4])->integer >= 0;
    if (!shaped) return refuse(m, err, "a persistent id that is not a storage");
    if (n == 6 && value_at(m, part[5])->kind != SLUICE__PICKLE_NONE)
        return refuse(m, err, "a storage that is a view of another (PyTorch 0.3)");
    SLUICE__TRY(reserve(m, &m->storages, m->storages.count + 1, sizeof(sluice__pickle_storage), err));
    const value *key = value_at(m, part[2]);
    ((sluice__pickle_storage *)m->storages.data)[m->storages.count] = (sluice__pickle_storage){
        key->text.data, key->text.length, (sluice__dtype)(value_at(m, part[1])->integer - GLOBAL_STORAGE),
        value_at(m, part[4])->integer};
    return push(m, (value){.kind = SLUICE__PICKLE_STORAGE, .index = m->storages.count++}, err);
}

static bool read_sizes(const machine *m, int index, int64_t *out, int *count) {
    int parts[SLUICE__TENSOR_MAX_DIMS];
    *count = unpack(m, index, parts, SLUICE__TENSOR_MAX_DIMS);
    for (int i = 0; i < *count; i++) {
        out[i] = value_at(m, parts[i])->integer;
        if (value_at(m, parts[i])->kind != SLUICE__PICKLE_INT || out[i] < 0) return false;
    }
    return *count >= 0;
}

/* Whether all elements lie in the storage; fills count. */
static bool fits(sluice__pickle_tensor *t, const sluice__pickle_storage *s) {
    int64_t last = t->offset, reach;
    t->count = 1;
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(t->count, t->shape[i], &t->count)) return false;
    if (t->count == 0) return t->offset <= s->count;
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    return last < s->count;
}

/* A tensor is made right behind its key, which is then the topmost text on the stack. */
static sluice_status refuse_tensor(const machine *m, sluice_error *err, const char *what) {
    const int *stack = m->stack.data;
    const value *key = m->stack.count ? value_at(m, stack[m->stack.count - 1]) : NULL;
    if (!key || key->kind != SLUICE__PICKLE_TEXT) return refuse(m, err, what);
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: damaged pickle: tensor %.*s: %s", m->file,
                        key->text.length < 200 ? key->text.length : 200, key->text.data, what);
}

static sluice_status rebuild_tensor(machine *m, const int *part, int parts, sluice_error *err) {
    sluice__pickle_tensor t = {0};
    int strides;
    if (parts < 4 || value_at(m, part[0])->kind != SLUICE__PICKLE_STORAGE ||
        value_at(m, part[1])->kind != SLUICE__PICKLE_INT || value_at(m, part[1])->integer < 0 ||
        !read_sizes(m, part[2], t.shape, &t.ndim) || !read_sizes(m, part[3], t.stride, &strides) ||
        strides != t.ndim)
        return refuse_tensor(m, err, "expected storage, offset, sizes and as many strides");
    t.storage = value_at(m, part[0])->index;
    t.offset = value_at(m, part[1])->integer;
    if (!fits(&t, sluice__pickle_storage_of(m, t.storage)))
        return refuse_tensor(m, err, "its elements reach beyond its storage");
    SLUICE__TRY(reserve(m, &m->tensors, m->tensors.count + 1, sizeof t, err));
    ((sluice__pickle_tensor *)m->tensors.data)[m->tensors.count] = t;
    return push(m, (value){.kind = SLUICE__PICKLE_TENSOR, .index = m->tensors.count++}, err);
}

/* OrderedDict() or OrderedDict([[key, value], ...]) */
static sluice_status make_dict(machine *m, const int *part, int parts, sluice_error *err) {
    SLUICE__TRY(push(m, (value){.kind = SLUICE__PICKLE_DICT}, err));
    int dict = ((int *)m->stack.data)[m->stack.count - 1], pair[2];
    if (!parts) return SLUICE_OK;
    const value *list = value_at(m, part[0]);
    if (parts != 1 || list->kind != SLUICE__PICKLE_LIST)
        return refuse(m, err, "an OrderedDict of something that is not a list");
    for (int i = list->items.first; i; i = item_at(m, i)->next) {
        if (unpack(m, item_at(m, i)->value, pair, 2) != 2)
            return refuse(m, err, "an OrderedDict of something that is not a pair");
        SLUICE__TRY(append(m, dict, pair[0], pair[1], err));
        list = value_at(m, part[0]);
    }
    return SLUICE_OK;
}

sluice_status sluice__pickle_op_reduce(machine *m, sluice_error *err) {
    int arguments, function, part[8];
    SLUICE__TRY(pop(m, &arguments, err));
    SLUICE__TRY(pop(m, &function, err));
    int n = unpack(m, arguments, part, 8);
    if (value_at(m, function)->kind != SLUICE__PICKLE_GLOBAL || n < 0)
        return refuse(m, err, "a call of something that is not a function");
    switch (value_at(m, function)->integer) {
    case GLOBAL_ORDERED_DICT: return make_dict(m, part, n, err);
    case GLOBAL_REBUILD_TENSOR:
    case GLOBAL_REBUILD_TENSOR_V2: return rebuild_tensor(m, part, n, err);
    case GLOBAL_REBUILD_PARAMETER:
        if (n < 1 || value_at(m, part[0])->kind != SLUICE__PICKLE_TENSOR)
            return refuse(m, err, "a parameter that is not a tensor");
        return push_index(m, part[0], err);
    default: return refuse(m, err, "a call of something that is not a function");
    }
}

/* State of an object: only that of a dictionary (its _metadata), which says nothing about tensors. */
sluice_status sluice__pickle_op_build(machine *m, sluice_error *err) {
    int state, object;
    SLUICE__TRY(pop(m, &state, err));
    SLUICE__TRY(pop(m, &object, err));
    if (value_at(m, object)->kind != SLUICE__PICKLE_DICT || value_at(m, state)->kind != SLUICE__PICKLE_DICT)
        return refuse(m, err, "state for something that is not a dictionary");
    return push_index(m, object, err);
}
