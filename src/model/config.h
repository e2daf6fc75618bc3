/* SPDX-License-Identifier: Apache-2.0 */
/* Reading configurations inside the library: the result is a sluice_config and, beside it, how the weight files
 * of this model are laid out. */
#ifndef SLUICE_MODEL_CONFIG_H
#define SLUICE_MODEL_CONFIG_H
#include "base/json.h"
#include "sluice/config.h"

struct sluice__family;
typedef struct sluice__file_layout {
    const struct sluice__family *family;
    sluice_gate_packing gate_packing;
    bool gate_repeated; /* a headwise gate whose row is stored head_dim times (our export to qwen3_5_text) */
    const char *prefix; /* what stands for "model." in tensor names */
} sluice__file_layout;

/* Reads the object `root`. layout may be NULL. On failure *out holds nothing. */
sluice_status sluice__config_read(sluice_config *out, sluice__file_layout *layout, const sluice__json *root,
                                  sluice_error *err);
/* The same from a file. */
sluice_status sluice__config_read_file(sluice_config *out, sluice__file_layout *layout, const char *path,
                                       sluice_error *err);
/* Refuses sizes that no reader would let through, for configurations that a caller made by hand. */
sluice_status sluice__config_check(const sluice_config *config, sluice_error *err);
sluice_status sluice__config_copy(sluice_config *out, const sluice_config *in, sluice_error *err);

/* Replaces the RoPE of every layer by the one that a rope_parameters object describes. */
sluice_status sluice__config_override_rope(sluice_config *config, const char *json, sluice_error *err);

/* RoPE of one layer from rope_parameters, rope_scaling, rope_theta and partial_rotary_factor in `json`. `kind`
 * is the layer's type ("full_attention"), by which rope_parameters may be keyed. theta and partial: the
 * family's defaults. */
sluice_status sluice__rope_read(sluice_rope_spec *out, const sluice__json *json, const char *kind, int head_dim,
                                int64_t max_position_embeddings, double theta, double partial,
                                sluice_error *err);
void sluice__rope_free(sluice_rope_spec *rope);
sluice_status sluice__rope_copy(sluice_rope_spec *out, const sluice_rope_spec *in, sluice_error *err);
bool sluice__rope_equal(const sluice_rope_spec *a, const sluice_rope_spec *b);
/* The rope_parameters object of a spec; NULL when out of memory. */
json_t *sluice__rope_to_json(const sluice_rope_spec *rope, int head_dim);
/* Positions that the model is meant for: max_position_embeddings, or what its RoPE scaling makes of them. */
int64_t sluice__config_positions(const sluice_config *config);

/* What a session keeps of a layer whose queries see `sliding_window` keys: the window, SLACK tokens more, so that what was
 * said last can be taken back, and room for a pass (or STEP tokens, if a pass has fewer) before the rest is moved down. */
enum { SLUICE__WINDOW_SLACK = 256, SLUICE__WINDOW_STEP = 256 };
/* Whether it keeps less than everything: the window is shorter than the positions of the model. */
bool sluice__layer_drops(const sluice_config *config, int layer);
/* Tokens that there is room for in a cache of `capacity` and passes of `chunk` tokens; chunk 0: nothing is dropped. */
int64_t sluice__cache_rows(const sluice_config *config, int layer, int64_t capacity, int chunk);
#endif
