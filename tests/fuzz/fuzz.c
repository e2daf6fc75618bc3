/* SPDX-License-Identifier: Apache-2.0 */
/* The entry of libFuzzer; FUZZ_TARGET names one of targets.c.
 *
 *   cmake --preset fuzz && cmake --build --preset fuzz
 *   build/fuzz/tests/fuzz_gguf -max_total_time=600 corpus/ tests/data/fuzz/gguf */
#include "fuzz/targets.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (const fuzz_target *t = fuzz_targets; t->name; t++)
        if (!strcmp(t->name, FUZZ_TARGET)) t->run(data, size);
    return 0;
}
