/* SPDX-License-Identifier: Apache-2.0 */
/* The pickle machine: a stack, a memo and one handler per opcode. No array of it may grow past MAX_BYTES, so
 * that no input can take more memory than about 200 MB, and none takes more time than its length. Containers
 * are chains of items; nothing is walked recursively, so nesting and cycles are harmless. */
#include "model/pickle_machine.h"
#include <string.h>

/* ---- bytes ---- */

static sluice_status take(machine *m, size_t count, const unsigned char **out, sluice_error *err) {
    *out = m->at;
    if ((size_t)(m->end - m->at) < count) return refuse(m, err, "it ends too early");
    m->at += count;
    return SLUICE_OK;
}

static sluice_status take_unsigned(machine *m, int bytes, uint64_t *out, sluice_error *err) {
    const unsigned char *p;
    *out = 0;
    SLUICE__TRY(take(m, (size_t)bytes, &p, err));
    for (int i = bytes - 1; i >= 0; i--) *out = *out << 8 | p[i];
    return SLUICE_OK;
}

/* The rest of a line without its end, as GLOBAL has it. */
static sluice_status take_line(machine *m, const char **text, int *length, sluice_error *err) {
    const unsigned char *stop = memchr(m->at, '\n', (size_t)(m->end - m->at));
    if (!stop || stop - m->at > MAX_TEXT) return refuse(m, err, "a line without an end");
    *text = (const char *)m->at;
    *length = (int)(stop - m->at);
    m->at = stop + 1;
    return SLUICE_OK;
}

/* ---- opcodes: constants ---- */

static sluice_status op_none(machine *m, sluice_error *err) {
    return push(m, (value){.kind = SLUICE__PICKLE_NONE}, err);
}

static sluice_status push_bool(machine *m, bool b, sluice_error *err) {
    return push(m, (value){.kind = SLUICE__PICKLE_BOOL, .integer = b}, err);
}

static sluice_status op_true(machine *m, sluice_error *err) {
    return push_bool(m, true, err);
}

static sluice_status op_false(machine *m, sluice_error *err) {
    return push_bool(m, false, err);
}

static sluice_status push_int(machine *m, int bytes, bool is_signed, sluice_error *err) {
    uint64_t v;
    SLUICE__TRY(take_unsigned(m, bytes, &v, err));
    int unused = 64 - 8 * bytes;
    int64_t n = is_signed ? (int64_t)(v << unused) >> unused : (int64_t)v;
    return push(m, (value){.kind = SLUICE__PICKLE_INT, .integer = n}, err);
}

static sluice_status op_int4(machine *m, sluice_error *err) {
    return push_int(m, 4, true, err);
}

static sluice_status op_int1(machine *m, sluice_error *err) {
    return push_int(m, 1, false, err);
}

static sluice_status op_int2(machine *m, sluice_error *err) {
    return push_int(m, 2, false, err);
}

static sluice_status op_long1(machine *m, sluice_error *err) {
    uint64_t n;
    const unsigned char *p;
    SLUICE__TRY(take_unsigned(m, 1, &n, err));
    if (n == 0) return push(m, (value){.kind = SLUICE__PICKLE_INT}, err);
    if (n <= 8) return push_int(m, (int)n, true, err);
    SLUICE__TRY(take(m, (size_t)n, &p, err));
    return push(m, (value){.kind = SLUICE__PICKLE_LONG, .text = {(const char *)p, (int)n}}, err);
}

static sluice_status op_float(machine *m, sluice_error *err) {
    const unsigned char *p;
    uint64_t bits = 0;
    double real;
    SLUICE__TRY(take(m, 8, &p, err));
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i]; /* big-endian */
    memcpy(&real, &bits, sizeof real);
    return push(m, (value){.kind = SLUICE__PICKLE_FLOAT, .real = real}, err);
}

