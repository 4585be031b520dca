/* pad_test.c - Pad and Tile against a loop over every element and axis, and what must be refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

static const mp_dtype widths[] = {MP_U8, MP_F16, MP_F32, MP_F64}; /* 1, 2, 4 and 8 bytes */
static const char *const modes[] = {"constant", "edge", "reflect", "wrap"};

enum { FILLING = 77 };

/* The coordinate of x along an axis of `size` elements that NumPy shows at c, which may lie before
 * or behind them; -1 for the filling. Written as single steps, unlike the kernel. */
static int64_t shown(const char *mode, int64_t c, int64_t size) {
    if (c >= 0 && c < size) {
        return c;
    }
    if (strcmp(mode, "constant") == 0) {
        return -1;
    }
    if (strcmp(mode, "edge") == 0) {
        return c < 0 ? 0 : size - 1;
    }
    if (strcmp(mode, "wrap") == 0) {
        return shown(mode, c < 0 ? c + size : c - size, size);
    }
    return size == 1 ? 0 : shown(mode, c < 0 ? -c : 2 * (size - 1) - c, size);
}

static void check_pad(mp_device *device, const char *mode, mp_dtype type, int rank,
                      const int64_t *dims, const int64_t *pads, uint32_t skew) {
    const op_tensor in = op_tensor_of(type, NULL, rank, dims);
    void *x = op_numbers(type, 3, mp_shape_count(&in.shape));
    void *value = op_memory(type, 1);
    op_store_real(type, value, 0, FILLING);
    const mp_attr attrs[] = {OP_TEXT("mode", mode)};
    op_case c = {.name = "Pad",
                 .version = 25,
                 .attrs = attrs,
                 .attr_count = 1,
                 .align = skew > 0 ? 1 : 16,
                 .skew = skew,
                 .in = {{type, in.shape, x},
                        op_tensor_of(MP_I64, pads, 1, (const int64_t[]){2 * rank}),
                        op_tensor_of(type, value, 0, NULL)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    const mp_shape *out = &c.out[0].shape;
    const int64_t count = mp_shape_count(out);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        int64_t stride = 1;
        int64_t rest = i;
        for (int d = rank - 1; d >= 0; d--) {
            const int64_t cut = pads[d] < 0 ? -pads[d] : 0;
            const int64_t cut_behind = pads[rank + d] < 0 ? -pads[rank + d] : 0;
            const int64_t size = dims[d] - cut - cut_behind;
            const int64_t from = shown(mode, rest % out->dim[d] - pads[d] - cut, size);
            rest /= out->dim[d];
            at = from < 0 || at < 0 ? -1 : at + (from + cut) * stride;
            stride *= dims[d];
        }
        const double want = at < 0 ? FILLING : op_real(type, x, at);
        const double got = op_real(type, c.out[0].data, i);
        if (got < want || got > want) {
            test_fail(__FILE__, __LINE__, "%s of %s: element %lld is %g, not %g", mode,
                      mp_dtype_name(type), (long long)i, got, want);
        }
    }
    op_close(device, &c);
    free(x);
    free(value);
}

static void check_pads(mp_device *device, int rank, const int64_t *dims, const int64_t *pads) {
    for (size_t m = 0; m < MP_COUNT_OF(modes); m++) {
        for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
            check_pad(device, modes[m], widths[w], rank, dims, pads, 0);
            check_pad(device, modes[m], widths[w], rank, dims, pads, 8);
        }
    }
}

DEVICE_TEST(pad_by_less_and_more_than_the_size) {
    check_pads(device, 1, (const int64_t[]){5}, (const int64_t[]){2, 3});
    check_pads(device, 1, (const int64_t[]){3}, (const int64_t[]){11, 14});
    check_pads(device, 1, (const int64_t[]){1}, (const int64_t[]){4, 2});
    check_pads(device, 2, (const int64_t[]){3, 5}, (const int64_t[]){1, 2, 0, 7});
    check_pads(device, 3, (const int64_t[]){2, 3, 7}, (const int64_t[]){0, 1, 0, 0, 2, 1});
}

DEVICE_TEST(pad_in_wide_units) {
    check_pads(device, 2, (const int64_t[]){3, 32}, (const int64_t[]){1, 16, 2, 16});
    check_pads(device, 3, (const int64_t[]){2, 3, 16}, (const int64_t[]){0, 1, 0, 0, 1, 0});
    check_pads(device, 4, (const int64_t[]){2, 2, 3, 8}, (const int64_t[]){1, 0, 0, 8, 0, 1, 0, 0});
    check_pads(device, 3, (const int64_t[]){4, 6, 48}, (const int64_t[]){1, -2, -16, 0, 1, 32});
}

