/* broadcast_test.c - inputs that are repeated along the output: every way in which a row can lie in
 * the packs of a kernel, tensors that start anywhere, output in place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include "op/kernel_cache.h"

#include <math.h>
#include <stdlib.h>

/* ---- where the elements lie ---- */

enum { LENGTH = -1, VIEWS = 3 }; /* LENGTH stands for the row's length, which varies */

static const mp_shape forms[][VIEWS] = {
    {{2, {3, LENGTH}}, {2, {3, LENGTH}}, {2, {3, LENGTH}}},
    {{2, {3, LENGTH}}, {1, {LENGTH}}, {2, {3, 1}}},
    {{2, {3, 1}}, {2, {3, LENGTH}}, {1, {LENGTH}}},
    {{2, {3, 1}}, {1, {LENGTH}}, {0, {0}}},
    {{3, {2, 3, LENGTH}}, {2, {3, 1}}, {3, {2, 1, LENGTH}}},
    {{2, {3, 1}}, {3, {2, 3, LENGTH}}, {3, {2, 1, 1}}},
    {{0, {0}}, {2, {3, LENGTH}}, {1, {1}}},
    {{10, {2, 1, 2, 1, 2, 1, 2, 1, 2, LENGTH}},
     {9, {2, 1, 2, 1, 2, 1, 2, 1, LENGTH}},
     {10, {1, 1, 1, 1, 1, 1, 2, 1, 2, 1}}}, /* more than a kernel walks */
    {{8, {2, 1, 2, 1, 2, 1, 1, LENGTH}}, {7, {2, 1, 2, 1, 2, 2, 1}}, {8, {1, 1, 1, 1, 1, 1, 1, 1}}},
};

/* About the packs of a GPU, 2 to 16 elements, and of the emulated device, 32. */
static const int64_t lengths[] = {1,  2,  3,  4,  5,  7,  8,  9,   15,  16,  17, 31,
                                  32, 33, 34, 63, 64, 65, 96, 127, 128, 129, 200};

static mp_shape shape_of(const mp_shape *form, int64_t length) {
    mp_shape shape = *form;
    for (int d = 0; d < shape.rank; d++) {
        shape.dim[d] = shape.dim[d] == LENGTH ? length : shape.dim[d];
    }
    return shape;
}

/* ---- running with each tensor where the test wants it ---- */

enum { GUARD = 64 }; /* bytes about a tensor, which must stay as they are */

typedef struct buffer {
    mp_addr base;
    size_t size; /* of the tensor */
    uint32_t skew;
} buffer;

static mp_addr data_of(const buffer *b) {
    return b->base + GUARD + b->skew;
}

static void transfer(mp_device *device, mp_stream *stream, mp_addr to, mp_addr from, size_t size) {
    CHECK_OK(device->ops->copy(device, stream, to, from, size));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
}

static buffer place_tensor(mp_device *device, mp_stream *stream, const op_tensor *tensor,
                           uint32_t skew) {
    buffer b = {.skew = skew};
    CHECK_OK(mp_shape_bytes(&tensor->shape, tensor->type, &b.size));
    CHECK_OK(device->ops->alloc(device, b.size + skew + 2 * GUARD, &b.base));
    unsigned char *bytes = malloc(b.size + skew + 2 * GUARD);
    CHECK(bytes != NULL);
    memset(bytes, 0xa5, b.size + skew + 2 * GUARD);
    if (tensor->data != NULL) {
        memcpy(bytes + GUARD + skew, tensor->data, b.size);
    }
    transfer(device, stream, b.base, (mp_addr)bytes, b.size + skew + 2 * GUARD);
    free(bytes);
    return b;
}

/* Gives: the tensor's bytes (free them). Ends the test if those about it have changed. */
static void *take_tensor(mp_device *device, mp_stream *stream, const buffer *b) {
    const size_t all = b->size + b->skew + 2 * GUARD;
    unsigned char *bytes = malloc(all);
    CHECK(bytes != NULL);
    transfer(device, stream, (mp_addr)bytes, b->base, all);
    for (size_t i = 0; i < all; i++) {
        const bool inside = i >= GUARD + b->skew && i < GUARD + b->skew + b->size;
        CHECK(inside || bytes[i] == 0xa5);
    }
    memmove(bytes, bytes + GUARD + b->skew, b->size);
    return bytes;
}

