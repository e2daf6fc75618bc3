/* SPDX-License-Identifier: Apache-2.0 */
/* One function for every reader of files that come from outside. Each must return, whatever the bytes, having read nothing
 * outside of them and kept no memory. */
#ifndef SLUICE_FUZZ_TARGETS_H
#define SLUICE_FUZZ_TARGETS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_target {
    const char *name;
    void (*run)(const uint8_t *data, size_t size);
} fuzz_target;
extern const fuzz_target fuzz_targets[]; /* ends with name NULL */

/* A file of these bytes in memory; its path is written to out. The descriptor, which the caller closes, or -1. */
int fuzz_file(char out[64], const uint8_t *data, size_t size);
/* The path of a file in a directory in memory that lives as long as the program. Static buffer, 4 at a time. */
const char *fuzz_path(const char *name);
/* Writes one there. */
bool fuzz_put(const char *name, const void *data, size_t size);

/* Readers of text and JSON (targets_text.c), and of what the program itself writes (targets_state.c). */
void fuzz_template(const uint8_t *data, size_t size);
void fuzz_text(const uint8_t *data, size_t size);
void fuzz_settings(const uint8_t *data, size_t size);
void fuzz_session(const uint8_t *data, size_t size);
void fuzz_shard(const uint8_t *data, size_t size);
void fuzz_checkpoint(const uint8_t *data, size_t size);
#endif
