/* status.h - how every function of Millpond reports failure.
 *
 * A function that can fail returns mp_status and leaves one sentence: what failed, with which
 * value, what to do. The sentence is kept per thread until the next failure on that thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MILLPOND_STATUS_H
#define MILLPOND_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, text); values never change. */
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
#define MP_STATUS_ENUM(name, value, text) MP_##name = (value),
    MP_STATUS_LIST(MP_STATUS_ENUM)
#undef MP_STATUS_ENUM
} mp_status;

/* The name of a code in plain words; static storage. */
const char *mp_status_name(mp_status status);

/* The sentence left by the last failure on this thread, never NULL. Borrowed until the next
 * failure here. */
const char *mp_error_message(void);

#ifdef __cplusplus
}
#endif

#endif
