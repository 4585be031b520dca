/* cast_steps.c - the same values in another element type, as a step of any operator's plan.
 *
 * Types that operators compute with have a kernel for each pair. Types that are only stored are
 * converted from and to few types; other pairs go by way of float, which holds every one of their
 * values, or of int8, where integers lose their high bits anyway.
 * Kernels: pointwise/cast.cu, pointwise/cast_from_narrow.cu, pointwise/cast_to_narrow.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/pointwise/cast_steps.h"

#include "kernel/pointwise/pointwise_args.h"
#include "op/core/op.h"

static bool is_one_of(mp_dtype dtype, mp_dtypes set) {
    return (MP_BIT(dtype) & set) != 0;
}

/* ---- single steps ---- */

static mp_status cast_wide(mp_planner *p, mp_typed from, mp_typed to, int64_t count) {
    const mp_pointwise1_args args = {.count = count};
    const mp_kernel *kernel = NULL;
    MP_TRY(
        mp_plan_kernel(p, &kernel, "cast_%s_%s", mp_dtype_word(from.type), mp_dtype_word(to.type)));
    const size_t from_size = mp_dtype_size(from.type);
    const size_t to_size = mp_dtype_size(to.type);
    const int per_lane = (int)(16 / MP_MAX(from_size, to_size));
    return MP_LAUNCH(p, kernel, mp_plan_grid_stream(p, count, per_lane, K_STREAM_AHEAD), args,
                     MP_BIND(mp_pointwise1_args, x, from.ref),
                     MP_BIND(mp_pointwise1_args, out, to.ref));
}

static mp_status cast_narrow(mp_planner *p, mp_typed from, mp_typed to, int64_t count,
                             mp_narrowing how) {
    const bool widens = mp_is_narrow(from.type);
    const mp_cast_narrow_args args = {.count = count,
                                      .type = mp_narrow(widens ? from.type : to.type, how)};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, widens ? "cast_from_narrow_%s" : "cast_to_narrow_%s",
                          mp_dtype_word(widens ? to.type : from.type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, K_GROUP), args,
                     MP_BIND(mp_cast_narrow_args, x, from.ref),
                     MP_BIND(mp_cast_narrow_args, out, to.ref));
}

/* ---- pairs ---- */

/* The type between the two, or MP_NONE where one step does. */
static mp_dtype between(mp_dtype from, mp_dtype to) {
    const mp_dtypes direct = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16);
    const mp_dtypes whole = MP_BIT(MP_U4) | MP_BIT(MP_I4) | MP_BIT(MP_U2) | MP_BIT(MP_I2);
    if (mp_is_narrow(from)) {
        return is_one_of(to, direct) ? MP_NONE : MP_F32;
    }
    if (!mp_is_narrow(to) || is_one_of(from, direct)) {
        return MP_NONE;
    }
    if (is_one_of(to, whole) && is_one_of(from, MP_INTS | MP_BIT(MP_BOOL))) {
        return from == MP_I8 ? MP_NONE : MP_I8;
    }
    return MP_F32;
}

static mp_status cast_step(mp_planner *p, mp_typed from, mp_typed to, int64_t count,
                           mp_narrowing how) {
    return mp_is_narrow(from.type) || mp_is_narrow(to.type) ? cast_narrow(p, from, to, count, how)
                                                            : cast_wide(p, from, to, count);
}

mp_status mp_plan_cast(mp_planner *p, mp_typed from, mp_typed to, const mp_shape *shape,
                       mp_narrowing how) {
    const int64_t count = mp_shape_count(shape);
    size_t bytes = 0;
    if (count == 0) {
        return MP_OK;
    }
    if (to.type == from.type) {
        MP_TRY(mp_shape_bytes(shape, to.type, &bytes));
        return mp_plan_copy(p, to.ref, from.ref, bytes);
    }
    mp_typed middle = {.type = between(from.type, to.type)};
    if (middle.type == MP_NONE) {
        return cast_step(p, from, to, count, how);
    }
    MP_TRY(mp_plan_scratch_of(p, count, middle.type, &middle.ref));
    MP_TRY(cast_step(p, from, middle, count, how));
    return cast_step(p, middle, to, count, how);
}
