/* linear_attention_test.c - linear attention and causal convolutions over packed batches whose
 * starts are wrong, what is written where they are right, convolutions where tokens are neighbours,
 * and what is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static const char *const domain = "com.microsoft";

/* ---- starts out of range ---- */

/* The first request is whole, whatever the others' ranges are. */
DEVICE_TEST(gated_delta_survives_wild_starts) {
    enum { TOKENS = 6, SIZE = 5, VALUE = 3, BATCH = 3 };
    static const int32_t wild[][BATCH + 1] = {
        {0, 2, -8, 6}, {0, 2, 100, INT32_MAX}, {0, 2, 1, 0}, {0, 2, INT32_MIN, INT32_MAX}};
    float *x = op_numbers(MP_F32, 1, TOKENS * SIZE);
    float *state = op_numbers(MP_F32, 2, BATCH * SIZE * VALUE);
    const mp_attr attrs[] = {OP_TEXT("update_rule", "linear"), OP_FLOAT("scale", 1)};
    for (size_t n = 0; n < MP_COUNT_OF(wild); n++) {
        op_case c = {.domain = domain,
                     .name = "GatedDeltaNet",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 2,
                     .in = {op_f32(x, TOKENS, 1, SIZE),
                            op_f32(x, TOKENS, 1, SIZE),
                            op_f32(x, TOKENS, 1, VALUE),
                            OP_TENSOR(MP_I32, wild[n], BATCH + 1),
                            {0},
                            {0},
                            op_f32(state, BATCH, 1, VALUE, SIZE)},
                     .in_count = 7,
                     .out_count = 2};
        op_run(device, &c);
        for (int64_t i = 0; i < VALUE * SIZE; i++) {
            double want = (double)state[i];
            for (int64_t t = 0; t < 2; t++) {
                want += (double)x[t * SIZE + i % SIZE] * (double)x[t * VALUE + i / SIZE];
            }
            op_check_close((double)((const float *)c.out[1].data)[i], want, 1e-6, "state", i);
        }
        op_close(device, &c);
    }
    free(x);
    free(state);
}

DEVICE_TEST(causal_conv_survives_wild_starts_and_counts) {
    enum { TOKENS = 5, CHANNELS = 3, TAPS = 2, BATCH = 2, CAPACITY = 2 };
    static const int32_t wild[][BATCH + 1] = {{0, 2, -8}, {0, 2, INT32_MAX}, {0, 2, 1}};
    const int32_t counts[BATCH] = {INT32_MAX, INT32_MIN};
    float *x = op_numbers(MP_F32, 1, TOKENS * CHANNELS);
    float *weight = op_numbers(MP_F32, 2, CHANNELS * TAPS);
    float *state = op_numbers(MP_F32, 3, BATCH * CHANNELS);
    const mp_attr attrs[] = {OP_INT("state_update_capacity", CAPACITY)};
    for (size_t n = 0; n < MP_COUNT_OF(wild); n++) {
        op_case c = {.domain = domain,
                     .name = "VarlenCausalConvWithState",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 1,
                     .in = {op_f32(x, TOKENS, CHANNELS),
                            op_f32(weight, CHANNELS, 1, TAPS),
                            OP_TENSOR(MP_I32, wild[n], BATCH + 1),
                            {0},
                            op_f32(state, BATCH, CHANNELS, 1),
                            OP_TENSOR(MP_I32, counts, BATCH)},
                     .in_count = 6,
                     .out_count = 3};
        op_run(device, &c);
        const float *out = c.out[0].data, *kept = c.out[1].data, *update = c.out[2].data;
        for (int64_t i = 0; i < TOKENS * CHANNELS; i++) {
            const int64_t t = i / CHANNELS, ch = i % CHANNELS;
            const double before = (double)(t > 0 ? x[i - CHANNELS] : state[ch]);
            const double want =
                (double)weight[ch * TAPS] * before + (double)weight[ch * TAPS + 1] * (double)x[i];
            op_check_close((double)out[i], t < 2 ? want : 0, 1e-6, "convolved", i);
        }
        for (int64_t ch = 0; ch < CHANNELS; ch++) {
            CHECK(kept[ch] == x[CHANNELS + ch] && kept[CHANNELS + ch] == state[CHANNELS + ch]);
            CHECK(update[ch] == x[ch] && update[CHANNELS + ch] == x[CHANNELS + ch]);
            CHECK(update[CAPACITY * CHANNELS + ch] == 0);
        }
        op_close(device, &c);
    }
    free(x);
    free(weight);
    free(state);
}

/* ---- tokens of a channel side by side ---- */

typedef struct line_case {
    int64_t batch, channels, rows, taps;
    bool bias, past, silu;
    uint32_t skew;
} line_case;

/* Token `at` of a channel of x, or of the past before it. */
static double token_of(const line_case *s, mp_dtype type, const void *x, const void *past,
                       int64_t line, int64_t at) {
    const int64_t state = s->taps - 1;
    if (at >= 0) {
        return op_real(type, x, line * s->rows + at);
    }
    return s->past ? op_real(type, past, (line + 1) * state + at) : 0;
}

