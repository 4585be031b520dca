/* row_stand_in_test.c - what stands in for a fused kernel with reductions gives its bits on a GPU;
 * the emulated device's own way to reduce is another, whose results are close.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/pieces.h"
#include "op/fused/fused_kernel.h"
#include "op/fused/stand_in.h"
#include "op/op_value.h"
#include "op/stand_in_rig.h"

#include <string.h>

enum { COUNT = 40000, ELEMENT_MAX = 4, BYTES = COUNT * ELEMENT_MAX, OUTER = 3 };
enum { SUMS = 16 }; /* as many times the precision of one result is that of sums */

/* From -2 to 2 in steps that every float has; integers are small, too. */
static void set_inputs(const stand_in_rig *r, const mp_expression *e) {
    static unsigned char data[BYTES];
    uint64_t state = 1;
    for (int i = 0; i < e->input_count; i++) {
        for (int64_t k = 0; k < COUNT; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const int64_t step = (int64_t)(state >> 33) % 129 - 64;
            op_store_real(e->inputs[i], data, k,
                          op_is_float(e->inputs[i]) ? (double)step / 32 : (double)step);
        }
        stand_in_rig_set(r, i, data);
    }
}

static void check_same(const stand_in_rig *r, const mp_expression *e, int64_t rows, int64_t count,
                       size_t skew, const char *what) {
    static unsigned char data[STAND_IN_BOTH][BYTES];
    for (int o = 0; o < e->output_count; o++) {
        const mp_dtype type = mp_expression_type(e, e->outputs[o]);
        const int64_t elements = mp_expression_is_row(e, e->outputs[o]) ? rows : count;
        for (int whose = 0; whose < STAND_IN_BOTH; whose++) {
            stand_in_rig_get(r, whose, o, skew, data[whose],
                             (size_t)elements * mp_dtype_size(type));
        }
        for (int64_t i = 0; i < elements; i++) {
            const double got = op_real(type, data[STAND_IN_OTHER], i);
            const double own = op_real(type, data[STAND_IN_OWN], i);
            if (r->device->info.kind == MP_DEVICE_HOST) {
                op_check_close(got, own, SUMS * op_precision(type), what, i);
            } else if (!stand_in_is_same(type, data[STAND_IN_OWN], data[STAND_IN_OTHER], i)) {
                test_fail(__FILE__, __LINE__, "%s, output %d: element %lld is %g, not %g", what, o,
                          (long long)i, got, own);
            }
        }
    }
}

/* How the lanes of a kernel share rows: as many as keep one, or all that may. */
static mp_grid grid_of(const mp_expression *e, mp_row_packs packs, mp_fused_args *args) {
    enum { LANES = 64 };
    args->width = e->is_long ? K_FUSED_ROW_LANES : 1;
    while (!e->is_long && args->width * packs.pack * packs.packs < args->columns) {
        args->width *= 2;
    }
    return (mp_grid){.blocks = 3, .lanes = (uint32_t)MP_MAX(args->width, (int32_t)LANES)};
}

/* Over OUTER times `inner` rows, by its own kernel and by the other one. */
static void compare(const stand_in_rig *r, const char *text, const mp_reading *readings,
                    int64_t inner, int64_t columns, size_t skew) {
    const mp_shape shape = {3, {OUTER, inner, columns}};
    const mp_shape view_shape = {3, {OUTER, 1, columns}};
    int64_t views[K_WALK_VIEWS][MP_RANK_MAX];
    mp_row_stand_in_table table;
    mp_fused_kernel own;
    mp_expression e;
    mp_piece piece;
    int view_count = 0;
    CHECK_OK(mp_expression_read(text, &e));
    e.is_long = columns > mp_fused_row_keep(&e, readings) * K_FUSED_ROW_LANES;
    for (int i = 0; i < e.input_count; i++) {
        if (mp_reading_is_view(readings[i])) {
            mp_shape_broadcast_strides(&view_shape, &shape, views[view_count++]);
        }
    }
    const size_t size = mp_row_stand_in_write(&e, readings, &table);
    CHECK(size > 0);
    CHECK_OK(mp_piece_strided(&shape, views, view_count, 0, &piece));
    CHECK_OK(mp_fused_kernel_get(r->device, &e, readings, &own));
    set_inputs(r, &e);
    CHECK_OK(r->device->ops->copy(r->device, r->stream, r->table, (mp_addr)&table, size));
    mp_fused_args args = {.program = own.program,
                          .stand_in = (const void *)r->table,
                          .walk = piece.walk,
                          .rows = OUTER * inner,
                          .columns = (int32_t)columns};
    for (int i = 0; i < e.input_count; i++) {
        args.in[i] = (const void *)r->in[i];
    }
    for (int i = 0; i < e.number_count; i++) {
        args.numbers[i] = e.numbers[i].value;
    }
    const mp_grid grid = grid_of(&e, mp_fused_row_packs(&e, readings), &args);
    stand_in_rig_launch(r, own.kernel, STAND_IN_OWN, grid, args, skew);
    stand_in_rig_launch(r, r->stand_in, STAND_IN_OTHER, grid, args, skew);
    check_same(r, &e, args.rows, args.rows * columns, skew, text);
}

