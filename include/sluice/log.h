/* SPDX-License-Identifier: Apache-2.0 */
/* Where messages and progress of long-running work go. */
#ifndef SLUICE_LOG_H
#define SLUICE_LOG_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sluice_log_level { SLUICE_LOG_DEBUG, SLUICE_LOG_INFO, SLUICE_LOG_WARNING } sluice_log_level;

/* One line without its end; called from any thread, one call at a time. */
typedef void (*sluice_log_fn)(void *user, sluice_log_level level, const char *line);

/* fn NULL (the default): messages are dropped. Set it before other threads start. */
void sluice_log_set(sluice_log_fn fn, void *user);
/* Writes lines to standard error, "warning: " in front of warnings; wipes an open progress line first. Levels below
 * `least` are dropped. */
void sluice_log_to_stderr(sluice_log_level least);

#ifdef __cplusplus
}
#endif
#endif
