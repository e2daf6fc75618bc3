/* SPDX-License-Identifier: Apache-2.0 */
/* Look-up of embedded files. */
#include "base/asset.h"
#include <string.h>

const sluice__asset_entry *sluice__asset(const char *name) {
    for (const sluice__asset_entry *a = sluice__assets; a->name; a++)
        if (strcmp(a->name, name) == 0) return a;
    return NULL;
}