static sluice_status push_text(machine *m, int length_bytes, sluice_error *err) {
    uint64_t n;
    const unsigned char *p;
    SLUICE__TRY(take_unsigned(m, length_bytes, &n, err));
    if (n > MAX_TEXT) return refuse(m, err, "a text longer than 64 KiB");
    SLUICE__TRY(take(m, (size_t)n, &p, err));
    return push(m, (value){.kind = SLUICE__PICKLE_TEXT, .text = {(const char *)p, (int)n}}, err);
}

static sluice_status op_text1(machine *m, sluice_error *err) {
    return push_text(m, 1, err);
}

static sluice_status op_text4(machine *m, sluice_error *err) {
    return push_text(m, 4, err);
}

/* ---- opcodes: memo ---- */

static sluice_status memo_put(machine *m, uint64_t at, sluice_error *err) {
    int index;
    if (at >= MAX_MEMO) return refuse(m, err, "a memo index out of range");
    SLUICE__TRY(pop(m, &index, err));
    SLUICE__TRY(push_index(m, index, err));
    SLUICE__TRY(reserve(m, &m->memo, (int)at + 1, sizeof(int), err));
    int *memo = m->memo.data;
    while (m->memo.count <= (int)at) memo[m->memo.count++] = -1;
    memo[at] = index;
    return SLUICE_OK;
}

static sluice_status memo_get(machine *m, uint64_t at, sluice_error *err) {
    if (at >= (uint64_t)m->memo.count || ((int *)m->memo.data)[at] < 0)
        return refuse(m, err, "it reads an empty memo entry");
    return push_index(m, ((int *)m->memo.data)[at], err);
}

static sluice_status op_put1(machine *m, sluice_error *err) {
    uint64_t at;
    SLUICE__TRY(take_unsigned(m, 1, &at, err));
    return memo_put(m, at, err);
}

static sluice_status op_put4(machine *m, sluice_error *err) {
    uint64_t at;
    SLUICE__TRY(take_unsigned(m, 4, &at, err));
    return memo_put(m, at, err);
}

static sluice_status op_get1(machine *m, sluice_error *err) {
    uint64_t at;
    SLUICE__TRY(take_unsigned(m, 1, &at, err));
    return memo_get(m, at, err);
}

static sluice_status op_get4(machine *m, sluice_error *err) {
    uint64_t at;
    SLUICE__TRY(take_unsigned(m, 4, &at, err));
    return memo_get(m, at, err);
}

static sluice_status op_memoize(machine *m, sluice_error *err) {
    return memo_put(m, (uint64_t)m->memo.count, err);
}

/* ---- opcodes: containers ---- */

static sluice_status op_mark(machine *m, sluice_error *err) {
    return push(m, (value){.kind = SLUICE__PICKLE_MARK}, err);
}

static sluice_status push_empty(machine *m, sluice__pickle_kind kind, sluice_error *err) {
    return push(m, (value){.kind = kind}, err);
}

static sluice_status op_dict(machine *m, sluice_error *err) {
    return push_empty(m, SLUICE__PICKLE_DICT, err);
}

static sluice_status op_list(machine *m, sluice_error *err) {
    return push_empty(m, SLUICE__PICKLE_LIST, err);
}

static sluice_status op_tuple0(machine *m, sluice_error *err) {
    return push_empty(m, SLUICE__PICKLE_TUPLE, err);
}

/* Position on the stack of the topmost mark. */
static sluice_status find_mark(const machine *m, int *position, sluice_error *err) {
    const int *stack = m->stack.data;
    for (*position = m->stack.count - 1; *position >= 0; --*position)
        if (value_at(m, stack[*position])->kind == SLUICE__PICKLE_MARK) return SLUICE_OK;
    return refuse(m, err, "no mark on the stack");
}

/* The topmost `count` values become a tuple; `drop` more are removed below them. */
static sluice_status make_tuple(machine *m, int count, int drop, sluice_error *err) {
    if (m->stack.count < count + drop) return refuse(m, err, "the stack is empty");
    int base = m->stack.count - count;
    SLUICE__TRY(push_empty(m, SLUICE__PICKLE_TUPLE, err));
    int *stack = m->stack.data, tuple = stack[m->stack.count - 1];
    for (int i = base; i < base + count; i++) {
        if (value_at(m, stack[i])->kind == SLUICE__PICKLE_MARK)
            return refuse(m, err, "a mark where a value is expected");
        SLUICE__TRY(append(m, tuple, -1, stack[i], err));
    }
    stack[base - drop] = tuple;
    m->stack.count = base - drop + 1;
    return SLUICE_OK;
}