DEVICE_TEST(pad_crops_first) {
    check_pads(device, 2, (const int64_t[]){5, 6}, (const int64_t[]){-1, 2, 3, -2});
    check_pads(device, 2, (const int64_t[]){5, 6}, (const int64_t[]){-2, -1, -1, -3});
    check_pads(device, 3, (const int64_t[]){2, 5, 4}, (const int64_t[]){0, -4, 1, 0, 3, 0});
}

DEVICE_TEST(pad_of_rank_8) {
    check_pads(device, 8, (const int64_t[]){2, 1, 2, 3, 1, 2, 2, 3},
               (const int64_t[]){1, 0, 0, 1, 2, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 2});
}

DEVICE_TEST(pad_of_rank_11) {
    check_pads(device, 11, (const int64_t[]){2, 1, 2, 2, 1, 2, 2, 2, 1, 2, 3},
               (const int64_t[]){1, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 2});
    check_pads(device, 9, (const int64_t[]){3, 3, 2, 2, 2, 2, 2, 3, 3},
               (const int64_t[]){-1, 0, 1, 0, 1, 1, 0, 1, -1, 0, -1, 0, 1, 1, 0, 1, -1, 1});
}

DEVICE_TEST(pad_takes_the_value_of_old_versions) {
    const uint16_t half[] = {0x3c00, 0x4000};                 /* 1, 2 */
    const uint16_t want[] = {0xb800, 0x3c00, 0x4000, 0xb800}; /* -0.5 around them */
    const mp_attr attrs[] = {OP_INTS("pads", 1, 1), OP_FLOAT("value", -0.5f)};
    op_case c = {.name = "Pad",
                 .version = 2,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {OP_TENSOR(MP_F16, half, 2)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
}

DEVICE_TEST(pad_refuses_what_makes_no_sense) {
    const float x[] = {1, 2, 3, 4};
    const int64_t pads[] = {0, -3, 0, -2};
    mp_plan *plan = NULL;
    op_case c = {.name = "Pad",
                 .version = 13,
                 .in = {op_f32(x, 1, 4), op_i64(pads, 4)},
                 .in_count = 2,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not fit axis 1 of 4 elements");
    c.in[1] = op_i64(pads, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "pads has 2 values");
    const int64_t huge[] = {0, INT64_MAX, 0, 1};
    c.in[1] = op_i64(huge, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not fit axis 1");
    const int64_t some[] = {0, 1, 0, 1};
    const mp_attr edge[] = {OP_TEXT("mode", "edge")};
    const mp_attr other[] = {OP_TEXT("mode", "mirror")};
    c.in[0] = op_f32(x, 1, 0);
    c.in[1] = op_i64(some, 4);
    c.attrs = edge;
    c.attr_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "nothing to repeat along axis 1");
    c.attrs = other;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "mode 'mirror' is not known");
    const int64_t axes[] = {1, -1};
    c.version = 18;
    c.attr_count = 0;
    c.in[3] = op_i64(axes, 2);
    c.in_count = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "names axis 1 twice");
}

/* ---- Tile ---- */

static void check_tile(mp_device *device, mp_dtype type, int rank, const int64_t *dims,
                       const int64_t *repeats, uint32_t skew) {
    const op_tensor in = op_tensor_of(type, NULL, rank, dims);
    void *x = op_numbers(type, 5, mp_shape_count(&in.shape));
    op_case c = {
        .name = "Tile",
        .version = 13,
        .align = skew > 0 ? 1 : 16,
        .skew = skew,
        .in = {{type, in.shape, x}, op_tensor_of(MP_I64, repeats, 1, (const int64_t[]){rank})},
        .in_count = 2,
        .out_count = 1};
    op_run(device, &c);
    const mp_shape *out = &c.out[0].shape;
    const size_t size = mp_dtype_size(type);
    for (int64_t i = 0; i < mp_shape_count(out); i++) {
        int64_t at = 0;
        int64_t stride = 1;
        int64_t rest = i;
        for (int d = rank - 1; d >= 0; d--) {
            CHECK(out->dim[d] == dims[d] * repeats[d]);
            at += rest % out->dim[d] % dims[d] * stride;
            rest /= out->dim[d];
            stride *= dims[d];
        }
        CHECK(memcmp((const char *)c.out[0].data + (size_t)i * size,
                     (const char *)x + (size_t)at * size, size) == 0);
    }
    op_close(device, &c);
    free(x);
}

static void check_kept(mp_device *device, mp_dtype type, const mp_shape *x, int64_t kept,
                       int64_t size) {
    const mp_attr attrs[] = {OP_INT("kept", kept),
                             OP_INT("size", size),
                             {.name = "value", .kind = MP_ATTR_FLOAT, .f = FILLING}};
    void *data = op_numbers(type, 3, mp_shape_count(x));
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "KeepFirst",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .align = 16,
                 .in = {{type, *x, data}},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    const int64_t width = x->dim[x->rank - 1];
    CHECK_EQ_INT(c.out[0].shape.dim[x->rank - 1], size);
    for (int64_t i = 0; i < mp_shape_count(&c.out[0].shape); i++) {
        const int64_t row = i / size, d = i % size;
        const double want = d < kept ? op_real(type, data, row * width + d) : FILLING;
        CHECK(op_real(type, c.out[0].data, i) == want);
    }
    op_close(device, &c);
    free(data);
}

DEVICE_TEST(keep_first_of_rows) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    static const mp_shape image = {.rank = 4, .dim = {2, 3, 5, 32}}, row = {.rank = 1, .dim = {7}};
    static const mp_shape none = {.rank = 3, .dim = {0, 3, 8}};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        check_kept(device, types[t], &image, 27, 40);
        check_kept(device, types[t], &image, 24, 48);
        check_kept(device, types[t], &image, 32, 38);
        check_kept(device, types[t], &image, 27, 27);
        check_kept(device, types[t], &image, 0, 8);
        check_kept(device, types[t], &row, 5, 9);
        check_kept(device, types[t], &none, 5, 9);
    }
}

