/* gather_block.c - GatherBlockQuantized: slices of a table whose blocks share scales, as floats.
 *
 * Scales and zero points have the dimensions of the table but for the quantised axis, of which they
 * have a block; those of floats may be repeated along the others. The table of uint8 has several
 * elements in a byte: from here on its shape counts elements.
 * Kernel: quantize/gather_block.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/quantize_args.h"
#include "op/core/families.h"
#include "op/move/gather.h"
#include "op/pointwise/narrow.h"

enum { X, INDICES, SCALES, ZEROS };

typedef struct table {
    mp_shape shape; /* in elements */
    mp_dtype type;
    int gather, quantized; /* axes */
    int64_t bits, block, blocks;
    bool floats; /* float8 and float4 */
} table;

/* ---- what is asked ---- */

static mp_status check_block(const table *t, int64_t block) {
    const bool whole = t->floats && block == 0;
    return whole || (block >= 16 && (block & (block - 1)) == 0)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "block_size is %lld; it is a power of two from 16 on, or 0 for a table of "
                         "floats",
                         (long long)block);
}

static mp_status check_bits(const mp_planner *p, const table *t) {
    const int64_t bits = mp_node_int(p->node, "bits", 4);
    const bool bytes = t->type == MP_U8;
    if (t->floats || bits == 4 || (bytes && (bits == 2 || bits == 8))) {
        return MP_OK;
    }
    return MP_FAIL(INVALID_ARGUMENT, "%lld bits in a table of %s; %s", (long long)bits,
                   mp_dtype_name(t->type), bytes ? "2, 4 and 8 are possible" : "it has 4");
}

/* A table of bytes: rows are gathered, and elements lie packed along the last axis. */
static mp_status unpack_bytes(table *t) {
    const int last = t->shape.rank - 1;
    size_t size = 0;
    if (t->gather != 0 || t->quantized != last || last == 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "gather_axis %d and quantize_axis %d of a table of uint8 of rank %d; they "
                       "are the first axis and the last, which is another one",
                       t->gather, t->quantized, t->shape.rank);
    }
    if (__builtin_mul_overflow(t->shape.dim[last], 8 / t->bits, &t->shape.dim[last])) {
        return MP_FAIL(INVALID_ARGUMENT, "a table of too many columns");
    }
    return mp_shape_bytes(&t->shape, MP_U8, &size);
}

static mp_status read_table(const mp_planner *p, table *t) {
    const int64_t block = mp_node_int(p->node, "block_size", 128);
    const int rank = p->in[X].shape.rank;
    *t = (table){.shape = p->in[X].shape, .type = p->in[X].type};
    t->floats = (MP_BIT(t->type) & (MP_FLOAT8 | MP_BIT(MP_F4E2M1))) != 0;
    t->bits = t->type == MP_U8 ? mp_node_int(p->node, "bits", 4) : (int64_t)mp_dtype_bits(t->type);
    MP_TRY(check_block(t, block));
    MP_TRY(check_bits(p, t));
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "gather_axis", 0), rank, "gather_axis", &t->gather));
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "quantize_axis", 1), rank, "quantize_axis",
                         &t->quantized));
    if (t->type == MP_U8) {
        MP_TRY(unpack_bytes(t));
    }
    const int64_t length = t->shape.dim[t->quantized];
    t->block = block != 0 ? block : MP_MAX(length, 1);
    t->blocks = MP_CEIL_DIV(length, t->block);
    return MP_OK;
}

static mp_status misfit(const table *t, const char *what, const mp_shape *shape) {
    char text[MP_SHAPE_TEXT];
    char of[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT,
                   "%s of shape %s do not fit a table of %s elements in blocks of %lld along axis "
                   "%d",
                   what, mp_shape_text(shape, text), mp_shape_text(&t->shape, of),
                   (long long)t->block, t->quantized);
}

/* Steps in the scales along the table's axes, and from block to block. */
static mp_status read_scales(const table *t, const mp_shape *scales, int64_t *stride,
                             int64_t *step) {
    if (scales->rank != t->shape.rank) {
        return misfit(t, "scales", scales);
    }
    mp_shape_strides(scales, stride);
    for (int d = 0; d < t->shape.rank; d++) {
        const int64_t want = d == t->quantized ? t->blocks : t->shape.dim[d];
        const bool repeated = t->floats && d != t->quantized && scales->dim[d] == 1;
        if (scales->dim[d] != want && !repeated) {
            return misfit(t, "scales", scales);
        }
        stride[d] = scales->dim[d] == want ? stride[d] : 0;
    }
    *step = stride[t->quantized];
    stride[t->quantized] = 0;
    return MP_OK;
}

/* The same for zero points. In bytes their rows begin with a byte, so that of fewer bits there may
 * be room for more of them than there are blocks. */
