/* SPDX-License-Identifier: Apache-2.0 */
/* One function for every reader of files that come from outside. Each must return, whatever the bytes, having read nothing
 * outside of them and kept no memory. */
#ifndef SLUICE_FUZZ_TARGETS_H
#define SLUICE_FUZZ_TARGETS_H
#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_target {
    const char *name;
    void (*run)(const uint8_t *data, size_t size);
} fuzz_target;
extern const fuzz_target fuzz_targets[]; /* ends with name NULL */
#endif
