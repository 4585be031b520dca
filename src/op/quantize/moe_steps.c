/* moe_steps.c - a mixture of experts as steps of an operator's plan.
 *
 * Each row takes k routes, each to an expert. Routes are sorted by their experts, so that tiles of
 * them share an expert's weights; how many there are of each stays on the device, and grids are as
 * large as they may have to be. Results lie by route and are summed for each row in the order of
 * its routes, so that they repeat.
 * Kernels: quantize/moe_route.cu, quantize/moe_place.cu, quantize/moe_tiles.cu,
 * quantize/moe_activate.cu, quantize/moe_combine.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/moe_steps.h"

#include "op/quantize/moe_few_steps.h"
#include "op/quantize/moe_product.h"
#include "op/rows/sort_steps.h"

#include <math.h>

enum {
    EXPERTS_MAX = 1 << 20, /* their numbers are exact as floats */
    PLACE_ROUTES = 8192,   /* that one block sorts, ... */
    PLACE_EXPERTS = 1024,  /* ... of so many experts */
    LANES = 128,
    GROUP_LANES = 32,
};

static const k_moe_between nothing = {.kind = K_MOE_IDENTITY};

/* ---- what is asked ---- */

static mp_status read_activation(const mp_node *node, mp_moe *m) {
    static const char *const names[] = {"relu", "gelu", "silu", "identity", "swiglu"};
    const char *name = mp_node_string(node, "activation_type", "relu");
    const int64_t fusion = mp_node_int(node, "swiglu_fusion", 0);
    m->between.kind = -1;
    for (int32_t i = 0; i < (int32_t)MP_COUNT_OF(names); i++) {
        m->between.kind = strcmp(name, names[i]) == 0 ? i : m->between.kind;
    }
    if (m->between.kind < 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "activation_type is '%s'; relu, gelu, silu, identity and swiglu are known",
                       name);
    }
    if (fusion < 0 || fusion > 2) {
        return MP_FAIL(INVALID_ARGUMENT, "swiglu_fusion is %lld; it is 0, 1 or 2",
                       (long long)fusion);
    }
    m->between.halves = m->between.kind == K_MOE_SWIGLU ? (int32_t)fusion : K_MOE_APART;
    m->between.alpha = mp_node_float(node, "activation_alpha", 1);
    m->between.beta = mp_node_float(node, "activation_beta", 0);
    m->between.limit = mp_node_float(node, "swiglu_limit", INFINITY);
    return MP_OK;
}

static mp_status read_shapes(const mp_planner *p, mp_moe *m) {
    const mp_shape *x = &p->in[0].shape;
    const mp_shape *scores = &p->in[1].shape;
    char text[MP_SHAPE_TEXT];
    char of[MP_SHAPE_TEXT];
    m->type = p->in[0].type;
    m->hidden = x->rank > 0 ? x->dim[x->rank - 1] : 0;
    m->rows = mp_shape_span(x, 0, x->rank - 1);
    if ((x->rank != 2 && x->rank != 3) || scores->rank != 2 || scores->dim[0] != m->rows) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "router_probs of shape %s do not go with an input of shape %s",
                       mp_shape_text(scores, text), mp_shape_text(x, of));
    }
    m->experts = scores->dim[1];
    if (m->experts > EXPERTS_MAX) {
        return MP_FAIL(UNSUPPORTED, "%lld experts; up to %d are supported", (long long)m->experts,
                       EXPERTS_MAX);
    }
    return MP_OK;
}

mp_status mp_moe_read(const mp_planner *p, mp_moe *out) {
    *out = (mp_moe){.k = mp_node_int(p->node, "k", 1),
                    .normalize = mp_node_int(p->node, "normalize_routing_weights", 0) != 0,
                    .sparse = mp_node_int(p->node, "use_sparse_mixer", 0) != 0};
    MP_TRY(read_activation(p->node, out));
    MP_TRY(read_shapes(p, out));
    if (out->k < 1 || out->k > out->experts) {
        return MP_FAIL(INVALID_ARGUMENT, "k is %lld of %lld experts", (long long)out->k,
                       (long long)out->experts);
    }
    return !out->sparse || out->k == 2
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "use_sparse_mixer with k = %lld; it chooses 2",
                         (long long)out->k);
}

k_moe_scores mp_moe_scores_of(const mp_moe *m) {
    return (k_moe_scores){.experts = (int32_t)m->experts,
                          .k = (int32_t)m->k,
                          .normalize = m->normalize && !m->sparse,
                          .sparse = m->sparse};
}