static mp_status read_zeros(const table *t, const mp_shape *zeros, int64_t *stride, int64_t *step) {
    const int64_t packed = t->type == MP_U8 ? 8 / t->bits : 1;
    mp_shape want = t->shape;
    want.dim[t->quantized] = MP_CEIL_DIV(t->blocks, packed);
    if (t->floats) {
        return MP_FAIL(INVALID_ARGUMENT, "zero points for a table of %s, which has none",
                       mp_dtype_name(t->type));
    }
    if (!mp_shape_equal(zeros, &want)) {
        return misfit(t, "zero points", zeros);
    }
    want.dim[t->quantized] *= packed;
    mp_shape_strides(&want, stride);
    *step = stride[t->quantized];
    stride[t->quantized] = 0;
    return MP_OK;
}

/* ---- the work ---- */

/* Whether K_GROUP neighbours of a result are neighbours of a block too, and whole bytes. */
static bool in_groups(const table *t, int64_t inner) {
    const bool along = t->quantized == t->shape.rank - 1 && t->gather != t->quantized;
    return along && inner % K_GROUP == 0 && (t->block % K_GROUP == 0 || t->blocks == 1) &&
           t->shape.dim[t->quantized] % K_GROUP == 0;
}

static mp_status lay_out(const table *t, int64_t indices, mp_gather_block_args *args,
                         int64_t (*place)[MP_RANK_MAX]) {
    const int64_t inner = mp_shape_span(&t->shape, t->gather + 1, t->shape.rank);
    args->grouped = in_groups(t, inner);
    const int64_t each = args->grouped ? K_GROUP : 1;
    const mp_shape space = {.rank = 3,
                            .dim = {mp_shape_span(&t->shape, 0, t->gather), indices, inner / each}};
    int64_t from[2][MP_RANK_MAX] = {{t->shape.dim[t->gather] * inner, 0, each}, {0, 1, 0}};
    place[2][t->quantized] = 1;
    args->axis = t->shape.dim[t->gather];
    args->step = inner;
    args->block = t->block;
    args->count = mp_shape_count(&space);
    MP_TRY(mp_layout_make(&space, from, 2, &args->from));
    return mp_layout_make(&t->shape, place, 3, &args->place);
}

static mp_status plan(mp_planner *p) {
    const mp_tensor *indices = &p->in[INDICES];
    const mp_tensor *zero = mp_plan_in(p, ZEROS);
    const mp_dtype to = p->in[SCALES].type;
    mp_gather_block_args args = {.count = 0};
    int64_t place[3][MP_RANK_MAX] = {{0}};
    table t;
    mp_shape shape;
    size_t size = 0;
    MP_TRY(read_table(p, &t));
    MP_TRY(mp_gather_shape(&t.shape, &indices->shape, t.gather, &shape));
    MP_TRY(mp_plan_output(p, 0, to, &shape));
    MP_TRY(read_scales(&t, &p->in[SCALES].shape, place[0], &args.scale_block));
    if (zero != NULL) {
        MP_TRY(read_zeros(&t, &zero->shape, place[1], &args.zero_block));
    }
    MP_TRY(mp_shape_bytes(&shape, to, &size));
    if (size == 0) {
        return MP_OK;
    }
    if (mp_shape_count(&t.shape) == 0) { /* every index is out of range */
        return mp_plan_fill(p, MP_OUT(0), 0, 1, size);
    }
    args.type = mp_narrow(t.type, (mp_narrowing){.saturate = true});
    args.type.width = (int32_t)t.bits;
    args.middle = t.type == MP_U8 ? 1 << (t.bits - 1) : 0;
    MP_TRY(lay_out(&t, mp_shape_count(&indices->shape), &args, place));
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "gather_block_%s_%s", mp_dtype_word(to),
                          mp_dtype_word(indices->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_gather_block_args, x, MP_IN(X)),
                     MP_BIND(mp_gather_block_args, indices, MP_IN(INDICES)),
                     MP_BIND(mp_gather_block_args, scale, MP_IN(SCALES)),
                     MP_BIND(mp_gather_block_args, zero, zero != NULL ? MP_IN(ZEROS) : MP_NOWHERE),
                     MP_BIND(mp_gather_block_args, out, MP_OUT(0)));
}

static mp_status accept(const mp_planner *p) {
    return mp_rank_accept(&p->in[X].shape, K_RANK_MAX, "the table");
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"bits", MP_ATTR_INT},
                                    {"block_size", MP_ATTR_INT},
                                    {"gather_axis", MP_ATTR_INT},
                                    {"quantize_axis", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "GatherBlockQuantized",
     .since = 1,
     .until = 1,
     .types = {{"T1",
                MP_FLOAT8 | MP_BIT(MP_F4E2M1) | MP_BIT(MP_I4) | MP_BIT(MP_U4) | MP_BIT(MP_U8)},
               {"T2", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)},
               {"Tind", MP_BIT(MP_I32) | MP_BIT(MP_I64)}},
     .attrs = attrs,
     .plan = plan,
     .accept = accept},
};

const mp_op_family mp__family_gather_block = {"gather_block", ops, MP_COUNT_OF(ops)};