static void check_line(mp_device *device, const line_case *s, mp_dtype type) {
    const int64_t state = s->taps - 1, lines = s->batch * s->channels;
    void *x = op_numbers(type, 1, lines * s->rows);
    void *weight = op_numbers(type, 2, s->channels * s->taps);
    void *bias = op_numbers(type, 3, s->channels);
    void *past = op_numbers(type, 4, lines * state + 1);
    const mp_attr attrs[] = {OP_TEXT("activation", s->silu ? "silu" : "none")};
    op_store_real(type, x, s->rows / 2, (double)INFINITY); /* of the first channel */
    op_case c = {.domain = domain,
                 .name = "CausalConvWithState",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .align = s->skew != 0 ? 1 : 16,
                 .skew = s->skew,
                 .in = {OP_TENSOR(type, x, s->batch, s->channels, s->rows),
                        OP_TENSOR(type, weight, s->channels, 1, s->taps)},
                 .in_count = 4,
                 .out_count = 2};
    c.in[2] = s->bias ? OP_TENSOR(type, bias, s->channels) : c.in[2];
    c.in[3] = s->past ? OP_TENSOR(type, past, s->batch, s->channels, state) : c.in[3];
    op_run(device, &c);
    for (int64_t i = 0; i < lines * s->rows; i++) {
        const int64_t line = i / s->rows, row = i % s->rows, channel = line % s->channels;
        double want = s->bias ? op_real(type, bias, channel) : 0;
        for (int64_t tap = 0; tap < s->taps; tap++) {
            want += op_real(type, weight, channel * s->taps + tap) *
                    token_of(s, type, x, past, line, row - state + tap);
        }
        want = s->silu ? want / (1 + exp(-want)) : want;
        const double found = op_real(type, c.out[0].data, i);
        CHECK(isnan(want) ? isnan(found) : true);
        if (isfinite(want)) {
            op_check_close(found, want, op_precision(type) * 8, "convolved", i);
        } else if (!isnan(want)) {
            CHECK(found == want);
        }
    }
    for (int64_t i = 0; i < lines * state; i++) {
        const double want = token_of(s, type, x, past, i / state, s->rows - state + i % state);
        CHECK(op_real(type, c.out[1].data, i) == want);
    }
    op_close(device, &c);
    free(x);
    free(weight);
    free(bias);
    free(past);
}

DEVICE_TEST(causal_conv_of_lines) {
    static const line_case lines[] = {
        {2, 3, 8, 4, true, true, true, 0},    {1, 5, 16, 3, false, true, false, 0},
        {2, 2, 24, 2, true, false, false, 0}, {1, 1, 4, 4, false, true, true, 0},
        {3, 7, 40, 4, true, false, true, 0},  {1, 2, 8, 1, true, false, true, 0},
        {2, 3, 9, 4, true, true, true, 0},    {1, 3, 8, 5, false, true, false, 0},
        {2, 3, 8, 4, true, true, true, 4},    {2, 130, 64, 4, true, true, true, 0},
    };
    const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(lines); i++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            check_line(device, &lines[i], types[t]);
        }
    }
}

/* ---- what is refused ---- */

DEVICE_TEST(linear_attention_refuses) {
    float *x = op_numbers(MP_F32, 1, 4096);
    mp_attr attrs[] = {OP_INT("q_num_heads", 2), OP_INT("kv_num_heads", 1),
                       OP_INT("state_window", 0), OP_TEXT("update_rule", "gated_delta")};
    mp_plan *plan = NULL;
    op_case c = {.domain = domain,
                 .name = "LinearAttention",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 4,
                 .in = {op_f32(x, 1, 2, 8), op_f32(x, 1, 2, 4), op_f32(x, 1, 2, 3),
                        op_f32(x, 1, 1, 4, 3), op_f32(x, 1, 2, 1), op_f32(x, 1, 2, 1)},
                 .in_count = 6,
                 .out_count = 2};
    attrs[0].i = 0;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a multiple of the other");
    attrs[0].i = 2;
    c.in[1].shape.dim[1] = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "the first two alike");
    c.in[1] = op_f32(x, 1, 2, 5);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "whole heads");
    c.in[1] = op_f32(x, 1, 2, 4);
    c.in[4] = op_f32(x, 1, 2, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "needs a decay");
    c.in[4] = op_f32(x, 1, 2, 4);
    c.in[5] = (op_tensor){.type = MP_NONE};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "needs beta");
    c.in[5] = op_f32(x, 1, 2, 1);
    attrs[2].i = 9;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "state_window is 9");
    attrs[2].i = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "2x1x1x4x3 is needed");
    attrs[3].s = "gate";
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "update_rule");
    attrs[0].i = 1;
    attrs[2].i = 0;
    attrs[3].s = "linear";
    c.in[0] = c.in[1] = op_f32(x, 1, 1, 513);
    c.in[2] = op_f32(x, 1, 1, 3);
    c.in[3] = (op_tensor){.type = MP_NONE};
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "keys of 513 elements");
    attrs[0].i = 4096;
    c.in[0] = op_f32(x, 1, 1, 4096 * 16);
    c.in[1] = op_f32(x, 1, 1, 16);
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "shared memory");
    free(x);
}

