/* projected_attention_test.c - Attention, DecoderMaskedSelfAttention and
 * DecoderMaskedMultiHeadAttention of com.microsoft: what they refuse, and what they leave to
 * others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

static float x[1024];
static const int32_t zeros[256];

static op_case attention_case(const mp_attr *attrs, size_t count) {
    return (op_case){.domain = "com.microsoft",
                     .name = "Attention",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = count,
                     .in = {op_f32(x, 2, 3, 4), op_f32(x, 4, 24), op_f32(x, 24)},
                     .in_count = 3,
                     .out_count = 1};
}

DEVICE_TEST(projected_attention_refuses_sizes) {
    const int64_t uneven[] = {8, 8, 7}, other[] = {8, 6, 10}, vast[] = {INT64_MAX, 8, 8};
    const mp_attr heads[] = {OP_INT("num_heads", 2)};
    const int64_t *const lists[] = {uneven, other, vast};
    mp_plan *plan = NULL;
    op_case c = attention_case(heads, 0);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "num_heads is 0");
    c = attention_case(heads, 1);
    c.in[1] = op_f32(x, 5, 24);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "an input of shape");
    c = attention_case(heads, 1);
    c.in[2] = op_f32(x, 23);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "an input of shape");
    c = attention_case(heads, 1);
    c.in[1] = op_f32(x, 4, 27);
    c.in[2] = op_f32(x, 27);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "weights of 27 columns");
    for (size_t i = 0; i < MP_COUNT_OF(lists); i++) {
        const mp_attr attrs[] = {
            OP_INT("num_heads", 2),
            {.name = "qkv_hidden_sizes", .kind = MP_ATTR_INTS, .ints = lists[i], .count = 3}};
        c = attention_case(attrs, 2);
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "weights of 24 columns");
    }
    const mp_attr short_value[] = {OP_INT("num_heads", 2), OP_INTS("qkv_hidden_sizes", 10, 10, 4)};
    c = attention_case(short_value, 2);
    c.out_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "present needs heads");
}

DEVICE_TEST(projected_attention_refuses_masks_and_pasts) {
    const mp_attr attrs[] = {OP_INT("num_heads", 2), OP_INT("past_present_share_buffer", 1),
                             OP_INT("do_rotary", 1), OP_INT("rotary_embedding_dim", 3)};
    const op_tensor masks[] = {OP_TENSOR(MP_I32, zeros, 3), OP_TENSOR(MP_I32, zeros, 2, 2),
                               OP_TENSOR(MP_I32, zeros, 2, 3, 4),
                               OP_TENSOR(MP_I32, zeros, 2, 1, 2, 2),
                               OP_TENSOR(MP_I32, zeros, 2, 1, 3, 4)};
    mp_plan *plan = NULL;
    int32_t length = 3;
    op_case c = attention_case(attrs, 1);
    c.in_count = 4;
    for (size_t i = 0; i < MP_COUNT_OF(masks); i++) {
        c.in[3] = masks[i];
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a mask of shape");
    }
    c = attention_case(attrs, 1);
    c.in_count = 5;
    c.in[4] = op_f32(x, 2, 2, 2, 5, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "past of shape");
    c.in[4] = op_f32(x, 2, 2, 2, 5, 4);
    c.attr_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "past_sequence_length is 0");
    c.in_count = 7;
    c.in[6] = OP_TENSOR(MP_I32, &length, 1);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "between 0 and 2");
    length = INT32_MIN;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "between 0 and 2");
    length = 1;
    c.attr_count = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "cannot be rotated");
}

DEVICE_TEST(decoder_attention_refuses) {
    const mp_attr attrs[] = {OP_INT("num_heads", 2), OP_INT("past_present_share_buffer", 1)};
    const int32_t length = 1, width = 2;
    mp_plan *plan = NULL;
    op_case c = {.domain = "com.microsoft",
                 .name = "DecoderMaskedSelfAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 2, 1, 4),
                        op_f32(x, 4, 24),
                        op_f32(x, 24),
                        {0},
                        op_f32(x, 2, 2, 2, 5, 4),
                        {0},
                        OP_TENSOR(MP_I32, &length, 1),
                        OP_TENSOR(MP_I32, &width, 1)},
                 .in_count = 8,
                 .out_count = 2};
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "past_present_share_buffer must be 1");
    c.attr_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "2 beams need cache_indirection");
    c.in[8] = OP_TENSOR(MP_I32, zeros, 2, 1, 5);
    c.in_count = 9;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "cache_indirection of shape");
    c.in_count = 7;
    c.in[1] = op_f32(x, 4, 18);
    c.in[2] = op_f32(x, 18);
    c.in[4] = op_f32(x, 2, 2, 2, 5, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "packs of 4");
    op_case m = {.domain = "com.microsoft",
                 .name = "DecoderMaskedMultiHeadAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 2, 2, 8), op_f32(x, 2, 2, 8), op_f32(x, 2, 2, 8)},
                 .in_count = 3,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &m, &plan), INVALID_ARGUMENT, "takes one");
    m.in[0] = m.in[1] = m.in[2] = op_f32(x, 2, 1, 8);
    m.in[5] = m.in[6] = op_f32(x, 2, 2, 5, 4);
    m.in_count = 7;
    CHECK_FAILS(op_plan(device, &m, &plan), UNSUPPORTED, "past_present_share_buffer must be 1");
    m.attr_count = 2;
    CHECK_FAILS(op_plan(device, &m, &plan), INVALID_ARGUMENT, "past_sequence_length is 0");
    m.in_count = 1;
    m.in[0] = op_f32(x, 2, 1, 9);
    CHECK_FAILS(op_plan(device, &m, &plan), INVALID_ARGUMENT, "three times num_heads");
}
