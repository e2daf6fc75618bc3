/* SPDX-License-Identifier: Apache-2.0 */
/* Models of equal size: an MLP whose width makes the number of parameters come nearest to a target. Candidates are made and
 * counted, so that whatever a model has is counted as it will be trained. */
#ifndef SLUICE_TRAIN_MATCH_H
#define SLUICE_TRAIN_MATCH_H
#include "sluice/train.h"

/* The parameters of the model with this width of its MLP. */
typedef sluice_status (*sluice__count_fn)(void *user, int64_t width, int64_t *parameters, sluice_error *err);
/* The multiple of `multiple` (at least one) that comes nearest to target; counts are linear in the width, which `what` names in
 * messages. */
sluice_status sluice__solve_width(int64_t *width, int64_t multiple, int64_t target, const char *what, sluice__count_fn count,
                                  void *user, sluice_error *err);

/* match_parameters of training: sets the width of the MLP (or of the experts) in *model_options such that the model with its gate
 * has as many parameters as it would have without, and logs what was reached. Where p continues the run in its output_dir and the
 * width is the one of that run, it is the result of matching already and stays. */
sluice_status sluice__match_parameters(char **model_options, const sluice_train_params *p, int vocab_size, sluice_error *err);
#endif
