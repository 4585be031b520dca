/* moe_product.c - see moe_product.h.
 *
 * Kernels: quantize/moe_rows.cu, quantize/moe_product.cu, quantize/moe_mma.cu,
 * quantize/moe_mma_packed.cu, quantize/moe_some.cu, quantize/moe_wgmma.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/moe_product.h"

#include "base/macros.h"

enum {
    ARCH = 80,       /* whose tensor cores the kernels are written for */
    GROUP_ARCH = 90, /* and the products of groups of warps, which no other one has */
    ALIGN = 16,
    NEAR = 1 << 30, /* places along k, and a stage beyond them, are numbers of 32 bits */
    SOME_EACH = 64, /* routes an expert, on average, up to which tiles are of some */
    LANES = 128,
    GROUP_LANES = 32,
    ONE_BLOCK = 62, /* a shift that leaves nothing of a place along k */
};

typedef struct way {
    const char *kernel;
    int64_t tile, columns;
} way;

static const way ways[] = {
    [MP_MOE_FEW] = {"moe_rows", K_MOE_FEW, K_NBITS_COLUMNS},
    [MP_MOE_TILES] = {"moe_product", K_MOE_TILE, K_MOE_TILE},
    [MP_MOE_SOME] = {"moe_mma_32", K_MOE_SOME, K_MOE_COLUMNS},
    [MP_MOE_MANY] = {"moe_mma_128", K_MOE_MANY, K_MOE_COLUMNS},
};

/* ---- which ---- */

static bool is_aligned(const mp_planner *p, const k_nbits *w) {
    return p->align >= ALIGN && w->k % K_NBITS_PIECE == 0;
}

/* Pieces of 16 bytes of all weights, and of all rows, are counted with 32 bits. */
static bool are_near(int64_t lines, int64_t k, int64_t size) {
    int64_t bytes = 0;
    return !__builtin_mul_overflow(lines, k, &bytes) &&
           !__builtin_mul_overflow(bytes, size, &bytes) && bytes / ALIGN < UINT32_MAX;
}

static bool suits(const mp_planner *p, const mp_moe *m, const mp_expert_matrix *x, int64_t lines) {
    const k_nbits *w = &x->packed.w;
    const int64_t size = (int64_t)mp_dtype_size(m->type);
    int64_t columns = 0;
    return is_aligned(p, w) && w->n % 2 == 0 && are_near(lines, w->k, size) &&
           !__builtin_mul_overflow(m->experts, w->n, &columns) && are_near(columns, w->k, size);
}

static bool by_tensor_cores(const mp_planner *p, const mp_moe *m, int64_t routes) {
    const bool rounds = m->type != MP_F32 || p->node->options.tf32;
    const bool is_packed = m->first.kind != K_NBITS_PLAIN;
    return p->device->info.arch >= ARCH && rounds && !(is_packed && m->type == MP_F32) &&
           suits(p, m, &m->first, m->rows) && suits(p, m, &m->second, routes) &&
           (!m->gated || suits(p, m, &m->third, m->rows));
}

void mp_moe_choose_way(const mp_planner *p, const mp_moe *m, mp_moe_routes *r) {
    if (r->count <= K_MOE_FEW * m->experts) {
        r->way = MP_MOE_FEW;
    } else if (by_tensor_cores(p, m, r->count)) {
        r->way = r->count <= SOME_EACH * m->experts ? MP_MOE_SOME : MP_MOE_MANY;
    } else {
        r->way = MP_MOE_TILES;
    }
    r->tile = ways[r->way].tile;
    r->tiles_max = MP_MIN(r->count, MP_CEIL_DIV(r->count, r->tile) + m->experts);
}

