/* nbits_chain.c - ChainMatMulNBits: rows through several products with packed weights, each of
 * which may be that of a norm of the rows and what is left beside them, and of which halves may
 * gate one another. Inputs: the rows, what is left beside them or none, and of each product its
 * weights, scales, bias or none, and the scale of its norm or none. Outputs: what the last product
 * makes, and what the last norm was taken of.
 *
 * One row of a small model is one launch. All else goes through one product after the other.
 * Kernels: quantize/nbits_chain.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/pointwise/gated_steps.h"
#include "op/quantize/nbits_chain_cut.h"
#include "op/quantize/nbits_steps.h"

enum { X, SKIP, LINKS };
enum { WEIGHT, SCALES, BIAS, NORM, LINK_INPUTS };
enum { OUT, SUM };

typedef struct chain {
    mp_packed link[K_CHAIN_LINKS];
    mp_ref bias[K_CHAIN_LINKS], norm[K_CHAIN_LINKS];
    int links, last_norm; /* last_norm: -1 where there is none */
    mp_shape rows;        /* that come to the first product */
    int64_t left;         /* columns of what norms are taken of; 0: there is none */
    mp_gate gate;
    float epsilon;
} chain;

static bool is_there(mp_ref ref) {
    return ref.place != MP_PLACE_NONE;
}

/* ---- what is asked ---- */

static int input_of(int link, int which) {
    return LINKS + link * LINK_INPUTS + which;
}

static mp_ref ref_of(const mp_planner *p, int link, int which) {
    const int i = input_of(link, which);
    return mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

/* `width`: of the rows as they come to the link; becomes that of what it makes. */
static mp_status read_link(const mp_planner *p, int i, int64_t *width, chain *c) {
    const mp_tensor *weight = mp_plan_in(p, input_of(i, WEIGHT));
    mp_packed *packed = &c->link[i];
    k_nbits *w = &packed->w;
    *packed = (mp_packed){.type = p->in[X].type,
                          .weight = ref_of(p, i, WEIGHT),
                          .scale = ref_of(p, i, SCALES),
                          .gated = (mp_node_int(p->node, "gated", 0) >> i & 1) != 0,
                          .gate = c->gate.kind,
                          .alpha = c->gate.alpha};
    c->bias[i] = ref_of(p, i, BIAS);
    c->norm[i] = ref_of(p, i, NORM);
    if (weight == NULL || weight->shape.rank < 1 || !is_there(packed->scale)) {
        return MP_FAIL(INVALID_ARGUMENT, "product %d of the chain has no weights", i);
    }
    w->k = *width;
    w->n = weight->shape.dim[0];
    if (w->k < 1 || w->n < 1 || (packed->gated && w->n % 2 != 0)) {
        return MP_FAIL(INVALID_ARGUMENT, "product %d of the chain has %lld columns%s of %lld", i,
                       (long long)w->n, packed->gated ? ", of which half gate," : "",
                       (long long)w->k);
    }
    MP_TRY(mp_packed_integers(w, packed->type, mp_node_int(p->node, "bits", 4),
                              mp_node_int(p->node, "block_size", 0)));
    MP_TRY(mp_packed_count(p, input_of(i, WEIGHT), "weights", w->n, w->weight_row));
    MP_TRY(mp_packed_count(p, input_of(i, SCALES), "scales", w->n, w->blocks));
    MP_TRY(mp_packed_count(p, input_of(i, BIAS), "values of the bias", w->n, 1));
    MP_TRY(mp_packed_count(p, input_of(i, NORM), "scales of the norm", w->k, 1));
    *width = packed->gated ? w->n / 2 : w->n;
    return MP_OK;
}

static mp_status read(mp_planner *p, chain *c) {
    const mp_shape *rows = &p->in[X].shape;
    const mp_tensor *skip = mp_plan_in(p, SKIP);
    *c = (chain){.links = (p->in_count - LINKS + LINK_INPUTS - 1) / LINK_INPUTS,
                 .last_norm = -1,
                 .rows = *rows,
                 .epsilon = mp_node_float(p->node, "epsilon", 1e-5f)};
    if (c->links < 1 || c->links > K_CHAIN_LINKS || rows->rank < 1) {
        return MP_FAIL(INVALID_ARGUMENT, "a chain of %d products; 1 to %d are supported", c->links,
                       (int)K_CHAIN_LINKS);
    }
    int64_t width = rows->dim[rows->rank - 1];
    MP_TRY(mp_gate_read(p, &c->gate));
    for (int i = 0; i < c->links; i++) {
        const int64_t given = width;
        MP_TRY(read_link(p, i, &width, c));
        if (is_there(c->norm[i])) {
            c->last_norm = i;
            c->left = c->left == 0 ? given : c->left;
            if (given != c->left) {
                return MP_FAIL(INVALID_ARGUMENT, "norms of a chain are of %lld and %lld columns",
                               (long long)c->left, (long long)given);
            }
        }
    }
    if (skip == NULL && mp_plan_wants(p, SUM)) {
        return MP_FAIL(INVALID_ARGUMENT, "there is no sum of one tensor");
    }
    mp_shape shape = *rows;
    shape.dim[shape.rank - 1] = c->left;
    if (skip != NULL && c->left == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "a chain without a norm adds nothing to its rows");
    }
    if (skip != NULL) {
        const mp_shape made = shape;
        MP_TRY(mp_shape_broadcast(&made, &skip->shape, &shape));
    }
    if (shape.dim[shape.rank - 1] != c->left) {
        return MP_FAIL(INVALID_ARGUMENT, "rows of %lld columns are added to those of %lld",
                       (long long)shape.dim[shape.rank - 1], (long long)c->left);
    }
    if (mp_plan_wants(p, SUM)) {
        MP_TRY(mp_plan_output(p, SUM, p->in[X].type, &shape));
    }
    shape.dim[shape.rank - 1] = width;
    return mp_plan_output(p, OUT, p->in[X].type, &shape);
}

