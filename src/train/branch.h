/* SPDX-License-Identifier: Apache-2.0 */
/* A decay branch: a run in its stable phase goes on in another directory and decays at once. */
#ifndef SLUICE_TRAIN_BRANCH_H
#define SLUICE_TRAIN_BRANCH_H
#include "sluice/train.h"

/* Turns p with decay_from into the options of that branch: resumed from the checkpoint, with the course of the learning
 * rate that a run planned so from the start would have. Leaves p alone without decay_from, and when the branch has a
 * checkpoint of its own to go on from. */
sluice_status sluice__branch(sluice_train_params *p, sluice_error *err);
#endif
