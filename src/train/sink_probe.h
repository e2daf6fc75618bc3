/* SPDX-License-Identifier: Apache-2.0 */
/* What is looked at while training, on a fixed batch: attention on the first token, the largest value of the residual and
 * of what attention and MLP add to it, the mean gate. */
#ifndef SLUICE_TRAIN_SINK_PROBE_H
#define SLUICE_TRAIN_SINK_PROBE_H
#include "layers/transformer.h"
#include "sluice/train.h"

typedef struct sluice__sink_probe {
    int num_layers;
    double *first_token_share, *from_quarter, *max_abs, *max_attn, *max_ffn, *gate_mean; /* [num_layers] results */
    double *gate_count;                                             /* [num_layers] gate scores seen */
    int64_t windows;                                                /* seen */
} sluice__sink_probe;

sluice_status sluice__sink_probe_new(sluice__sink_probe **out, int num_layers, sluice_error *err);
void sluice__sink_probe_free(sluice__sink_probe *p);
void sluice__sink_probe_reset(sluice__sink_probe *p);
/* The probe for passes whose statistics are added up. */
sluice__probe sluice__sink_probe_listener(sluice__sink_probe *p);
/* Turns sums into means; the record points into *p. */
sluice_probe_record sluice__sink_probe_record(sluice__sink_probe *p, int64_t step);
#endif