static const struct {
    const char *text;
    mp_reading readings[K_FUSED_IN];
} cases[] = {
    {"row=1 x0=f32 x1=f32 x2=f32:row t0=mul(x0,x2) t1=add(t0,x1) t2=rowmax(t1) t3=sub(t1,t2) "
     "t4=exp(t3) t5=rowsum(t4) t6=div(t4,t5) -> t6 t2",
     {MP_READ_WHOLE, MP_READ_ROWS, MP_READ_ROW}},
    {"row=1 x0=f16 x1=f16 x2=f16 n0=f32:3727c5ac t0=cast.f32(x0) t1=rowmean(t0) t2=sub(t0,t1) "
     "t3=mul(t2,t2) t4=rowmean(t3) t5=add(t4,n0) t6=sqrt(t5) t7=div(t2,t6) t8=cast.f16(t7) "
     "t9=mul(t8,x1) t10=add(t9,x2) -> t10 t1",
     {MP_READ_WHOLE, MP_READ_COLUMN, MP_READ_COLUMN}},
    {"row=1 x0=i32 x1=i32:row x2=f32:row x3=bf16 t0=add(x0,x1) t1=cast.f32(t0) t2=mul(t1,x2) "
     "t3=cast.f32(x3) t4=add(t2,t3) t5=rowmin(t4) t6=rowproduct(t3) t7=sub(t4,t5) t8=max(t6,t5) "
     "t9=add(t7,t8) t10=cast.bf16(t9) -> t10 t5",
     {MP_READ_WHOLE, MP_READ_ROW, MP_READ_ONE, MP_READ_VIEW}},
    {"row=1 x0=f32 x1=f32 t0=rowmin(x0) t1=rowmax(x0) t2=sub(t1,t0) t3=less(x0,x1) t4=sub(x0,t0) "
     "t5=where(t3,t4,t1) t6=rowsum(t5) -> t5 t2 t6",
     {MP_READ_WHOLE, MP_READ_ONE}},
    {"row=1 x0=bf16 x1=u8 t0=abs(x0) t1=rowsum(t0) t2=rowmax(x0) t3=add(t1,t2) t4=cast.f32(x1) "
     "t5=rowmean(t4) t6=cast.f32(t3) t7=add(t5,t6) t8=sqrt(t7) -> t1 t8",
     {MP_READ_WHOLE, MP_READ_WHOLE}},
};

/* Of a lane, of some, of a block, and longer ones; whole packs, none, and outputs without. */
DEVICE_TEST(row_stand_in_gives_the_bits_of_rows) {
    static const int64_t sizes[][2] = {{40, 8},  {40, 3},   {9, 64},   {9, 100},
                                       {2, 512}, {2, 1999}, {1, 6000}, {1, 13000}};
    stand_in_rig r =
        stand_in_rig_open(device, "fused_row_stand_in", BYTES, sizeof(mp_row_stand_in_table));
    for (size_t c = 0; c < MP_COUNT_OF(cases); c++) {
        for (size_t s = 0; s < MP_COUNT_OF(sizes); s++) {
            compare(&r, cases[c].text, cases[c].readings, sizes[s][0], sizes[s][1], 0);
        }
        compare(&r, cases[c].text, cases[c].readings, 9, 64, sizeof(float));
    }
    stand_in_rig_close(&r);
}

TEST(row_stand_in_has_its_limits) {
    static const mp_reading readings[] = {MP_READ_WHOLE};
    mp_expression e;
    mp_row_stand_in_table table;
    CHECK_OK(mp_expression_read("row=1 x0=f64 t0=rowsum(x0) t1=div(x0,t0) -> t1", &e));
    CHECK_EQ_INT((int64_t)mp_row_stand_in_write(&e, readings, &table), 0);
    CHECK_OK(mp_expression_read("x0=f32 t0=exp(x0) -> t0", &e));
    CHECK_EQ_INT((int64_t)mp_row_stand_in_write(&e, readings, &table), 0);
    memset(&e, 0, sizeof e); /* a chain that each of the passes computes again */
    CHECK_OK(mp_expression_read("row=1 x0=f32 t0=exp(x0) t1=rowsum(t0) -> t1", &e));
    enum { PASSES = MP_REDUCTIONS_MAX - 1, CHAIN = (MP_TERMS_MAX - 2) / PASSES - 2 };
    int reg = MP_FIRST_TERM;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int t = 0; t < CHAIN; t++) {
            reg = mp_expression_function(&e, "exp", reg, MP_NO_REGISTER, 0, 0);
        }
        const int sum = mp_expression_reduction(&e, MP_ROW_SUM, reg);
        reg = mp_expression_function(&e, "sub", reg, sum, 0, 0);
        CHECK(reg != MP_NO_REGISTER);
    }
    CHECK(mp_expression_output(&e, reg));
    CHECK_EQ_INT((int64_t)mp_row_stand_in_write(&e, readings, &table), 0);
}
