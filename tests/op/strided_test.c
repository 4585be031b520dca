/* strided_test.c - Expand and Slice of every element size against a walk over coordinates: rows of
 * any length, repeated, in steps and backwards, from starts that are not aligned; and the kernel's
 * way through a space that is too large for 32 bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/move_args.h"
#include "op/core/kernel_cache.h"
#include "op/op_value.h"

#include <stdlib.h>

static const mp_dtype widths[] = {MP_U8, MP_F16, MP_F32, MP_F64}; /* 1, 2, 4 and 8 bytes */

static uint64_t draws = 1;

static int64_t below(int64_t count) {
    return (int64_t)(test_random(&draws) % (uint64_t)count);
}

static unsigned char *random_bytes(size_t size) {
    unsigned char *bytes = malloc(size + 1);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)below(256);
    }
    return bytes;
}

/* Output element `i` is that of x at start[d] + coordinate * step[d] along each of its axes. */
static int64_t source_of(const mp_shape *x, const mp_shape *out, const int64_t *start,
                         const int64_t *step, int64_t i) {
    int64_t offset = 0;
    int64_t size = 1;
    for (int d = out->rank - 1; d >= 0; d--) {
        offset += (start[d] + i % out->dim[d] * step[d]) * size;
        i /= out->dim[d];
        size *= x->dim[d];
    }
    return offset;
}

static void check_elements(const op_case *c, const int64_t *start, const int64_t *step) {
    const op_tensor *x = &c->in[0];
    const op_tensor *out = &c->out[0];
    const size_t size = mp_dtype_size(x->type);
    const int64_t count = mp_shape_count(&out->shape);
    for (int64_t i = 0; i < count; i++) {
        const int64_t from = source_of(&x->shape, &out->shape, start, step, i);
        if (memcmp((const char *)out->data + (size_t)i * size,
                   (const char *)x->data + (size_t)from * size, size) != 0) {
            char text[MP_SHAPE_TEXT];
            char of[MP_SHAPE_TEXT];
            test_fail(__FILE__, __LINE__, "%s %s of %s of %s, skew %u: element %lld is another",
                      c->name, mp_shape_text(&out->shape, text), mp_dtype_name(x->type),
                      mp_shape_text(&x->shape, of), c->skew, (long long)i);
        }
    }
}

/* ---- Expand ---- */

static void check_expand(mp_device *device, mp_dtype type, int rank, const int64_t *dims,
                         const int64_t *want, int skew) {
    const op_tensor in = op_tensor_of(type, NULL, rank, dims);
    const size_t size = mp_dtype_size(type);
    unsigned char *x = random_bytes((size_t)mp_shape_count(&in.shape) * size);
    const int64_t zero[MP_RANK_MAX] = {0};
    int64_t step[MP_RANK_MAX];
    for (int d = 0; d < rank; d++) {
        step[d] = dims[d] == 1 ? 0 : 1;
    }
    op_case c = {.name = "Expand",
                 .version = 13,
                 .align = skew != 0 ? 1 : 16,
                 .skew = (uint32_t)((size_t)skew * size),
                 .in = {{type, in.shape, x}, op_i64(want, rank)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    check_elements(&c, zero, step);
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(expand_rows_of_any_length) {
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (int64_t n = 1; n <= 70; n++) {
            const int skew = (int)(n % 3);
            check_expand(device, widths[w], 2, (const int64_t[]){7, 1}, (const int64_t[]){7, n},
                         skew);
            check_expand(device, widths[w], 2, (const int64_t[]){1, n}, (const int64_t[]){5, n},
                         skew);
            check_expand(device, widths[w], 3, (const int64_t[]){3, 1, n},
                         (const int64_t[]){3, 4, n}, skew);
        }
    }
}

DEVICE_TEST(expand_long_rows) {
    enum { LENGTH = 320 }; /* words of every type, and what is left over */
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (int64_t times = 1; times <= 9; times++) {
            check_expand(device, widths[w], 2, (const int64_t[]){1, LENGTH},
                         (const int64_t[]){times, LENGTH}, 0);
            check_expand(device, widths[w], 3, (const int64_t[]){3, 1, LENGTH + times},
                         (const int64_t[]){3, times, LENGTH + times}, 0);
            check_expand(device, widths[w], 3, (const int64_t[]){3, 1, LENGTH},
                         (const int64_t[]){3, times, LENGTH}, 0);
            check_expand(device, widths[w], 4, (const int64_t[]){2, 1, 2, LENGTH},
                         (const int64_t[]){2, times, 2, LENGTH}, 0);
        }
    }
}

DEVICE_TEST(expand_any_axes) {
    for (int k = 0; k < 200; k++) {
        const int rank = 1 + (int)below(MP_RANK_MAX);
        int64_t dims[MP_RANK_MAX];
        int64_t want[MP_RANK_MAX];
        int64_t count = 1;
        for (int d = 0; d < rank; d++) {
            want[d] = 1 + below(count > 500 ? 2 : 19);
            dims[d] = below(2) == 0 ? 1 : want[d];
            count *= want[d];
        }
        check_expand(device, widths[below(4)], rank, dims, want, (int)below(3));
    }
}

/* ---- Slice ---- */

static void check_slice(mp_device *device, mp_dtype type, int rank, const int64_t *dims,
                        const int64_t *start, const int64_t *step, const int64_t *want, int skew) {
    const op_tensor in = op_tensor_of(type, NULL, rank, dims);
    const size_t size = mp_dtype_size(type);
    unsigned char *x = random_bytes((size_t)mp_shape_count(&in.shape) * size);
    int64_t end[MP_RANK_MAX];
    int64_t axes[MP_RANK_MAX];
    for (int d = 0; d < rank; d++) {
        axes[d] = d;
        end[d] = start[d] + (want[d] - 1) * step[d] + (step[d] > 0 ? 1 : -1);
        end[d] = end[d] < 0 ? INT64_MIN : end[d]; /* backwards as far as there is */
    }
    op_case c = {.name = "Slice",
                 .version = 13,
                 .align = skew != 0 ? 1 : 16,
                 .skew = (uint32_t)((size_t)skew * size),
                 .in = {{type, in.shape, x},
                        op_i64(start, rank),
                        op_i64(end, rank),
                        op_i64(axes, rank),
                        op_i64(step, rank)},
                 .in_count = 5,
                 .out_count = 1};
    op_run(device, &c);
    const op_tensor shape = op_tensor_of(type, NULL, rank, want);
    CHECK(mp_shape_equal(&c.out[0].shape, &shape.shape));
    check_elements(&c, start, step);
    op_close(device, &c);
    free(x);
}

/* Rows begin and end anywhere, so that what a lane writes at once comes from two of them. */
DEVICE_TEST(slice_rows_of_any_length) {
    static const int64_t steps[] = {1, 2, 3, -1, -2};
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (int64_t n = 1; n <= 70; n++) {
            const int64_t step = steps[n % 5];
            const int64_t reach = (n - 1) * (step > 0 ? step : -step);
            const int64_t dims[] = {9, reach + 3};
            const int64_t start[] = {1, step > 0 ? 2 : reach + 1};
            check_slice(device, widths[w], 2, dims, start, (const int64_t[]){1, step},
                        (const int64_t[]){7, n}, (int)(n % 4));
        }
    }
}

