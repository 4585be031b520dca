/* longformer_test.c - LongformerAttention against plain loops, and what it and its form in int8
 * refuse.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, ROWS = 72, WIDTH = 12, HEADS = 2, HEAD = WIDTH / HEADS, WINDOW = 3 };
enum { SIDES = 3 * WIDTH };

static float x[BATCH * ROWS * WIDTH], weights[2][WIDTH * SIDES], bias[2][SIDES];
static float mask[BATCH * ROWS];
static int32_t flags[BATCH * ROWS];
static double side[2][BATCH * ROWS][SIDES]; /* Q, K and V of each token, both kinds */

static void fill(void) {
    for (int i = 0; i < BATCH * ROWS * WIDTH; i++) {
        x[i] = op_value(1, i);
    }
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < WIDTH * SIDES; i++) {
            weights[kind][i] = op_value(2 + (uint64_t)kind, i) / 4;
        }
        for (int i = 0; i < SIDES; i++) {
            bias[kind][i] = op_value(4 + (uint64_t)kind, i);
        }
    }
    for (int i = 0; i < BATCH * ROWS; i++) {
        mask[i] = i % ROWS > ROWS - 9 ? -10000.0F : 0;
        flags[i] = i == 2 || i == 40 || i == ROWS - 1;
    }
    for (int i = 0; i < 2 * BATCH * ROWS * SIDES; i++) {
        const int kind = i / (BATCH * ROWS * SIDES), token = i / SIDES % (BATCH * ROWS);
        const int column = i % SIDES;
        double sum = (double)bias[kind][column];
        for (int k = 0; k < WIDTH; k++) {
            sum += (double)x[token * WIDTH + k] * (double)weights[kind][k * SIDES + column];
        }
        side[kind][token][column] = sum;
    }
}

static double wanted(int entry, int row, int head, int d) {
    const int token = entry * ROWS + row, kind = flags[token] != 0, at = head * HEAD;
    double total = 0, sum = 0;
    for (int key = 0; key < ROWS && mask[token] == 0; key++) {
        const int other = entry * ROWS + key;
        if ((!kind && abs(key - row) > WINDOW && flags[other] == 0) || mask[other] < 0) {
            continue;
        }
        double dot = 0;
        for (int e = 0; e < HEAD; e++) {
            dot += side[kind][token][at + e] * side[kind][other][WIDTH + at + e];
        }
        const double share = exp(dot / sqrt(HEAD));
        total += share;
        sum += share * side[kind][other][2 * WIDTH + at + d];
    }
    return total == 0 ? 0 : sum / total;
}

static op_case whole_case(const mp_attr *attrs) {
    return (op_case){.domain = "com.microsoft",
                     .name = "LongformerAttention",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 2,
                     .in = {op_f32(x, BATCH, ROWS, WIDTH), op_f32(weights[0], WIDTH, SIDES),
                            op_f32(bias[0], SIDES), op_f32(mask, BATCH, ROWS),
                            op_f32(weights[1], WIDTH, SIDES), op_f32(bias[1], SIDES),
                            OP_TENSOR(MP_I32, flags, BATCH, ROWS)},
                     .in_count = 7,
                     .out_count = 1};
}

DEVICE_TEST(longformer_sees_windows_and_flagged_tokens) {
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("window", WINDOW)};
    fill();
    for (uint32_t skew = 0; skew <= 4; skew += 4) {
        op_case c = whole_case(attrs);
        c.align = skew == 0 ? 16 : 1;
        c.skew = skew;
        op_run(device, &c);
        for (int i = 0; i < BATCH * ROWS * WIDTH; i++) {
            const int token = i / WIDTH, column = i % WIDTH;
            op_check_close((double)((const float *)c.out[0].data)[i],
                           wanted(token / ROWS, token % ROWS, column / HEAD, column % HEAD), 1e-4,
                           "longformer", i);
        }
        op_close(device, &c);
    }
}

