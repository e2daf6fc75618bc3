/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of strings, dicts, lists and loops, with Python's meaning. */
#include "base/memory.h"
#include "model/jinja/eval.h"
#include "model/utf8.h"
#include <string.h>

typedef jinja_value value;

static const char *find(const char *in, size_t size, value what) {
    if (what.size == 0) return in;
    return size ? memmem(in, size, what.text, what.size) : NULL;
}

static const char *find_last(const char *in, size_t size, value what) {
    for (size_t i = size + 1; i-- > 0;)
        if (size - i >= what.size && (!what.size || !memcmp(in + i, what.text, what.size))) return in + i;
    return NULL;
}

static value part(const char *begin, const char *end) { return sluice__jinja_text(begin, (size_t)(end - begin)); }

/* ---- parts that filters use as well ---- */

/* Python puts `to` between all characters when `from` is empty. */
value sluice__jinja_replace(jinja_run *run, value s, value from, value to, int64_t most) {
    sluice__strbuf b = {0};
    const char *p = s.text, *end = s.text + s.size;
    bool more = most != 0;
    while (more && sluice__jinja_spend(run, from.size ? 0 : 64)) {
        const char *hit = find(p, (size_t)(end - p), from);
        if (!hit || most-- == 0) break;
        sluice__strbuf_add(&b, p, (size_t)(hit - p));
        sluice__strbuf_add(&b, to.text, to.size);
        p = hit + from.size;
        if (from.size == 0) {
            int n = 0;
            if (p < end) sluice__utf8_get((const unsigned char *)p, &n);
            sluice__strbuf_add(&b, p, (size_t)n);
            more = p < end;
            p += n;
        }
        if (b.size > run->bytes_left) sluice__jinja_unsupported(run, "rendering takes too much memory");
    }
    if (p < end) sluice__strbuf_add(&b, p, (size_t)(end - p));
    return sluice__jinja_take_text(run, &b);
}

static bool strips(value chars, const char *p, int length) {
    if (chars.type != JINJA_STRING) {
        int n;
        return sluice__jinja_is_space(sluice__utf8_get((const unsigned char *)p, &n));
    }
    return chars.size && memmem(chars.text, chars.size, p, (size_t)length);
}

value sluice__jinja_strip(jinja_run *run, value s, value chars, bool left, bool right) {
    const char *p = s.text, *end = s.text + s.size;
    if (!sluice__jinja_spend(run, s.size)) return s;
    while (left && p < end) {
        int n;
        sluice__utf8_get((const unsigned char *)p, &n);
        if (!strips(chars, p, n)) break;
        p += n;
    }
    while (right && end > p) {
        const char *last = (const char *)sluice__utf8_back((const unsigned char *)end);
        if (!strips(chars, last, (int)(end - last))) break;
        end = last;
    }
    return part(p, end);
}

/* Bytes of the line break at p, 0 = none. */
static int line_break(const char *p, const char *end) {
    int n;
    uint32_t c = sluice__utf8_get((const unsigned char *)p, &n);
    if (c == '\r' && p + 1 < end && p[1] == '\n') return 2;
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029 ? n : 0;
}

value sluice__jinja_splitlines(jinja_run *run, value s, bool keep) {
    value out = sluice__jinja_list(run, JINJA_KIND_LIST, 0);
    const char *begin = s.text, *end = s.text + s.size;
    for (const char *p = begin; p < end && run->st == SLUICE_OK;) {
        int length = line_break(p, end), n;
        sluice__utf8_get((const unsigned char *)p, &n);
        if (length) {
            sluice__jinja_push(run, out.list, part(begin, keep ? p + length : p));
            begin = p + length;
        }
        p += length ? length : n;
    }
    if (begin < end && run->st == SLUICE_OK) sluice__jinja_push(run, out.list, part(begin, end));
    return out;
}

