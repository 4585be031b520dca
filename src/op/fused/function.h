/* function.h - the functions of kernel/pointwise/pointwise.def, as a table.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FUNCTION_H
#define MP_OP_FUNCTION_H

#include "base/dtype.h"
#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct mp_function {
    const char *word;
    int arity;
    const char *types;  /* "FLOATS+UNSIGNED" */
    const char *result; /* "T" or "bool" */
    const char *text;   /* the expression */
} mp_function;

/* Static storage; NULL for a word that is none. */
const mp_function *mp_function_find(const char *word);

/* The type whose instance computes it for elements of `dtype`: what wraps alike is built for
 * unsigned integers only. MP_NONE where there is none. */
mp_dtype mp_function_type(const mp_function *function, mp_dtype dtype);

int mp_function_number(const mp_function *function);   /* of its row in pointwise.def, from 0 */
bool mp_function_is_test(const mp_function *function); /* gives bool */

#endif