int64_t mp_moe_parts(const mp_planner *p, const mp_moe *m, const mp_moe_routes *r,
                     const mp_expert_matrix *matrix) {
    enum { PARTS_MAX = 4, CHUNKS_MIN = 8, BLOCKS_EACH = 2 /* of a multiprocessor */ };
    const int64_t depth = K_MOE_LINE / (int64_t)mp_dtype_size(m->type);
    const int64_t tiles = MP_MAX(MP_CEIL_DIV(r->count, r->tile), MP_MIN(m->experts, r->count));
    const int64_t blocks = tiles * MP_CEIL_DIV(matrix->packed.w.n, ways[r->way].columns);
    const int64_t chunks = matrix->packed.w.k / depth;
    const int64_t room = (int64_t)p->device->info.multiprocessors * BLOCKS_EACH;
    int64_t parts = 1;
    if (r->way != MP_MOE_SOME || r->pairs.place == MP_PLACE_NONE) {
        return 1; /* sums of many rows take longer to go through memory than what is gained */
    }
    while (parts < PARTS_MAX && blocks * parts * 2 <= room && chunks / (parts * 2) >= CHUNKS_MIN) {
        parts *= 2;
    }
    return parts;
}

/* ---- the step ---- */

/* The tiles of floats, and behind them their sums, which the emulated device keeps there. */
static uint32_t tile_bytes(const mp_planner *p) {
    const uint32_t sides = 2 * K_MOE_DEPTH * (K_MOE_TILE + 4);
    const bool keeps = p->device->info.kind == MP_DEVICE_HOST;
    return (sides + (keeps ? K_MOE_TILE * K_MOE_TILE : 0)) * (uint32_t)sizeof(float);
}

/* Whether packed weights are of a kind that tensor cores have kernels for. */
static bool are_usual(const mp_moe *m, const mp_expert_matrix *x) {
    const mp_packed *packed = &x->packed;
    return x->kind == K_NBITS_INTEGER && (packed->w.bits == 4 || packed->w.bits == 8) &&
           packed->w.scale_type == mp_scale_word(m->type) && packed->factor.place == MP_PLACE_NONE;
}

/* Whether many routes have a kernel for just these packed weights. */
static bool has_own_kernel(const mp_moe *m, const mp_moe_routes *r, const mp_expert_matrix *x) {
    return r->way == MP_MOE_MANY && are_usual(m, x);
}

/* Whether packed weights have no block that ends within a piece of 16 bytes. */
static bool has_long_blocks(const k_nbits *w) {
    return w->side <= 1 &&
           (w->blocks == 1 || (w->block_shift >= 0 && w->block % K_NBITS_CHUNK == 0));
}

/* Whether some routes have one: a lane copies pieces of 16 bytes of a column, each within a block.
 */
static bool some_have_own_kernel(const mp_moe *m, const mp_moe_routes *r,
                                 const mp_expert_matrix *x) {
    return r->way == MP_MOE_SOME && are_usual(m, x) && has_long_blocks(&x->packed.w) &&
           x->packed.w.weight_row % ALIGN == 0 && x->packed.w.k <= NEAR;
}

/* Whether products of groups of warps make tiles of many routes. */
static bool by_groups(const mp_planner *p, const mp_moe *m, const mp_moe_routes *r,
                      const mp_expert_matrix *x) {
    enum { WIDE = 8 /* columns that are written at once */ };
    const k_nbits *w = &x->packed.w;
    const bool suits_weights =
        x->kind == K_NBITS_PLAIN || (has_own_kernel(m, r, x) && has_long_blocks(w));
    return p->device->info.arch == GROUP_ARCH && r->way == MP_MOE_MANY && m->type != MP_F32 &&
           suits_weights && p->align >= ALIGN && w->n % WIDE == 0 &&
           w->k % K_MOE_WGMMA_DEPTH == 0 && w->k / K_MOE_WGMMA_DEPTH >= K_MOE_WGMMA_AHEAD;
}

static mp_grid grid_of(const mp_planner *p, const mp_moe_routes *r, int32_t kind, int64_t items) {
    if (r->way == MP_MOE_FEW) {
        return mp_plan_grid_rows(p, MP_CEIL_DIV(items, LANES / GROUP_LANES), LANES);
    }
    mp_grid grid = mp_plan_grid_rows(p, items, K_MOE_LANES);
    grid.shared_bytes =
        r->way == MP_MOE_TILES
            ? tile_bytes(p)
            : (uint32_t)K_MOE_HELD(r->tile, kind != K_NBITS_PLAIN) + K_MOE_ALIGN - 1;
    return grid;
}