/* side: 'l' fills on the right, 'r' on the left, 'c' on both as str.center does. */
value sluice__jinja_justify(jinja_run *run, value s, int64_t width, value fill, char side) {
    int64_t pad = width - (int64_t)sluice__jinja_length(s);
    if (pad <= 0) return s;
    int64_t left = side == 'l' ? 0 : side == 'r' ? pad : pad / 2 + (pad & width & 1);
    sluice__strbuf b = {0};
    for (int64_t i = 0; i < pad && sluice__jinja_spend(run, 0); i++) {
        if (i == left) sluice__strbuf_add(&b, s.text, s.size);
        sluice__strbuf_add(&b, fill.text, fill.size);
    }
    if (left == pad) sluice__strbuf_add(&b, s.text, s.size);
    return sluice__jinja_take_text(run, &b);
}

/* ---- splitting ---- */

static value split_spaces(jinja_run *run, value s, int64_t most, bool from_right) {
    value out = sluice__jinja_list(run, JINJA_KIND_LIST, 0), none = sluice__jinja_none();
    s = sluice__jinja_strip(run, s, none, !from_right, from_right);
    while (s.size && run->st == SLUICE_OK) {
        const char *p = s.text, *end = s.text + s.size;
        if (most-- == 0) {
            sluice__jinja_push(run, out.list, s);
            break;
        }
        if (from_right) {
            p = end;
            while (p > s.text) {
                const char *last = (const char *)sluice__utf8_back((const unsigned char *)p);
                if (strips(none, last, (int)(p - last))) break;
                p = last;
            }
            sluice__jinja_push(run, out.list, part(p, end));
            s = sluice__jinja_strip(run, part(s.text, p), none, false, true);
        } else {
            for (int n; p < end; p += n) {
                sluice__utf8_get((const unsigned char *)p, &n);
                if (strips(none, p, n)) break;
            }
            sluice__jinja_push(run, out.list, part(s.text, p));
            s = sluice__jinja_strip(run, part(p, end), none, true, false);
        }
    }
    return out;
}

static value split_at(jinja_run *run, value s, value sep, int64_t most, bool from_right) {
    value out = sluice__jinja_list(run, JINJA_KIND_LIST, 0);
    const char *begin = s.text, *end = s.text + s.size;
    while (run->st == SLUICE_OK && most-- != 0) {
        size_t size = (size_t)(end - begin);
        const char *hit = from_right ? find_last(begin, size, sep) : find(begin, size, sep);
        if (!hit || !sluice__jinja_spend(run, from_right ? (size_t)(end - hit) : (size_t)(hit - begin))) break;
        sluice__jinja_push(run, out.list, from_right ? part(hit + sep.size, end) : part(begin, hit));
        if (from_right)
            end = hit;
        else
            begin = hit + sep.size;
    }
    if (run->st == SLUICE_OK) sluice__jinja_push(run, out.list, part(begin, end));
    return out;
}

static value split(jinja_run *run, value s, const value *a, bool from_right) {
    int64_t most = sluice__jinja_int_argument(run, a[1], -1, "maxsplit");
    bool spaces = !sluice__jinja_given(a[0]) || a[0].type == JINJA_NONE;
    value sep = spaces ? a[0] : sluice__jinja_text_argument(run, a[0], "sep");
    if (run->st != SLUICE_OK) return sep;
    if (!spaces && sep.size == 0) return sluice__jinja_fail(run, "empty separator");
    value out = spaces ? split_spaces(run, s, most, from_right) : split_at(run, s, sep, most, from_right);
    if (!from_right || run->st != SLUICE_OK) return out;
    for (size_t i = 0, j = out.list->count; i + 1 < j; i++) {
        value t = out.list->items[i];
        out.list->items[i] = out.list->items[--j];
        out.list->items[j] = t;
    }
    return out;
}

static value partition(jinja_run *run, value s, value sep, bool last) {
    sep = sluice__jinja_text_argument(run, sep, "sep");
    if (run->st == SLUICE_OK && sep.size == 0) sluice__jinja_fail(run, "empty separator");
    value out = sluice__jinja_list(run, JINJA_KIND_TUPLE, 3), empty = sluice__jinja_text("", 0);
    if (run->st != SLUICE_OK) return out;
    const char *hit = last ? find_last(s.text, s.size, sep) : find(s.text, s.size, sep);
    const char *end = s.text + s.size;
    value parts[3] = {last ? empty : s, empty, last ? s : empty};
    if (hit) parts[0] = part(s.text, hit), parts[1] = sep, parts[2] = part(hit + sep.size, end);
    for (int i = 0; i < 3; i++) sluice__jinja_push(run, out.list, parts[i]);
    return out;
}

