/* log.h - one sink for what is worth reporting but is not a failure.
 *
 * By default lines go to stderr, from `warning` up; MILLPOND_LOG=off|error|warning|info|debug
 * changes that. A host (ONNX Runtime, a test) may install its own sink. Never stdout.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_LOG_H
#define MP_BASE_LOG_H

#include "base/macros.h"

#include <stdbool.h>

typedef enum mp_log_level {
    MP_LOG_ERROR,
    MP_LOG_WARNING,
    MP_LOG_INFO,
    MP_LOG_DEBUG,
} mp_log_level;

/* Receives one finished line without a newline. Called from any thread, never concurrently with
 * mp_log_set_sink returning. */
typedef void mp_log_fn(void *context, mp_log_level level, const char *file, int line,
                       const char *text);

/* Installs a sink; NULL restores stderr. Returns after no thread runs in the old sink.
 * Threads: any, but not from inside a sink. */
void mp_log_set_sink(mp_log_fn *sink, void *context);

/* Whether a line of this level would be written; guards expensive arguments. */
bool mp_log_enabled(mp_log_level level);

void mp__log(mp_log_level level, const char *file, int line, const char *format, ...)
    MP_PRINTF(4, 5);

#define MP_LOG(level, ...)                                            \
    do {                                                              \
        if (mp_log_enabled(MP_LOG_##level)) {                         \
            mp__log(MP_LOG_##level, __FILE__, __LINE__, __VA_ARGS__); \
        }                                                             \
    } while (0)

#endif