/* Runs the case with input i at in_skew[i] bytes and the output at out_skew, or where input
 * `in_place` is. Gives: the output's bytes. */
static void *run_at(mp_device *device, op_case *c, const uint32_t *in_skew, uint32_t out_skew,
                    int in_place) {
    mp_plan *plan = NULL;
    mp_stream *stream = NULL;
    buffer in[OP_INPUTS];
    mp_addr address[OP_INPUTS] = {0};
    c->out_count = 1;
    c->align = 1;
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(op_plan(device, c, &plan));
    for (int i = 0; i < c->in_count; i++) {
        in[i] = place_tensor(device, stream, &c->in[i], in_skew[i]);
        address[i] = data_of(&in[i]);
    }
    const mp_tensor *declared = mp_plan_output_at(plan, 0);
    c->out[0] = (op_tensor){.type = declared->type, .shape = declared->shape};
    buffer out = in_place >= 0 ? in[in_place] : place_tensor(device, stream, &c->out[0], out_skew);
    const mp_addr target = data_of(&out);
    mp_addr scratch = 0;
    const size_t scratch_size = mp_plan_scratch_bytes(plan) + 1;
    CHECK_OK(device->ops->alloc(device, scratch_size, &scratch));
    CHECK_OK(mp_plan_run(plan, stream, address, &target, scratch));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    void *result = take_tensor(device, stream, &out);
    device->ops->free(device, scratch, scratch_size);
    for (int i = 0; i < c->in_count; i++) {
        device->ops->free(device, in[i].base, in[i].size + in[i].skew + 2 * GUARD);
    }
    if (in_place < 0) {
        device->ops->free(device, out.base, out.size + out.skew + 2 * GUARD);
    }
    mp_plan_release(plan);
    device->ops->stream_destroy(device, stream);
    return result;
}

/* Elements by which the tensors of a run start late. */
static const uint32_t late[][VIEWS + 1] = {{0, 0, 0, 0}, {1, 0, 2, 0}, {0, 3, 1, 0}, {1, 1, 1, 1}};

/* ---- functions of two ---- */

static void check_pair(mp_device *device, const char *name, int version, mp_dtype type,
                       const mp_shape *left, const mp_shape *right, const uint32_t *skew,
                       int in_place) {
    const uint32_t size = (uint32_t)mp_dtype_size(type);
    const bool compares = strcmp(name, "Greater") == 0;
    void *x = op_numbers(type, 5, mp_shape_count(left));
    void *y = op_numbers(type, 6, mp_shape_count(right));
    op_case c = {.name = name,
                 .version = version,
                 .in = {{type, *left, x}, {type, *right, y}},
                 .in_count = 2};
    const uint32_t bytes[] = {skew[0] * size, skew[1] * size};
    void *out = run_at(device, &c, bytes, skew[VIEWS] * (compares ? 1 : size), in_place);
    const mp_shape *shape = &c.out[0].shape;
    for (int64_t i = 0; i < mp_shape_count(shape); i++) {
        const int64_t at_x = op_place(shape, left, i);
        const int64_t at_y = op_place(shape, right, i);
        if (op_is_float(type)) {
            const double a = op_real(type, x, at_x);
            const double b = op_real(type, y, at_y);
            op_check_close(op_real(c.out[0].type, out, i),
                           compares ? a > b : op_rounded(type, a - b), 0, name, i);
        } else {
            const int64_t a = op_whole(type, x, at_x);
            const int64_t b = op_whole(type, y, at_y);
            CHECK_EQ_INT(op_whole(c.out[0].type, out, i),
                         compares ? a > b : op_wrapped(type, a - b));
        }
    }
    free(out);
    free(x);
    free(y);
}

static void check_pairs(mp_device *device, const char *name, int version, mp_dtype type) {
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        for (size_t n = 0; n < MP_COUNT_OF(lengths); n++) {
            const mp_shape left = shape_of(&forms[f][0], lengths[n]);
            const mp_shape right = shape_of(&forms[f][1], lengths[n]);
            check_pair(device, name, version, type, &left, &right, late[n % MP_COUNT_OF(late)], -1);
            check_pair(device, name, version, type, &right, &left, late[0], -1);
        }
    }
    mp_kernel_cache_drop(device);
}