/* ---- looking ---- */

/* s[start:end] and the character it begins at; *missed when start lies behind the end, where Python finds nothing. */
static value window(jinja_run *run, value s, const value *a, int64_t *first, bool *missed) {
    int64_t n = (int64_t)sluice__jinja_length(s);
    bool from = sluice__jinja_given(a[1]) && a[1].type != JINJA_NONE,
         to = sluice__jinja_given(a[2]) && a[2].type != JINJA_NONE;
    int64_t begin = from ? sluice__jinja_int_argument(run, a[1], 0, "start") : 0;
    int64_t end = to ? sluice__jinja_int_argument(run, a[2], 0, "end") : n;
    if (begin < 0) begin = begin + n < 0 ? 0 : begin + n;
    if (end < 0) end = end + n < 0 ? 0 : end + n;
    if (end > n) end = n;
    *first = begin;
    *missed = begin > end;
    if (*missed) return sluice__jinja_text("", 0);
    return part(s.text + sluice__jinja_offset(s, (size_t)begin), s.text + sluice__jinja_offset(s, (size_t)end));
}

static value find_method(jinja_run *run, value s, const value *a, bool last, bool must) {
    int64_t first;
    bool missed;
    value what = sluice__jinja_text_argument(run, a[0], "sub"), in = window(run, s, a, &first, &missed);
    if (run->st != SLUICE_OK || !sluice__jinja_spend(run, s.size)) return what;
    const char *hit = missed ? NULL : last ? find_last(in.text, in.size, what) : find(in.text, in.size, what);
    if (!hit && must) return sluice__jinja_fail(run, "substring not found");
    return sluice__jinja_int(hit ? first + (int64_t)sluice__jinja_length(part(in.text, hit)) : -1);
}

static value count_method(jinja_run *run, value s, const value *a) {
    int64_t first, n = 0;
    bool missed;
    value what = sluice__jinja_text_argument(run, a[0], "sub"), in = window(run, s, a, &first, &missed);
    if (run->st != SLUICE_OK || !sluice__jinja_spend(run, s.size)) return what;
    if (missed) return sluice__jinja_int(0);
    if (what.size == 0) return sluice__jinja_int((int64_t)sluice__jinja_length(in) + 1);
    const char *end = in.text + in.size;
    for (const char *p = in.text; (p = find(p, (size_t)(end - p), what)); p += what.size) n++;
    return sluice__jinja_int(n);
}

static bool has_end(value s, value what, bool at_end) {
    return s.size >= what.size &&
           (!what.size || !memcmp(at_end ? s.text + s.size - what.size : s.text, what.text, what.size));
}

static value ends_method(jinja_run *run, value s, const value *a, bool at_end) {
    int64_t first;
    bool missed, found = false;
    value in = window(run, s, a, &first, &missed);
    if (a[0].type == JINJA_LIST && a[0].list->kind == JINJA_KIND_TUPLE) {
        for (size_t i = 0; i < a[0].list->count && run->st == SLUICE_OK; i++) {
            value what = sluice__jinja_text_argument(run, a[0].list->items[i], "prefix");
            found |= run->st == SLUICE_OK && !missed && has_end(in, what, at_end);
        }
        return sluice__jinja_bool(found);
    }
    value what = sluice__jinja_text_argument(run, a[0], at_end ? "suffix" : "prefix");
    return run->st == SLUICE_OK ? sluice__jinja_bool(!missed && has_end(in, what, at_end)) : what;
}

