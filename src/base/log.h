/* log.h - one sink for what is worth reporting but is not a failure.
 *
 * By default lines go to stderr, from `warning` up; MILLPOND_LOG=off|error|warning|info|debug
 * changes that. A host (ONNX Runtime, a test) may install its own sink. An interpreter, which must
 * not be entered from any thread at any time, may take lines before the sink gets them, and hand
 * them back when nobody there wants them. Never stdout.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_LOG_H
#define MP_BASE_LOG_H

#include "base/macros.h"

#include <stdbool.h>

typedef enum mp_log_level {
    MP_LOG_OFF = -1, /* as a threshold only */
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

/* Takes a line and keeps a copy of `text` (`file` is static), or returns false: then the sink gets
 * the line. Called from any thread, with locks of any layer held: it waits for nothing. */
typedef bool mp_log_take_fn(mp_log_level level, const char *file, int line, const char *text);

/* Installs the one function that takes lines; NULL takes it away. A thread may still be in the old
 * one. Threads: any. */
void mp_log_set_taker(mp_log_take_fn *take);

/* Gives the sink a line that was taken. */
void mp_log_write(mp_log_level level, const char *file, int line, const char *text);

/* Whether a line of this level would be written; guards expensive arguments. */
bool mp_log_enabled(mp_log_level level);

/* The threshold, and a new one in place of MILLPOND_LOG's. Threads: any. */
mp_log_level mp_log_get_threshold(void);
void mp_log_set_threshold(mp_log_level level);

void mp__log(mp_log_level level, const char *file, int line, const char *format, ...)
    MP_PRINTF(4, 5);

#define MP_LOG(level, ...)                                            \
    do {                                                              \
        if (mp_log_enabled(MP_LOG_##level)) {                         \
            mp__log(MP_LOG_##level, __FILE__, __LINE__, __VA_ARGS__); \
        }                                                             \
    } while (0)

#endif