/* ---- one launch ---- */

static int64_t row_count(const mp_shape *shape) {
    return mp_shape_span(shape, 0, shape->rank - 1);
}

static bool suits(const mp_planner *p, const chain *c) {
    enum { CHUNKS_LOG_MAX = 2 };
    const int log = c->link[0].w.block_shift - 5;
    const mp_dtype type = c->link[0].type;
    const int bits = c->link[0].w.bits;
    const mp_tensor *skip = mp_plan_in(p, SKIP);
    bool fits = row_count(&c->rows) == 1 &&
                (skip == NULL || mp_shape_count(&skip->shape) == c->left) && p->align >= 16 &&
                (type == MP_F16 || type == MP_BF16) && (bits == 4 || bits == 8) && log >= 0 &&
                log <= CHUNKS_LOG_MAX;
    for (int i = 0; i < c->links; i++) {
        fits = fits && mp_plan_is_constant(p, c->link[i].weight) &&
               mp_plan_is_constant(p, c->link[i].scale) && mp_plan_is_constant(p, c->norm[i]) &&
               c->link[i].w.k < INT32_MAX / 2 && c->link[i].w.n < INT32_MAX / 2;
    }
    return fits;
}

static k_chain_link link_of(const chain *c, int i) {
    const mp_packed *packed = &c->link[i];
    return (k_chain_link){.n = (int32_t)packed->w.n,
                          .k = (int32_t)packed->w.k,
                          .chunks_log = packed->w.block_shift - 5,
                          .middle = packed->w.middle,
                          .gated = packed->gated,
                          .gate = packed->gate,
                          .alpha = packed->alpha,
                          .epsilon = c->epsilon};
}

/* What a pointer of a link is bound to. */
#define LINK_BIND(i, member, ref)                                                         \
    ((mp_bind){offsetof(mp_nbits_chain_args, link) + (size_t)(i) * sizeof(k_chain_link) + \
                   offsetof(k_chain_link, member),                                        \
               (ref)})

static mp_status at_once(mp_planner *p, const chain *c, const mp_nbits_chain_cut *cut,
                         const mp_nbits_chain_args *args) {
    enum { OWN = 3, EACH = 5 };
    const mp_kernel *kernel = NULL;
    const mp_grid grid = {.blocks = cut->blocks,
                          .lanes = cut->lanes,
                          .shared_bytes = cut->shared_bytes,
                          .meets = cut->blocks};
    mp_bind binds[OWN + EACH * K_CHAIN_LINKS] = {
        MP_BIND(mp_nbits_chain_args, a, MP_IN(X)),
        MP_BIND(mp_nbits_chain_args, skip, mp_plan_in(p, SKIP) != NULL ? MP_IN(SKIP) : MP_NOWHERE),
        MP_BIND(mp_nbits_chain_args, out, MP_OUT(OUT))};
    size_t count = OWN;
    for (int i = 0; i < c->links; i++) {
        const bool tells = i == c->last_norm && mp_plan_wants(p, SUM);
        binds[count++] = LINK_BIND(i, weight, c->link[i].weight);
        binds[count++] = LINK_BIND(i, scale, c->link[i].scale);
        binds[count++] = LINK_BIND(i, bias, c->bias[i]);
        binds[count++] = LINK_BIND(i, norm, c->norm[i]);
        binds[count++] = LINK_BIND(i, sum, tells ? MP_OUT(SUM) : MP_NOWHERE);
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "nbits_chain_%d_%s", (int)c->link[0].w.bits,
                          mp_dtype_word(c->link[0].type)));
    return MP_LAUNCH_BOUND(p, kernel, grid, args, sizeof *args, binds, count);
}

/* ---- one product after the other ---- */

/* Rows on their way, and what is left beside them. */
typedef struct way {
    mp_ref rows, left;
    mp_tensor beside; /* what is left, as long as that is the input */
    mp_shape shape;   /* of the rows, but for their width */
    bool is_gated;    /* halves, of which one gates the other as the next product reads them */
} way;

