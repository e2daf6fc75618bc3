/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of long-running work. The library never prints by itself: programs set a sink; without one nothing is shown. */
#ifndef SLUICE_BASE_LOG_H
#define SLUICE_BASE_LOG_H
#include "sluice/log.h"
#include "base/error.h"

void sluice__log(sluice_log_level level, const char *fmt, ...) SLUICE__PRINTF(2, 3);
#endif