DEVICE_TEST(slice_any_axes) {
    for (int k = 0; k < 200; k++) {
        const int rank = 1 + (int)below(MP_RANK_MAX);
        int64_t dims[MP_RANK_MAX];
        int64_t start[MP_RANK_MAX];
        int64_t step[MP_RANK_MAX];
        int64_t want[MP_RANK_MAX];
        int64_t count = 1;
        for (int d = 0; d < rank; d++) {
            want[d] = 1 + below(count > 200 ? 2 : 13);
            const int64_t stride = 1 + below(3);
            const int64_t reach = (want[d] - 1) * stride;
            const bool back = below(3) == 0;
            const int64_t before = below(3);
            dims[d] = count > 200 ? before + reach + 1 : before + reach + 1 + below(3);
            start[d] = back ? before + reach : before;
            step[d] = back ? -stride : stride;
            count *= dims[d];
            if (count > 20000) {
                dims[d] = want[d] = step[d] = 1;
                start[d] = 0;
            }
            count = count > 20000 ? 20000 : count;
        }
        check_slice(device, widths[below(4)], rank, dims, start, step, want, (int)below(3));
    }
}

/* ---- the kernel itself ---- */

/* Spaces of 2^31 elements are too large for a test: a small one that says so takes the same way. */
DEVICE_TEST(strided_copy_of_a_wide_space) {
    enum { ROWS = 6, COLUMNS = 11, DEEP = 5, COUNT = ROWS * COLUMNS * DEEP };
    const mp_kernel *kernel = NULL;
    mp_stream *stream = NULL;
    mp_addr memory = 0;
    float x[COUNT];
    float got[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)i;
    }
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->alloc(device, 2 * sizeof x, &memory));
    CHECK_OK(device->ops->copy(device, stream, memory, (mp_addr)x, sizeof x));
    CHECK_OK(mp_kernel_cache_get(device, "strided_copy_b32", &kernel));
    const mp_shape shape = {.rank = 3, .dim = {COLUMNS, DEEP, ROWS}};
    int64_t stride[2][MP_RANK_MAX] = {{DEEP, 1, COLUMNS * DEEP}, {DEEP * ROWS, ROWS, 1}};
    for (int in_order = 0; in_order < 2; in_order++) {
        mp_strided_copy_args args = {.x = (const void *)memory,
                                     .out = (void *)(memory + sizeof x),
                                     .count = COUNT,
                                     .in_order = in_order};
        mp_layout_make(&shape, stride, 2, &args.layout);
        args.layout.wide = 1;
        memset(args.layout.divider, 0, sizeof args.layout.divider);
        const mp_grid grid = {.blocks = 2, .lanes = 64};
        CHECK_OK(device->ops->launch(device, stream, kernel, grid, &args, sizeof args));
        CHECK_OK(device->ops->copy(device, stream, (mp_addr)got, memory + sizeof x, sizeof got));
        CHECK_OK(device->ops->stream_synchronize(device, stream));
        for (int i = 0; i < COUNT; i++) {
            CHECK(got[i] == x[i % ROWS * COLUMNS * DEEP + i / ROWS]);
        }
    }
    device->ops->free(device, memory, 2 * sizeof x);
    device->ops->stream_destroy(device, stream);
    mp_kernel_cache_drop(device);
}
