/* SPDX-License-Identifier: Apache-2.0 */
/* What all test programs share. Include it instead of cmocka.h. */
#ifndef SLUICE_TEST_SUPPORT_H
#define SLUICE_TEST_SUPPORT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "sluice/status.h"

enum { TEST_SKIPPED = 77 }; /* ctest's skip code: `return TEST_SKIPPED` from main when an outside reference is absent */

/* Fails the test unless the status is OK. */
#define assert_ok(expr) test_check_ok((expr), NULL, #expr, __FILE__, __LINE__)
/* The same with the sluice_error that the expression fills. */
#define assert_ok_err(expr, err) test_check_ok((expr), (err), #expr, __FILE__, __LINE__)
void test_check_ok(sluice_status st, const sluice_error *err, const char *expr, const char *file, int line);

/* Path below the shared references ("reference/train/..."), or NULL when it is not there. Static buffer, 8 at a time. */
const char *test_shared(const char *relative);
/* Path of a file in tests/data. */
const char *test_data(const char *relative);
/* A fresh empty directory below the temporary directory, removed at exit. Static buffer, 8 at a time. */
const char *test_temp_dir(void);
/* A file of 60,000 characters, made of eight words in random order, always the same. */
void test_write_book(const char *path);
/* Runs a shell command; exit code (or 128 + signal) is returned, stdout and stderr together in *output (free()). */
int test_run(const char *command, char **output);
#endif
