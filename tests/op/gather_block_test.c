/* gather_block_test.c - GatherBlockQuantized on tensors that are not aligned, and what it refuses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

enum { ROWS = 5, COLUMNS = 64, BLOCK = 16, BLOCKS = COLUMNS / BLOCK, PICKED = 4 };

/* Rows of 4 bits with a zero point for each block, packed as the table is. */
static void check(mp_device *device, mp_dtype type, uint32_t skew) {
    static const int64_t indices[PICKED] = {4, -5, 5, 1};
    uint8_t table[ROWS * COLUMNS / 2];
    uint8_t zero[ROWS * BLOCKS / 2];
    void *scale = op_memory(type, (int64_t)ROWS * BLOCKS);
    for (int i = 0; i < (int)sizeof table; i++) {
        table[i] = (uint8_t)(i * 167 + 3);
    }
    for (int i = 0; i < (int)sizeof zero; i++) {
        zero[i] = (uint8_t)(i * 59 + 5);
    }
    for (int i = 0; i < ROWS * BLOCKS; i++) {
        op_store_real(type, scale, i, 0.0625 * (1 + i % 5));
    }
    const mp_attr attrs[] = {OP_INT("bits", 4), OP_INT("block_size", BLOCK)};
    op_case c = {.domain = "com.microsoft",
                 .name = "GatherBlockQuantized",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .align = skew != 0 ? 1 : 16,
                 .skew = skew,
                 .in = {OP_TENSOR(MP_U8, table, ROWS, COLUMNS / 2), op_i64(indices, PICKED),
                        OP_TENSOR(type, scale, ROWS, BLOCKS),
                        OP_TENSOR(MP_U8, zero, ROWS, BLOCKS / 2)},
                 .in_count = 4,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(c.out[0].type == type && mp_shape_count(&c.out[0].shape) == PICKED * COLUMNS);
    for (int i = 0; i < PICKED * COLUMNS; i++) {
        const int64_t asked = indices[i / COLUMNS], row = asked < 0 ? asked + ROWS : asked;
        const int64_t at = row * COLUMNS + i % COLUMNS, block = at / BLOCK;
        double want = 0;
        if (row < ROWS) {
            const int q = table[at / 2] >> at % 2 * 4 & 15,
                      z = zero[block / 2] >> block % 2 * 4 & 15;
            want = (q - z) * op_real(type, scale, block);
        }
        op_check_close(op_real(type, c.out[0].data, i), want, 1e-6, "element", i);
    }
    op_close(device, &c);
    free(scale);
}

DEVICE_TEST(gather_block_reads_rows_that_are_not_aligned) {
    const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        check(device, types[t], 0);
        check(device, types[t], 4);
    }
}

DEVICE_TEST(gather_block_refuses_what_does_not_fit) {
    static const uint8_t bytes[256] = {0};
    static const struct {
        mp_dtype type;
        int64_t bits, block, gather, quantize;
        int64_t scales, zeros; /* along the second axis; 0: none */
        const char *says;
    } wrong[] = {
        {MP_U8, 4, 24, 0, 1, 2, 0, "block_size is 24"},
        {MP_U8, 4, 0, 0, 1, 1, 0, "block_size is 0"},
        {MP_U8, 3, 16, 0, 1, 2, 0, "3 bits in a table of uint8"},
        {MP_I4, 8, 16, 0, 1, 1, 0, "8 bits in a table of int4"},
        {MP_U8, 4, 16, 1, 1, 2, 0, "gather_axis 1"},
        {MP_U8, 4, 16, 0, 0, 2, 0, "quantize_axis 0"},
        {MP_U8, 4, 16, 2, 1, 2, 0, "gather_axis"},
        {MP_U8, 4, 16, 0, 1, 3, 0, "scales of shape 4x3"},
        {MP_U8, 4, 16, 0, 1, 2, 2, "zero points of shape 4x2"},
        {MP_F8E5M2, 4, 16, 0, 1, 1, 1, "which has none"},
    };
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {
            OP_INT("bits", wrong[i].bits), OP_INT("block_size", wrong[i].block),
            OP_INT("gather_axis", wrong[i].gather), OP_INT("quantize_axis", wrong[i].quantize)};
        mp_plan *plan = NULL;
        op_case c = {.domain = "com.microsoft",
                     .name = "GatherBlockQuantized",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 4,
                     .in = {OP_TENSOR(wrong[i].type, bytes, 4, 16), op_i64(bytes, 1),
                            op_f32(bytes, 4, wrong[i].scales)},
                     .in_count = 3,
                     .out_count = 1};
        if (wrong[i].zeros != 0) {
            c.in[3] = OP_TENSOR(wrong[i].type, bytes, 4, wrong[i].zeros);
            c.in_count = 4;
        }
        CHECK(op_plan(device, &c, &plan) != MP_OK);
        CHECK_STR_HAS(mp_error_message(), wrong[i].says);
    }
}