static mp_shape shape_of(const way *at, int64_t width) {
    mp_shape shape = at->shape;
    shape.dim[shape.rank - 1] = width;
    return shape;
}

/* The norm of the rows that link `i` multiplies. */
static mp_status norm_of(mp_planner *p, const chain *c, int i, way *at, mp_before *out) {
    const mp_tensor rows = {.type = c->link[i].type, .shape = shape_of(at, c->link[i].w.k)};
    mp_tensor beside = at->beside.type != MP_NONE ? at->beside : rows, made = rows;
    const bool is_last = i == c->last_norm;
    if (is_there(at->left)) {
        MP_TRY(mp_shape_broadcast(&rows.shape, &beside.shape, &made.shape));
    } else {
        beside.type = MP_NONE;
    }
    *out = (mp_before){.args = {.columns = c->link[i].w.k, .epsilon = c->epsilon},
                       .x = at->rows,
                       .skip = at->left,
                       .scale = c->norm[i],
                       .in = {rows, beside},
                       .made = made};
    at->beside.type = MP_NONE;
    at->shape = made.shape;
    if (!is_there(at->left)) {
        at->left = at->rows;
    } else if (!is_last) {
        MP_TRY(mp_plan_scratch_shape(p, &made.shape, made.type, &out->sum));
        at->left = out->sum;
    } else if (mp_plan_wants(p, SUM)) {
        out->sum = MP_OUT(SUM);
    }
    return MP_OK;
}

static mp_before gate_of(const chain *c, int i, const way *at) {
    const mp_tensor halves = {.type = c->link[i].type, .shape = shape_of(at, 2 * c->link[i].w.k)};
    return (mp_before){
        .args = {.columns = c->link[i].w.k, .gate = c->gate.kind, .alpha = c->gate.alpha},
        .is_gate = true,
        .x = at->rows,
        .in = {halves},
        .made = {.type = halves.type, .shape = shape_of(at, c->link[i].w.k)}};
}

static mp_status product(mp_planner *p, const chain *c, int i, way *at) {
    const bool is_normed = is_there(c->norm[i]), is_last = i + 1 == c->links;
    mp_packed packed = c->link[i];
    mp_before before;
    mp_ref out = MP_OUT(OUT);
    if (is_normed) {
        MP_TRY(norm_of(p, c, i, at, &before));
    } else if (at->is_gated) {
        before = gate_of(c, i, at);
    }
    const int64_t m = row_count(&at->shape);
    const bool is_made = is_normed || at->is_gated;
    at->is_gated = packed.gated && !is_last && !is_there(c->norm[i + 1]);
    packed.gated = packed.gated && !at->is_gated;
    if (!is_last) {
        const mp_shape shape = shape_of(at, packed.gated ? packed.w.n / 2 : packed.w.n);
        MP_TRY(mp_plan_scratch_shape(p, &shape, packed.type, &out));
    }
    MP_TRY(is_made ? mp_plan_made_packed(p, &packed, &before, m, c->bias[i], out)
                   : mp_plan_packed_product(p, &packed, at->rows, m, c->bias[i], out));
    at->rows = out;
    return MP_OK;
}

static mp_status plan(mp_planner *p) {
    mp_nbits_chain_args args = {0};
    mp_nbits_chain_cut cut;
    uint32_t normed = 0;
    chain c;
    MP_TRY(read(p, &c));
    const mp_tensor *skip = mp_plan_in(p, SKIP);
    if (row_count(&c.rows) == 0 || (skip != NULL && mp_shape_count(&skip->shape) == 0)) {
        return MP_OK;
    }
    if (suits(p, &c)) {
        args.links = c.links;
        for (int i = 0; i < c.links; i++) {
            args.link[i] = link_of(&c, i);
            normed |= is_there(c.norm[i]) ? 1u << i : 0;
        }
        if (mp_nbits_chain_cut_for(&p->device->info, c.link[0].w.bits, normed, &args, &cut)) {
            return at_once(p, &c, &cut, &args);
        }
    }
    way at = {.rows = MP_IN(X),
              .left = skip != NULL ? MP_IN(SKIP) : MP_NOWHERE,
              .beside = skip != NULL ? *skip : (mp_tensor){.type = MP_NONE},
              .shape = c.rows};
    for (int i = 0; i < c.links; i++) {
        MP_TRY(product(p, &c, i, &at));
    }
    return MP_OK;
}

static const mp_attr_def attrs[] = {{"alpha", MP_ATTR_FLOAT},
                                    {"bits", MP_ATTR_INT},
                                    {"block_size", MP_ATTR_INT},
                                    {"epsilon", MP_ATTR_FLOAT},
                                    {"gate", MP_ATTR_STRING},
                                    {"gated", MP_ATTR_INT},
                                    {NULL, 0}};

enum { FLOATS = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16) };

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "ChainMatMulNBits",
     .since = 1,
     .until = 1,
     .types = {{"T1", FLOATS}},
     .attrs = attrs,
     .plan = plan},
};

const mp_op_family mp__family_nbits_chain = {"nbits_chain", ops, MP_COUNT_OF(ops)};
