/* SPDX-License-Identifier: Apache-2.0 */
/* Searching with the pattern of a Split or Replace: a literal string or a regular expression. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"

static sluice_status search(const sluice__matches *m, bool *found, size_t *start, size_t *end, sluice_error *err) {
    const sluice__pattern *p = m->pattern;
    if (!p->literal)
        return sluice__regex_search(&p->regex, m->matcher, m->text.data, m->text.size, m->from, found, start, end, err);
    const char *from = m->text.data + m->from;
    const char *hit = p->literal_size ? memmem(from, m->text.size - m->from, p->literal, p->literal_size) : from;
    *found = hit != NULL;
    if (hit) {
        *start = (size_t)(hit - m->text.data);
        *end = *start + p->literal_size;
    }
    return SLUICE_OK;
}

sluice_status sluice__match_next(sluice__matches *m, bool *found, size_t *start, size_t *end, sluice_error *err) {
    for (*found = false; m->from <= m->text.size;) {
        SLUICE__TRY(search(m, found, start, end, err));
        if (!*found) break;
        m->from = *end;
        if (*end > *start || m->last != *end) {
            m->last = *end;
            return SLUICE_OK;
        }
        *found = false;
        int n = 1;
        if (*end < m->text.size) sluice__utf8_get((const unsigned char *)m->text.data + *end, &n);
        m->from += (size_t)n;
    }
    return SLUICE_OK;
}

void sluice__pattern_free(sluice__pattern *p) {
    sluice__regex_free(&p->regex);
    sluice__free(p->literal);
    *p = (sluice__pattern){0};
}