DEVICE_TEST(linear_attention_gate_refuses) {
    float x[16] = {0};
    mp_plan *plan = NULL;
    op_case c = {.domain = domain,
                 .name = "LinearAttentionGate",
                 .version = 1,
                 .in = {op_f32(x, 1, 2, 3), op_f32(x, 3), op_f32(x, 2)},
                 .in_count = 3,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "dt_bias and decay_scale");
    c.in[2] = op_f32(x, 3);
    c.out_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "where beta is wanted");
}

static mp_status plan_of(mp_device *device, const op_case *c) {
    mp_plan *plan = NULL;
    return op_plan(device, c, &plan);
}

DEVICE_TEST(gated_delta_refuses) {
    float x[256] = {0};
    const int32_t starts[3] = {0, 1, 2};
    mp_attr attrs[] = {OP_INT("state_update_capacity", 0), OP_TEXT("update_rule", "gated_delta"),
                       OP_TEXT("gate_activation", "none"), OP_TEXT("beta_activation", "none")};
    const op_case good = {.domain = domain,
                          .name = "GatedDeltaNet",
                          .version = 1,
                          .attrs = attrs,
                          .attr_count = 4,
                          .in = {op_f32(x, 2, 1, 4), op_f32(x, 2, 1, 4), op_f32(x, 2, 2, 3),
                                 OP_TENSOR(MP_I32, starts, 3), op_f32(x, 2, 2), op_f32(x, 2, 2),
                                 op_f32(x, 2, 2, 3, 4)},
                          .in_count = 7,
                          .out_count = 2};
    op_case c = good;
    c.in[1] = op_f32(x, 2, 1, 3);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "query and key need one shape");
    c.in[1] = c.in[2] = (op_tensor){.type = MP_NONE};
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "its rows are not queries");
    c.in[2] = good.in[2];
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "without key and value");
    c = good;
    c.in[2] = op_f32(x, 2, 0, 3);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "positive multiple");
    c = good;
    c.in[3] = OP_TENSOR(MP_I32, starts, 1, 3);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "with cu_seqlens");
    c.in[3] = c.in[6] = (op_tensor){.type = MP_NONE};
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "without cu_seqlens");
    c = good;
    c.in[6] = op_f32(x, 2, 2, 4, 3);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "a matrix of value by key");
    c = good;
    c.in[5] = (op_tensor){.type = MP_NONE};
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "just where update_rule has them");
    c.in[5] = op_f32(x, 2, 1);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "for each token and head of value");
    c = good;
    c.in[7] = op_f32(x, 2);
    c.in_count = 8;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "gate_activation is qwen");
    c = good;
    attrs[3].s = "tanh";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "none or sigmoid");
    attrs[3].s = "none";
    attrs[0].i = 9;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "state_update_capacity is 9");
    attrs[0].i = 2;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "capture_count");
}

DEVICE_TEST(causal_conv_refuses) {
    float x[64] = {0};
    const int32_t starts[2] = {0, 2};
    mp_attr attrs[] = {OP_INT("dilation", 1), OP_INT("state_window", 0), OP_INT("ndim", 1),
                       OP_TEXT("activation", "none")};
    op_case c = {.domain = domain,
                 .name = "CausalConvWithState",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 4,
                 .in = {op_f32(x, 1, 2, 4), op_f32(x, 2, 1, 3), op_f32(x, 3)},
                 .in_count = 3,
                 .out_count = 2};
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "the bias needs");
    c.in[2] = (op_tensor){.type = MP_NONE};
    c.in[3] = op_f32(x, 1, 2, 3);
    c.in_count = 4;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "where 1x2x2 is needed");
    attrs[0].i = INT64_MAX;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "dilation");
    attrs[0].i = 1;
    attrs[1].i = -1;
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "state_window");
    attrs[2].i = 2;
    CHECK_FAILS(plan_of(device, &c), UNSUPPORTED, "ndim is 2");
    attrs[2].i = 1;
    attrs[3].s = "gelu";
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "activation");
    attrs[3].s = "none";
    c.in[1] = op_f32(x, 2, 2, 3);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "a row of taps");
    c.in[0] = op_f32(x, 2, 4);
    CHECK_FAILS(plan_of(device, &c), INVALID_ARGUMENT, "a batch, tokens and channels");
    const mp_attr kept[] = {OP_INT("state_update_capacity", 2)};
    op_case packed = {.domain = domain,
                      .name = "VarlenCausalConvWithState",
                      .version = 1,
                      .attrs = kept,
                      .attr_count = 1,
                      .in = {op_f32(x, 2, 3),
                             op_f32(x, 3, 1, 2),
                             OP_TENSOR(MP_I32, starts, 2),
                             {0},
                             op_f32(x, 1, 3, 1)},
                      .in_count = 5,
                      .out_count = 2};
    CHECK_FAILS(plan_of(device, &packed), INVALID_ARGUMENT, "capture_count");
    packed.in_count = 4;
    CHECK_FAILS(plan_of(device, &packed), INVALID_ARGUMENT, "initial_state");
}
