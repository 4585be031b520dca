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

typedef struct gated_sizes {
    int64_t batch, heads, rows, size, columns;
} gated_sizes;

/* The gate of a row as the operator is defined, from the product of all columns. */
static double gate_of(const gated_sizes *s, mp_dtype type, const op_tensor *in, int64_t entry,
                      int64_t head, int64_t row) {
    double sum[2] = {0, 0};
    for (int64_t c = 0; c < s->columns; c++) {
        double column = op_real(type, in[4].data, c);
        for (int64_t e = 0; e < s->size; e++) {
            const int64_t at = head * s->size + e;
            const int64_t query = (entry * s->rows + row) * s->heads * s->size + at;
            const double x = op_real(type, in[0].data, query) + op_real(type, in[1].data, at);
            column += x * op_real(type, in[3].data, e * s->columns + c);
        }
        sum[c >= s->columns / 2] += column;
    }
    const double limit = op_real(type, in[5].data, head);
    return 1 / (1 + exp(-sum[0])) * (limit / (1 + exp(-sum[1])) - 1) + 2;
}

static void check_gated(mp_device *device, mp_dtype type, gated_sizes s, bool aligned) {
    const int64_t width = s.heads * s.size, plane = s.rows * s.rows;
    const int64_t counts[] = {s.batch * s.rows * width, width,     s.heads * plane,
                              s.size * s.columns,       s.columns, s.heads};
    void *values[6];
    for (int i = 0; i < 6; i++) {
        values[i] = op_numbers(type, (uint64_t)i + 1, counts[i]);
    }
    for (int64_t i = 0; i < counts[3]; i++) { /* so that gates are not all 0 or 1 */
        op_store_real(type, values[3], i, op_real(type, values[3], i) / 64);
    }
    op_store_real(type, values[0], (s.rows - 1) * width,
                  (double)NAN); /* the last row of the first head */
    op_store_real(type, values[2], 0, (double)INFINITY);
    const mp_attr attrs[] = {OP_INT("num_heads", s.heads)};
    op_case c = {.domain = domain,
                 .name = "GatedRelativePositionBias",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .align = aligned ? 16 : 1,
                 .skew = aligned ? 0 : (uint32_t)mp_dtype_size(type),
                 .in = {OP_TENSOR(type, values[0], s.batch, s.rows, width),
                        OP_TENSOR(type, values[1], width),
                        OP_TENSOR(type, values[2], 1, s.heads, s.rows, s.rows),
                        OP_TENSOR(type, values[3], s.size, s.columns),
                        OP_TENSOR(type, values[4], s.columns),
                        OP_TENSOR(type, values[5], 1, s.heads, 1, 1)},
                 .in_count = 6,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t line = 0; line < s.batch * s.heads * s.rows; line++) {
        const int64_t row = line % s.rows, head = line / s.rows % s.heads;
        const double gate = gate_of(&s, type, c.in, line / s.rows / s.heads, head, row);
        for (int64_t i = 0; i < s.rows; i++) {
            const double bias = op_real(type, values[2], (head * s.rows + row) * s.rows + i);
            op_check_close(op_real(type, c.out[0].data, line * s.rows + i), gate * bias,
                           op_precision(type) + 2e-5, "gated bias", line * s.rows + i);
        }
    }
    op_close(device, &c);
    for (int i = 0; i < 6; i++) {
        free(values[i]);
    }
}

/* Packs and single elements of rows and of heads, more entries and rows than a block has, heads
 * longer than what a block keeps of the weight. */
DEVICE_TEST(gated_bias_is_the_bias_times_a_gate) {
    static const gated_sizes all[] = {{2, 3, 16, 8, 8},  {9, 1, 8, 64, 8},   {19, 2, 5, 16, 2},
                                      {1, 2, 37, 24, 6}, {3, 1, 4, 300, 4},  {1, 1, 1, 1, 2},
                                      {2, 1, 130, 7, 8}, {1, 2, 40, 256, 2}, {8, 2, 24, 264, 2}};
    for (size_t k = 0; k < MP_COUNT_OF(all); k++) {
        for (int aligned = 0; aligned < 2; aligned++) {
            check_gated(device, MP_F32, all[k], aligned != 0);
            check_gated(device, MP_F16, all[k], aligned != 0);
        }
    }
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