DEVICE_TEST(longformer_refuses) {
    static const struct {
        int64_t heads, window;
        const char *says;
    } wrong[] = {{0, 3, "num_heads is 0"},
                 {5, 3, "rows of 12 elements for 5 heads"},
                 {2, 0, "72 rows and a window of 0"},
                 {2, 5, "72 rows and a window of 5"},
                 {2, 24, "72 rows and a window of 24"},
                 {2, 72, "72 rows and a window of 72"},
                 {2, INT64_MAX, "72 rows and a window of 9223372036854775807"}};
    mp_plan *plan = NULL;
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {OP_INT("num_heads", wrong[i].heads),
                                 OP_INT("window", wrong[i].window)};
        const op_case c = whole_case(attrs);
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, wrong[i].says);
    }
    const mp_attr attrs[] = {OP_INT("num_heads", 1), OP_INT("window", 1)};
    for (int i = 1; i < 7; i++) {
        op_case c = whole_case(attrs);
        c.in[i].shape.dim[c.in[i].shape.rank - 1]++;
        char text[32];
        (void)snprintf(text, sizeof text, "input %d has shape", i);
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, text);
    }
    op_case c = whole_case(attrs);
    c.in[0] = op_f32(x, BATCH * ROWS, WIDTH);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "an input of shape 144x12");
    c = whole_case(attrs);
    c.in[1] = op_f32(weights[0], 3, WIDTH, WIDTH); /* and then five biases */
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "it must be 60");
    c = whole_case(attrs);
    c.in[0] = op_f32(x, 0, ROWS, (int64_t)1 << 31);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "sizes are below 2147483648");
    c = whole_case(attrs);
    c.in[0] = op_f32(x, 1, 2, 1 << 20); /* nothing is read */
    c.in[1] = c.in[4] = op_f32(x, 1 << 20, 3 << 20);
    c.in[2] = c.in[5] = op_f32(x, 3 << 20);
    c.in[3] = op_f32(mask, 1, 2);
    c.in[6] = OP_TENSOR(MP_I32, flags, 1, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "2 rows in heads of 1048576 elements");
    op_close(device, &c);
}

DEVICE_TEST(ordered_longformer_refuses) {
    static const char *const orders[] = {"order_input", "order_weight", "order_global_weight",
                                         "order_output"};
    const mp_attr attrs[] = {OP_INT("num_heads", HEADS), OP_INT("window", WINDOW)};
    mp_plan *plan = NULL;
    op_case whole = {.domain = "com.microsoft",
                     .name = "QOrderedLongformerAttention",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 2,
                     .in = {OP_TENSOR(MP_I8, x, BATCH, ROWS, WIDTH)},
                     .in_count = 14,
                     .out_count = 1};
    for (int i = 1; i < 14; i++) {
        whole.in[i] = op_f32(bias[0], 1);
    }
    whole.in[2] = whole.in[8] = OP_TENSOR(MP_I8, weights[0], WIDTH, SIDES);
    whole.in[4] = whole.in[10] = op_f32(bias[0], SIDES);
    whole.in[7] = OP_TENSOR(MP_F16, mask, BATCH, ROWS);
    whole.in[12] = OP_TENSOR(MP_I32, flags, BATCH, ROWS);
    op_case c = whole;
    op_run(device, &c);
    op_close(device, &c);
    c = whole;
    c.in[8] = OP_TENSOR(MP_I8, weights[0], 3, WIDTH, WIDTH);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "input 8 has shape 3x12x12");
    c = whole;
    c.in[3] = op_f32(bias[0], SIDES);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "the scale in input 3 has 36 values");
    for (size_t i = 0; i < MP_COUNT_OF(orders); i++) {
        const mp_attr wrong[] = {attrs[0], attrs[1], OP_INT(orders[i], 2)};
        c = whole;
        c.attrs = wrong;
        c.attr_count = 3;
        CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, orders[i]);
    }
}
