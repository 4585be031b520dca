/* status.c - the per-thread failure sentence.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include "base/escape.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[1024];

const char *mp_status_name(mp_status status) {
    switch (status) {
#define X(name, value, text) \
    case MP_##name:          \
        return text;
        MP_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *mp_error_message(void) {
    return message;
}

mp_status mp__fail(mp_status status, const char *format, ...) {
    /* A sentence may quote the one before it, so it is composed aside first. */
    char fresh[sizeof message];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    mp_escape(message, sizeof message, fresh);
    return status;
}
