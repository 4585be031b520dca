/* option.h - settings given as words: one table says which there are and where they go.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_OPTION_H
#define MP_BASE_OPTION_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mp_option_kind {
    MP_OPTION_BOOL,    /* bool: 1, true, on, 0, false, off in any case */
    MP_OPTION_INT,     /* int64_t from `least` to `most` */
    MP_OPTION_SIZE,    /* size_t: bytes, decimal or 0x..., with K, M, G or T behind it if need be */
    MP_OPTION_WORD,    /* int: the index in `words`, in any case */
    MP_OPTION_ADDRESS, /* uintptr_t: decimal or 0x... */
} mp_option_kind;

typedef struct mp_option {
    const char *name;
    mp_option_kind kind;
    size_t offset; /* of the field, in the struct that the table is for */
    int64_t least, most;
    const char *const *words; /* NULL ends */
} mp_option;

/* Sets the field of `*target` that `name` is for. Names count in any case.
 * Fails: INVALID_ARGUMENT, `*target` unchanged; the sentence says what may be written instead, for
 * an unknown name the one most like it. */
MP_MUST_CHECK mp_status mp_option_set(const mp_option *table, size_t count, void *target,
                                      const char *name, const char *value);

/* The same for one value; `name` is for the sentence. */
MP_MUST_CHECK mp_status mp_parse_bool(const char *name, const char *value, bool *out);
MP_MUST_CHECK mp_status mp_parse_int(const char *name, const char *value, int64_t least,
                                     int64_t most, int64_t *out);
MP_MUST_CHECK mp_status mp_parse_size(const char *name, const char *value, size_t *out);
MP_MUST_CHECK mp_status mp_parse_address(const char *name, const char *value, uintptr_t *out);
MP_MUST_CHECK mp_status mp_parse_word(const char *name, const char *value, const char *const *words,
                                      int *out);

/* The value that `*source` has for the row, as mp_option_set reads it; cut to fit `size`. */
void mp_option_print(const mp_option *row, const void *source, char *text, size_t size);

/* The name in the table that `name` is most like; NULL where none is near. */
const char *mp_option_nearest(const mp_option *table, size_t count, const char *name);

#endif
