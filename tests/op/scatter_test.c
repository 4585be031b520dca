/* scatter_test.c - scatters and gathers by indices against loops: every type and reduction, many
 * updates of one place, indices out of range.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

static const mp_dtype widths[] = {MP_U8, MP_F16, MP_F32, MP_F64};
static const char *const reductions[] = {"none", "add", "mul", "max", "min"};

/* What is left where `was` meets `update`. */
static double joined(const char *reduction, double was, double update) {
    switch (reduction[0] == 'm' ? reduction[1] : reduction[0]) {
    case 'a':
        return reduction[0] == 'm' ? (was > update ? was : update) : was + update;
    case 'u':
        return was * update;
    case 'i':
        return was < update ? was : update;
    default:
        return update;
    }
}

/* ---- many updates of few places ---- */

enum { PLACES = 5, COLUMNS = 3, UPDATES = 640 };

/* Data and updates small enough to be exact in every type and order: at most 127 in the end. */
static void small_values(const char *reduction, mp_dtype type, void *data, void *updates) {
    const bool product = strcmp(reduction, "mul") == 0;
    const bool sum = strcmp(reduction, "add") == 0;
    for (int64_t i = 0; i < PLACES * COLUMNS; i++) {
        op_store_real(type, data, i, (double)(1 + i % 3));
    }
    for (int64_t i = 0; i < UPDATES * COLUMNS; i++) {
        const int64_t turn = i / COLUMNS / PLACES; /* how often this place was met */
        const int64_t value = product ? (turn == 7 || turn == 90 ? 2 : 1)
                              : sum   ? turn % 4 == 1
                                      : (i * 7919) % 101;
        op_store_real(type, updates, i, (double)value);
    }
}

