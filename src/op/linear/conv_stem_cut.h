/* conv_stem_cut.h - the numbers of a convolution by conv_stem.cu: how its images are cut in tiles,
 * and how what a tile sees is laid out.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CONV_STEM_CUT_H
#define MP_OP_CONV_STEM_CUT_H

#include "device/math.h"
#include "kernel/linear/linear_args.h"

/* What is stored how. */
typedef struct mp_stem_form {
    bool x_last, w_last, y_last; /* channels come last */
} mp_stem_form;

/* Channels that the kernel makes at once: K_WIDE of the instance. */
int32_t mp_stem_wide(const mp_conv *conv);

/* Fills in all but the addresses and what is constant, for blocks of so many lanes: a power of two,
 * 128 to K_STEM_LANES. False where the kernel has no such numbers. */
bool mp_stem_cut(const mp_conv *conv, mp_stem_form form, int32_t lanes, mp_stem_args *out);

/* Bytes of shared memory that a block needs. */
int64_t mp_stem_held(const mp_conv *conv, const mp_stem_args *args);

#endif
