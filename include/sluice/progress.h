/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long-running work on standard error. */
#ifndef SLUICE_PROGRESS_H
#define SLUICE_PROGRESS_H
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Off by default. Lines are redrawn in place on a terminal and printed plainly, every ten seconds, elsewhere. */
void sluice_progress_enable(bool on);

#ifdef __cplusplus
}
#endif
#endif