static void check_crowd(mp_device *device, const char *reduction, mp_dtype type, bool slices) {
    static int64_t rows[UPDATES];
    static int64_t elements[UPDATES * COLUMNS];
    void *data = op_memory(type, PLACES * COLUMNS);
    void *updates = op_memory(type, UPDATES * COLUMNS);
    void *want = op_memory(type, PLACES * COLUMNS);
    small_values(reduction, type, data, updates);
    memcpy(want, data, PLACES * COLUMNS * mp_dtype_size(type));
    for (int64_t i = 0; i < UPDATES; i++) {
        const int64_t row = i % PLACES;
        rows[i] = i % 2 != 0 ? row - PLACES : row;
        for (int64_t k = 0; k < COLUMNS; k++) {
            const int64_t at = row * COLUMNS + k;
            elements[i * COLUMNS + k] = rows[i];
            op_store_real(type, want, at,
                          joined(reduction, op_real(type, want, at),
                                 op_real(type, updates, i * COLUMNS + k)));
        }
    }
    const mp_attr attrs[] = {OP_TEXT("reduction", reduction)};
    op_case c = {.name = slices ? "ScatterND" : "ScatterElements",
                 .version = 18,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {OP_TENSOR(type, data, PLACES, COLUMNS),
                        slices ? op_i64(rows, UPDATES, 1) : op_i64(elements, UPDATES, COLUMNS),
                        OP_TENSOR(type, updates, UPDATES, COLUMNS)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    if (!op_same(&c.out[0], want)) {
        test_fail(__FILE__, __LINE__, "%s with %s of %s differs: %g, not %g first", c.name,
                  reduction, mp_dtype_name(type), op_real(type, c.out[0].data, 0),
                  op_real(type, want, 0));
    }
    op_close(device, &c);
    free(data);
    free(updates);
    free(want);
}

DEVICE_TEST(scatter_many_updates_into_one_place) {
    for (size_t r = 1; r < MP_COUNT_OF(reductions); r++) {
        for (const mp_dtype *type = op_types; *type != MP_NONE; type++) {
            if ((MP_BIT(*type) & MP_NUMBERS) != 0) {
                check_crowd(device, reductions[r], *type, false);
                check_crowd(device, reductions[r], *type, true);
            }
        }
    }
}

DEVICE_TEST(scatter_joins_bools_by_or_and_by_and) {
    const uint8_t data[] = {0, 1, 0, 1};
    const uint8_t updates[] = {0, 0, 1, 1};
    const int64_t indices[] = {0, 1, 2, 3};
    static const uint8_t either[] = {0, 1, 1, 1};
    static const uint8_t both[] = {0, 0, 0, 1};
    for (size_t r = 1; r < MP_COUNT_OF(reductions); r++) {
        const bool is_or = r == 1 || r == 3; /* add, max */
        const mp_attr attrs[] = {OP_TEXT("reduction", reductions[r])};
        op_case c = {
            .name = "ScatterElements",
            .version = 18,
            .attrs = attrs,
            .attr_count = 1,
            .in = {OP_TENSOR(MP_BOOL, data, 4), op_i64(indices, 4), OP_TENSOR(MP_BOOL, updates, 4)},
            .in_count = 3,
            .out_count = 1};
        op_run(device, &c);
        CHECK(op_same(&c.out[0], is_or ? either : both));
        op_close(device, &c);
    }
}

DEVICE_TEST(scatter_keeps_nan_and_wraps_integers) {
    const float nan = __builtin_nanf("");
    const float data[] = {1, nan, 3};
    const float updates[] = {nan, 2, 4};
    const int64_t indices[] = {0, 1, 2};
    const mp_attr largest[] = {OP_TEXT("reduction", "max")};
    op_case c = {.name = "ScatterND",
                 .version = 18,
                 .attrs = largest,
                 .attr_count = 1,
                 .in = {op_f32(data, 3), op_i64(indices, 3, 1), op_f32(updates, 3)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    const float *got = c.out[0].data;
    CHECK(got[0] != got[0] && got[1] != got[1] && got[2] == 4.0f);
    op_close(device, &c);
    const int8_t narrow[] = {100, -128, 5};
    const int8_t added[] = {100, -1, 0};
    static const int8_t wrapped[] = {-56, 127, 5};
    const mp_attr sum[] = {OP_TEXT("reduction", "add")};
    c.attrs = sum;
    c.in[0] = OP_TENSOR(MP_I8, narrow, 3);
    c.in[2] = OP_TENSOR(MP_I8, added, 3);
    op_run(device, &c);
    CHECK(op_same(&c.out[0], wrapped));
    op_close(device, &c);
}

/* ---- no reduction: by width, alignment and unit ---- */

static void check_slices(mp_device *device, mp_dtype type, int64_t inner, uint32_t skew) {
    const int64_t indices[] = {3, -4, 1};
    void *data = op_numbers(type, 7, 4 * inner);
    void *updates = op_numbers(type, 8, 3 * inner);
    void *want = op_memory(type, 4 * inner);
    const size_t run = (size_t)inner * mp_dtype_size(type);
    memcpy(want, data, 4 * run);
    for (size_t k = 0; k < 3; k++) {
        const size_t row = (size_t)(indices[k] < 0 ? indices[k] + 4 : indices[k]);
        memcpy((char *)want + row * run, (char *)updates + k * run, run);
    }
    op_case c = {.name = "ScatterND",
                 .version = 13,
                 .align = skew > 0 ? 1 : 16,
                 .skew = skew,
                 .in = {OP_TENSOR(type, data, 4, inner), op_i64(indices, 3, 1),
                        OP_TENSOR(type, updates, 3, inner)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
    free(data);
    free(updates);
    free(want);
}

DEVICE_TEST(scatter_slices_of_any_size) {
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (int64_t inner = 1; inner <= 64; inner = inner < 5 ? inner + 1 : inner * 2) {
            check_slices(device, widths[w], inner, 0);
            check_slices(device, widths[w], inner, 8);
        }
    }
}

DEVICE_TEST(scatter_leaves_out_what_is_out_of_range) {
    const float data[] = {0, 1, 2, 3};
    const float updates[] = {10, 20, 30, 40};
    const int64_t indices[] = {4, -5, INT64_MIN, 2};
    static const float want[] = {0, 1, 40, 3};
    op_case c = {.name = "ScatterElements",
                 .version = 13,
                 .in = {op_f32(data, 4), op_i64(indices, 4), op_f32(updates, 4)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
    c.name = "ScatterND";
    c.in[1] = op_i64(indices, 4, 1);
    op_run(device, &c);
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
}

DEVICE_TEST(gather_elements_draws_indices_to_the_nearest) {
    const float x[] = {0, 1, 2, 3};
    const int64_t indices[] = {9, -9, INT64_MAX, INT64_MIN, -1};
    static const float want[] = {3, 0, 3, 0, 3};
    op_case c = {.name = "GatherElements",
                 .version = 13,
                 .in = {op_f32(x, 4), op_i64(indices, 5)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
}

/* Rows of `picks` from rows of `length`, with indices of any value, against a loop. */
static void check_rows(mp_device *device, mp_dtype type, mp_dtype index, int64_t length,
                       int64_t picks, uint32_t skew) {
    enum { ROWS = 65 };
    const size_t size = mp_dtype_size(type);
    unsigned char *x = op_numbers(type, 3, ROWS * length);
    unsigned char *indices = op_memory(index, ROWS * picks);
    for (int64_t i = 0; i < ROWS * picks; i++) {
        op_store_real(index, indices, i, (double)(i * 7919 % (3 * length) - length));
    }
    op_case c = {.name = "GatherElements",
                 .version = 13,
                 .attrs = (const mp_attr[]){OP_INT("axis", 1)},
                 .attr_count = 1,
                 .align = skew > 0 ? 1 : 16,
                 .skew = skew,
                 .in = {op_tensor_of(type, x, 2, (const int64_t[]){ROWS, length}),
                        op_tensor_of(index, indices, 2, (const int64_t[]){ROWS, picks})},
                 .in_count = 2,
                 .out_count = 1};
    for (int one_list = 0; one_list < 2; one_list++) {
        if (one_list) {
            c.name = "Gather";
            c.in[1] = op_tensor_of(index, indices, 1, &picks);
        }
        op_run(device, &c);
        const unsigned char *out = c.out[0].data;
        for (int64_t i = 0; i < ROWS * picks; i++) {
            int64_t at = (one_list ? i % picks : i) * 7919 % (3 * length) - length;
            at = at < 0 ? at + length : at;
            at = (at >= length ? length - 1 : at) + i / picks * length;
            CHECK(memcmp(out + (size_t)i * size, x + (size_t)at * size, size) == 0);
        }
        op_close(device, &c);
    }
    free(x);
    free(indices);
}

DEVICE_TEST(gather_elements_and_gather_of_long_rows) {
    static const mp_dtype types[] = {MP_U8, MP_F16, MP_F32, MP_F64};
    static const struct {
        int64_t length, picks;
        uint32_t skew;
    } forms[] = {{64, 256, 0},    {1024, 1024, 0}, {1001, 1030, 0}, {17, 257, 0},
                 {1024, 2500, 0}, {300, 300, 8},   {2047, 777, 0},  {2500, 600, 0}};
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            for (int narrow = 0; narrow < 2; narrow++) {
                check_rows(device, types[t], narrow ? MP_I32 : MP_I64, forms[f].length,
                           forms[f].picks, forms[f].skew);
            }
        }
    }
}

DEVICE_TEST(scatter_refuses_what_does_not_fit) {
    const float x[] = {0, 1, 2, 3, 4, 5};
    const int64_t indices[] = {0, 1, 0, 1};
    const mp_attr mean[] = {OP_TEXT("reduction", "mean")};
    mp_plan *plan = NULL;
    op_case c = {.name = "ScatterElements",
                 .version = 18,
                 .in = {op_f32(x, 2, 3), op_i64(indices, 2, 2), op_f32(x, 2, 1)},
                 .in_count = 3,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "the shape 2x1 where 2x2");
    c.in[1] = op_i64(indices, 1, 4);
    c.in[2] = op_f32(x, 1, 4);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "1x4 do not fit into data of shape");
    c.attrs = mean;
    c.attr_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "reduction 'mean' is not known");
    c.attr_count = 0;
    c.in[0] = op_f32(x, 0, 3);
    c.in[1] = op_i64(indices, 1, 1);
    c.in[2] = op_f32(x, 1, 1);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "names an empty axis");
    c.name = "ScatterND";
    c.in[0] = op_f32(x, 2, 3);
    c.in[1] = op_i64(indices, 1, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not fit");
}

/* ---- TensorScatter ---- */

static void check_cache(mp_device *device, mp_dtype type, bool circular, int64_t inner,
                        const int64_t *write, uint32_t skew) {
    enum { BATCH = 3, HEADS = 2, LENGTH = 6, STEPS = 4 };
    void *cache = op_numbers(type, 1, BATCH * HEADS * LENGTH * inner);
    void *update = op_numbers(type, 2, BATCH * HEADS * STEPS * inner);
    void *want = op_memory(type, BATCH * HEADS * LENGTH * inner);
    const size_t run = (size_t)inner * mp_dtype_size(type);
    memcpy(want, cache, BATCH * HEADS * LENGTH * run);
    for (int64_t b = 0; b < BATCH; b++) {
        for (int64_t h = 0; h < HEADS * STEPS; h++) {
            const int64_t first = write != NULL ? write[b] : 0;
            const int64_t to = (first % LENGTH + LENGTH) % LENGTH + h % STEPS;
            if (circular || (first >= 0 && first < LENGTH && to < LENGTH)) {
                memcpy((char *)want +
                           (size_t)((b * HEADS + h / STEPS) * LENGTH + to % LENGTH) * run,
                       (char *)update + (size_t)(b * HEADS * STEPS + h) * run, run);
            }
        }
    }
    const mp_attr attrs[] = {OP_TEXT("mode", circular ? "circular" : "linear")};
    op_case c = {.name = "TensorScatter",
                 .version = 24,
                 .attrs = attrs,
                 .attr_count = 1,
                 .align = skew > 0 ? 1 : 16,
                 .skew = skew,
                 .in = {OP_TENSOR(type, cache, BATCH, HEADS, LENGTH, inner),
                        OP_TENSOR(type, update, BATCH, HEADS, STEPS, inner), op_i64(write, BATCH)},
                 .in_count = write != NULL ? 3 : 2,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(op_same(&c.out[0], want));
    op_close(device, &c);
    free(cache);
    free(update);
    free(want);
}

DEVICE_TEST(tensor_scatter_from_any_place) {
    static const int64_t inside[] = {0, 2, 1};
    static const int64_t around[] = {5, 3, 1000000000001};
    static const int64_t broken[] = {4, -1, INT64_MAX}; /* what would lie outside is left out */
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (int64_t inner = 1; inner <= 64; inner *= 4) {
            check_cache(device, widths[w], false, inner, inside, 0);
            check_cache(device, widths[w], false, inner, broken, 0);
            check_cache(device, widths[w], false, inner, NULL, 8);
            check_cache(device, widths[w], true, inner, around, 0);
            check_cache(device, widths[w], true, inner, around, 8);
        }
    }
}
