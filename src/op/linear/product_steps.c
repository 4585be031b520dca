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

/* The dimension whose products are one call: the longest. */
static int batch_dim(const mp_space *space) {
    int longest = space->rank - 1;
    for (int d = space->rank - 2; d >= 0; d--) {
        longest = space->dim[d] > space->dim[longest] ? d : longest;
    }
    return longest;
}

/* What all other dimensions come to. */
static mp_status count_loops(const mp_space *space, int batched, int64_t *out) {
    *out = 1;
    for (int d = 0; d < space->rank; d++) {
        *out *= d != batched ? space->dim[d] : 1;
    }
    return *out <= PRODUCTS_MAX
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "%lld separate matrix products are more than %d",
                         (long long)*out, PRODUCTS_MAX);
}

/* Call `i`; results lie `result` elements apart. */
static mp_status add_product(mp_planner *p, const mp_gemm *gemm, const mp_space *space, int batched,
                             int64_t result, int64_t i) {
    const uint64_t size = mp_dtype_size(gemm->type);
    int64_t rest = i, step = result;
    int64_t at[3] = {0, 0, 0};
    for (int d = space->rank - 1; d >= 0; d--) {
        if (d != batched) {
            const int64_t place = rest % space->dim[d];
            at[0] += place * space->stride[0][d];
            at[1] += place * space->stride[1][d];
            at[2] += place * step;
            rest /= space->dim[d];
        }
        step *= space->dim[d];
    }
    const mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = mp_ref_at(MP_IN(0), (uint64_t)at[0] * size),
        [MP_GEMM_B] = mp_ref_at(MP_IN(1), (uint64_t)at[1] * size),
        [MP_GEMM_C] = mp_ref_at(MP_OUT(0), (uint64_t)at[2] * size)};
    return mp_plan_rows(p, gemm, operands);
}

mp_status mp_plan_products(mp_planner *p, const mp_gemm *gemm, const mp_space *space) {
    const int batched = batch_dim(space);
    const int64_t result = gemm->m * gemm->n;
    int64_t loops = 0;
    mp_gemm each = *gemm;
    MP_TRY(count_loops(space, batched, &loops));
    each.batch = space->dim[batched];
    each.stride_a = space->stride[0][batched];
    each.stride_b = space->stride[1][batched];
    each.stride_c = result;
    for (int d = batched + 1; d < space->rank; d++) {
        each.stride_c *= space->dim[d];
    }
    for (int d = 0; d < space->rank; d++) {
        each.align = mp_align_after(each.align, space->stride[0][d], each.type);
        each.align = mp_align_after(each.align, space->stride[1][d], each.type);
    }
    if (loops * each.batch > 1) {
        each.align = mp_align_after(each.align, result, each.type);
    }
    for (int64_t i = 0; i < loops; i++) {
        MP_TRY(add_product(p, &each, space, batched, result, i));
    }
    return MP_OK;
}
