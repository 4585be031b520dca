/* narrow_args.h - element types that are only stored, as numbers: one kernel serves them all and
 * reads from this what it has.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NARROW_ARGS_H
#define MP_KERNEL_NARROW_ARGS_H

#include "kernel/core/index_args.h"

enum { K_GROUP = 8 }; /* elements that a lane takes at once: whole bytes at any width */

enum {
    K_NARROW_UNSIGNED,
    K_NARROW_SIGNED,
    K_NARROW_FLOAT, /* sign, exponent, mantissa */
    K_NARROW_SCALE, /* powers of two: an exponent alone */
};

enum { K_ROUND_UP, K_ROUND_DOWN, K_ROUND_NEAREST };

typedef struct k_narrow {
    int32_t kind;
    int32_t width;     /* bits of an element */
    int32_t low, high; /* of integers: the range */

    /* Of floats. A code is an element's bits without the sign. */
    uint32_t mantissa; /* bits */
    uint32_t rebase;   /* subtracted from a float's exponent, in its place */
    float unit;        /* a code, in a float's place, times this is its value */
    float magic;       /* a float whose last place is the smallest subnormal of the type */
    uint32_t sign;     /* the sign's bit */
    uint32_t largest;  /* code of the largest finite value */
    uint32_t infinity; /* code, or beyond all codes where there is none */
    uint32_t beyond;   /* what larger values become: a code */
    uint32_t nan;      /* code of NaN; with a sign where there is no -0 */
    int32_t no_minus;  /* no -0: its place is NaN */

    int32_t saturate, round; /* of powers of two */
} k_narrow;

/* Elements of one type as another. */
typedef struct mp_cast_narrow_args {
    const void *x;
    void *out;
    int64_t count;
    k_narrow type; /* the narrow one of the two */
} mp_cast_narrow_args;

/* out[i] = whether the byte x[i] is in the set. */
typedef struct mp_byte_set_args {
    const void *x;
    void *out;
    int64_t count;
    uint32_t set[8];
} mp_byte_set_args;

enum { K_SCALE_F32, K_SCALE_F16, K_SCALE_BF16, K_SCALE_F8E8M0, K_SCALE_F8E4M3FN };

/* Who shares a scale. */
enum {
    K_SCALES_BY_ELEMENT,
    K_SCALES_BY_GROUP, /* the K_GROUP elements that a lane takes at once */
    K_SCALES_SINGLE,
};

/* Which scale and zero point an element has: [outer, axis, inner], of which `block` neighbours
 * along the axis share one. */
typedef struct k_scales {
    int32_t shared; /* K_SCALES_... */
    int32_t wide;   /* 2^31 elements and more: divide in 64 bits */
    int64_t axis, inner, block;
    int64_t by_outer, by_block, by_inner; /* steps in the scales */
    k_divider divide_inner, divide_axis, divide_block;
} k_scales;

enum { K_DEQUANTIZE_AT_ONCE = 4 }; /* packs of 16 bytes of the result that a lane has */

typedef struct mp_quantize_args {
    const void *x, *scale, *zero; /* zero: NULL for none */
    void *out;
    int64_t count;
    int32_t scale_type, unused;
    k_narrow type; /* the quantised one */
    k_scales scales;
} mp_quantize_args;

/* x as uint8. With parts > 0, `ranges` has the lowest values of that many parts of x, then the
 * highest. */
typedef struct mp_dynamic_quantize_args {
    const void *x;
    void *ranges;
    void *out, *scale, *zero; /* scale and zero: NULL where nobody asks */
    int64_t count;
    int64_t parts;
    k_narrow type; /* uint8 */
} mp_dynamic_quantize_args;

#endif
