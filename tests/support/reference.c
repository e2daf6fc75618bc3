/* SPDX-License-Identifier: Apache-2.0 */
#include "support/reference.h"
#include "support/test_support.h"
#include "base/file.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *test_reference(const char *name) {
    char relative[256];
    snprintf(relative, sizeof relative, "reference/%s", name);
    const char *dir = test_shared(relative);
    if (dir) return dir;
    dir = test_data(name);
    return access(dir, R_OK) == 0 ? dir : NULL;
}

void test_verify_case(const char *name, sluice_verify_kind kind, int least) {
    const char *dir = test_reference(name);
    if (!dir) fail_msg("%s: not there", name);
    sluice_verify_report report;
    sluice_error err = {0};
    sluice_status st = sluice_verify(&report, dir, NULL, &err);
    for (int i = 0; i < report.num_items; i++) {
        const sluice_verify_item *item = &report.items[i];
        if (!item->passed)
            print_error("%s: %s: error %.2e, limit %.0e %s\n", name, item->name, item->error, item->limit,
                        item->note);
    }
    int compared = report.num_items;
    sluice_verify_kind found = report.kind;
    sluice_verify_report_free(&report);
    if (st != SLUICE_OK) fail_msg("%s: %s", name, err.message);
    assert_int_equal(found, kind);
    if (compared < least) fail_msg("%s: %d comparisons, expected at least %d", name, compared, least);
}

int test_each_model(void (*visit)(void *user, const char *name, const sluice_model *model), void *user) {
    const char *root = test_shared("reference/models");
    if (!root) skip();
    char models[1024];
    snprintf(models, sizeof models, "%s", root);
    DIR *d = opendir(models);
    assert_non_null(d);
    int seen = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[2048];
        sluice_model *model;
        sluice_error err = {0};
        snprintf(path, sizeof path, "%s/%s", models, e->d_name);
        if (e->d_name[0] == '.' || !strcmp(e->d_name, "make") || !sluice__is_dir(path)) continue;
        sluice_status st = sluice_model_load(&model, path, NULL, &err);
        if (st == SLUICE_ERR_UNSUPPORTED) continue;
        assert_ok_err(st, &err);
        visit(user, e->d_name, model);
        sluice_model_free(model);
        seen++;
    }
    closedir(d);
    return seen;
}
