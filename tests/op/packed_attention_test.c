/* packed_attention_test.c - PackedMultiHeadAttention, PackedAttention, RemovePadding and
 * RestorePadding: beginnings and places that no batch has, what they refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { HEADS = 2, HEAD = 4, WIDTH = HEADS * HEAD, TOKENS = 7, BATCH = 3, LENGTH = 4 };

static float x[512];
static const int32_t zeros[64];

static op_case packed_case(const mp_attr *attrs, const float *q, const int32_t *starts) {
    return (op_case){.domain = "com.microsoft",
                     .name = "PackedMultiHeadAttention",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 1,
                     .in = {op_f32(q, TOKENS, WIDTH),
                            op_f32(q, TOKENS, WIDTH),
                            op_f32(q, TOKENS, WIDTH),
                            {0},
                            OP_TENSOR(MP_I32, zeros, BATCH, LENGTH),
                            OP_TENSOR(MP_I32, starts, BATCH + 1)},
                     .in_count = 6,
                     .out_count = 1};
}

/* Rows that belong to no entry are 0; the others are weighted means of what is there. */
DEVICE_TEST(packed_attention_survives_wild_beginnings) {
    static const int32_t starts[][BATCH + 1] = {{0, 2, 2, 3},
                                                {5, 3, 1, 0},
                                                {-4, 2, INT32_MAX, INT32_MIN},
                                                {INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX},
                                                {0, 7, 7, 7},
                                                {9, 11, 12, 13}};
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS)};
    float *q = op_numbers(MP_F32, 1, (int64_t)TOKENS * WIDTH);
    for (size_t i = 0; i < MP_COUNT_OF(starts); i++) {
        op_case c = packed_case(attrs, q, starts[i]);
        op_run(device, &c);
        const float *y = c.out[0].data;
        for (int64_t e = 0; e < (int64_t)TOKENS * WIDTH; e++) {
            CHECK(isfinite(y[e]) && fabsf(y[e]) <= 2);
            CHECK(i != 0 || e < (int64_t)3 * WIDTH || y[e] == 0);
            CHECK(i != 5 || y[e] == 0);
        }
        /* An entry of one row sees itself alone. */
        for (int64_t e = 0; i == 0 && e < WIDTH; e++) {
            const int64_t at = (int64_t)2 * WIDTH + e;
            op_check_close((double)y[at], (double)q[at], 1e-6, "y", at);
        }
        op_close(device, &c);
    }
    free(q);
}

DEVICE_TEST(packed_attention_refuses) {
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS)};
    mp_plan *plan = NULL;
    op_case c = packed_case(attrs, x, zeros);
    c.attr_count = 0;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "num_heads is 0");
    c = packed_case(attrs, x, zeros);
    c.in[5] = OP_TENSOR(MP_I32, zeros, BATCH);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "token_offset of shape");
    c = packed_case(attrs, x, zeros);
    c.in[1] = op_f32(x, TOKENS, WIDTH + 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a query of shape");
    c.in[1] = (op_tensor){.type = MP_NONE};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a query of shape");
    c.in[2] = (op_tensor){.type = MP_NONE};
    c.in[0] = op_f32(x, TOKENS, HEADS, 2, HEAD);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a query of shape");
    c.in[0].shape.rank = 0;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a query without tokens");
    c = packed_case(attrs, x, zeros);
    c.in[3] = op_f32(x, 3 * WIDTH - 1);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a bias of shape");
    c = packed_case(attrs, x, zeros);
    c.in_count = 7;
    c.in[6] = op_f32(x, 1, 1, LENGTH, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "attention_bias of shape");
    c = packed_case(attrs, x, zeros);
    c.name = "PackedAttention";
    c.in[1] = op_f32(x, WIDTH + 1, 24);
    c.in[2] = op_f32(x, 24);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "an input of shape");
    op_close(device, &c);
}

DEVICE_TEST(padding_refuses) {
    mp_plan *plan = NULL;
    const int64_t found[MP_FOUND_MAX] = {13, 4};
    op_case c = {.domain = "com.microsoft",
                 .name = "RemovePadding",
                 .version = 1,
                 .in = {op_f32(x, BATCH, LENGTH, 2), OP_TENSOR(MP_I32, zeros, BATCH)},
                 .in_count = 2,
                 .out_count = 4};
    CHECK_FAILS(op_finish(device, &c, found, &plan), DEVICE, "13 of 12 rows");
    c.in[1].shape.dim[0] = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "an input of shape");
    c.in[0].shape = (mp_shape){.rank = 3, .dim = {1 << 16, 1 << 16, 0}};
    c.in[1].shape.dim[0] = 1 << 16;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "more than 2147483647 rows");
    c.name = "RestorePadding";
    c.out_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "an input of shape");
}
