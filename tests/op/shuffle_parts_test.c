/* shuffle_parts_test.c - ShuffleParts of every element size against a loop over channels: packs of
 * two groups, parts and outputs that are not the groups, channels first and last, and the kernel's
 * way through what is too large for 32 bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/move_args.h"
#include "op/core/kernel_cache.h"
#include "op/op_value.h"

#include <stdlib.h>

enum { SIDES = 4 };

/* Channels of parts and outputs end with a 0 that is none; no outputs listed: all in one. */
typedef struct shuffle {
    int64_t rows, inner, groups;
    int64_t in[SIDES], out[SIDES];
    bool first; /* [rows, channels, inner], else [rows, inner, channels], of which each is a row */
    uint32_t absent, skew;
} shuffle;

static int listed(const int64_t *sizes) {
    int count = 0;
    while (count < SIDES && sizes[count] != 0) {
        count++;
    }
    return count;
}

static int64_t total(const int64_t *sizes) {
    int64_t all = 0;
    for (int i = 0; i < listed(sizes); i++) {
        all += sizes[i];
    }
    return all;
}

static op_tensor tensor(const shuffle *s, mp_dtype type, const void *data, int64_t channels) {
    return s->first ? OP_TENSOR(type, data, s->rows, channels, s->inner)
                    : OP_TENSOR(type, data, s->rows, s->inner, channels);
}

/* Where an element lies in a tensor of so many channels. */
static int64_t place(const shuffle *s, int64_t channels, int64_t row, int64_t channel, int64_t at) {
    return s->first ? (row * channels + channel) * s->inner + at
                    : (row * s->inner + at) * channels + channel;
}

/* The part that has a channel, which becomes one of that part. */
static int part_of(const int64_t *sizes, int64_t *channel) {
    int part = 0;
    for (; *channel >= sizes[part]; part++) {
        *channel -= sizes[part];
    }
    return part;
}

static void compare(const shuffle *s, const op_case *c, mp_dtype type) {
    const int64_t channels = total(s->in), each = channels / s->groups;
    const size_t size = mp_dtype_size(type);
    const int64_t whole[SIDES] = {channels};
    const int64_t *sizes = s->out[0] != 0 ? s->out : whole;
    for (int64_t i = 0; i < s->rows * channels * s->inner; i++) {
        const int64_t row = i / s->inner / channels, o = i / s->inner % channels, at = i % s->inner;
        int64_t from = o % s->groups * each + o / s->groups, to = o;
        const int p = part_of(s->in, &from), k = part_of(sizes, &to);
        const char *want =
            (const char *)c->in[p].data + (size_t)place(s, s->in[p], row, from, at) * size;
        const char *got =
            (const char *)c->out[k].data + (size_t)place(s, sizes[k], row, to, at) * size;
        if ((s->absent >> k & 1) == 0 && memcmp(got, want, size) != 0) {
            test_fail(__FILE__, __LINE__, "%s, channels %s: row %lld, channel %lld is another",
                      mp_dtype_name(type), s->first ? "first" : "last", (long long)row,
                      (long long)o);
        }
    }
}

static void check(mp_device *device, mp_dtype type, const shuffle *s) {
    const int ins = listed(s->in), outs = listed(s->out);
    const mp_attr attrs[] = {
        OP_INT("axis", s->first ? -2 : 2),
        OP_INT("groups", s->groups),
        {.name = "sizes", .kind = MP_ATTR_INTS, .ints = s->out, .count = (size_t)outs},
    };
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "ShuffleParts",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = outs > 0 ? 3 : 2,
                 .align = s->skew != 0 ? 1 : 16,
                 .skew = s->skew * (uint32_t)mp_dtype_size(type),
                 .out_absent = s->absent,
                 .in_count = ins,
                 .out_count = outs > 0 ? outs : 1};
    void *data[SIDES];
    for (int i = 0; i < ins; i++) {
        const int64_t count = s->rows * s->in[i] * s->inner;
        data[i] = op_memory(type, count);
        for (size_t b = 0; b < (size_t)count * mp_dtype_size(type); b++) {
            ((unsigned char *)data[i])[b] =
                (unsigned char)(op_value((uint64_t)i + 1, (int64_t)b) * 64);
        }
        c.in[i] = tensor(s, type, data[i], s->in[i]);
    }
    op_run(device, &c);
    compare(s, &c, type);
    op_close(device, &c);
    for (int i = 0; i < ins; i++) {
        free(data[i]);
    }
}

