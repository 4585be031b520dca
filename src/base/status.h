/* status.h - how every function reports failure.
 *
 * Functions that can fail return mp_status. The place that finds the fault writes one sentence
 * with MP_FAIL (what failed, with which value, what to do); callers pass the code up with MP_TRY.
 * The sentence is kept per thread until the next failure on that thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_STATUS_H
#define MP_BASE_STATUS_H

#include "base/macros.h"

#define MP_STATUS_LIST(X)                              \
    X(OK, 0, "success")                                \
    X(OUT_OF_MEMORY, 1, "out of memory")               \
    X(INVALID_ARGUMENT, 2, "invalid argument")         \
    X(UNSUPPORTED, 3, "not supported")                 \
    X(DEVICE, 4, "the device driver reported a fault") \
    X(NOT_FOUND, 5, "not found")                       \
    X(BUSY, 6, "not finished yet")                     \
    X(INTERNAL, 7, "internal error")

typedef enum mp_status {
#define X(name, value, text) MP_##name = (value),
    MP_STATUS_LIST(X)
#undef X
} mp_status;

/* The name of a code in plain words; static storage. */
const char *mp_status_name(mp_status status);

/* The sentence left by the last failure on this thread, never NULL. Borrowed until the next
 * failure here. */
const char *mp_error_message(void);

/* Writes the thread's sentence and returns `status`. Use MP_FAIL. */
mp_status mp__fail(mp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* The code stands in the expression itself, so that compilers and analysers know it is not MP_OK.
 */
#define MP_FAIL(code, ...) ((void)mp__fail(MP_##code, __VA_ARGS__), (mp_status)MP_##code)

#define MP_TRY(expr)                         \
    do {                                     \
        const mp_status try_status = (expr); \
        if (try_status != MP_OK) {           \
            return try_status;               \
        }                                    \
    } while (0)

#endif
