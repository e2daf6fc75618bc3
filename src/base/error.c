/* SPDX-License-Identifier: Apache-2.0 */
/* Error text: one fixed buffer inside sluice_error, so that reporting a failure never allocates. */
#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *sluice_status_text(sluice_status code) {
    static const char *const text[] = {
#define SLUICE_X(name, words) words,
        SLUICE_STATUS_LIST(SLUICE_X)
#undef SLUICE_X
    };
    return (size_t)code < sizeof text / sizeof *text ? text[code] : "unknown status";
}

sluice_status sluice__fail(sluice_error *err, sluice_status code, const char *fmt, ...) {
    if (!err) return code;
    va_list ap;
    va_start(ap, fmt);
    err->code = code;
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return code;
}

sluice_status sluice__fail_in(sluice_error *err, sluice_status code, const char *prefix_fmt, ...) {
    if (!err) return code;
    char prefix[512], rest[sizeof err->message];
    va_list ap;
    va_start(ap, prefix_fmt);
    vsnprintf(prefix, sizeof prefix, prefix_fmt, ap);
    va_end(ap);
    memcpy(rest, err->message, sizeof rest);
    err->code = code;
    snprintf(err->message, sizeof err->message, "%s: %.*s", prefix, (int)(sizeof rest - sizeof prefix), rest);
    return code;
}
