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

void test_each_case(const char *folder, void (*visit)(void *user, const char *name, const char *dir), void *user) {
    const char *path = test_shared(folder);
    if (!path) skip();
    char root[1024];
    snprintf(root, sizeof root, "%s", path);
    DIR *d = opendir(root);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char dir[2048];
        snprintf(dir, sizeof dir, "%s/%s", root, e->d_name);
        if (e->d_name[0] != '.' && strcmp(e->d_name, "make") && sluice__is_dir(dir)) visit(user, e->d_name, dir);
    }
    closedir(d);
}

typedef struct each_model {
    void (*visit)(void *user, const char *name, const sluice_model *model);
    void *user;
    int seen;
} each_model;

static void load_and_visit(void *user, const char *name, const char *dir) {
    each_model *e = user;
    sluice_model *model;
    sluice_error err = {0};
    sluice_status st = sluice_model_load(&model, dir, NULL, &err);
    if (st == SLUICE_ERR_UNSUPPORTED) return;
    assert_ok_err(st, &err);
    e->visit(e->user, name, model);
    sluice_model_free(model);
    e->seen++;
}

int test_each_model(void (*visit)(void *user, const char *name, const sluice_model *model), void *user) {
    each_model e = {visit, user, 0};
    test_each_case("reference/models", load_and_visit, &e);
    return e.seen;
}
