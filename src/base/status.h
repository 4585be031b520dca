/* status.h - how the place that finds a fault reports it, and how callers pass it up.
 *
 * The codes, and what a failure leaves behind, are in millpond/status.h. The place that finds the
 * fault writes one sentence with MP_FAIL; callers pass the code up with MP_TRY.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_STATUS_H
#define MP_BASE_STATUS_H

#include "base/macros.h"
#include "millpond/status.h"

/* Writes the thread's sentence, made readable by mp_escape, and returns `status`. Use MP_FAIL. */
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