static void check_all(mp_device *device, const shuffle *list, size_t count) {
    static const mp_dtype widths[] = {MP_U8, MP_F16, MP_F32, MP_F64}; /* 1, 2, 4 and 8 bytes */
    for (size_t i = 0; i < count; i++) {
        for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
            shuffle s = list[i];
            check(device, widths[w], &s);
            s.first = true;
            check(device, widths[w], &s);
        }
    }
}

#define OF(rows_, inner_, groups_) .rows = (rows_), .inner = (inner_), .groups = (groups_)

/* As ShuffleNet has them: halves that are multiples of 1, 2 and 4 channels, and of more. */
DEVICE_TEST(shuffle_parts_of_halves) {
    static const shuffle list[] = {
        {OF(2, 49, 2), .in = {58, 58}, .out = {58, 58}},
        {OF(1, 196, 2), .in = {116, 116}, .out = {116, 116}},
        {OF(3, 7, 2), .in = {232, 232}, .out = {464}},
        {OF(2, 30, 2), .in = {64, 64}, .out = {64, 64}},
        {OF(2, 9, 2), .in = {24, 24}, .out = {24, 12, 12}},
        {OF(1, 5, 2), .in = {6, 6}},
        {OF(2, 11, 2), .in = {16}, .out = {8, 8}},
        {OF(1, 300, 2), .in = {48}},
        {OF(1, 1, 2), .in = {1, 1}, .out = {1, 1}},
    };
    check_all(device, list, MP_COUNT_OF(list));
}

/* Outputs of odd lengths, groups in several parts and parts in several groups, more groups. */
DEVICE_TEST(shuffle_parts_of_any) {
    static const shuffle list[] = {
        {OF(2, 9, 2), .in = {29, 29}, .out = {29, 29}},
        {OF(2, 13, 2), .in = {10, 20, 2}, .out = {5, 16, 11}},
        {OF(2, 8, 2), .in = {36, 4}, .out = {20, 20}},
        {OF(3, 4, 3), .in = {15, 15}, .out = {6, 24}},
        {OF(2, 16, 4), .in = {3, 5, 4, 12}, .out = {1, 23}},
        {OF(1, 17, 8), .in = {64}, .out = {60, 4}},
        {OF(2, 21, 3), .in = {24}},
        {OF(2, 32, 1), .in = {7, 9}, .out = {8, 8}},
        {OF(2, 6, 5), .in = {5, 5}},
    };
    check_all(device, list, MP_COUNT_OF(list));
}

