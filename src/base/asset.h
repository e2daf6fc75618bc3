/* SPDX-License-Identifier: Apache-2.0 */
/* Files of assets/ (and chart.min.js) that the build puts into the library. */
#ifndef SLUICE_BASE_ASSET_H
#define SLUICE_BASE_ASSET_H
#include <stddef.h>

typedef struct sluice__asset_entry {
    const char *name; /* path below assets/ */
    const unsigned char *data; /* size bytes and a NUL behind them */
    size_t size;
} sluice__asset_entry;

extern const sluice__asset_entry sluice__assets[]; /* ends with name NULL */

/* NULL when there is no such file. */
const sluice__asset_entry *sluice__asset(const char *name);
#endif
