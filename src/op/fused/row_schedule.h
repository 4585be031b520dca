/* row_schedule.h - what the emulated device does in each pass over rows (row_pass.h), and where
 * what it computes lies.
 *
 * It has a tile of elements at a time, for which registers have slots: several whole rows, or a
 * part of one that is longer. What a later pass reads, too, is computed once and kept:
 *
 *     MP_KEEP_IN_SLOTS    rows are whole, so its slot is no other's and still there
 *     MP_KEEP_IN_BUFFERS  the row is longer, and it has a buffer as long as the row
 *     MP_KEEP_NOTHING     the row is too long for buffers: it is computed again
 *
 * So lives of slots span passes, or end within one: a register may lie elsewhere in each pass.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROW_SCHEDULE_H
#define MP_OP_ROW_SCHEDULE_H

#include "op/fused/row_pass.h"

enum {
    MP_ROW_PASSES_MAX = MP_REDUCTIONS_MAX + 1,
    MP_ROW_KEPT_MAX = 12,
    /* What is live, and numbers; what is of rows and they again for each element; inputs that are
     * the same for all rows; what is kept: there are no more. */
    MP_ROW_SLOTS_MAX = 2 * (MP_LIVE_MAX + K_FUSED_NUMBERS) + K_FUSED_IN + MP_ROW_KEPT_MAX + 1,
};

typedef enum mp_row_keep {
    MP_KEEP_IN_SLOTS,
    MP_KEEP_IN_BUFFERS,
    MP_KEEP_NOTHING,
    MP_KEEP_END,
} mp_row_keep;

/* Where elements of a register lie: in a slot (below MP_LIES_KEPT), in a buffer that is as long as
 * the row, or where the input or the output itself is. The number of it is added. */
enum {
    MP_LIES_NONE = -1,
    MP_LIES_KEPT = 0x100,
    MP_LIES_INPUT = 0x200,
    MP_LIES_OUTPUT = 0x300,
};

typedef struct mp_row_place {
    int16_t reg, place;
} mp_row_place;

typedef struct mp_row_plan { /* of a pass */
    int place_count, term_count;
    mp_row_place places[MP_REGISTERS_MAX]; /* of all that it reads or computes for each element */
    int16_t terms[MP_TERMS_MAX];           /* in their order, reductions among them */
    uint32_t loads;                        /* bits: inputs that it fetches to their place */
} mp_row_plan;

typedef struct mp_row_schedule {
    mp_row_keep keep;
    int slot_count, kept_count;
    int16_t kept[MP_ROW_KEPT_MAX];       /* registers */
    uint32_t kept_columns;               /* bits: kept inputs that are the same for all rows */
    int16_t row_slots[MP_REGISTERS_MAX]; /* of what is of rows, one element for each row */
    int16_t spread[MP_REGISTERS_MAX];    /* of the same where elements read it, repeated for each */
    uint32_t once; /* bits: inputs that are the same for all rows, fetched once */
    int16_t once_slots[K_FUSED_IN];
    mp_row_plan plans[MP_ROW_PASSES_MAX];
} mp_row_schedule;

/* Whether elements of input `i` are as terms take them where they are. */
bool mp_row_reads_in_place(const mp_expression *e, const mp_reading *readings, int i);

void mp_row_schedule_make(const mp_expression *e, const mp_reading *readings,
                          const mp_row_passes *passes, mp_row_keep keep, mp_row_schedule *out);

#endif
