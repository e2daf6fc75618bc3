/* SPDX-License-Identifier: Apache-2.0 */
/* Gated attention alone, through the public header: one sequence, two heads, a gate per head. Prints the share of attention
 * that each query gives to the first token, and what the gate lets through.
 *
 *     cc examples/attention.c $(pkg-config --cflags --libs sluice) -o attention && ./attention */
#include "sluice/attention.h"
#include <math.h>
#include <stdio.h>

enum { T = 6, H = 2, D = 4 };

int main(void) {
    float q[T][H][D], k[T][H][D], v[T][H][D], gate[T][H], y[T][H][D], o[T][H][D], share[H][T];
    for (int t = 0; t < T; t++)
        for (int h = 0; h < H; h++) {
            gate[t][h] = h == 0 ? -4.0f : 2.0f; /* logits: the first head has little to say */
            for (int d = 0; d < D; d++) {
                q[t][h][d] = sinf((float)(t + 3 * d + h));
                k[t][h][d] = cosf((float)(2 * t + d - h));
                v[t][h][d] = (float)(t == d);
            }
        }
    sluice_attention_params p = {.batch = 1, .q_len = T, .kv_len = T, .num_heads = H, .num_kv_heads = H, .head_dim = D,
                                 .scale = 0.5f, .gated = 1, .gate_granularity = SLUICE_GATE_HEADWISE,
                                 .gate_act = SLUICE_GATE_SIGMOID, .gate_op = SLUICE_GATE_MULTIPLY};
    sluice_error err = {0};
    sluice_status st = sluice_attention_forward(
        &p, (sluice_strided){&q[0][0][0], 0, 0, 0}, (sluice_strided){&k[0][0][0], 0, 0, 0},
        (sluice_strided){&v[0][0][0], 0, 0, 0}, (sluice_strided){&gate[0][0], 0, 0, 0},
        (sluice_strided){&y[0][0][0], 0, 0, 0}, (sluice_strided){&o[0][0][0], 0, 0, 0}, NULL, &share[0][0], &err);
    if (st != SLUICE_OK) {
        fprintf(stderr, "attention: %s\n", err.message);
        return 1;
    }
    printf("query  head  share of token 0  |output|  |gated output|\n");
    for (int t = 0; t < T; t++)
        for (int h = 0; h < H; h++) {
            double before = 0, after = 0;
            for (int d = 0; d < D; d++) before += o[t][h][d] * o[t][h][d], after += y[t][h][d] * y[t][h][d];
            printf("%5d %5d %17.3f %9.3f %15.3f\n", t, h, (double)share[h][t], sqrt(before), sqrt(after));
        }
    return 0;
}