/* What makes a product of `items` tiles. */
static mp_status choose_kernel(mp_planner *p, const mp_moe *m, const mp_moe_routes *r,
                               const mp_expert_matrix *x, int64_t items, mp_grid *grid,
                               const mp_kernel **kernel) {
    const char *word = mp_dtype_word(m->type);
    const char *name = ways[r->way].kernel;
    const int32_t bits = x->kind == K_NBITS_PLAIN ? 0 : x->packed.w.bits;
    *grid = grid_of(p, r, x->kind, items);
    if (by_groups(p, m, r, x)) {
        name = "moe_wgmma";
        *grid = mp_plan_grid_rows(p, MP_MIN(items, (int64_t)p->device->info.multiprocessors),
                                  K_MOE_WGMMA_LANES);
        grid->shared_bytes = (uint32_t)K_MOE_WGMMA_HELD(bits) + K_MOE_ALIGN - 1;
        if (bits == 0) {
            return mp_plan_kernel(p, kernel, "%s_%s", name, word);
        }
    }
    if (some_have_own_kernel(m, r, x)) {
        *grid = mp_plan_grid_rows(p, items, K_MOE_SOME_LANES);
        grid->shared_bytes = (uint32_t)K_MOE_SOME_HELD(bits);
        return mp_plan_kernel(p, kernel, "moe_some_int%d_%s", bits, word);
    }
    return has_own_kernel(m, r, x) ? mp_plan_kernel(p, kernel, "%s_int%d_%s", name, bits, word)
                                   : mp_plan_kernel(p, kernel, "%s_%d_%s", name, x->kind, word);
}

mp_status mp_plan_moe_product(mp_planner *p, const mp_moe *m, const mp_moe_routes *r,
                              const mp_moe_factors *of, mp_ref out) {
    const mp_packed *packed = &of->matrix->packed;
    const bool groups = by_groups(p, m, r, of->matrix);
    const int64_t columns = groups ? K_MOE_WGMMA_COLUMNS : ways[r->way].columns;
    const mp_kernel *kernel = NULL;
    mp_grid grid;
    mp_moe_product_args args = {.share = of->share,
                                .experts = m->experts,
                                .tiles_max = r->tiles_max,
                                .tiles_across = MP_CEIL_DIV(packed->w.n, columns),
                                .w = packed->w,
                                .between = of->between,
                                .even = p->align >= ALIGN && packed->w.n % 2 == 0,
                                .parts = of->parts,
                                .routes = r->count};
    int64_t items = 0;
    args.w.aligned = is_aligned(p, &packed->w);
    if (groups && packed->w.blocks == 1) {
        args.w.block_shift = ONE_BLOCK;
    }
    if (__builtin_mul_overflow(args.tiles_max, args.tiles_across, &items) ||
        __builtin_mul_overflow(items, args.parts, &items)) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld routes and %lld columns are too many",
                       (long long)r->count, (long long)packed->w.n);
    }
    MP_TRY(choose_kernel(p, m, r, of->matrix, items, &grid, &kernel));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_moe_product_args, a, of->a),
                     MP_BIND(mp_moe_product_args, bias, of->matrix->bias),
                     MP_BIND(mp_moe_product_args, sorted, r->sorted),
                     MP_BIND(mp_moe_product_args, first, r->first),
                     MP_BIND(mp_moe_product_args, tiles, r->tiles),
                     MP_BIND(mp_moe_product_args, w.weight, packed->weight),
                     MP_BIND(mp_moe_product_args, w.scale, packed->scale),
                     MP_BIND(mp_moe_product_args, w.zero, packed->zero),
                     MP_BIND(mp_moe_product_args, w.values, packed->values),
                     MP_BIND(mp_moe_product_args, w.factor, packed->factor),
                     MP_BIND(mp_moe_product_args, out, out));
}
