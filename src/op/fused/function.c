/* function.c - reads the rows of pointwise.def.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/function.h"

#include <string.h>

static const mp_function functions[] = {
#define K_POINTWISE(word, arity, types, result, expression) \
    {#word, (arity), #types, #result, #expression},
#include "kernel/pointwise/pointwise.def"
#undef K_POINTWISE
};

typedef struct type_set {
    const char *word;
    mp_dtypes types;
} type_set;

static const type_set sets[] = {
    {"FLOATS", MP_FLOATS}, {"SIGNED", MP_SIGNED_INTS}, {"UNSIGNED", MP_UNSIGNED_INTS},
    {"INTS", MP_INTS},     {"NUMBERS", MP_NUMBERS},    {"ALL", MP_ALL_TYPES},
};

const mp_function *mp_function_find(const char *word) {
    for (size_t i = 0; i < MP_COUNT_OF(functions); i++) {
        if (strcmp(functions[i].word, word) == 0) {
            return &functions[i];
        }
    }
    return NULL;
}

/* Whether one word of the list, a set or a type, has it. */
static bool word_has(const char *word, size_t length, mp_dtype dtype) {
    for (size_t i = 0; i < MP_COUNT_OF(sets); i++) {
        if (strlen(sets[i].word) == length && memcmp(sets[i].word, word, length) == 0) {
            return (sets[i].types & MP_BIT(dtype)) != 0;
        }
    }
    const char *own = mp_dtype_word(dtype);
    return strlen(own) == length && memcmp(own, word, length) == 0;
}

static bool is_built_for(const char *types, mp_dtype dtype) {
    for (const char *at = types; *at != '\0';) {
        const size_t length = strcspn(at, "+");
        if (word_has(at, length, dtype)) {
            return true;
        }
        at += length + (at[length] == '+');
    }
    return false;
}

mp_dtype mp_function_type(const mp_function *function, mp_dtype dtype) {
    const mp_dtype plain = mp_dtype_unsigned(dtype);
    if (is_built_for(function->types, dtype)) {
        return dtype;
    }
    const bool wraps = strstr(function->types, "UNSIGNED") != NULL;
    return wraps && is_built_for(function->types, plain) ? plain : MP_NONE;
}

int mp_function_number(const mp_function *function) {
    return (int)(function - functions);
}

bool mp_function_is_test(const mp_function *function) {
    return strcmp(function->result, "T") != 0;
}
