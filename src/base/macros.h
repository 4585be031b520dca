/* macros.h - words the compiler understands, used everywhere.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_MACROS_H
#define MP_BASE_MACROS_H

#define MP_MUST_CHECK       __attribute__((warn_unused_result))
#define MP_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#define MP_COUNT_OF(array)  (sizeof(array) / sizeof((array)[0]))

/* The struct of `type` that holds `pointer` as its `member`. */
#define MP_CONTAINER_OF(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
