/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata of a GGUF file from a configuration: the way back of gguf_config.c. */
#ifndef SLUICE_MODEL_GGUF_METADATA_H
#define SLUICE_MODEL_GGUF_METADATA_H
#include "model/gguf_write.h"
#include "sluice/config.h"

/* The architecture whose files can hold such a model, or an error that says what they cannot express. */
sluice_status sluice__gguf_choose_architecture(const char **arch, const sluice_config *config, sluice_error *err);
/* general.architecture and all <arch>.* keys. */
sluice_status sluice__gguf_put_config(sluice__gguf_writer *w, const char *arch, const sluice_config *config,
                                      sluice_error *err);
#endif