/* Empty tensors and parts, outputs that are not wanted, places that are not aligned. */
DEVICE_TEST(shuffle_parts_at_edges) {
    static const shuffle list[] = {
        {OF(0, 9, 2), .in = {8, 8}, .out = {8, 8}},
        {OF(2, 0, 2), .in = {8, 8}, .out = {8, 8}},
        {OF(2, 9, 2), .in = {8, 8}, .out = {8, 8}, .absent = 1},
        {OF(2, 9, 3), .in = {8, 1}, .out = {4, 1, 4}, .absent = 2},
        {OF(2, 9, 2), .in = {8, 8}, .out = {8, 8}, .skew = 1},
        {OF(2, 9, 2), .in = {8, 8}, .skew = 3},
        {OF(2, 9, 2), .in = {16}, .skew = 1},
    };
    check_all(device, list, MP_COUNT_OF(list));
    void *x = op_numbers(MP_F32, 1, 12);
    const mp_attr attrs[] = {OP_INT("axis", 1), OP_INT("groups", 2), OP_INTS("sizes", 0, 4, 2)};
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "ShuffleParts",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 3,
                 .in = {op_f32(x, 2, 0), op_f32(x, 2, 6)},
                 .in_count = 2,
                 .out_count = 3};
    op_run(device, &c);
    const float *from = x, *wide = c.out[1].data, *narrow = c.out[2].data;
    CHECK_EQ_INT(mp_shape_count(&c.out[0].shape), 0);
    for (int row = 0; row < 2; row++) {
        for (int o = 0; o < 6; o++) {
            const float got = o < 4 ? wide[row * 4 + o] : narrow[row * 2 + o - 4];
            CHECK(got == from[row * 6 + o % 2 * 3 + o / 2]);
        }
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(shuffle_parts_refuses) {
    float x[12] = {0};
    const mp_attr attrs[] = {OP_INT("axis", 1), OP_INT("groups", 2), OP_INTS("sizes", 4, 2)};
    const op_case good = {.domain = MP_OWN_DOMAIN,
                          .name = "ShuffleParts",
                          .version = 1,
                          .attrs = attrs,
                          .attr_count = 3,
                          .in = {op_f32(x, 2, 3), op_f32(x, 2, 3)},
                          .in_count = 2,
                          .out_count = 2};
    mp_plan *plan = NULL;
    op_case c = good;
    c.in[1] = op_f32(x, 2, 4); /* 7 channels */
    CHECK(op_plan(device, &c, &plan) == MP_INVALID_ARGUMENT);
    c.in[1] = op_f32(x, 3, 3); /* other rows */
    CHECK(op_plan(device, &c, &plan) == MP_INVALID_ARGUMENT);
    c.in[1] = op_f32(x, 2, 5); /* 8 channels, of which 6 are cut */
    CHECK(op_plan(device, &c, &plan) == MP_INVALID_ARGUMENT);
    c = good;
    c.out_count = 1;
    CHECK(op_plan(device, &c, &plan) == MP_INVALID_ARGUMENT);
    mp_kernel_cache_drop(device);
}

/* ---- the kernel itself ---- */

/* 2^31 elements are too many for a test: few that say so take the same way. */
DEVICE_TEST(shuffle_parts_of_a_wide_space) {
    enum { ROWS = 3, HALF = 5, DEEP = 4, COUNT = ROWS * 2 * HALF * DEEP };
    const mp_kernel *kernel = NULL;
    mp_stream *stream = NULL;
    mp_addr memory = 0;
    float x[COUNT], got[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)i;
    }
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->alloc(device, 2 * sizeof x, &memory));
    CHECK_OK(device->ops->copy(device, stream, memory, (mp_addr)x, sizeof x));
    CHECK_OK(mp_kernel_cache_get(device, "shuffle_parts_b32", &kernel));
    const mp_shuffle_parts_args args = {
        .count = COUNT,
        .inner = DEEP,
        .groups = 2,
        .size = HALF,
        .parts = 2,
        .outs = 1,
        .wide = 1,
        .part = {{(const void *)memory, 0, HALF},
                 {(const void *)(memory + sizeof x / 2), HALF, HALF}},
        .out = {{.data = (void *)(memory + sizeof x), .width = 2 * HALF * DEEP}},
    };
    const mp_grid grid = {.blocks = 2, .lanes = 64};
    CHECK_OK(device->ops->launch(device, stream, kernel, grid, &args, sizeof args));
    CHECK_OK(device->ops->copy(device, stream, (mp_addr)got, memory + sizeof x, sizeof got));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    for (int i = 0; i < COUNT; i++) {
        const int row = i / DEEP / (2 * HALF), o = i / DEEP % (2 * HALF);
        const int from = (o % 2 * ROWS * HALF + row * HALF + o / 2) * DEEP + i % DEEP;
        CHECK(got[i] == x[from]);
    }
    device->ops->free(device, memory, 2 * sizeof x);
    device->ops->stream_destroy(device, stream);
    mp_kernel_cache_drop(device);
}
