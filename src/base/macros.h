/* macros.h - words the compiler understands, used everywhere.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_MACROS_H
#define MP_BASE_MACROS_H

#define MP_MUST_CHECK       __attribute__((warn_unused_result))
#define MP_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#define MP_COUNT_OF(array)  (sizeof(array) / sizeof((array)[0]))

/* Of numbers of one type; an argument may be evaluated more than once. The last two are of numbers
 * that are not negative, with `b` above 0: a / b rounded up, which does not overflow, and the next
 * multiple of `b`, which may. */
#define MP_MIN(a, b)      ((a) < (b) ? (a) : (b))
#define MP_MAX(a, b)      ((a) > (b) ? (a) : (b))
#define MP_CEIL_DIV(a, b) ((a) / (b) + ((a) % (b) != 0))
#define MP_ALIGN_UP(a, b) (MP_CEIL_DIV(a, b) * (b))

/* The struct of `type` that holds `pointer` as its `member`. */
#define MP_CONTAINER_OF(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Whether a sanitizer looks on, of addresses or of threads: 1 or 0. gcc defines a word, clang is
 * asked. */
#if defined(__has_feature)
#define MP_HAS_FEATURE(feature) __has_feature(feature)
#else
#define MP_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || MP_HAS_FEATURE(address_sanitizer)
#define MP_WITH_ASAN 1
#else
#define MP_WITH_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || MP_HAS_FEATURE(thread_sanitizer)
#define MP_WITH_TSAN 1
#else
#define MP_WITH_TSAN 0
#endif

#endif
