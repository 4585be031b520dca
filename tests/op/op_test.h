/* op_test.h - runs one operator on a device from plain C, for tests that compare it with loops.
 *
 *     op_case c = {.name = "Add", .version = 14, .in_count = 2, .out_count = 1,
 *                  .in = {op_f32(x, 2, 3), op_f32(y, 3)}};
 *     op_run(device, &c);
 *     const float *z = c.out[0].data;  ... c.out[0].shape ...
 *     op_close(device, &c);
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_OP_OP_TEST_H
#define MP_TESTS_OP_OP_TEST_H

#include "op/core/op.h"
#include "unit/test.h"

enum { OP_INPUTS = 24, OP_OUTPUTS = 8 };

typedef struct op_tensor {
    mp_dtype type; /* MP_NONE: an optional input left out */
    mp_shape shape;
    const void *data; /* host memory; of an output: owned by the case until op_close */
} op_tensor;

typedef struct op_case {
    const char *domain; /* NULL is ai.onnx */
    const char *name;
    int version; /* any schema version that a row covers */
    const mp_attr *attrs;
    size_t attr_count;
    mp_op_options options;
    int32_t align; /* 0 means 16 */
    uint32_t skew; /* bytes, or an element, by which device tensors are off; goes with align 1 */
    op_tensor in[OP_INPUTS];
    int in_count, out_count;
    uint32_t out_absent; /* bit i: the model leaves output i out */
    uint32_t constant;   /* bit i: input i is a constant, as mp_node.constants, which op_run
                          * prepares if that is wanted */
    uint32_t prepared;   /* bit i: it has; filled in by op_run */
    /* mp_tensor.pitch; the data are then rows so far apart, also those that an output gets, whose
     * bytes between rows are OP_BETWEEN before the run. */
    int64_t in_pitch[OP_INPUTS], out_pitch[OP_OUTPUTS];
    op_tensor out[OP_OUTPUTS];
} op_case;

enum { OP_BETWEEN = 0x5a };

/* Plans the case. Gives: `*out` on success. For tests of what must fail. */
mp_status op_plan(mp_device *device, const op_case *c, mp_plan **out);

/* The second plan of an operator with `finish`, for values found. */
mp_status op_finish(mp_device *device, const op_case *c, const int64_t *found, mp_plan **out);

/* That this expression of floats is refused, with `want` and a message that has `part`. */
void op_refuse_fused(mp_device *device, const char *expression, const mp_shape *in, int in_count,
                     mp_status want, const char *part);

/* Plans and runs the case; any failure ends the test. Fills c->out. */
void op_run(mp_device *device, op_case *c);

/* Frees the outputs and the device's kernels. */
void op_close(mp_device *device, op_case *c);

/* A tensor of given dimensions (none: a scalar): op_tensor_of(MP_I64, data, 2, (int64_t[]){2, 3})
 */
op_tensor op_tensor_of(mp_dtype type, const void *data, int rank, const int64_t *dims);
#define OP_DIMS_(...) ((const int64_t[]){__VA_ARGS__})
#define OP_TENSOR(type, data, ...)                                                  \
    op_tensor_of(type, data, (int)(sizeof OP_DIMS_(__VA_ARGS__) / sizeof(int64_t)), \
                 OP_DIMS_(__VA_ARGS__))
#define op_f32(data, ...) OP_TENSOR(MP_F32, data, __VA_ARGS__)
#define op_i64(data, ...) OP_TENSOR(MP_I64, data, __VA_ARGS__)

#define OP_INT(attr_name, value) \
    { .name = (attr_name), .kind = MP_ATTR_INT, .i = (value) }
#define OP_FLOAT(attr_name, value) \
    { .name = (attr_name), .kind = MP_ATTR_FLOAT, .f = (value) }
#define OP_TEXT(attr_name, value) \
    { .name = (attr_name), .kind = MP_ATTR_STRING, .s = (value) }
#define OP_INTS(attr_name, ...)                                                   \
    {                                                                             \
        .name = (attr_name), .kind = MP_ATTR_INTS, .ints = OP_DIMS_(__VA_ARGS__), \
        .count = sizeof OP_DIMS_(__VA_ARGS__) / sizeof(int64_t)                   \
    }

/* Deterministic values in [-2, 2) that are exact in every float type. */
float op_value(uint64_t seed, int64_t i);

/* Ends the test unless `got` is within `bound` of `want` relative to max(1, |want|), or both NaN.
 */
void op_check_close(double got, double want, double bound, const char *what, int64_t i);

#endif
