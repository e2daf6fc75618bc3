/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the tables in Qiu et al. 2025 (arXiv 2505.06708), each as a change of a baseline configuration, for counts of
 * parameters, work and memory before anything is trained. */
#ifndef SLUICE_VARIANTS_H
#define SLUICE_VARIANTS_H
#include "sluice/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_variant {
    const char *name;  /* "g1-elementwise", as in the recipe paper-gates */
    const char *label; /* for people */
    const char *row;   /* "Table 1, row 5" */
    double paper_millions; /* parameters that the paper adds to its 15A2B model, in millions; NaN = not printed */
    const char *note; /* where the paper's count contradicts its text or itself, and the reading taken here; or NULL */
} sluice_variant;
int sluice_num_variants(void);
sluice_variant sluice_variant_at(int index); /* 0 is the baseline itself */

/* The base without its gate, norm or SiLU of the attention output and switch heads, changed into the variant. A variant that
 * means nothing for this base (more experts in a dense model) is SLUICE_ERR_UNSUPPORTED with the reason. *out is freed with
 * sluice_config_free. */
sluice_status sluice_variant_config(sluice_config *out, const sluice_config *base, int index, sluice_error *err);

/* MLP width (of one expert in a mixture) that brings `config` nearest to so many parameters; 0 = no width is small
 * enough. The same in every layer. */
int sluice_config_equal_width(const sluice_config *config, int64_t parameters, sluice_error *err);
/* Whether the shape is that of the paper's 15A2B model (its Table 7), whose added parameters the variants quote. */
bool sluice_config_is_15a2b(const sluice_config *config);

#ifdef __cplusplus
}
#endif
#endif
