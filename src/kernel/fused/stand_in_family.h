/* stand_in_family.h - the functions of pointwise.def that there are for one family of types, by
 * their numbers. K_T0 is the family: real, whole or plain (stand_in.cu).
 *
 * A word of a row's types that the family computes is, while the rows are read, a list of three
 * whose second is 1; where a row has none, the second is the 0 that is put behind.
 *
 * No guard: it is included once for each family.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/functions.h"

#define NUMBERS S_YES
#define ALL     S_YES
#if T_FLOAT
#define FLOATS S_YES
#define f32    S_YES
#else
#define INTS S_YES
#if T_SIGNED
#define SIGNED S_YES
#define i64    S_YES
#else
#define UNSIGNED S_YES
#define bool S_YES
#endif
#endif

/* `narrow`: the elements are floats of 16 bits. */
K_FN uint64_t K_JOIN(s_call_, K_T0)(int32_t function, TC x, TC y, float a, float b, int narrow) {
    (void)y, (void)a, (void)b, (void)narrow;
    switch (function) {
#define K_POINTWISE(word, arity, types, result, expression) \
    K_JOIN(S_ROW_, S_PICK(types, 0, 0))(word, S_PUT_##result, expression)
#include "kernel/pointwise/pointwise.def"
#undef K_POINTWISE
    default:
        return 0;
    }
}

#undef NUMBERS
#undef ALL
#undef FLOATS
#undef f32
#undef INTS
#undef SIGNED
#undef i64
#undef UNSIGNED
#undef bool
