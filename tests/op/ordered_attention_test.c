/* ordered_attention_test.c - what QOrderedAttention refuses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

static float x[64];
static const uint8_t bytes[1024];
static const int64_t sizes[] = {12, 12, 8};

enum { HEADS, INPUT_ORDER, ATTRS = 5 };

DEVICE_TEST(ordered_attention_refuses) {
    mp_attr attrs[ATTRS] = {OP_INT("num_heads", 3), OP_INT("order_input", 1),
                            OP_INT("order_weight", 0), OP_INT("order_output", 1)};
    mp_plan *plan = NULL;
    op_case whole = {.domain = "com.microsoft",
                     .name = "QOrderedAttention",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 4,
                     .in = {OP_TENSOR(MP_I8, bytes, 2, 5, 8)},
                     .in_count = 18,
                     .out_count = 1};
    for (int i = 1; i < 17; i++) {
        whole.in[i] = op_f32(x, 1);
    }
    for (int i = 0; i < 3; i++) {
        whole.in[5 + i] = OP_TENSOR(MP_I8, bytes, 8, 12);
        whole.in[11 + i] = op_f32(x, 12);
    }
    whole.in[17] = OP_TENSOR(MP_I32, bytes, 2, 5);
    op_case c = whole;
    op_run(device, &c);
    op_close(device, &c);
    c = whole;
    c.in[6] = OP_TENSOR(MP_I8, bytes, 7, 12);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "weights of shape 7x12");
    c = whole;
    c.in[7] = OP_TENSOR(MP_I8, bytes, 8, 9);
    c.in[13] = op_f32(x, 9);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "the weights in input 7 have 9");
    c = whole;
    c.in[12] = op_f32(x, 11);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a bias of shape 11");
    c = whole;
    c.in[9] = op_f32(x, 8);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a scale of weights of shape 8");
    c = whole;
    c.in[16] = op_f32(x, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "the scale in input 16 has 2 values");
    c = whole;
    c.in[15] = (op_tensor){.type = MP_NONE};
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "scale_QKT_softmax must be given");
    c = whole;
    c.in[17] = OP_TENSOR(MP_I32, bytes, 2, 6);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a mask of shape 2x6");
    c = whole;
    c.in[18] = OP_TENSOR(MP_I8, bytes, 2, 2, 3, 1, 4);
    c.in_count = 19;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "past and attention_bias");
    c = whole;
    attrs[HEADS] = (mp_attr)OP_INT("num_heads", 5);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "12 columns for 5 heads");
    attrs[HEADS] = (mp_attr)OP_INT("num_heads", 3);
    attrs[INPUT_ORDER] = (mp_attr)OP_INT("order_input", 2);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "order_input is 2; 1 is supported");
    attrs[INPUT_ORDER] = (mp_attr)OP_INT("order_input", 1);
    attrs[ATTRS - 1] =
        (mp_attr){.name = "qkv_hidden_sizes", .kind = MP_ATTR_INTS, .ints = sizes, .count = 3};
    c.attr_count = ATTRS;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "the weights in input 7 have 12");
    op_close(device, &c); /* kernels of plans that failed late */
}
