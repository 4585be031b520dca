/* product_steps.c - see product_steps.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/product_steps.h"

#include "op/linear/few_rows.h"

enum { PRODUCTS_MAX = 1 << 16 }; /* separate products that one node may become */

int32_t mp_align_after(int32_t align, int64_t elements, mp_dtype type) {
    const int64_t bytes = elements * (int64_t)mp_dtype_size(type);
    while (align > 1 && bytes % align != 0) {
        align /= 2;
    }
    return align;
}

/* What all dimensions outside of the innermost come to. */
static mp_status count_loops(const mp_space *space, int64_t *out) {
    *out = 1;
    for (int d = 0; d < space->rank - 1; d++) {
        *out *= space->dim[d];
    }
    return *out <= PRODUCTS_MAX
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "%lld separate matrix products are more than %d",
                         (long long)*out, PRODUCTS_MAX);
}

static mp_status add_product(mp_planner *p, const mp_gemm *gemm, const mp_space *space, int64_t i) {
    const uint64_t size = mp_dtype_size(gemm->type);
    int64_t rest = i;
    int64_t at[2] = {0, 0};
    for (int d = space->rank - 2; d >= 0; d--) {
        at[0] += rest % space->dim[d] * space->stride[0][d];
        at[1] += rest % space->dim[d] * space->stride[1][d];
        rest /= space->dim[d];
    }
    const mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = mp_ref_at(MP_IN(0), (uint64_t)at[0] * size),
        [MP_GEMM_B] = mp_ref_at(MP_IN(1), (uint64_t)at[1] * size),
        [MP_GEMM_C] = mp_ref_at(MP_OUT(0), (uint64_t)(i * gemm->batch * gemm->stride_c) * size)};
    return mp_plan_rows(p, gemm, operands);
}

mp_status mp_plan_products(mp_planner *p, const mp_gemm *gemm, const mp_space *space) {
    const int inner = space->rank - 1;
    int64_t loops = 0;
    mp_gemm each = *gemm;
    MP_TRY(count_loops(space, &loops));
    each.batch = space->dim[inner];
    each.stride_a = space->stride[0][inner];
    each.stride_b = space->stride[1][inner];
    each.stride_c = each.m * each.n;
    for (int d = 0; d <= inner; d++) {
        each.align = mp_align_after(each.align, space->stride[0][d], each.type);
        each.align = mp_align_after(each.align, space->stride[1][d], each.type);
    }
    if (loops * each.batch > 1) {
        each.align = mp_align_after(each.align, each.stride_c, each.type);
    }
    for (int64_t i = 0; i < loops; i++) {
        MP_TRY(add_product(p, &each, space, i));
    }
    return MP_OK;
}