static value remove_end(jinja_run *run, value s, value what, bool at_end) {
    what = sluice__jinja_text_argument(run, what, at_end ? "suffix" : "prefix");
    if (run->st != SLUICE_OK || !what.size || !has_end(s, what, at_end)) return s;
    return at_end ? part(s.text, s.text + s.size - what.size) : part(s.text + what.size, s.text + s.size);
}

/* ---- the rest ---- */

static value join_method(jinja_run *run, value s, value items) {
    sluice__strbuf b = {0};
    if (items.type == JINJA_UNDEFINED && !items.text) return sluice__jinja_fail(run, "join: nothing to join");
    const jinja_list *list = sluice__jinja_items(run, items);
    for (size_t i = 0; list && i < list->count && run->st == SLUICE_OK; i++) {
        if (list->items[i].type != JINJA_STRING) {
            sluice__jinja_fail(run, "sequence item %zu: expected str instance, %s found", i,
                               sluice__jinja_type_name(list->items[i]));
            break;
        }
        if (i) sluice__jinja_write(run, &b, s);
        sluice__jinja_write(run, &b, list->items[i]);
    }
    return sluice__jinja_take_text(run, &b);
}

static value zfill(jinja_run *run, value s, int64_t width) {
    value zero = sluice__jinja_text("0", 1);
    bool sign = s.size && (s.text[0] == '-' || s.text[0] == '+');
    if (!sign) return sluice__jinja_justify(run, s, width, zero, 'r');
    value rest = sluice__jinja_justify(run, part(s.text + 1, s.text + s.size), width - 1, zero, 'r');
    sluice__strbuf b = {0};
    sluice__strbuf_add(&b, s.text, 1);
    if (run->st == SLUICE_OK) sluice__strbuf_add(&b, rest.text, rest.size);
    return sluice__jinja_take_text(run, &b);
}

static value justify(jinja_run *run, value s, const value *a, char side) {
    int64_t width = sluice__jinja_int_argument(run, a[0], 0, "width");
    value fill =
        sluice__jinja_given(a[1]) ? sluice__jinja_text_argument(run, a[1], "fillchar") : sluice__jinja_text(" ", 1);
    if (run->st != SLUICE_OK) return fill;
    if (sluice__jinja_length(fill) != 1)
        return sluice__jinja_fail(run, "the fill character must be one character long");
    return sluice__jinja_justify(run, s, width, fill, side);
}

enum {
    SPLIT,
    RSPLIT,
    STRIP,
    LSTRIP,
    RSTRIP,
    STARTS,
    ENDS,
    REPLACE,
    FIND,
    RFIND,
    INDEX,
    RINDEX,
    COUNT,
    UPPER,
    LOWER,
    TITLE,
    CAPITALIZE,
    SWAPCASE,
    JOIN,
    SPLITLINES,
    PARTITION,
    RPARTITION,
    REMOVEPREFIX,
    REMOVESUFFIX,
    ZFILL,
    CENTER,
    LJUST,
    RJUST,
    FORMAT,
    REFUSED
};

static const struct {
    const char *name, *signature;
    int required, what;
} methods[] = {
    {"split", "sep maxsplit", 0, SPLIT},
    {"rsplit", "sep maxsplit", 0, RSPLIT},
    {"strip", "chars", 0, STRIP},
    {"lstrip", "chars", 0, LSTRIP},
    {"rstrip", "chars", 0, RSTRIP},
    {"startswith", "prefix start end", 1, STARTS},
    {"endswith", "suffix start end", 1, ENDS},
    {"replace", "old new count", 2, REPLACE},
    {"find", "sub start end", 1, FIND},
    {"rfind", "sub start end", 1, RFIND},
    {"index", "sub start end", 1, INDEX},
    {"rindex", "sub start end", 1, RINDEX},
    {"count", "sub start end", 1, COUNT},
    {"upper", "", 0, UPPER},
    {"lower", "", 0, LOWER},
    {"title", "", 0, TITLE},
    {"capitalize", "", 0, CAPITALIZE},
    {"swapcase", "", 0, SWAPCASE},
    {"join", "iterable", 1, JOIN},
    {"splitlines", "keepends", 0, SPLITLINES},
    {"partition", "sep", 1, PARTITION},
    {"rpartition", "sep", 1, RPARTITION},
    {"removeprefix", "prefix", 1, REMOVEPREFIX},
    {"removesuffix", "suffix", 1, REMOVESUFFIX},
    {"zfill", "width", 1, ZFILL},
    {"center", "width fillchar", 1, CENTER},
    {"ljust", "width fillchar", 1, LJUST},
    {"rjust", "width fillchar", 1, RJUST},
    {"format", NULL, 0, FORMAT},
    {"casefold", NULL, 0, REFUSED},
    {"encode", NULL, 0, REFUSED},
    {"expandtabs", NULL, 0, REFUSED},
    {"format_map", NULL, 0, REFUSED},
    {"isidentifier", NULL, 0, REFUSED},
    {"maketrans", NULL, 0, REFUSED},
    {"translate", NULL, 0, REFUSED},
};
enum { METHODS = sizeof methods / sizeof *methods };