static sluice_status op_tuple(machine *m, sluice_error *err) {
    int mark;
    SLUICE__TRY(find_mark(m, &mark, err));
    return make_tuple(m, m->stack.count - mark - 1, 1, err);
}

static sluice_status op_tuple1(machine *m, sluice_error *err) {
    return make_tuple(m, 1, 0, err);
}

static sluice_status op_tuple2(machine *m, sluice_error *err) {
    return make_tuple(m, 2, 0, err);
}

static sluice_status op_tuple3(machine *m, sluice_error *err) {
    return make_tuple(m, 3, 0, err);
}

/* Values from `base` on are put into the container below `below` (which is base, or base minus a mark). */
static sluice_status put_items(machine *m, int base, int below, sluice__pickle_kind kind, sluice_error *err) {
    const int *stack = m->stack.data;
    int step = kind == SLUICE__PICKLE_DICT ? 2 : 1, count = m->stack.count - base;
    if (below < 1 || count < 0 || count % step || value_at(m, stack[below - 1])->kind != kind)
        return refuse(m, err,
                      kind == SLUICE__PICKLE_DICT ? "items for something that is not a dictionary"
                                                  : "elements for something that is not a list");
    for (int i = base; i < base + count; i += step)
        SLUICE__TRY(append(m, stack[below - 1], step == 2 ? stack[i] : -1, stack[i + step - 1], err));
    m->stack.count = below;
    return SLUICE_OK;
}

static sluice_status put_marked(machine *m, sluice__pickle_kind kind, sluice_error *err) {
    int mark;
    SLUICE__TRY(find_mark(m, &mark, err));
    return put_items(m, mark + 1, mark, kind, err);
}

static sluice_status op_setitems(machine *m, sluice_error *err) {
    return put_marked(m, SLUICE__PICKLE_DICT, err);
}

static sluice_status op_appends(machine *m, sluice_error *err) {
    return put_marked(m, SLUICE__PICKLE_LIST, err);
}

static sluice_status op_setitem(machine *m, sluice_error *err) {
    return put_items(m, m->stack.count - 2, m->stack.count - 2, SLUICE__PICKLE_DICT, err);
}

static sluice_status op_append(machine *m, sluice_error *err) {
    return put_items(m, m->stack.count - 1, m->stack.count - 1, SLUICE__PICKLE_LIST, err);
}

/* ---- opcodes: globals ---- */

static sluice_status op_global(machine *m, sluice_error *err) {
    const char *module = NULL, *name = NULL;
    int module_length = 0, name_length = 0;
    SLUICE__TRY(take_line(m, &module, &module_length, err));
    SLUICE__TRY(take_line(m, &name, &name_length, err));
    return sluice__pickle_push_global(m, module, module_length, name, name_length, err);
}

static sluice_status op_stack_global(machine *m, sluice_error *err) {
    int name, module;
    SLUICE__TRY(pop(m, &name, err));
    SLUICE__TRY(pop(m, &module, err));
    const value *n = value_at(m, name), *o = value_at(m, module);
    if (n->kind != SLUICE__PICKLE_TEXT || o->kind != SLUICE__PICKLE_TEXT)
        return refuse(m, err, "a global without a name");
    return sluice__pickle_push_global(m, o->text.data, o->text.length, n->text.data, n->text.length, err);
}

static sluice_status op_proto(machine *m, sluice_error *err) {
    uint64_t version;
    SLUICE__TRY(take_unsigned(m, 1, &version, err));
    return version >= 2 && version <= 5 ? SLUICE_OK : refuse(m, err, "an unknown protocol version");
}

static sluice_status op_frame(machine *m, sluice_error *err) {
    const unsigned char *length;
    return take(m, 8, &length, err);
}

