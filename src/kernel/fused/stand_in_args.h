/* stand_in_args.h - an expression as the kernel that stands in for its own reads it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_STAND_IN_ARGS_H
#define MP_KERNEL_STAND_IN_ARGS_H

#include "kernel/fused/fused_args.h"

enum {
    K_STAND_IN_SLOTS = 41, /* values that are kept at one time */
    K_STAND_IN_FUNCTION = 0,
    K_STAND_IN_CAST = 1,
    K_STAND_IN_WHERE = 2,
    K_STAND_IN_REDUCTION = 3,
    K_STAND_IN_WHOLE = 0,  /* how an input is read: an element for each of the output, */
    K_STAND_IN_ONE = 1,    /* one for all, */
    K_STAND_IN_VIEW = 2,   /* or the next view of the walk */
    K_STAND_IN_COLUMN = 3, /* where there are rows: one for each of a row, */
    K_STAND_IN_ROW = 4,    /* one for each row, */
    K_STAND_IN_ROWS = 5,   /* or the row that begins where the next view is */
};

/* Of rows. */
enum {
    K_STAND_IN_PASSES = 9,
    K_STAND_IN_SUMS = 8,     /* reductions of a pass */
    K_STAND_IN_ORDER = 1024, /* terms of all passes */
    K_STAND_IN_SUM = 0,      /* what a reduction gives */
    K_STAND_IN_MEAN = 1,
    K_STAND_IN_MAX = 2,
    K_STAND_IN_MIN = 3,
    K_STAND_IN_PRODUCT = 4,
};

/* Types of elements, by ONNX's numbers. */
enum {
    K_ELEMENT_F32 = 1,
    K_ELEMENT_U8 = 2,
    K_ELEMENT_I8 = 3,
    K_ELEMENT_U16 = 4,
    K_ELEMENT_I16 = 5,
    K_ELEMENT_I32 = 6,
    K_ELEMENT_I64 = 7,
    K_ELEMENT_BOOL = 9,
    K_ELEMENT_F16 = 10,
    K_ELEMENT_U32 = 12,
    K_ELEMENT_U64 = 13,
    K_ELEMENT_BF16 = 16,
};

typedef struct k_stand_in_term {
    uint8_t kind;
    uint8_t function; /* the number of its row in pointwise.def, from 0, or of the reduction */
    uint8_t type;     /* of the result */
    uint8_t from;     /* what a function is computed in, or a cast casts */
    uint8_t out;      /* slots */
    uint8_t x[3];
    float a, b;
} k_stand_in_term;

typedef struct k_stand_in_code {
    int32_t in_count, number_count, term_count, out_count; /* the terms lie behind this struct */
    uint8_t in_type[K_FUSED_IN], in_slot[K_FUSED_IN], in_reading[K_FUSED_IN];
    uint8_t number_slot[K_FUSED_NUMBERS];
    uint8_t out_type[K_FUSED_OUT], out_slot[K_FUSED_OUT];
    uint8_t is_apart; /* the output is the last view of the walk */
} k_stand_in_code;

/* Of an expression with reductions; it lies between the code and the terms. A pass computes again
 * what it needs for each element of the row, and ends with the reductions that are in its order. */
typedef struct k_stand_in_rows {
    int32_t pack, packs; /* elements of a pack; those that a lane has at a time */
    int32_t pass_count;
    uint8_t is_row_in[K_FUSED_IN], is_row_out[K_FUSED_OUT];
    uint8_t order[K_STAND_IN_ORDER]; /* numbers of terms */
    /* Ends in `order` by pass, of which the last is behind all: of terms that the row has one value
     * of, computed before, and of what is computed for each element. Each begins where the one
     * before ends. */
    uint16_t row_end[K_STAND_IN_PASSES + 1], element_end[K_STAND_IN_PASSES];
} k_stand_in_rows;

#endif