DEVICE_TEST(broadcast_meets_every_row_end) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_U8, MP_I64};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        check_pairs(device, "Sub", 14, types[t]);
    }
    check_pairs(device, "Greater", 13, MP_F32);
    check_pairs(device, "Greater", 13, MP_I16);
}

/* The output is the input that is as large. */
DEVICE_TEST(broadcast_in_place) {
    for (size_t n = 0; n < MP_COUNT_OF(lengths); n++) {
        const mp_shape large = {3, {2, 3, lengths[n]}};
        const mp_shape small = {2, {3, 1}};
        const mp_shape row = {1, {lengths[n]}};
        check_pair(device, "Sub", 14, MP_F32, &large, &small, late[n % 2], 0);
        check_pair(device, "Sub", 14, MP_F32, &row, &large, late[n % 2], 1);
        check_pair(device, "Sub", 14, MP_U8, &large, &large, late[n % 2], 1);
    }
    mp_kernel_cache_drop(device);
}

/* ---- Where, Pow ---- */

static void check_where(mp_device *device, mp_dtype type, size_t form, int64_t length,
                        const uint32_t *skew) {
    const uint32_t size = (uint32_t)mp_dtype_size(type);
    mp_shape shape[VIEWS];
    for (int v = 0; v < VIEWS; v++) {
        shape[v] = shape_of(&forms[form][v], length);
    }
    /* The whole tensor is the condition or a side, by turns. */
    const mp_shape *of[] = {&shape[length % 3], &shape[(length + 1) % 3], &shape[(length + 2) % 3]};
    uint8_t *condition = op_memory(MP_BOOL, mp_shape_count(of[0]));
    void *x = op_numbers(type, 2, mp_shape_count(of[1]));
    void *y = op_numbers(type, 3, mp_shape_count(of[2]));
    for (int64_t i = 0; i < mp_shape_count(of[0]); i++) {
        condition[i] = i % 3 == 0;
    }
    op_case c = {.name = "Where",
                 .version = 16,
                 .in = {{MP_BOOL, *of[0], condition}, {type, *of[1], x}, {type, *of[2], y}},
                 .in_count = 3};
    const uint32_t bytes[] = {skew[0], skew[1] * size, skew[2] * size};
    char *out = run_at(device, &c, bytes, skew[VIEWS] * size, -1);
    const mp_shape *whole = &c.out[0].shape;
    for (int64_t i = 0; i < mp_shape_count(whole); i++) {
        const bool first = condition[op_place(whole, of[0], i)] != 0;
        const char *from = first ? x : y;
        const int64_t at = op_place(whole, of[first ? 1 : 2], i);
        CHECK(memcmp(out + (size_t)i * size, from + (size_t)at * size, size) == 0);
    }
    free(out);
    free(condition);
    free(x);
    free(y);
}

DEVICE_TEST(where_meets_every_row_end) {
    static const mp_dtype types[] = {MP_U8, MP_F16, MP_F32, MP_F64};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
            for (size_t n = 0; n < MP_COUNT_OF(lengths); n++) {
                check_where(device, types[t], f, lengths[n], late[(n + f) % MP_COUNT_OF(late)]);
            }
        }
    }
    mp_kernel_cache_drop(device);
}

/* Exponents of one pack alike and not: what is multiplied out and what is not. */
static void check_pow(mp_device *device, mp_dtype base, mp_dtype exponent, const mp_shape *left,
                      const mp_shape *right, const uint32_t *skew) {
    static const double powers[] = {2, 2, 3, 1, 2, 3, 4};
    void *x = op_memory(base, mp_shape_count(left));
    void *y = op_memory(exponent, mp_shape_count(right));
    for (int64_t i = 0; i < mp_shape_count(left); i++) {
        op_store_real(base, x, i, (double)(i % 7) - 3);
    }
    for (int64_t i = 0; i < mp_shape_count(right); i++) {
        op_store_real(exponent, y, i, powers[i / 16 % (int64_t)MP_COUNT_OF(powers)]);
    }
    op_case c = {.name = "Pow",
                 .version = 15,
                 .in = {{base, *left, x}, {exponent, *right, y}},
                 .in_count = 2};
    const uint32_t bytes[] = {skew[0] * (uint32_t)mp_dtype_size(base),
                              skew[1] * (uint32_t)mp_dtype_size(exponent)};
    void *out = run_at(device, &c, bytes, skew[VIEWS] * (uint32_t)mp_dtype_size(base), -1);
    const mp_shape *shape = &c.out[0].shape;
    for (int64_t i = 0; i < mp_shape_count(shape); i++) {
        const double a = op_real(base, x, op_place(shape, left, i));
        const int power = (int)op_real(exponent, y, op_place(shape, right, i));
        double want = 1;
        for (int k = 0; k < power; k++) {
            want *= a;
        }
        /* powf of a GPU may be some units of the last place off. */
        op_check_close(op_real(base, out, i), want, op_is_float(base) ? 1e-6 : 0, "Pow", i);
    }
    free(out);
    free(x);
    free(y);
}

