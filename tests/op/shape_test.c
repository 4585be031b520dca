/* shape_test.c - shapes, iteration spaces and the division by constants, against plain arithmetic.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/shape.h"

#include "kernel/core/index.h"
#include "unit/test.h"

static uint64_t row = 1;

static int64_t below(int64_t count) {
    return (int64_t)(test_random(&row) % (uint64_t)count);
}

TEST(shape_counts_and_prints) {
    const mp_shape scalar = {.rank = 0};
    const mp_shape shape = {.rank = 3, .dim = {2, 3, 4}};
    char text[MP_SHAPE_TEXT];
    CHECK_EQ_INT(mp_shape_count(&scalar), 1);
    CHECK_EQ_INT(mp_shape_count(&shape), 24);
    CHECK_EQ_INT(mp_shape_span(&shape, 1, 3), 12);
    CHECK_EQ_INT(mp_shape_span(&shape, 2, 2), 1);
    CHECK(strcmp(mp_shape_text(&scalar, text), "scalar") == 0);
    CHECK(strcmp(mp_shape_text(&shape, text), "2x3x4") == 0);
    mp_shape widest = {.rank = MP_RANK_MAX};
    for (int d = 0; d < MP_RANK_MAX; d++) {
        widest.dim[d] = INT64_MIN;
    }
    CHECK(strlen(mp_shape_text(&widest, text)) < sizeof text);
}

TEST(shape_bytes_are_checked) {
    size_t bytes = 1;
    const mp_shape good = {.rank = 2, .dim = {3, 5}};
    const mp_shape empty = {.rank = 3, .dim = {1 << 20, 0, 1 << 20}};
    CHECK_OK(mp_shape_bytes(&good, MP_F64, &bytes));
    CHECK_EQ_INT(bytes, 120);
    CHECK_OK(mp_shape_bytes(&empty, MP_F64, &bytes));
    CHECK_EQ_INT(bytes, 0);
    const mp_shape bad[] = {
        {.rank = 1, .dim = {-1}},
        {.rank = 2, .dim = {0, -1}},
        {.rank = 2, .dim = {INT64_MAX, 2}},
        {.rank = 1, .dim = {INT64_MAX / 4}},
        {.rank = 3, .dim = {(int64_t)1 << 32, (int64_t)1 << 32, 1}},
        {.rank = 3, .dim = {0, (int64_t)1 << 32, (int64_t)1 << 32}}, /* products of a part count */
        {.rank = 3, .dim = {(int64_t)1 << 62, (int64_t)1 << 62, 0}},
    };
    for (size_t i = 0; i < MP_COUNT_OF(bad); i++) {
        CHECK_FAILS(mp_shape_bytes(&bad[i], MP_F32, &bytes), INVALID_ARGUMENT, "shape ");
    }
}

TEST(shape_axis_counts_from_both_ends) {
    int axis = 0;
    CHECK_OK(mp_shape_axis(-3, 3, "axis", &axis));
    CHECK_EQ_INT(axis, 0);
    CHECK_OK(mp_shape_axis(2, 3, "axis", &axis));
    CHECK_EQ_INT(axis, 2);
    CHECK_FAILS(mp_shape_axis(3, 3, "axis", &axis), INVALID_ARGUMENT, "axis 3 is outside [-3, 3)");
    CHECK_FAILS(mp_shape_axis(INT64_MIN, 3, "axis", &axis), INVALID_ARGUMENT, "outside");
    CHECK_FAILS(mp_shape_axis(0, 0, "axis", &axis), INVALID_ARGUMENT, "outside");
}

TEST(shape_broadcasts_as_numpy_does) {
    mp_shape out;
    const mp_shape a = {.rank = 4, .dim = {2, 1, 1, 5}};
    const mp_shape b = {.rank = 2, .dim = {3, 1}};
    const mp_shape none = {.rank = 1, .dim = {0}};
    const mp_shape one = {.rank = 1, .dim = {1}};
    const mp_shape other = {.rank = 2, .dim = {3, 4}};
    CHECK_OK(mp_shape_broadcast(&a, &b, &out));
    CHECK(mp_shape_equal(&out, &(mp_shape){.rank = 4, .dim = {2, 1, 3, 5}}));
    CHECK_OK(mp_shape_broadcast(&b, &a, &out));
    CHECK(mp_shape_equal(&out, &(mp_shape){.rank = 4, .dim = {2, 1, 3, 5}}));
    CHECK_OK(mp_shape_broadcast(&none, &one, &out));
    CHECK_EQ_INT(out.dim[0], 0);
    CHECK_OK(mp_shape_broadcast(&(mp_shape){.rank = 0}, &other, &out));
    CHECK(mp_shape_equal(&out, &other));
    CHECK_FAILS(mp_shape_broadcast(&a, &other, &out), INVALID_ARGUMENT,
                "shapes 2x1x1x5 and 3x4 do not broadcast");
    CHECK_FAILS(mp_shape_broadcast(&none, &other, &out), INVALID_ARGUMENT, "do not broadcast");
    mp_shape in_place = a;
    CHECK_OK(mp_shape_broadcast(&in_place, &b, &in_place));
    CHECK_EQ_INT(in_place.dim[2], 3);
}

