/* compact_test.c - NonZero and Compress against plain loops, over many tiles, and what they refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_test.h"

#include <math.h>
#include <stdlib.h>

/* Zeros in runs and alone, none, or nothing else. */
static float sparse(uint64_t seed, int64_t i, int kind) {
    uint64_t state = seed * 977 + (uint64_t)i / (kind == 0 ? 1 : 300);
    return kind == 3 || test_random(&state) % 3 == 0 ? 0.0F : kind == 2 ? NAN : -2.5F;
}

static void check_nonzero(mp_device *device, const int64_t *dims, int rank, int kind) {
    op_case c = {.name = "NonZero", .version = 13, .in_count = 1, .out_count = 1};
    int64_t count = 1;
    for (int d = 0; d < rank; d++) {
        count *= dims[d];
    }
    float *x = calloc((size_t)count + 1, sizeof *x);
    CHECK(x != NULL);
    for (int64_t i = 0; i < count; i++) {
        x[i] = sparse(test_seed(), i, kind);
    }
    c.in[0] = op_tensor_of(MP_F32, x, rank, dims);
    op_run(device, &c);
    const int64_t rows = rank > 0 ? rank : 1, found = c.out[0].shape.dim[1];
    const int64_t *out = c.out[0].data;
    CHECK_EQ_INT(c.out[0].shape.dim[0], rows);
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        if (x[i] == 0) {
            continue;
        }
        CHECK(at < found);
        int64_t rest = i;
        for (int d = rank - 1; d >= 0; d--) {
            CHECK_EQ_INT(out[d * found + at], rest % dims[d]);
            rest /= dims[d];
        }
        at++;
    }
    CHECK_EQ_INT(at, found);
    free(x);
    op_close(device, &c);
}

DEVICE_TEST(compact_nonzero_finds_all_in_order) {
    static const int64_t dims[][3] = {{3, 5, 7}, {1, 1, 1}, {2, 0, 3}, {2, 3000, 3}, {1, 4096, 1}};
    for (size_t i = 0; i < MP_COUNT_OF(dims); i++) {
        for (int kind = 0; kind < 4; kind++) {
            check_nonzero(device, dims[i], 3, kind);
        }
    }
    for (int kind = 0; kind < 4; kind++) {
        check_nonzero(device, (const int64_t[]){20000}, 1, kind);
        check_nonzero(device, (const int64_t[]){4095 * kind + 4097}, 1, kind);
    }
    check_nonzero(device, (const int64_t[]){1030, 4096}, 2,
                  0); /* more tiles than one scan has lanes */
    check_nonzero(device, NULL, 0, 2);
    check_nonzero(device, NULL, 0, 3);
}

/* `size` bytes an element; the condition may be shorter than the axis. */
static void check_compress(mp_device *device, int64_t outer, int64_t dim, int64_t inner,
                           int64_t length, bool flat) {
    const mp_attr axis = OP_INT("axis", 1);
    const int64_t count = outer * dim * inner;
    int16_t *x = calloc((size_t)count + 1, sizeof *x);
    uint8_t *condition = calloc((size_t)length + 1, 1);
    CHECK(x != NULL && condition != NULL);
    for (int64_t i = 0; i < count; i++) {
        x[i] = (int16_t)(i * 7 + 1);
    }
    for (int64_t i = 0; i < length; i++) {
        condition[i] = sparse(test_seed() + 1, i, 0) != 0;
    }
    op_case c = {.name = "Compress", .version = 11, .in_count = 2, .out_count = 1};
    c.attrs = &axis;
    c.attr_count = flat ? 0 : 1;
    c.in[0] = OP_TENSOR(MP_I16, x, outer, dim, inner);
    c.in[1] = OP_TENSOR(MP_BOOL, condition, length);
    op_run(device, &c);
    const int16_t *out = c.out[0].data;
    const int64_t runs = flat ? 1 : outer, of = flat ? count : dim, each = flat ? 1 : inner;
    const int64_t valid = length < of ? length : of;
    int64_t at = 0;
    for (int64_t o = 0; o < runs; o++) {
        for (int64_t j = 0; j < valid; j++) {
            for (int64_t i = 0; condition[j] != 0 && i < each; i++) {
                CHECK_EQ_INT(out[at++], x[(o * of + j) * each + i]);
            }
        }
    }
    int64_t size = 1;
    for (int d = 0; d < c.out[0].shape.rank; d++) {
        size *= c.out[0].shape.dim[d];
    }
    CHECK_EQ_INT(at, size);
    free(x);
    free(condition);
    op_close(device, &c);
}

DEVICE_TEST(compact_compress_picks_slices) {
    check_compress(device, 3, 5, 4, 5, false);
    check_compress(device, 3, 5, 4, 3, false);
    check_compress(device, 2, 9000, 3, 9000, false);
    check_compress(device, 1, 4, 0, 4, false);
    check_compress(device, 4, 8, 8, 100, true);
    check_compress(device, 4, 8, 8, 300, true); /* longer than there are elements */
    check_compress(device, 2, 3, 2, 0, false);
}

DEVICE_TEST(compact_refuses) {
    static const uint8_t condition[4] = {1, 1, 0, 1};
    static const int64_t too_many[MP_FOUND_MAX] = {5};
    op_case c = {.name = "Compress", .version = 11, .in_count = 2, .out_count = 1};
    mp_plan *plan = NULL;
    c.in[0] = OP_TENSOR(MP_F32, NULL, 2, 2);
    c.in[1] = OP_TENSOR(MP_BOOL, condition, 2, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "rank 1");
    c.in[1] = OP_TENSOR(MP_BOOL, condition, 4);
    CHECK_FAILS(op_finish(device, &c, too_many, &plan), DEVICE, "5 of 4");
    op_close(device, &c);
}

/* A capture cannot wait for a count. It must not be broken by the attempt. */
DEVICE_TEST(compact_leaves_a_capture_alone) {
    static const float x[4] = {1, 0, 2, 0};
    int64_t found[MP_FOUND_MAX] = {0};
    op_case c = {.name = "NonZero", .version = 13, .in_count = 1, .out_count = 1};
    mp_plan *plan = NULL;
    mp_stream *stream = NULL;
    mp_graph_exec *graph = NULL;
    mp_addr memory = 0, scratch = 0;
    c.in[0] = op_f32(x, 4);
    CHECK_OK(op_plan(device, &c, &plan));
    const size_t size = mp_plan_scratch_bytes(plan);
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->alloc(device, sizeof x, &memory));
    CHECK_OK(device->ops->alloc(device, size, &scratch));
    CHECK_OK(device->ops->copy(device, NULL, memory, (mp_addr)x, sizeof x));
    CHECK_OK(device->ops->capture_begin(device, stream));
    CHECK_FAILS(mp_plan_run_count(plan, stream, &memory, scratch, found), UNSUPPORTED,
                "enable_cuda_graph");
    CHECK_OK(device->ops->capture_end(device, stream, &graph));
    CHECK_OK(mp_plan_run_count(plan, stream, &memory, scratch, found));
    CHECK_EQ_INT(found[0], 2);
    device->ops->graph_destroy(device, graph);
    device->ops->free(device, memory, sizeof x);
    device->ops->free(device, scratch, size);
    device->ops->stream_destroy(device, stream);
    mp_plan_release(plan);
    op_close(device, &c);
}
