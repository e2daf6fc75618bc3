/* SPDX-License-Identifier: Apache-2.0 */
/* Reference cases through sluice_verify. */
#ifndef SLUICE_TEST_REFERENCE_H
#define SLUICE_TEST_REFERENCE_H
#include "sluice/model.h"
#include "sluice/verify.h"

/* Directory of a case, e.g. "models/llama": from the shared references, else the copy in tests/data, else NULL. */
const char *test_reference(const char *name);
/* Verifies a case; the test fails with every line of the report that failed, or when fewer than `least` lines were
 * compared (so that nothing is left out silently). */
void test_verify_case(const char *name, sluice_verify_kind kind, int least);
/* Every directory of a folder of the shared references but "make". Skips the test when there is none. */
void test_each_case(const char *folder, void (*visit)(void *user, const char *name, const char *dir), void *user);
/* Every model of the shared references that is supported, loaded as fp32; their number. Skips the test when there are none. */
int test_each_model(void (*visit)(void *user, const char *name, const sluice_model *model), void *user);
#endif
