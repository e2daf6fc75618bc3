/* SPDX-License-Identifier: Apache-2.0 */
/* Reference cases through sluice_verify. */
#ifndef SLUICE_TEST_REFERENCE_H
#define SLUICE_TEST_REFERENCE_H
#include "sluice/verify.h"

/* Directory of a case, e.g. "models/llama": from the shared references, else the copy in tests/data, else NULL. */
const char *test_reference(const char *name);
/* Verifies a case; the test fails with every line of the report that failed, or when fewer than `least` lines were
 * compared (so that nothing is left out silently). */
void test_verify_case(const char *name, sluice_verify_kind kind, int least);
#endif
