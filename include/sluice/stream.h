/* SPDX-License-Identifier: Apache-2.0 */
/* Generated tokens as text that can be shown at once: complete characters only, never a piece of a stop string,
 * whatever tokens the stop string was cut into. */
#ifndef SLUICE_STREAM_H
#define SLUICE_STREAM_H
#include <stdbool.h>
#include "sluice/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_stream sluice_stream;
/* stops: num_stops texts that end the stream, UTF-8 and not empty, copied; of several that come with one token the
 * earliest counts. skip_special: leave special tokens out of the text. The tokenizer must outlive the stream. */
sluice_status sluice_stream_new(sluice_stream **out, const sluice_tokenizer *tok, const char *const *stops,
                                int num_stops, bool skip_special, sluice_error *err);
void sluice_stream_free(sluice_stream *stream);
/* Appends to *text what has become certain. *stopped: a stop string came; *text ends in front of it, and further tokens
 * add nothing. */
sluice_status sluice_stream_push(sluice_stream *stream, int32_t id, sluice_text *text, bool *stopped,
                                 sluice_error *err);
/* Appends what was held back, U+FFFD for an unfinished character. Nothing after a stop. */
sluice_status sluice_stream_finish(sluice_stream *stream, sluice_text *text, sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
