/* movement_test.c - operators that move elements, against loops over coordinates.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

static const mp_dtype widths[] = {MP_U8, MP_F16, MP_F32, MP_F64}; /* 1, 2, 4 and 8 bytes */

/* Gives: elements that are numbered, as far as the type can hold. */
static void *numbered(mp_dtype type, int64_t count) {
    void *x = op_memory(type, count);
    for (int64_t i = 0; i < count; i++) {
        op_store_real(type, x, i, (double)(i % 251));
    }
    return x;
}

static void same(const op_tensor *out, int64_t i, mp_dtype type, const void *x, int64_t at) {
    const size_t size = mp_dtype_size(type);
    if (memcmp((const char *)out->data + (size_t)i * size, (const char *)x + (size_t)at * size,
               size) != 0) {
        test_fail(__FILE__, __LINE__, "%s: element %lld is %g, not %g", mp_dtype_name(type),
                  (long long)i, op_real(type, out->data, i), op_real(type, x, at));
    }
}

static void check_shape(const op_tensor *out, int rank, const int64_t *dims) {
    mp_shape want = {.rank = rank};
    char got_text[MP_SHAPE_TEXT];
    char want_text[MP_SHAPE_TEXT];
    memcpy(want.dim, dims, (size_t)rank * sizeof *dims);
    if (!mp_shape_equal(&out->shape, &want)) {
        test_fail(__FILE__, __LINE__, "shape %s, not %s", mp_shape_text(&out->shape, got_text),
                  mp_shape_text(&want, want_text));
    }
}

/* Offset in a tensor of shape `in` of output element `i`, output axis d walking axis[d] of the
 * input from start[d] in steps of step[d]. */
static int64_t walk(const mp_shape *in, const mp_shape *out, const int *axis, const int64_t *start,
                    const int64_t *step, int64_t i) {
    int64_t stride[MP_RANK_MAX];
    int64_t offset = 0;
    int64_t size = 1;
    for (int d = in->rank - 1; d >= 0; d--) {
        stride[d] = size;
        size *= in->dim[d];
    }
    for (int d = out->rank - 1; d >= 0; d--) {
        offset += (start[d] + i % out->dim[d] * step[d]) * stride[axis[d]];
        i /= out->dim[d];
    }
    return offset;
}

static const int in_order[MP_RANK_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};

/* ---- Slice ---- */

static void check_slice(mp_device *device, mp_dtype type, int64_t start, int64_t end, int64_t step,
                        int64_t first, int64_t count) {
    const mp_shape shape = {.rank = 3, .dim = {2, 6, 4}};
    void *x = numbered(type, mp_shape_count(&shape));
    const int64_t starts[] = {start};
    const int64_t ends[] = {end};
    const int64_t axes[] = {-2};
    const int64_t steps[] = {step};
    op_case c = {.name = "Slice",
                 .version = 13,
                 .in = {{type, shape, x},
                        op_i64(starts, 1),
                        op_i64(ends, 1),
                        op_i64(axes, 1),
                        op_i64(steps, 1)},
                 .in_count = 5,
                 .out_count = 1};
    op_run(device, &c);
    check_shape(&c.out[0], 3, (const int64_t[]){2, count, 4});
    for (int64_t i = 0; i < 8 * count; i++) {
        same(&c.out[0], i, type, x,
             walk(&shape, &c.out[0].shape, in_order, (const int64_t[]){0, first, 0},
                  (const int64_t[]){1, step, 1}, i));
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(slice_as_python_does) {
    static const struct {
        int64_t start, end, step, first, count;
    } forms[] = {
        {1, 5, 1, 1, 4},
        {0, 6, 2, 0, 3},
        {1, 6, 4, 1, 2},
        {-3, -1, 1, 3, 2},
        {0, INT64_MAX, 1, 0, 6},
        {INT64_MIN, 3, 1, 0, 3},
        {-100, 100, 3, 0, 2},
        {4, 2, 1, 4, 0},
        {6, 9, 1, 6, 0},
        {5, 0, -1, 5, 5},
        {5, INT64_MIN, -1, 5, 6},
        {-1, -7, -1, 5, 6},
        {INT64_MAX, INT64_MIN, -2, 5, 3},
        {3, -1, -1, 3, 0},
        {4, 1, -2, 4, 2},
        {2, 5, -1, 2, 0},
        {5, INT64_MIN, INT64_MIN, 5, 1},
        {0, 6, INT64_MAX, 0, 1},
    };
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
            check_slice(device, widths[w], forms[f].start, forms[f].end, forms[f].step,
                        forms[f].first, forms[f].count);
        }
    }
}

