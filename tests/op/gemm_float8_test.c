/* gemm_float8_test.c - what GemmFloat8 refuses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

DEVICE_TEST(gemm_float8_refuses_what_does_not_fit) {
    static const float x[64] = {0};
    static const struct {
        int64_t rows, type, c, scales;
        const char *activation, *says;
    } wrong[] = {{3, 1, 4, 1, "NONE", "cannot be multiplied"},
                 {4, 7, 4, 1, "NONE", "dtype is ONNX's element type 7"},
                 {4, 1, 3, 1, "NONE", "do not broadcast"},
                 {4, 1, 4, 2, "NONE", "scaleA has 2 values"},
                 {4, 1, 4, 1, "SELU", "the activation 'SELU'"}};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {OP_INT("dtype", wrong[i].type), OP_FLOAT("beta", 1.0F),
                                 OP_TEXT("activation", wrong[i].activation)};
        mp_plan *plan = NULL;
        const op_case c = {.domain = "com.microsoft",
                           .name = "GemmFloat8",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 3,
                           .in = {OP_TENSOR(MP_F8E5M2, x, 2, 4), op_f32(x, wrong[i].rows, 4),
                                  op_f32(x, wrong[i].c), op_f32(x, wrong[i].scales)},
                           .in_count = 4,
                           .out_count = 1};
        CHECK(op_plan(device, &c, &plan) != MP_OK);
        CHECK_STR_HAS(mp_error_message(), wrong[i].says);
    }
    const mp_attr attrs[] = {OP_FLOAT("beta", 1.0F)};
    mp_plan *plan = NULL;
    const op_case c = {.domain = "com.microsoft",
                       .name = "GemmFloat8",
                       .version = 1,
                       .attrs = attrs,
                       .attr_count = 1,
                       .in = {OP_TENSOR(MP_F8E5M2, x, 1, 4), op_f32(x, 4, 4), op_f32(x, 5, 4)},
                       .in_count = 3,
                       .out_count = 1};
    CHECK(op_plan(device, &c, &plan) != MP_OK);
    CHECK_STR_HAS(mp_error_message(), "C of shape 5x4 is not repeated");
}
