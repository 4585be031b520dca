/* position_test.c - rotary positions of com.microsoft on three axes, from given angles, and biases
 * by distance: positions and offsets out of range, tensors that are not aligned, what is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static const char *const domain = "com.microsoft";

static void check_axes(mp_device *device, int64_t head, int layout, uint32_t skew) {
    enum { ROWS = 3, PLACES = 4 };
    const int64_t half = head / 2;
    const int64_t positions[3 * ROWS] = {0, 9, 2, -5, 1, 3, 2, INT64_MAX, INT64_MIN};
    const int64_t sections[3] = {half - half / 4 - half / 3, half / 4, half / 3};
    float *x = op_numbers(MP_F32, 1, ROWS * head);
    float *cosine = op_numbers(MP_F32, 2, PLACES * half);
    float *sine = op_numbers(MP_F32, 3, PLACES * half);
    const mp_attr attrs[] = {
        {.name = "mrope_section", .kind = MP_ATTR_INTS, .ints = sections, .count = 3},
        OP_INT("mrope_layout", layout),
        OP_FLOAT("scale", 2)};
    op_case c = {.domain = domain,
                 .name = "MRotaryEmbedding",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 3,
                 .align = skew != 0 ? 1 : 16,
                 .skew = skew,
                 .in = {op_f32(x, 1, 1, ROWS, head), op_i64(positions, 3, 1, ROWS),
                        op_f32(cosine, PLACES, half), op_f32(sine, PLACES, half)},
                 .in_count = 4,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < ROWS * head; i++) {
        const int64_t row = i / head, d = i % head, pair = d % half;
        int64_t axis = pair < sections[0] ? 0 : pair < sections[0] + sections[1] ? 1 : 2;
        if (layout == 1) {
            axis = pair % 3 != 0 && pair < 3 * sections[pair % 3] ? pair % 3 : 0;
        }
        int64_t at = positions[axis * ROWS + row];
        at = at < 0 ? 0 : at < PLACES ? at : PLACES - 1;
        const double other = (double)x[row * head + (d < half ? d + half : d - half)];
        const double want = (double)x[i] * (double)cosine[at * half + pair] +
                            (d < half ? -1 : 1) * other * (double)sine[at * half + pair];
        op_check_close((double)((const float *)c.out[0].data)[i], 2 * want, 1e-6, "axes", i);
    }
    op_close(device, &c);
    free(x);
    free(cosine);
    free(sine);
}

DEVICE_TEST(position_on_three_axes) {
    for (int layout = 0; layout < 2; layout++) {
        check_axes(device, 24, layout, 0);
        check_axes(device, 14, layout, 0);
        check_axes(device, 24, layout, 4);
    }
}

DEVICE_TEST(position_on_three_axes_refuses) {
    float x[64] = {0};
    const int64_t positions[6] = {0};
    mp_attr attrs[] = {OP_INTS("mrope_section", 2, 1, 1), OP_INT("mrope_layout", 0)};
    mp_plan *plan = NULL;
    op_case c = {
        .domain = domain,
        .name = "MRotaryEmbedding",
        .version = 1,
        .attrs = attrs,
        .attr_count = 2,
        .in = {op_f32(x, 1, 1, 2, 8), op_i64(positions, 3, 1, 2), op_f32(x, 2, 4), op_f32(x, 2, 4)},
        .in_count = 4,
        .out_count = 1};
    c.in[1].shape.dim[0] = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "three values for each token");
    c.in[1].shape.dim[0] = 3;
    attrs[1].i = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "mrope_layout");
    attrs[1].i = 0;
    for (int i = 0; i < 3; i++) {
        static const int64_t bad[][3] = {{2, 1, 2}, {5, -1, 0}, {INT64_MAX, INT64_MAX, 6}};
        attrs[0].ints = bad[i];
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "mrope_section");
    }
}

DEVICE_TEST(position_by_given_angles_refuses) {
    float angle[24] = {0};
    uint16_t x[96] = {0};
    mp_plan *plan = NULL;
    op_case c = {.domain = domain,
                 .name = "GemmaRotaryEmbedding",
                 .version = 1,
                 .in = {op_f32(angle, 1, 3, 4), OP_TENSOR(MP_F16, x, 1, 2, 3, 4),
                        OP_TENSOR(MP_F16, x, 1, 2, 3, 4), OP_TENSOR(MP_F16, x, 1, 1, 3, 4),
                        OP_TENSOR(MP_F16, x, 1, 1, 3, 4)},
                 .in_count = 5,
                 .out_count = 2};
    for (int i = 0; i < 5; i++) {
        c.in[i].shape.dim[2]++;
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not go with angles");
        c.in[i].shape.dim[2]--;
    }
}

DEVICE_TEST(bias_by_distance_refuses) {
    float table[16] = {0};
    int64_t length[2] = {3, 3};
    mp_attr attrs[] = {OP_INT("max_distance", 20), OP_INT("is_bidirectional", 1)};
    mp_plan *plan = NULL;
    op_case c = {.domain = domain,
                 .name = "RelativePositionBias",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {op_f32(table, 8, 2), op_i64(&length[0], 1), op_i64(&length[1], 1)},
                 .in_count = 3,
                 .out_count = 1};
    length[1] = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "key_length");
    length[0] = length[1] = -1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "one number each");
    length[0] = length[1] = 3;
    attrs[0].i = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "max_distance");
    attrs[0].i = 20;
    c.in[0] = op_f32(table, 3, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "bias_table");
}

/* Offsets that no place has are of no token; places that no offset names have a query of 0. */
DEVICE_TEST(gated_bias_leaves_out_offsets_out_of_range) {
    enum { ROWS = 3, SIZE = 2 };
    float *query = op_numbers(MP_F32, 1, ROWS * SIZE);
    float *bias = op_numbers(MP_F32, 2, ROWS * ROWS);
    const float zero[SIZE] = {0}, weight[SIZE * 2] = {1, 2, -1, 0.5F}, limit[1] = {1.5F};
    const int32_t offsets[ROWS] = {2, -1, ROWS};
    const mp_attr attrs[] = {OP_INT("num_heads", 1)};
    op_case c = {.domain = domain,
                 .name = "GatedRelativePositionBias",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(query, ROWS, SIZE), op_f32(zero, SIZE),
                        op_f32(bias, 1, 1, ROWS, ROWS), op_f32(weight, SIZE, 2), op_f32(zero, 2),
                        op_f32(limit, 1, 1, 1, 1), OP_TENSOR(MP_I32, offsets, 1, ROWS)},
                 .in_count = 7,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < ROWS * ROWS; i++) {
        double sum[2] = {0, 0};
        for (int64_t e = 0; i / ROWS == 2 && e < SIZE; e++) {
            sum[0] += (double)query[e] * (double)weight[e * 2];
            sum[1] += (double)query[e] * (double)weight[e * 2 + 1];
        }
        const double gate = 1 / (1 + exp(-sum[0])) * (1.5 / (1 + exp(-sum[1])) - 1) + 2;
        op_check_close((double)((const float *)c.out[0].data)[i], gate * (double)bias[i], 1e-6,
                       "gated bias", i);
    }
    op_close(device, &c);
    free(query);
    free(bias);
}

DEVICE_TEST(gated_bias_refuses) {
    float x[64] = {0};
    const int32_t offsets[1] = {0};
    const mp_attr attrs[] = {OP_INT("num_heads", 2)};
    mp_plan *plan = NULL;
    op_case c = {.domain = domain,
                 .name = "GatedRelativePositionBias",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 1, 2, 8), op_f32(x, 8), op_f32(x, 1, 2, 2, 2), op_f32(x, 4, 2),
                        op_f32(x, 2), op_f32(x, 1, 2, 1, 1)},
                 .in_count = 6,
                 .out_count = 1};
    c.in[3].shape.dim[1] = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "columns in pairs");
    c.in[3].shape.dim[1] = 2;
    c.in[2].shape.dim[3] = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "rel_pos");
    c.in[2] = op_f32(x, 1, 2, 1, 1);
    c.in[0] = op_f32(x, 2, 8);
    c.in[6] = OP_TENSOR(MP_I32, offsets, 1, 1);
    c.in_count = 7;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "2 tokens do not fit");
}
