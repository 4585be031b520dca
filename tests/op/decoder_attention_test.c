/* decoder_attention_test.c - DecoderAttention and QAttention: what they refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

static float x[1024];
static const uint8_t bytes[256];

DEVICE_TEST(decoder_attention_refuses_inputs) {
    const uint8_t yes = 1, no = 0;
    const mp_attr attrs[] = {OP_INT("num_heads", 2)};
    mp_plan *plan = NULL;
    const op_case whole = {.domain = "com.microsoft",
                           .name = "DecoderAttention",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 1,
                           .in = {op_f32(x, 3, 2, 8),
                                  op_f32(x, 5, 2, 8),
                                  op_f32(x, 8, 8),
                                  op_f32(x, 8, 16),
                                  op_f32(x, 24),
                                  {0},
                                  {0},
                                  {0},
                                  OP_TENSOR(MP_BOOL, &no, 1),
                                  OP_TENSOR(MP_BOOL, &no, 1),
                                  OP_TENSOR(MP_BOOL, &no, 1),
                                  OP_TENSOR(MP_BOOL, &no, 1)},
                           .in_count = 12,
                           .out_count = 3};
    op_case c = whole;
    c.attr_count = 0;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "num_heads is 0");
    c = whole;
    c.in[8] = OP_TENSOR(MP_BOOL, bytes, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "input 8 must be one flag");
    c = whole;
    c.in[1] = op_f32(x, 5, 3, 8);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "query of shape");
    c = whole;
    c.in[3] = op_f32(x, 8, 15);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "query of shape");
    c = whole;
    c.in[9].data = c.in[10].data = &yes;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "use_past needs key_cache");
    c.in[6] = c.in[7] = op_f32(x, 2, 2, 4, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "use_past needs key_cache");
    c = whole;
    c.in[5] = OP_TENSOR(MP_BOOL, bytes, 2, 5);
    c.in[11].data = &yes;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "key_padding_mask of shape");
}

DEVICE_TEST(quantized_attention_refuses) {
    const mp_attr attrs[] = {OP_INT("num_heads", 2), OP_INT("past_present_share_buffer", 1)};
    mp_plan *plan = NULL;
    const op_case whole = {.domain = "com.microsoft",
                           .name = "QAttention",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 1,
                           .in = {OP_TENSOR(MP_U8, bytes, 2, 3, 4), OP_TENSOR(MP_I8, bytes, 4, 24),
                                  op_f32(x, 24), op_f32(x, 1), op_f32(x, 1)},
                           .in_count = 5,
                           .out_count = 1};
    op_case c = whole;
    c.in[2] = op_f32(x, 23);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a bias of shape");
    c = whole;
    c.attr_count = 0;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "num_heads is 0");
    c = whole;
    c.attr_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "past_present_share_buffer");
    c = whole;
    c.in[3] = op_f32(x, 6);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "input_scale");
    c = whole;
    c.in[4] = op_f32(x, 23);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "weight_scale");
}