/* ---- iteration spaces: every element is found where plain index arithmetic finds it ---- */

static int64_t plain_offset(const mp_shape *shape, const int64_t *stride, int64_t i) {
    int64_t offset = 0;
    for (int d = shape->rank - 1; d >= 0; d--) {
        offset += i % shape->dim[d] * stride[d];
        i /= shape->dim[d];
    }
    return offset;
}

static void check_layout(const mp_shape *shape, int64_t (*stride)[MP_RANK_MAX], int views) {
    k_layout layout;
    mp_space space;
    mp_space_make(shape, stride, views, &space);
    CHECK(space.rank >= 1 && space.rank <= MP_RANK_MAX);
    if (space.rank > K_RANK_MAX) {
        CHECK_FAILS(mp_layout_make(shape, stride, views, &layout), UNSUPPORTED,
                    "dimensions are left when those that behave alike are merged");
        return;
    }
    CHECK_OK(mp_layout_make(shape, stride, views, &layout));
    CHECK(layout.rank == space.rank && !layout.wide);
    for (int wide = 0; wide < 2; wide++) {
        layout.wide = wide;
        for (int64_t i = 0; i < mp_shape_count(shape); i++) {
            int64_t offset[K_VIEWS];
            k_offsets(&layout, i, views, offset);
            for (int v = 0; v < views; v++) {
                CHECK_EQ_INT(offset[v], plain_offset(shape, stride[v], i));
            }
        }
    }
}

/* Of 2^14 elements at most. */
static mp_shape random_shape(void) {
    mp_shape shape = {.rank = (int32_t)below(MP_RANK_MAX + 1)};
    int64_t count = 1;
    for (int d = 0; d < shape.rank; d++) {
        shape.dim[d] = below(3) == 0 || count > 1 << 12 ? 1 : 1 + below(4);
        count *= shape.dim[d];
    }
    return shape;
}

TEST(layout_of_broadcast_tensors) {
    for (int round = 0; round < 300; round++) {
        const mp_shape out = random_shape();
        int64_t stride[K_VIEWS][MP_RANK_MAX] = {{0}};
        for (int v = 0; v < K_VIEWS; v++) {
            mp_shape in = {.rank = (int32_t)below(out.rank + 1)};
            for (int d = 0; d < in.rank; d++) {
                in.dim[d] = below(3) == 0 ? 1 : out.dim[out.rank - in.rank + d];
            }
            mp_shape_broadcast_strides(&in, &out, stride[v]);
        }
        check_layout(&out, stride, 1 + (int)below(K_VIEWS));
    }
}

TEST(layout_of_any_strides) {
    for (int round = 0; round < 300; round++) {
        const mp_shape out = random_shape();
        int64_t stride[K_VIEWS][MP_RANK_MAX] = {{0}};
        for (int v = 0; v < K_VIEWS; v++) {
            mp_shape_strides(&out, stride[v]);
            for (int d = 0; d < out.rank; d++) {
                const int64_t other = below(out.rank);
                const int64_t kept = stride[v][d];
                if (below(3) == 0) { /* transposed */
                    stride[v][d] = stride[v][other];
                    stride[v][other] = kept;
                } else if (below(5) == 0) { /* walked back */
                    stride[v][d] = -kept;
                }
            }
        }
        check_layout(&out, stride, 1 + (int)below(K_VIEWS));
    }
}

TEST(layout_merges_what_is_contiguous) {
    const mp_shape shape = {.rank = 5, .dim = {2, 1, 3, 4, 5}};
    const mp_shape column = {.rank = 5, .dim = {2, 1, 3, 1, 1}};
    int64_t stride[2][MP_RANK_MAX];
    k_layout layout;
    mp_shape_strides(&shape, stride[0]);
    CHECK_OK(mp_layout_make(&shape, stride, 1, &layout));
    CHECK_EQ_INT(layout.rank, 1);
    CHECK_EQ_INT(layout.dim[0], 120);
    mp_shape_broadcast_strides(&column, &shape, stride[1]);
    CHECK_OK(mp_layout_make(&shape, stride, 2, &layout));
    CHECK_EQ_INT(layout.rank, 2);
    CHECK_EQ_INT(layout.dim[0], 6);
    CHECK_EQ_INT(layout.dim[1], 20);
    CHECK_OK(mp_layout_make(&(mp_shape){.rank = 0}, stride, 2, &layout));
    CHECK_EQ_INT(layout.rank, 1);
    CHECK_EQ_INT(layout.dim[0], 1);
}

