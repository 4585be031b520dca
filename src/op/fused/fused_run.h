/* fused_run.h - terms of an expression on the emulated device, by the kernels of single functions,
 * some elements at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FUSED_RUN_H
#define MP_OP_FUSED_RUN_H

#include "device/device.h"
#include "kernel/pointwise/pointwise_args.h"
#include "op/fused/fused_program.h"
#include "op/fused/row_schedule.h"

enum {
    MP_FUSED_ALIGNED = 64,
    MP_FUSED_CASTS_MAX = 3, /* from float to what it stands for, to the other type, and to float */
    /* Where elements of registers lie while they are computed with: a part of the first cache. */
    MP_FUSED_AREA = 64 << 10,
    MP_FUSED_TILE_MIN = 32,
    MP_FUSED_TILE_MAX = 2048,
};

typedef struct mp_fused_step {
    mp_host_entry *entries[MP_FUSED_CASTS_MAX]; /* of a cast one behind the other; else the first */
    int entry_count;
    int16_t out; /* register */
    mp_term term;
} mp_fused_step;

struct mp_fused_program {
    mp_expression e; /* without its numbers, which come with each run */
    mp_reading readings[K_FUSED_IN];
    mp_host_entry *load[K_FUSED_IN], *store[K_FUSED_OUT]; /* NULL: as it is */
    /* Without reductions: */
    int slot_count;
    int16_t slots[MP_REGISTERS_MAX];
    bool is_direct[K_FUSED_OUT]; /* computed where it is to be */
    /* With them: */
    mp_row_passes passes;
    mp_row_schedule schedules[MP_KEEP_END];
    mp_fused_step steps[];
};

/* float16 and bfloat16 are kept as float. */
static inline mp_dtype mp_fused_kept_as(mp_dtype type) {
    return type == MP_F16 || type == MP_BF16 ? MP_F32 : type;
}

static inline size_t mp_fused_kept_size(const mp_expression *e, int reg) {
    return mp_dtype_size(mp_fused_kept_as(mp_expression_type(e, reg)));
}

/* What terms are computed on: `count` elements of register r lie at at[r]. */
typedef struct mp_fused_frame {
    unsigned char *at[MP_REGISTERS_MAX];
    int64_t count;
    mp_pointwise2_args two; /* with the walk that `count` is */
    mp_where_args where;
} mp_fused_frame;

void mp__fused_frame_open(mp_fused_frame *frame);
void mp__fused_frame_resize(mp_fused_frame *frame, int64_t count);

/* A term that is no reduction. */
void mp__fused_run_step(mp_fused_frame *frame, const mp_fused_step *at);

void mp__fused_convert(mp_host_entry *entry, const void *from, void *to, int64_t count);

/* `count` elements of input i from element `first` on of what the expression is computed over, in
 * the type that they are kept in; `column`: where `first` lies in its row. */
void mp__fused_load(const mp_fused_program *program, const mp_fused_args *args, int i,
                    int64_t first, int64_t column, int64_t count, unsigned char *to);

/* An element of input i, which is of rows, for each of `count` rows. */
void mp__fused_load_rows(const mp_fused_program *program, const mp_fused_args *args, int i,
                         int64_t row, int64_t count, unsigned char *to);

/* `count` elements, of which the first is element `first` of the output. */
void mp__fused_store(const mp_fused_program *program, const mp_fused_args *args, int i,
                     const unsigned char *from, int64_t first, int64_t count);

/* Bytes of a slot where there are so many in MP_FUSED_AREA. */
static inline int64_t mp_fused_pitch(int slot_count) {
    return MP_FUSED_AREA / MP_MAX(slot_count, 1) / MP_FUSED_ALIGNED * MP_FUSED_ALIGNED;
}

/* Elements that are computed at a time with so many slots. */
int64_t mp__fused_tile(const mp_expression *e, int slot_count);

/* Elements that a row may have that so many registers are kept of in buffers, of elements of up to
 * `widest` bytes. */
int64_t mp__fused_columns_kept(int kept_count, size_t widest);

/* Rows [first, last). */
void mp__fused_run_rows(const mp_fused_program *program, const mp_fused_args *args,
                        unsigned char *area, int64_t first, int64_t last);

#endif
