/* SPDX-License-Identifier: Apache-2.0 */
/* The page of an inspect.json. All drawing happens in the browser; here the shape of the data is
 * checked as far as the page relies on it without looking. */
#include "base/json.h"
#include "base/page.h"
#include "sluice/inspect_report.h"

/* In the order of need: what draws, then the sections of the page, then the start. */
static const char *const SCRIPTS[] = {
    "report/draw/dom.js",          "report/draw/get.js",
    "report/draw/format.js",       "report/draw/theme.js",
    "report/draw/svg.js",          "report/draw/figure.js",
    "report/draw/plot.js",         "report/draw/dots.js",
    "report/draw/heat.js",         "report/draw/tokenmap.js",
    "report/draw/table.js",        "report/draw/page.js",
    "report/inspect/data.js",      "report/inspect/head.js",
    "report/inspect/attention.js", "report/inspect/activations.js",
    "report/inspect/gates.js",     "report/inspect/rounding.js",
    "report/inspect/steps.js",     "report/inspect/definitions.js",
    "report/inspect/main.js",      NULL,
};
static const char *const STYLES[] = {"report/style.css", NULL};

static sluice_status check(const sluice__json *root, sluice_error *err) {
    static const char *const formats[] = {"sluice-inspect-1", NULL};
    int format;
    SLUICE__TRY(sluice__json_choice(root, "format", true, formats, &format, err));
    sluice__json models = sluice__json_get(root, "models");
    if (!json_is_array(models.value) || !json_array_size(models.value))
        return sluice__json_fail(root, "models", err, "expected an array with at least one model");
    for (size_t i = 0; i < json_array_size(models.value); i++) {
        sluice__json model = sluice__json_at(&models, i), inspect;
        const char *name;
        SLUICE__TRY(sluice__json_string(&model, "name", true, &name, err));
        inspect = sluice__json_get(&model, "inspect");
        if (!inspect.value && sluice__json_has(&model, "error")) continue;
        if (!json_is_object(inspect.value) ||
            !json_is_array(json_object_get(inspect.value, "layers")))
            return sluice__json_fail(&model, "inspect", err, "expected an object with layers");
    }
    return SLUICE_OK;
}

sluice_status sluice_inspect_page(const char *json, size_t size, const char *html_path,
                                  sluice_error *err) {
    json_t *root;
    SLUICE__TRY(sluice__json_parse(&root, json, size, "inspect.json", err));
    sluice__json view = sluice__json_view(root, "inspect.json");
    sluice__page page = {.template_name = "report/page.html",
                         .title = "Sluice inspect",
                         .styles = STYLES,
                         .scripts = SCRIPTS,
                         .data = root};
    sluice_status st = check(&view, err);
    if (st == SLUICE_OK) st = sluice__page_write(&page, html_path, err);
    json_decref(root);
    return st;
}