DEVICE_TEST(slice_along_several_axes) {
    const mp_shape shape = {.rank = 4, .dim = {3, 4, 5, 6}};
    void *x = numbered(MP_F32, 360);
    const int32_t starts[] = {2, 1, -1};
    const int32_t ends[] = {-4, 4, 0};
    const int32_t axes[] = {0, 1, 3};
    const int32_t steps[] = {-1, 2, -2};
    op_case c = {.name = "Slice",
                 .version = 10,
                 .in = {{MP_F32, shape, x},
                        OP_TENSOR(MP_I32, starts, 3),
                        OP_TENSOR(MP_I32, ends, 3),
                        OP_TENSOR(MP_I32, axes, 3),
                        OP_TENSOR(MP_I32, steps, 3)},
                 .in_count = 5,
                 .out_count = 1};
    op_run(device, &c);
    check_shape(&c.out[0], 4, (const int64_t[]){3, 2, 5, 3});
    for (int64_t i = 0; i < 90; i++) {
        same(&c.out[0], i, MP_F32, x,
             walk(&shape, &c.out[0].shape, in_order, (const int64_t[]){2, 1, 0, 5},
                  (const int64_t[]){-1, 2, 1, -2}, i));
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(slice_by_attributes) {
    const float x[] = {0, 1, 2, 3, 4, 5};
    const mp_attr attrs[] = {OP_INTS("starts", 0, 1), OP_INTS("ends", 2, 1000)};
    op_case c = {.name = "Slice",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {op_f32(x, 2, 3)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    const float want[] = {1, 2, 4, 5};
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
}

DEVICE_TEST(slice_refuses_what_makes_no_sense) {
    const float x[6] = {0};
    const int64_t zero[] = {0};
    const int64_t twice[] = {1, -1};
    mp_plan *plan = NULL;
    op_case c = {
        .name = "Slice",
        .version = 13,
        .in = {op_f32(x, 2, 3), op_i64(zero, 1), op_i64(zero, 1), op_i64(zero, 1), op_i64(zero, 1)},
        .in_count = 5,
        .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "steps has a 0");
    c.in_count = 4;
    c.in[3] = op_i64(twice, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "1, 1, 2, -1 values");
    c.in[1] = c.in[2] = op_i64(twice, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "names axis 1 twice");
}

/* ---- Concat and Split ---- */

enum { PARTS = 3 };
static const int64_t part_sizes[PARTS] = {2, 0, 3};

/* Element `i` of part `k` of a tensor [outer][5][inner] that is cut along its middle axis. */
static int64_t in_whole(int k, int64_t inner, int64_t i) {
    int64_t before = 0;
    for (int j = 0; j < k; j++) {
        before += part_sizes[j];
    }
    const int64_t run = part_sizes[k] * inner;
    return i / run * 5 * inner + before * inner + i % run;
}

DEVICE_TEST(concat_and_split_are_inverse) {
    const int64_t inner[] = {1, 3, 4, 8};
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (size_t n = 0; n < MP_COUNT_OF(inner); n++) {
            const mp_dtype type = widths[w];
            const mp_attr attrs[] = {OP_INT("axis", -2)};
            void *x = numbered(type, 4 * 5 * inner[n]);
            op_case split = {.name = "Split",
                             .version = 13,
                             .attrs = attrs,
                             .attr_count = 1,
                             .in = {OP_TENSOR(type, x, 4, 5, inner[n]), op_i64(part_sizes, PARTS)},
                             .in_count = 2,
                             .out_count = PARTS};
            op_run(device, &split);
            op_case concat = {.name = "Concat",
                              .version = 13,
                              .attrs = attrs,
                              .attr_count = 1,
                              .in_count = PARTS,
                              .out_count = 1};
            for (int k = 0; k < PARTS; k++) {
                check_shape(&split.out[k], 3, (const int64_t[]){4, part_sizes[k], inner[n]});
                for (int64_t i = 0; i < 4 * part_sizes[k] * inner[n]; i++) {
                    same(&split.out[k], i, type, x, in_whole(k, inner[n], i));
                }
                concat.in[k] = split.out[k];
            }
            op_run(device, &concat);
            check_shape(&concat.out[0], 3, (const int64_t[]){4, 5, inner[n]});
            for (int64_t i = 0; i < 4 * 5 * inner[n]; i++) {
                same(&concat.out[0], i, type, x, i);
            }
            op_close(device, &concat);
            op_close(device, &split);
            free(x);
        }
    }
}

DEVICE_TEST(split_evenly) {
    const float x[] = {0, 1, 2, 3, 4, 5, 6};
    const mp_attr three[] = {OP_INT("num_outputs", 3)};
    const int64_t sizes[] = {3, 3, 1};
    op_case c = {.name = "Split",
                 .version = 18,
                 .attrs = three,
                 .attr_count = 1,
                 .in = {op_f32(x, 7)},
                 .in_count = 1,
                 .out_count = 3};
    op_run(device, &c);
    for (int k = 0; k < 3; k++) {
        check_shape(&c.out[k], 1, &sizes[k]);
        CHECK(((const float *)c.out[k].data)[0] == (float)(3 * k));
    }
    op_close(device, &c);
    const mp_attr listed[] = {OP_INTS("split", 2, 4)};
    op_case old = {.name = "Split",
                   .version = 2,
                   .attrs = listed,
                   .attr_count = 1,
                   .in = {op_f32(x, 6)},
                   .in_count = 1,
                   .out_count = 2};
    op_run(device, &old);
    CHECK(((const float *)old.out[1].data)[3] == 5.0f);
    op_close(device, &old);
}

DEVICE_TEST(concat_and_split_refuse_what_does_not_fit) {
    const float x[12] = {0};
    const int64_t sizes[] = {2, 2};
    mp_plan *plan = NULL;
    const mp_attr attrs[] = {OP_INT("axis", 0)};
    op_case c = {.name = "Concat",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 2, 3), op_f32(x, 2, 4)},
                 .in_count = 2,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "2x3 and 2x4 differ beside axis 0");
    c = (op_case){.name = "Split",
                  .version = 13,
                  .in = {op_f32(x, 5), op_i64(sizes, 2)},
                  .in_count = 2,
                  .out_count = 2};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not add up to 5");
    c.in_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not split evenly");
}

/* ---- Expand ---- */

DEVICE_TEST(expand_both_ways) {
    const mp_shape shape = {.rank = 3, .dim = {3, 1, 4}};
    const int64_t asked[] = {2, 1, 5, 1};
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        void *x = numbered(widths[w], 12);
        op_case c = {.name = "Expand",
                     .version = 13,
                     .in = {{widths[w], shape, x}, op_i64(asked, 4)},
                     .in_count = 2,
                     .out_count = 1};
        op_run(device, &c);
        check_shape(&c.out[0], 4, (const int64_t[]){2, 3, 5, 4});
        for (int64_t i = 0; i < 120; i++) {
            same(&c.out[0], i, widths[w], x, i / 20 % 3 * 4 + i % 4);
        }
        op_close(device, &c);
        free(x);
    }
}

