/* SPDX-License-Identifier: Apache-2.0 */
/* One self-contained HTML page out of embedded assets and JSON. The template (an asset) holds marks
 * that are replaced:
 * {{title}}, {{styles}}, {{library}} (Chart.js), {{scripts}}, {{data}}. The page asks for nothing:
 * no font, script or picture comes from elsewhere. */
#ifndef SLUICE_BASE_PAGE_H
#define SLUICE_BASE_PAGE_H
#include <jansson.h>
#include "base/error.h"

typedef struct sluice__page {
    const char *template_name;  /* asset name of the HTML with the marks */
    const char *title;          /* plain text; escaped here */
    const char *const *styles;  /* asset names in order, ends with NULL */
    const char *const *scripts; /* the same; all of them together form one scope */
    const json_t *data; /* what the scripts draw, as <script type="application/json"> content */
} sluice__page;

/* Writes atomically. A name that is not an asset is SLUICE_ERR_ARGUMENT, as is a mark that the
 * template should not have. */
sluice_status sluice__page_write(const sluice__page *page, const char *path, sluice_error *err);
#endif