bool sluice__jinja_has_text_method(const char *name) {
    bool known;
    for (int i = 0; i < METHODS; i++)
        if (!strcmp(methods[i].name, name)) return true;
    sluice__jinja_character_test(sluice__jinja_text("", 0), name, &known);
    return known;
}

static value text_method(jinja_run *run, value s, const char *name, int what, const value *a,
                         const jinja_arguments *args) {
    value to;
    switch (what) {
    case SPLIT:
    case RSPLIT: return split(run, s, a, what == RSPLIT);
    case STRIP:
    case LSTRIP:
    case RSTRIP:
        to = sluice__jinja_given(a[0]) && a[0].type != JINJA_NONE ? sluice__jinja_text_argument(run, a[0], "chars")
                                                                  : sluice__jinja_none();
        return sluice__jinja_strip(run, s, to, what != RSTRIP, what != LSTRIP);
    case STARTS:
    case ENDS: return ends_method(run, s, a, what == ENDS);
    case REPLACE: {
        value from = sluice__jinja_text_argument(run, a[0], "old");
        to = sluice__jinja_text_argument(run, a[1], "new");
        int64_t most = sluice__jinja_int_argument(run, a[2], -1, "count");
        return run->st == SLUICE_OK ? sluice__jinja_replace(run, s, from, to, most) : s;
    }
    case FIND:
    case RFIND: return find_method(run, s, a, what == RFIND, false);
    case INDEX:
    case RINDEX: return find_method(run, s, a, what == RINDEX, true);
    case COUNT: return count_method(run, s, a);
    case UPPER: return sluice__jinja_recase(run, s, JINJA_UPPER);
    case LOWER: return sluice__jinja_recase(run, s, JINJA_LOWER);
    case TITLE: return sluice__jinja_recase(run, s, JINJA_TITLE);
    case CAPITALIZE: return sluice__jinja_recase(run, s, JINJA_CAPITALIZE);
    case SWAPCASE: return sluice__jinja_recase(run, s, JINJA_SWAPCASE);
    case JOIN: return join_method(run, s, a[0]);
    case SPLITLINES: return sluice__jinja_splitlines(run, s, sluice__jinja_given(a[0]) && sluice__jinja_truth(a[0]));
    case PARTITION:
    case RPARTITION: return partition(run, s, a[0], what == RPARTITION);
    case REMOVEPREFIX:
    case REMOVESUFFIX: return remove_end(run, s, a[0], what == REMOVESUFFIX);
    case ZFILL: return zfill(run, s, sluice__jinja_int_argument(run, a[0], 0, "width"));
    case CENTER: return justify(run, s, a, 'c');
    case LJUST: return justify(run, s, a, 'l');
    case RJUST: return justify(run, s, a, 'r');
    case FORMAT: return sluice__jinja_braces(run, s, args);
    default: return sluice__jinja_unsupported(run, "the string method \"%s\"", name);
    }
}

