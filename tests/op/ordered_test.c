/* ordered_test.c - what the operators on matrices in cuBLASLt's orders refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

static const uint8_t bytes[4096] = {0};

static void refused(mp_device *device, const op_case *c, const char *says) {
    mp_plan *plan = NULL;
    CHECK(op_plan(device, c, &plan) != MP_OK);
    CHECK_STR_HAS(mp_error_message(), says);
}

DEVICE_TEST(ordered_refuses_matrices_that_do_not_fit) {
    static const struct {
        int64_t order, rows, columns, scales, to;
        const char *says;
    } wrong[] = {{5, 8, 32, 1, 1, "order_input is 5"},
                 {2, 8, 33, 1, 1, "8 x 33 elements in order 2"},
                 {3, 9, 32, 1, 1, "9 x 32 elements in order 3"},
                 {4, 8, 32, 1, 1, "8 x 32 elements in order 4"},
                 {1, 8, 32, 2, 1, "the scale in input 1 has 2 values"},
                 {1, 8, 32, 1, 7, "to is ONNX's element type 7"}};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {OP_INT("order_input", wrong[i].order), OP_INT("order_output", 1),
                                 OP_INT("to", wrong[i].to)};
        const op_case c = {.domain = "com.microsoft",
                           .name = "DequantizeWithOrder",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 3,
                           .in = {OP_TENSOR(MP_I8, bytes, wrong[i].rows, wrong[i].columns),
                                  op_f32(bytes, wrong[i].scales)},
                           .in_count = 2,
                           .out_count = 1};
        refused(device, &c, wrong[i].says);
    }
}

DEVICE_TEST(ordered_refuses_rows_that_do_not_fit) {
    static const struct {
        int64_t order_y, axis, gamma;
        const char *says;
    } wrong[] = {{2, -1, 32, "order_Y is 2 and order_X 1"},
                 {1, 0, 32, "normalisation from axis 0 on"},
                 {1, -1, 31, "input 2 has 31 values for rows of 32"}};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {OP_INT("order_Y", wrong[i].order_y),
                                 OP_INT("axis", wrong[i].axis)};
        const op_case c = {.domain = "com.microsoft",
                           .name = "QOrderedLayerNormalization",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 2,
                           .in = {OP_TENSOR(MP_I8, bytes, 8, 32),
                                  op_f32(bytes, 1),
                                  op_f32(bytes, wrong[i].gamma),
                                  {.type = MP_NONE},
                                  op_f32(bytes, 1)},
                           .in_count = 5,
                           .out_count = 1};
        refused(device, &c, wrong[i].says);
    }
}

DEVICE_TEST(ordered_refuses_products_that_do_not_fit) {
    static const struct {
        int64_t order_a, order_b, order_y, rows, bias, c;
        const char *says;
    } wrong[] = {{1, 0, 1, 31, 32, 8, "cannot be multiplied"},
                 {1, 1, 1, 32, 32, 8, "order_A is 1 and order_B 1"},
                 {1, 3, 1, 32, 32, 8, "order_A is 1 and order_B 3"},
                 {1, 0, 2, 32, 32, 8, "order_Y is 2 and order_A 1"},
                 {1, 0, 1, 32, 33, 8, "a bias of 33 values for 32 columns"},
                 {1, 0, 1, 32, 32, 7, "C of shape 7x32"}};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {OP_INT("order_A", wrong[i].order_a),
                                 OP_INT("order_B", wrong[i].order_b),
                                 OP_INT("order_Y", wrong[i].order_y)};
        const op_case c = {.domain = "com.microsoft",
                           .name = "QOrderedMatMul",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 3,
                           .in = {OP_TENSOR(MP_I8, bytes, 8, 32), op_f32(bytes, 1),
                                  OP_TENSOR(MP_I8, bytes, wrong[i].rows, 32), op_f32(bytes, 1),
                                  op_f32(bytes, 1), op_f32(bytes, wrong[i].bias),
                                  OP_TENSOR(MP_I8, bytes, wrong[i].c, 32), op_f32(bytes, 1)},
                           .in_count = 8,
                           .out_count = 1};
        refused(device, &c, wrong[i].says);
    }
}