mp_status mp_moe_gate(const mp_planner *p, mp_moe *m, int i) {
    m->gated = mp_plan_in(p, i) != NULL;
    if (m->between.kind != K_MOE_SWIGLU || m->gated == (m->between.halves == K_MOE_APART)) {
        return MP_OK;
    }
    return MP_FAIL(INVALID_ARGUMENT,
                   m->gated ? "swiglu_fusion says that fc1 has what fc3 has, and there is an fc3"
                            : "swiglu needs fc3, or swiglu_fusion 1 or 2 and both in fc1");
}

/* ---- the routes ---- */

static mp_status choose(mp_planner *p, const mp_moe *m, mp_ref pairs, mp_ref weight) {
    const mp_kernel *kernel = NULL;
    const mp_moe_route_args args = {.from = mp_moe_scores_of(m), .rows = m->rows};
    MP_TRY(mp_plan_kernel(p, &kernel, "moe_route_%s", mp_dtype_word(m->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid_rows(p, MP_CEIL_DIV(m->rows, LANES / GROUP_LANES), LANES), args,
        MP_BIND(mp_moe_route_args, from.scores, MP_IN(1)),
        MP_BIND(mp_moe_route_args, from.mix, m->mix), MP_BIND(mp_moe_route_args, pairs, pairs),
        MP_BIND(mp_moe_route_args, weight, weight));
}

/* Sorts the routes and finds the experts' tiles: one block does where there are some, ... */
static mp_status place(mp_planner *p, const mp_moe *m, mp_moe_routes *r, mp_ref pairs) {
    const mp_moe_place_args args = {.routes = r->count, .experts = m->experts, .tile = r->tile};
    const mp_kernel *kernel = NULL;
    mp_grid grid = mp_plan_grid_rows(p, 1, K_MOE_PLACE_LANES);
    const int64_t searches = MP_MAX(m->experts, (int64_t)K_MOE_PLACE_LANES);
    grid.shared_bytes = (uint32_t)(searches + r->count) * (uint32_t)sizeof(uint32_t);
    r->pairs = pairs;
    MP_TRY(mp_plan_pair_memory(p, r->count, &r->sorted));
    MP_TRY(mp_plan_kernel(p, &kernel, "moe_place"));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_moe_place_args, pairs, pairs),
                     MP_BIND(mp_moe_place_args, sorted, r->sorted),
                     MP_BIND(mp_moe_place_args, first, r->first),
                     MP_BIND(mp_moe_place_args, tiles, r->tiles));
}

/* ... or many do. */
static mp_status sort(mp_planner *p, const mp_moe *m, mp_moe_routes *r, mp_ref pairs) {
    const mp_moe_tiles_args args = {.routes = r->count, .experts = m->experts, .tile = r->tile};
    const mp_kernel *kernel = NULL;
    int bits = 8;
    while ((int64_t)1 << bits < m->experts) {
        bits += 8;
    }
    mp_sort_list list = {.rows = 1, .columns = r->count, .bits = bits, .entries = pairs};
    MP_TRY(mp_plan_sort(p, &list));
    r->sorted = list.entries;
    MP_TRY(mp_plan_kernel(p, &kernel, "moe_tiles"));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, 1, LANES), args,
                     MP_BIND(mp_moe_tiles_args, sorted, r->sorted),
                     MP_BIND(mp_moe_tiles_args, first, r->first),
                     MP_BIND(mp_moe_tiles_args, tiles, r->tiles));
}

static mp_status plan_routes(mp_planner *p, const mp_moe *m, mp_moe_routes *r) {
    mp_ref pairs;
    *r = (mp_moe_routes){.pairs = MP_NOWHERE};
    if (__builtin_mul_overflow(m->rows, m->k, &r->count)) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld rows with %lld experts each are too many",
                       (long long)m->rows, (long long)m->k);
    }
    mp_moe_choose_way(p, m, r);
    MP_TRY(mp_plan_pair_memory(p, r->count, &pairs));
    MP_TRY(mp_plan_scratch_of(p, r->count, MP_F32, &r->weight));
    MP_TRY(mp_plan_scratch_of(p, m->experts + 1, MP_I64, &r->first));
    MP_TRY(mp_plan_scratch_of(p, m->experts + 1, MP_I64, &r->tiles));
    MP_TRY(choose(p, m, pairs, r->weight));
    return r->count <= PLACE_ROUTES && m->experts <= PLACE_EXPERTS ? place(p, m, r, pairs)
                                                                   : sort(p, m, r, pairs);
}

