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
    K_STAND_IN_WHOLE = 0, /* how an input is read: an element for each of the output, */
    K_STAND_IN_ONE = 1,   /* one for all, */
    K_STAND_IN_VIEW = 2,  /* or the next view of the walk */
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
    uint8_t function; /* the number of its row in pointwise.def, from 0 */
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

#endif
