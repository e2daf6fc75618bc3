/* SPDX-License-Identifier: Apache-2.0 */
/* How long threads that wait for each other spin. GNU OpenMP lets them spin for milliseconds, which is best on an
 * idle machine by a little, and a disaster beside any other program: the thread that they wait for is not running,
 * because they are (training a small model on two busy cores: 170-410 tokens/s; with a short spin 630-1060). The
 * limit can be set by an environment variable only, which the OpenMP library reads before main starts; so the
 * program starts itself once more. */
#include "cli/cli.h"
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* Iterations; about 40 microseconds, longer than a healthy team is apart and far below a time slice. */
#define SPIN_COUNT "3000"

void cli_limit_spinning(const char **argv) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return; /* the user's choice, or the second start */
    if (setenv("GOMP_SPINCOUNT", SPIN_COUNT, 1) != 0) return;
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv); /* comes back only when it fails: then go on as we are */
}
