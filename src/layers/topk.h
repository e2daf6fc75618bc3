/* SPDX-License-Identifier: Apache-2.0 */
/* The largest few of a short list: routers of experts and of switch heads. */
#ifndef SLUICE_LAYERS_TOPK_H
#define SLUICE_LAYERS_TOPK_H
#include <stdint.h>

/* choice [k] = indices of the k largest of score [n], largest first, equal ones by index; k <= n. NaN counts as
 * smallest, so that every index is valid and occurs once whatever the scores are. */
static inline void sluice__topk(int32_t *choice, const float *score, int n, int k) {
    int held = 0;
    for (int i = 0; i < n; i++) {
        int at = held;
        while (at > 0 && (score[i] > score[choice[at - 1]] ||
                          (score[choice[at - 1]] != score[choice[at - 1]] && score[i] == score[i])))
            at--;
        if (at >= k) continue;
        if (held < k) held++;
        for (int j = held - 1; j > at; j--) choice[j] = choice[j - 1];
        choice[at] = i;
    }
}
#endif
