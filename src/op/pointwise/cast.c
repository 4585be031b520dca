/* cast.c - Cast and CastLike: the same values in another element type.
 *
 * Types that operators compute with have a kernel for each pair. Types that are only stored are
 * converted from and to few types; other pairs go by way of float, which holds every one of their
 * values, or of int8, where integers lose their high bits anyway.
 * Kernels: pointwise/cast.cu, pointwise/cast_from_narrow.cu, pointwise/cast_to_narrow.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"
#include "op/pointwise/narrow.h"

#include <string.h>

/* A place with elements of a type. */
typedef struct typed {
    mp_dtype type;
    mp_ref ref;
} typed;

static bool is_one_of(mp_dtype dtype, mp_dtypes set) {
    return (MP_BIT(dtype) & set) != 0;
}

/* ---- single steps ---- */

static mp_status cast_wide(mp_planner *p, typed from, typed to, int64_t count) {
    const mp_pointwise1_args args = {.count = count};
    const mp_kernel *kernel = NULL;
    MP_TRY(
        mp_plan_kernel(p, &kernel, "cast_%s_%s", mp_dtype_word(from.type), mp_dtype_word(to.type)));
    const size_t from_size = mp_dtype_size(from.type);
    const size_t to_size = mp_dtype_size(to.type);
    const int per_lane = (int)(16 / MP_MAX(from_size, to_size));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, per_lane), args,
                     MP_BIND(mp_pointwise1_args, x, from.ref),
                     MP_BIND(mp_pointwise1_args, out, to.ref));
}

static mp_status cast_narrow(mp_planner *p, typed from, typed to, int64_t count, mp_narrowing how) {
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

static mp_status cast_step(mp_planner *p, typed from, typed to, int64_t count, mp_narrowing how) {
    return mp_is_narrow(from.type) || mp_is_narrow(to.type) ? cast_narrow(p, from, to, count, how)
                                                            : cast_wide(p, from, to, count);
}

static mp_status cast_to(mp_planner *p, mp_dtype to_type, mp_narrowing how) {
    const mp_tensor *x = &p->in[0];
    const typed from = {x->type, MP_IN(0)};
    const typed to = {to_type, MP_OUT(0)};
    const int64_t count = mp_shape_count(&x->shape);
    size_t bytes = 0;
    MP_TRY(mp_plan_output(p, 0, to_type, &x->shape));
    if (count == 0) {
        return MP_OK;
    }
    if (to.type == from.type) {
        MP_TRY(mp_shape_bytes(&x->shape, to.type, &bytes));
        return mp_plan_copy(p, to.ref, from.ref, bytes);
    }
    typed middle = {.type = between(from.type, to.type)};
    if (middle.type == MP_NONE) {
        return cast_step(p, from, to, count, how);
    }
    MP_TRY(mp_plan_scratch_of(p, count, middle.type, &middle.ref));
    MP_TRY(cast_step(p, from, middle, count, how));
    return cast_step(p, middle, to, count, how);
}

/* ---- attributes ---- */

static mp_status read_narrowing(const mp_node *node, mp_narrowing *out) {
    static const char *const modes[] = {
        [K_ROUND_UP] = "up", [K_ROUND_DOWN] = "down", [K_ROUND_NEAREST] = "nearest"};
    const char *mode = mp_node_string(node, "round_mode", "up");
    out->saturate = mp_node_int(node, "saturate", 1) != 0;
    for (int32_t i = 0; i < (int32_t)MP_COUNT_OF(modes); i++) {
        if (strcmp(mode, modes[i]) == 0) {
            out->round = i;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "round_mode is '%s', not up, down or nearest", mode);
}

static mp_status plan_cast(mp_planner *p) {
    const int64_t to = mp_node_int(p->node, "to", 0);
    const mp_dtype dtype = mp_dtype_of_onnx(to);
    mp_narrowing how;
    if (dtype == MP_NONE) {
        return MP_FAIL(UNSUPPORTED, "a cast to ONNX's element type %lld is not supported",
                       (long long)to);
    }
    MP_TRY(read_narrowing(p->node, &how));
    return cast_to(p, dtype, how);
}

static mp_status plan_cast_like(mp_planner *p) {
    mp_narrowing how;
    MP_TRY(read_narrowing(p->node, &how));
    return cast_to(p, p->in[1].type, how);
}

/* ---- the rows ---- */

static const mp_attr_def cast_attrs[] = {
    {"to", MP_ATTR_INT}, {"saturate", MP_ATTR_INT}, {"round_mode", MP_ATTR_STRING}, {NULL, 0}};

enum { EVERY = MP_ALL_TYPES | MP_NARROW };
#define TYPES .types = {{"T1", EVERY}, {"T2", EVERY}}, .attrs = cast_attrs

static const mp_op ops[] = {
    {.domain = "", .name = "Cast", .since = 6, .until = 25, TYPES, .plan = plan_cast},
    {.domain = "", .name = "CastLike", .since = 15, .until = 25, TYPES, .plan = plan_cast_like},
};

const mp_op_family mp__family_cast = {"cast", ops, MP_COUNT_OF(ops)};