/* ---- from routes to rows ---- */

static mp_status route_memory(mp_planner *p, const mp_moe *m, const mp_moe_routes *r,
                              int64_t columns, mp_ref *out) {
    const mp_shape shape = {.rank = 2, .dim = {r->count, columns}};
    return mp_plan_scratch_shape(p, &shape, m->type, out);
}

static mp_status activate(mp_planner *p, const mp_moe *m, const mp_moe_routes *r, mp_ref x,
                          mp_ref gate, mp_ref out) {
    const mp_kernel *kernel = NULL;
    const mp_moe_activate_args args = {
        .count = r->count * m->inter, .columns = m->inter, .between = m->between};
    MP_TRY(mp_plan_kernel(p, &kernel, "moe_activate_%s", mp_dtype_word(m->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_moe_activate_args, x, x), MP_BIND(mp_moe_activate_args, gate, gate),
                     MP_BIND(mp_moe_activate_args, out, out));
}

/* What the last product is of: the products before it, and what comes between, which the first one
 * does itself unless it wants both halves from apart. */
static mp_status plan_inner(mp_planner *p, const mp_moe *m, const mp_moe_routes *r, mp_ref *out) {
    const bool apart = m->gated || m->between.halves == K_MOE_HALVES;
    const mp_moe_factors first = {&m->first, MP_IN(0), m->k, apart ? nothing : m->between, 1};
    const mp_moe_factors third = {&m->third, MP_IN(0), m->k, nothing, 1};
    mp_ref inner, gate = MP_NOWHERE;
    MP_TRY(route_memory(p, m, r, m->inter, out));
    if (!apart) {
        return mp_plan_moe_product(p, m, r, &first, *out);
    }
    MP_TRY(route_memory(p, m, r, mp_moe_wide(m), &inner));
    MP_TRY(mp_plan_moe_product(p, m, r, &first, inner));
    if (m->gated) {
        MP_TRY(route_memory(p, m, r, m->inter, &gate));
        MP_TRY(mp_plan_moe_product(p, m, r, &third, gate));
    }
    return activate(p, m, r, inner, gate, *out);
}

static mp_status combine(mp_planner *p, const mp_moe *m, const mp_moe_routes *r, mp_ref x,
                         int64_t parts) {
    const mp_kernel *kernel = NULL;
    const mp_moe_combine_args args = {.count = m->rows * m->hidden,
                                      .columns = m->hidden,
                                      .routes = r->count,
                                      .k = (int32_t)m->k,
                                      .parts = (int32_t)parts,
                                      .packed = p->align >= 16 && m->hidden % K_MOE_COMBINED == 0};
    const int wide = args.packed ? K_MOE_COMBINED : 1;
    MP_TRY(mp_plan_kernel(p, &kernel, "moe_combine_%s", mp_dtype_word(m->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, wide), args,
                     MP_BIND(mp_moe_combine_args, x, x),
                     MP_BIND(mp_moe_combine_args, weight, r->weight),
                     MP_BIND(mp_moe_combine_args, pairs, parts > 1 ? r->pairs : MP_NOWHERE),
                     MP_BIND(mp_moe_combine_args, bias, parts > 1 ? m->second.bias : MP_NOWHERE),
                     MP_BIND(mp_moe_combine_args, out, MP_OUT(0)));
}

mp_status mp_plan_moe(mp_planner *p, const mp_moe *m) {
    mp_ref inner, result;
    mp_moe_routes r;
    MP_TRY(mp_plan_output(p, 0, m->type, &p->in[0].shape));
    if (m->rows == 0 || m->hidden == 0) {
        return MP_OK;
    }
    if (mp_moe_is_few(p, m)) {
        return mp_plan_moe_few(p, m);
    }
    MP_TRY(plan_routes(p, m, &r));
    MP_TRY(plan_inner(p, m, &r, &inner));
    const int64_t parts = mp_moe_parts(p, m, &r, &m->second);
    const mp_moe_factors second = {&m->second, inner, 1, nothing, parts};
    const mp_shape shape = {.rank = 3, .dim = {parts, r.count, m->hidden}};
    MP_TRY(mp_plan_scratch_shape(p, &shape, parts > 1 ? MP_F32 : m->type, &result));
    MP_TRY(mp_plan_moe_product(p, m, &r, &second, result));
    return combine(p, m, &r, result, parts);
}
