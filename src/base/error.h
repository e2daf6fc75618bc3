/* SPDX-License-Identifier: Apache-2.0 */
/* Setting errors and passing them on. */
#ifndef SLUICE_BASE_ERROR_H
#define SLUICE_BASE_ERROR_H
#include "sluice/status.h"

#define SLUICE__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Writes code and text into err (may be NULL) and returns code, so that callers can `return sluice__fail(...)`. */
sluice_status sluice__fail(sluice_error *err, sluice_status code, const char *fmt, ...)
    SLUICE__PRINTF(3, 4);

/* Puts "prefix: " in front of the text of err; keeps and returns its code. For adding a file name on the way up. */
sluice_status sluice__fail_in(sluice_error *err, sluice_status code, const char *prefix_fmt, ...)
    SLUICE__PRINTF(3, 4);

/* Leaves the function with the status of an expression that is not OK. */
#define SLUICE__TRY(expr)                                                                          \
    do {                                                                                           \
        sluice_status sluice_try_status = (expr);                                                  \
        if (sluice_try_status != SLUICE_OK) return sluice_try_status;                              \
    } while (0)

/* The same with a clean-up label; needs a local `sluice_status st`. */
#define SLUICE__TRY_GOTO(expr, label)                                                              \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (st != SLUICE_OK) goto label;                                                           \
    } while (0)
#endif
