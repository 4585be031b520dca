/* op_value.h - elements of any type as plain numbers, for references written as loops.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_OP_OP_VALUE_H
#define MP_TESTS_OP_OP_VALUE_H

#include "op/op_test.h"

/* Every element type, in the order of the table; ends with MP_NONE. */
extern const mp_dtype op_types[];

/* The types of `set` that the row of operator `name` takes for its first constraint. */
mp_dtypes op_types_of(const char *name, int version);

bool op_is_float(mp_dtype type);
bool op_is_signed(mp_dtype type);

/* Element `i` of `data`. Integers are exact as int64; uint64 keeps its bits. */
double op_real(mp_dtype type, const void *data, int64_t i);
int64_t op_whole(mp_dtype type, const void *data, int64_t i);

/* Stores a number: rounded to nearest in floats, the low bits in integers, 0 or 1 in bool. */
void op_store_real(mp_dtype type, void *data, int64_t i, double value);
void op_store_whole(mp_dtype type, void *data, int64_t i, int64_t value);

/* `value` as an element of `type` would hold it. */
double op_rounded(mp_dtype type, double value);
int64_t op_wrapped(mp_dtype type, int64_t value);

/* Whether a tensor has exactly these bytes. */
bool op_same(const op_tensor *tensor, const void *bytes);

/* Gives: `count` elements (free them): small numbers, exact in every type. */
void *op_numbers(mp_dtype type, uint64_t seed, int64_t count);

/* Gives: `count` elements of uninitialised use, zeroed. */
void *op_memory(mp_dtype type, int64_t count);

/* Where element `i` of `out` lies in a tensor that broadcasts to it, by plain division. */
int64_t op_place(const mp_shape *out, const mp_shape *in, int64_t i);

/* Mean and variance of `count` elements from `first` on, in two passes. */
void op_moments(mp_dtype type, const void *data, int64_t first, int64_t count, double *mean,
                double *variance);

/* What rounding once to `type` may cost relative to the value, doubled. */
double op_precision(mp_dtype type);

#endif