DEVICE_TEST(pow_meets_every_row_end) {
    static const mp_dtype types[][2] = {
        {MP_F32, MP_F32}, {MP_F16, MP_I64}, {MP_F64, MP_F16}, {MP_I32, MP_F32}};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
            for (size_t n = f % 2; n < MP_COUNT_OF(lengths); n += 2) {
                const mp_shape left = shape_of(&forms[f][0], lengths[n]);
                const mp_shape right = shape_of(&forms[f][1], lengths[n]);
                const uint32_t *skew = late[n % MP_COUNT_OF(late)];
                check_pow(device, types[t][0], types[t][1], &left, &right, skew);
            }
        }
    }
    mp_kernel_cache_drop(device);
}

/* ---- BatchNormalization: two numbers a channel ---- */

static void check_channels(mp_device *device, mp_dtype type, const mp_shape *shape, int axis,
                           const uint32_t *skew) {
    enum { CHANNELS_MAX = 200, VECTORS = 4 };
    const int64_t channels = shape->dim[axis];
    const uint32_t size = (uint32_t)mp_dtype_size(type);
    void *x = op_numbers(type, 7, mp_shape_count(shape));
    double numbers[VECTORS][CHANNELS_MAX];
    op_case c = {.domain = axis == 1 ? NULL : "com.ms.internal.nhwc",
                 .name = "BatchNormalization",
                 .version = 15,
                 .in = {{type, *shape, x}},
                 .in_count = 1 + VECTORS};
    for (int v = 0; v < VECTORS; v++) {
        void *vector = op_memory(type, channels);
        for (int64_t k = 0; k < channels; k++) {
            numbers[v][k] = (double)((k * 5 + v) % 7 + 1) / 4;
            op_store_real(type, vector, k, numbers[v][k]);
        }
        c.in[1 + v] = op_tensor_of(type, vector, 1, &channels);
    }
    const uint32_t bytes[1 + VECTORS] = {skew[0] * size, skew[1] * size, 0, 0, skew[2] * size};
    void *out = run_at(device, &c, bytes, skew[VIEWS] * size, -1);
    int64_t inner = 1;
    for (int d = axis + 1; d < shape->rank; d++) {
        inner *= shape->dim[d];
    }
    for (int64_t i = 0; i < mp_shape_count(shape); i++) {
        const int64_t k = i / inner % channels;
        const double scale = numbers[0][k] / sqrt(numbers[3][k] + 1e-5);
        const double want = (op_real(type, x, i) - numbers[2][k]) * scale + numbers[1][k];
        /* Folded into x * a + b, in float for narrow types: a few roundings of large summands. */
        op_check_close(op_real(type, out, i), want, op_precision(type) + 1e-5, "out", i);
    }
    for (int v = 0; v < VECTORS; v++) {
        free((void *)(uintptr_t)c.in[1 + v].data);
    }
    free(out);
    free(x);
}

DEVICE_TEST(channels_meet_every_row_end) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_F64};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (size_t n = 0; n < MP_COUNT_OF(lengths); n++) {
            const mp_shape first = {4, {2, 3, 1, lengths[n]}};
            const mp_shape last = {4, {2, 3, 2, lengths[n]}};
            const uint32_t *skew = late[n % MP_COUNT_OF(late)];
            check_channels(device, types[t], &first, 1, skew);
            check_channels(device, types[t], &last, 3, skew);
        }
    }
    mp_kernel_cache_drop(device);
}
