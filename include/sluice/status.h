/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes and error text. Every function that can fail returns a sluice_status and takes a sluice_error * (may be
 * NULL) that receives one readable line: file, field or tensor, what was found, what was expected, a hint. On success
 * the error is left as it was. Nothing in the library prints or exits. */
#ifndef SLUICE_STATUS_H
#define SLUICE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* name, text */
#define SLUICE_STATUS_LIST(X)                                                                      \
    X(OK, "success")                                                                               \
    X(ERR_ARGUMENT, "invalid argument")                                                            \
    X(ERR_IO, "input/output error")                                                                \
    X(ERR_FORMAT, "malformed file")                                                                \
    X(ERR_CONFIG, "invalid configuration")                                                         \
    X(ERR_MEMORY, "out of memory")                                                                 \
    X(ERR_UNSUPPORTED, "not supported")                                                            \
    X(ERR_NUMERIC, "not a finite number")                                                          \
    X(ERR_MISMATCH, "result differs from the reference")                                           \
    X(INTERRUPTED, "interrupted")

typedef enum sluice_status {
#define SLUICE_X(name, text) SLUICE_##name,
    SLUICE_STATUS_LIST(SLUICE_X)
#undef SLUICE_X
} sluice_status;

typedef struct sluice_error {
    sluice_status code;
    char message[1024]; /* NUL-terminated, cut when longer */
} sluice_error;

/* Static text of a code; never NULL. */
const char *sluice_status_text(sluice_status code);

#ifdef __cplusplus
}
#endif
#endif