/* ---- Gather ---- */

/* An index as the kernels take it: once around from the end, then kept in range. */
static int64_t taken(int64_t index, int64_t dim) {
    index += index < 0 ? dim : 0;
    return index < 0 ? 0 : index >= dim ? dim - 1 : index;
}

static const int64_t picks[] = {4, 0, -1, -5, 2, 5, -6, INT32_MAX, INT32_MIN, 2};
enum { PICKS = 10 };

static void check_gather(mp_device *device, mp_dtype type, mp_dtype index_type, int axis,
                         const void *indices) {
    const mp_shape shape = {.rank = 3, .dim = {5, 5, 5}};
    const int64_t inner = axis == 0 ? 25 : axis == 1 ? 5 : 1;
    const mp_attr attrs[] = {OP_INT("axis", axis - 3)};
    void *x = numbered(type, 125);
    op_case c = {.name = "Gather",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {{type, shape, x}, OP_TENSOR(index_type, indices, 2, 5)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    int64_t want[4] = {5, 5, 5, 5}; /* the indices' 2x5 stands where the axis was */
    want[axis] = 2;
    check_shape(&c.out[0], 4, want);
    for (int64_t i = 0; i < 250; i++) {
        const int64_t outer = i / inner / PICKS;
        const int64_t pick = taken(picks[i / inner % PICKS], 5);
        same(&c.out[0], i, type, x, (outer * 5 + pick) * inner + i % inner);
    }
    op_close(device, &c);
    free(x);
}

/* Indices that are out of range, which only a broken model has, must not read foreign memory. */
DEVICE_TEST(gather_whatever_the_indices) {
    int32_t narrow[PICKS];
    for (int i = 0; i < PICKS; i++) {
        narrow[i] = (int32_t)picks[i];
    }
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (int axis = 0; axis < 3; axis++) {
            check_gather(device, widths[w], MP_I64, axis, picks);
            check_gather(device, widths[w], MP_I32, axis, narrow);
        }
    }
}

DEVICE_TEST(gather_by_a_scalar_and_by_none) {
    const float x[] = {0, 1, 2, 3, 4, 5};
    const int64_t last[] = {-1};
    op_case c = {.name = "Gather",
                 .version = 1,
                 .in = {op_f32(x, 3, 2), op_tensor_of(MP_I64, last, 0, NULL)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    check_shape(&c.out[0], 1, (const int64_t[]){2});
    CHECK(op_same(&c.out[0], x + 4));
    op_close(device, &c);
    c.in[1] = op_i64(last, 0);
    op_run(device, &c);
    check_shape(&c.out[0], 2, (const int64_t[]){0, 2});
    op_close(device, &c);
    mp_plan *plan = NULL;
    c.in[0] = op_f32(x, 0, 2);
    c.in[1] = op_i64(last, 1);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "no index is valid");
}

DEVICE_TEST(gather_nd_with_batches) {
    const int64_t indices[] = {1, 2, 0, -1, -2, 0, 9, -9}; /* 2 batches of 2 pairs */
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        void *x = numbered(widths[w], 2 * 2 * 3 * 4);
        const mp_attr attrs[] = {OP_INT("batch_dims", 1)};
        op_case c = {.name = "GatherND",
                     .version = 12,
                     .attrs = attrs,
                     .attr_count = 1,
                     .in = {OP_TENSOR(widths[w], x, 2, 2, 3, 4), op_i64(indices, 2, 2, 2)},
                     .in_count = 2,
                     .out_count = 1};
        op_run(device, &c);
        check_shape(&c.out[0], 3, (const int64_t[]){2, 2, 4});
        for (int64_t i = 0; i < 16; i++) {
            const int64_t *pair = &indices[i / 4 * 2];
            same(&c.out[0], i, widths[w], x,
                 i / 8 * 24 + taken(pair[0], 2) * 12 + taken(pair[1], 3) * 4 + i % 4);
        }
        op_close(device, &c);
        free(x);
    }
}

DEVICE_TEST(gather_nd_of_single_elements) {
    const float x[] = {0, 1, 2, 3, 4, 5};
    const int64_t indices[] = {0, 0, 1, -1};
    op_case c = {.name = "GatherND",
                 .version = 11,
                 .in = {op_f32(x, 2, 3), op_i64(indices, 2, 2)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    check_shape(&c.out[0], 1, (const int64_t[]){2});
    CHECK(((const float *)c.out[0].data)[0] == 0.0f && ((const float *)c.out[0].data)[1] == 5.0f);
    op_close(device, &c);
    mp_plan *plan = NULL;
    c.in[1] = op_i64(indices, 1, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not fit");
}