static const handler handlers[256] = {
    [0x80] = op_proto,
    [0x95] = op_frame,
    ['N'] = op_none,
    [0x88] = op_true,
    [0x89] = op_false,
    ['J'] = op_int4,
    ['K'] = op_int1,
    ['M'] = op_int2,
    [0x8a] = op_long1,
    ['G'] = op_float,
    ['X'] = op_text4,
    [0x8c] = op_text1,
    ['T'] = op_text4,
    ['U'] = op_text1,
    ['q'] = op_put1,
    ['r'] = op_put4,
    ['h'] = op_get1,
    ['j'] = op_get4,
    [0x94] = op_memoize,
    ['('] = op_mark,
    ['}'] = op_dict,
    [']'] = op_list,
    [')'] = op_tuple0,
    ['t'] = op_tuple,
    [0x85] = op_tuple1,
    [0x86] = op_tuple2,
    [0x87] = op_tuple3,
    ['u'] = op_setitems,
    ['s'] = op_setitem,
    ['e'] = op_appends,
    ['a'] = op_append,
    ['c'] = op_global,
    [0x93] = op_stack_global,
    ['Q'] = sluice__pickle_op_persistent,
    ['R'] = sluice__pickle_op_reduce,
    ['b'] = sluice__pickle_op_build,
};

sluice_status sluice__pickle_run(sluice__pickle *p, const unsigned char *data, size_t size, size_t *used,
                                 sluice__pickle_value *result, sluice_error *err) {
    p->at = data;
    p->end = data + size;
    p->stack.count = p->memo.count = 0;
    for (;;) {
        const unsigned char *op;
        SLUICE__TRY(take(p, 1, &op, err));
        if (*op == '.') break;
        if (!handlers[*op])
            return sluice__fail(err, SLUICE_ERR_FORMAT,
                                "%s: not a pickle of tensors: opcode 0x%02x at byte %td is refused", p->file,
                                *op, op - data);
        SLUICE__TRY(handlers[*op](p, err));
    }
    SLUICE__TRY(pop(p, result, err));
    *used = (size_t)(p->at - data);
    return SLUICE_OK;
}

sluice_status sluice__pickle_new(sluice__pickle **out, const char *file, sluice_error *err) {
    *out = sluice__calloc(1, sizeof **out, SLUICE__MEM_OTHER);
    if (!*out) return sluice__no_memory(err, sizeof **out, file);
    (*out)->file = file;
    return SLUICE_OK;
}

void sluice__pickle_free(sluice__pickle *p) {
    if (!p) return;
    vector *all[] = {&p->values, &p->items, &p->tensors, &p->storages, &p->stack, &p->memo};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sluice__free(all[i]->data);
    sluice__free(p);
}

sluice__pickle_kind sluice__pickle_kind_of(const sluice__pickle *p, sluice__pickle_value v) {
    return value_at(p, v)->kind;
}

int64_t sluice__pickle_int(const sluice__pickle *p, sluice__pickle_value v) {
    return value_at(p, v)->integer;
}

const char *sluice__pickle_text(const sluice__pickle *p, sluice__pickle_value v, int *length) {
    *length = value_at(p, v)->text.length;
    return value_at(p, v)->text.data;
}

const sluice__pickle_tensor *sluice__pickle_tensor_of(const sluice__pickle *p, sluice__pickle_value v) {
    return (const sluice__pickle_tensor *)p->tensors.data + value_at(p, v)->index;
}

const sluice__pickle_storage *sluice__pickle_storage_of(const sluice__pickle *p, int storage) {
    return (const sluice__pickle_storage *)p->storages.data + storage;
}

int sluice__pickle_num_storages(const sluice__pickle *p) {
    return p->storages.count;
}

bool sluice__pickle_next(const sluice__pickle *p, sluice__pickle_value container, int *at,
                         sluice__pickle_value *key, sluice__pickle_value *element) {
    *at = *at ? item_at(p, *at)->next : value_at(p, container)->items.first;
    if (!*at) return false;
    if (key) *key = item_at(p, *at)->key;
    *element = item_at(p, *at)->value;
    return true;
}