DEVICE_TEST(keep_first_refuses_what_is_not_there) {
    const float x[] = {1, 2, 3, 4};
    const mp_attr more[] = {OP_INT("kept", 5), OP_INT("size", 8)};
    const mp_attr less[] = {OP_INT("kept", 3), OP_INT("size", 2)};
    mp_plan *plan = NULL;
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "KeepFirst",
                 .version = 1,
                 .attrs = more,
                 .attr_count = 2,
                 .in = {op_f32(x, 4)},
                 .in_count = 1,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "5 of 8 elements cannot be kept");
    c.attrs = less;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "3 of 2 elements cannot be kept");
}

DEVICE_TEST(tile_along_any_axes) {
    static const struct {
        int rank;
        int64_t dims[8], repeats[8];
    } cases[] = {
        {1, {7}, {5}},
        {2, {3, 16}, {4, 1}},
        {2, {3, 8}, {1, 3}},
        {2, {3, 256}, {5, 1}}, /* rows of many words */
        {3, {3, 2, 144}, {1, 9, 1}},
        {3, {2, 3, 272}, {2, 4, 1}},
        {3, {2, 3, 5}, {3, 1, 2}},
        {4, {2, 3, 2, 3}, {2, 2, 2, 2}},
        {6, {2, 3, 2, 1, 2, 4}, {2, 2, 2, 3, 2, 2}}, /* more dimensions than a copy has */
        {8, {2, 1, 2, 2, 2, 1, 2, 2}, {2, 3, 2, 1, 2, 2, 2, 2}},
    };
    for (size_t k = 0; k < MP_COUNT_OF(cases); k++) {
        for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
            check_tile(device, widths[w], cases[k].rank, cases[k].dims, cases[k].repeats, 0);
            check_tile(device, widths[w], cases[k].rank, cases[k].dims, cases[k].repeats, 8);
        }
    }
}

DEVICE_TEST(tile_refuses_what_makes_no_sense) {
    const float x[] = {1, 2, 3, 4};
    const int64_t repeats[] = {2, -1, INT64_MAX};
    mp_plan *plan = NULL;
    op_case c = {.name = "Tile",
                 .version = 13,
                 .in = {op_f32(x, 2, 2), op_i64(repeats, 2)},
                 .in_count = 2,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "the value -1 for axis 1");
    c.in[1] = op_i64(repeats, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "3 values for a tensor of rank 2");
    c.in[1] = op_i64(repeats + 2, 1);
    c.in[0] = op_f32(x, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "for axis 0");
}
