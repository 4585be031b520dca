/* moe_few_steps.c - see moe_few_steps.h.
 *
 * Each group of lanes looks at the scores itself, so no route is sorted, and an expert that several
 * rows take is read for each of them, from the device's cache.
 * Kernels: quantize/moe_few_in.cu, quantize/moe_few_out.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/moe_few_steps.h"

#include "base/macros.h"

enum {
    ROUTES_MAX = 32,   /* from where on tiles by tensor cores are sooner done */
    EXPERTS_MAX = 512, /* whose scores each group looks at */
    PICKS_MAX = 64,
    ALIGN = 16,
    GROUP_LANES = 32,
    ONE_BLOCK = 31, /* a shift that leaves nothing of a place along k */
};

/* ---- whether ---- */

static bool is_simple(const mp_moe *m, const mp_expert_matrix *x) {
    const k_nbits *w = &x->packed.w;
    const bool cut = w->blocks == 1 || (w->block_shift >= 0 && w->block % K_NBITS_CHUNK == 0);
    return x->kind == K_NBITS_INTEGER && (w->bits == 4 || w->bits == 8) && cut &&
           w->k % K_NBITS_CHUNK == 0 && w->n < INT32_MAX / ROUTES_MAX &&
           w->k < INT32_MAX / PICKS_MAX && w->side <= 1 &&
           w->scale_type == mp_scale_word(m->type) && x->packed.factor.place == MP_PLACE_NONE;
}

bool mp_moe_is_few(const mp_planner *p, const mp_moe *m) {
    return p->align >= ALIGN && m->rows <= ROUTES_MAX && m->k <= PICKS_MAX &&
           m->rows * m->k <= ROUTES_MAX && m->experts <= EXPERTS_MAX && is_simple(m, &m->first) &&
           is_simple(m, &m->second) &&
           (!m->gated ||
            (is_simple(m, &m->third) && m->third.packed.w.bits == m->first.packed.w.bits));
}

/* ---- the steps ---- */

static k_moe_few few_of(const mp_expert_matrix *x) {
    const k_nbits *w = &x->packed.w;
    return (k_moe_few){.n = w->n,
                       .zero_row = w->zero_row,
                       .chunks = (int32_t)(w->k / K_NBITS_CHUNK),
                       .blocks = (int32_t)w->blocks,
                       .block_shift = w->blocks == 1 ? ONE_BLOCK : w->block_shift,
                       .middle = w->middle,
                       .zero_across = w->zero_across};
}

#define BIND_MATRIX(member, matrix)                                     \
    MP_BIND(mp_moe_few_args, member.weight, (matrix)->packed.weight),   \
        MP_BIND(mp_moe_few_args, member.scale, (matrix)->packed.scale), \
        MP_BIND(mp_moe_few_args, member.zero, (matrix)->packed.zero),   \
        MP_BIND(mp_moe_few_args, member.bias, (matrix)->bias)

static mp_status launch(mp_planner *p, const mp_moe *m, const mp_kernel *kernel, int64_t items,
                        const mp_moe_few_args *args, const mp_expert_matrix *first,
                        const mp_expert_matrix *other, mp_ref x, mp_ref out) {
    const int64_t groups = K_MOE_FEW_LANES / GROUP_LANES;
    mp_grid grid = mp_plan_grid_rows(p, MP_CEIL_DIV(items, groups), K_MOE_FEW_LANES);
    grid.shared_bytes = (uint32_t)(groups * m->k * 8); /* an expert and its weight */
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_moe_few_args, from.scores, MP_IN(1)),
                     MP_BIND(mp_moe_few_args, from.mix, m->mix), MP_BIND(mp_moe_few_args, x, x),
                     MP_BIND(mp_moe_few_args, out, out), BIND_MATRIX(first, first),
                     BIND_MATRIX(other, other));
}

static mp_status plan_in(mp_planner *p, const mp_moe *m, mp_ref out) {
    const bool halves = m->between.halves != K_MOE_APART;
    const mp_expert_matrix *other = m->gated ? &m->third : &m->first;
    const int dots = m->gated || halves ? 2 : 1;
    const mp_moe_few_args args = {.from = mp_moe_scores_of(m),
                                  .first = few_of(&m->first),
                                  .other = few_of(other),
                                  .rows = (int32_t)m->rows,
                                  .columns = (int32_t)m->inter,
                                  .stride = m->between.halves == K_MOE_PAIRS ? 2 : 1,
                                  .apart = m->between.halves == K_MOE_PAIRS    ? 1
                                           : m->between.halves == K_MOE_HALVES ? (int32_t)m->inter
                                                                               : 0,
                                  .between = m->between};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "moe_few_in_%d_%d_%s", m->first.packed.w.bits, dots,
                          mp_dtype_word(m->type)));
    const int64_t sums = K_MOE_FEW_SUMS(m->first.packed.w.bits, (int)mp_dtype_size(m->type));
    return launch(p, m, kernel, m->rows * m->k * MP_CEIL_DIV(m->inter, sums / dots), &args,
                  &m->first, other, MP_IN(0), out);
}

static mp_status plan_out(mp_planner *p, const mp_moe *m, mp_ref x) {
    const mp_moe_few_args args = {.from = mp_moe_scores_of(m),
                                  .first = few_of(&m->second),
                                  .other = few_of(&m->second),
                                  .rows = (int32_t)m->rows,
                                  .columns = (int32_t)m->hidden};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "moe_few_out_%d_%s", m->second.packed.w.bits,
                          mp_dtype_word(m->type)));
    return launch(p, m, kernel, m->rows * m->hidden, &args, &m->second, &m->second, x, MP_OUT(0));
}

mp_status mp_plan_moe_few(mp_planner *p, const mp_moe *m) {
    const mp_shape shape = {.rank = 2, .dim = {m->rows * m->k, m->inter}};
    mp_ref inner;
    MP_TRY(mp_plan_scratch_shape(p, &shape, m->type, &inner));
    MP_TRY(plan_in(p, m, inner));
    return plan_out(p, m, inner);
}