static value call_text(jinja_run *run, value s, const char *name, const jinja_arguments *args) {
    value a[JINJA_MAX_ARGUMENTS] = {0};
    bool known;
    for (int i = 0; i < METHODS; i++) {
        if (strcmp(methods[i].name, name)) continue;
        if (methods[i].signature && !sluice__jinja_bind(run, name, args, methods[i].signature, methods[i].required, a))
            return sluice__jinja_undefined("");
        return text_method(run, s, name, methods[i].what, a, args);
    }
    bool found = sluice__jinja_character_test(s, name, &known);
    return sluice__jinja_bind(run, name, args, "", 0, a) ? sluice__jinja_bool(found) : sluice__jinja_undefined("");
}

static value call_dict(jinja_run *run, value d, const char *name, const jinja_arguments *args) {
    value a[JINJA_MAX_ARGUMENTS] = {0};
    if (!strcmp(name, "get")) {
        if (!sluice__jinja_bind(run, name, args, "key default", 1, a)) return sluice__jinja_undefined("");
        if (!sluice__jinja_hashable(a[0]))
            return sluice__jinja_fail(run, "unhashable type: '%s'", sluice__jinja_type_name(a[0]));
        const value *found = sluice__jinja_find(run, d.dict, a[0]);
        return found ? *found : sluice__jinja_given(a[1]) ? a[1] : sluice__jinja_none();
    }
    if (!sluice__jinja_bind(run, name, args, "", 0, a)) return sluice__jinja_undefined("");
    if (!strcmp(name, "copy")) return d;
    char kind = name[0];
    value out = sluice__jinja_list(run,
                                   kind == 'k'   ? JINJA_KIND_KEYS
                                   : kind == 'v' ? JINJA_KIND_VALUES
                                                 : JINJA_KIND_ITEMS,
                                   0);
    for (size_t i = 0; i < d.dict->count && run->st == SLUICE_OK; i++) {
        const jinja_pair *p = &d.dict->pairs[i];
        sluice__jinja_push(run, out.list,
                           kind == 'k'   ? p->key
                           : kind == 'v' ? p->value
                                         : sluice__jinja_pair_of(run, p->key, p->value));
    }
    return out;
}

static value call_list(jinja_run *run, value l, const char *name, const jinja_arguments *args) {
    value a[JINJA_MAX_ARGUMENTS] = {0};
    bool copy = !strcmp(name, "copy"), index = !strcmp(name, "index");
    if (!sluice__jinja_bind(run, name, args, copy ? "" : "value", copy ? 0 : 1, a)) return sluice__jinja_undefined("");
    if (copy) return l;
    int64_t n = 0;
    for (size_t i = 0; i < l.list->count && run->st == SLUICE_OK; i++) {
        if (!sluice__jinja_equal(run, l.list->items[i], a[0])) continue;
        if (index) return sluice__jinja_int((int64_t)i);
        n++;
    }
    return index ? sluice__jinja_fail(run, "index: the value is not in the list") : sluice__jinja_int(n);
}

static value call_loop(jinja_run *run, value v, const char *name, const jinja_arguments *args) {
    jinja_loop *loop = v.loop;
    if (!strcmp(name, "cycle"))
        return args->count ? args->plain[loop->at % args->count]
                           : sluice__jinja_fail(run, "no items for cycling given");
    value now = sluice__jinja_list(run, JINJA_KIND_TUPLE, args->count);
    for (size_t i = 0; i < args->count && run->st == SLUICE_OK; i++) sluice__jinja_push(run, now.list, args->plain[i]);
    if (run->st != SLUICE_OK) return now;
    bool changed = !loop->has_last || !sluice__jinja_equal(run, loop->last, now);
    loop->has_last = true;
    loop->last = now;
    return sluice__jinja_bool(changed);
}

value sluice__jinja_call_method(jinja_run *run, const jinja_method *m, const jinja_arguments *args) {
    switch (m->receiver.type) {
    case JINJA_STRING: return call_text(run, m->receiver, m->name, args);
    case JINJA_DICT: return call_dict(run, m->receiver, m->name, args);
    case JINJA_LIST: return call_list(run, m->receiver, m->name, args);
    default: return call_loop(run, m->receiver, m->name, args);
    }
}