TEST(layout_beyond_31_bits_is_wide) {
    const mp_shape most = {.rank = 2, .dim = {INT32_MAX, 1}};
    const mp_shape more = {.rank = 2, .dim = {(int64_t)1 << 30, 2}};
    int64_t stride[1][MP_RANK_MAX];
    k_layout layout;
    mp_shape_strides(&most, stride[0]);
    mp_layout_make(&most, stride, 1, &layout);
    CHECK(!layout.wide);
    mp_shape_strides(&more, stride[0]);
    mp_layout_make(&more, stride, 1, &layout);
    CHECK(layout.wide);
}

TEST(divider_divides) {
    for (int round = 0; round < 20000; round++) {
        const int bits = 1 + (int)below(31);
        const uint32_t mask = bits < 31 ? (1u << bits) - 1 : 0x7fffffffu;
        uint32_t divisor = (uint32_t)test_random(&row) & mask;
        if (round < 4096) {
            divisor = (uint32_t)round + 1;
        } else if (round % 7 == 0) {
            divisor = (1u << below(31)) + (uint32_t)below(3) - 1;
        }
        divisor = divisor == 0 ? 1 : divisor;
        const k_divider by = mp_divider(divisor);
        const uint32_t most = 0x7fffffffu;
        const uint32_t numbers[] = {0,
                                    1,
                                    divisor - 1,
                                    divisor,
                                    divisor < most ? divisor + 1 : most,
                                    most - 1,
                                    most,
                                    most / divisor * divisor,
                                    most / divisor * divisor - 1,
                                    (uint32_t)test_random(&row) & most,
                                    (uint32_t)test_random(&row) & mask};
        for (size_t i = 0; i < MP_COUNT_OF(numbers); i++) {
            CHECK_EQ_INT(k_divide(numbers[i], by), numbers[i] / divisor);
        }
    }
}

TEST(shape_of_packed_elements_is_whole_bytes) {
    static const struct {
        mp_dtype type;
        int64_t count;
        size_t bytes;
    } sizes[] = {{MP_I4, 1, 1},     {MP_I4, 2, 1}, {MP_U4, 3, 2}, {MP_F4E2M1, 8, 4},
                 {MP_U2, 4, 1},     {MP_I2, 5, 2}, {MP_U2, 0, 0}, {MP_F8E5M2, 3, 3},
                 {MP_F8E8M0, 5, 5}, {MP_I4, 0, 0}, {MP_U2, 17, 5}};
    for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
        const mp_shape shape = {.rank = 1, .dim = {sizes[i].count}};
        size_t bytes = 0;
        CHECK_OK(mp_shape_bytes(&shape, sizes[i].type, &bytes));
        CHECK_EQ_INT(bytes, sizes[i].bytes);
    }
    const mp_shape huge = {.rank = 2, .dim = {INT64_C(1) << 40, INT64_C(1) << 40}};
    size_t bytes = 0;
    CHECK_FAILS(mp_shape_bytes(&huge, MP_I4, &bytes), INVALID_ARGUMENT, "too large");
}

TEST(dtype_numbers_are_those_of_onnx) {
    CHECK(mp_dtype_of_onnx(22) == MP_I4 && mp_dtype_of_onnx(17) == MP_F8E4M3FN);
    CHECK(mp_dtype_of_onnx(24) == MP_F8E8M0 && mp_dtype_of_onnx(25) == MP_U2);
    CHECK(mp_dtype_of_onnx(26) == MP_I2 && mp_dtype_of_onnx(1) == MP_F32);
    CHECK(mp_dtype_of_onnx(8) == MP_NONE && mp_dtype_of_onnx(27) == MP_NONE);
    CHECK(mp_dtype_of_onnx(-1) == MP_NONE && mp_dtype_of_onnx(0) == MP_NONE);
}

TEST(shape_text_of_what_does_not_fit) {
    mp_shape shape = {.rank = MP_RANK_MAX};
    char text[MP_SHAPE_TEXT];
    for (int d = 0; d < MP_RANK_MAX; d++) {
        shape.dim[d] = INT64_MIN;
    }
    mp_shape_text(&shape, text);
    CHECK(strlen(text) < sizeof text && strcmp(text + strlen(text) - 4, "x...") == 0);
}
