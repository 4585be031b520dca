/* matmul_nbits.c - MatMulNBits: a product with weights of 2, 4 or 8 bits.
 *
 * With few rows the weights are read as they are, which is what such a product waits for. With more
 * they are written out as numbers for library math.
 * Kernels: quantize/nbits_rows.cu, quantize/nbits_unpack.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/quantize_args.h"
#include "op/core/families.h"

enum { A, B, SCALES, ZEROS, GROUPS, BIAS };
enum { ROWS_MAX = 16, LANES = 128, GROUP_LANES = 32 };

/* ---- what is asked ---- */

static mp_status read_sizes(const mp_planner *p, k_nbits *w) {
    const mp_shape *a = &p->in[A].shape;
    const int64_t block = mp_node_int(p->node, "block_size", 0);
    const int64_t bits = mp_node_int(p->node, "bits", 4);
    char text[MP_SHAPE_TEXT];
    w->k = mp_node_int(p->node, "K", 0);
    w->n = mp_node_int(p->node, "N", 0);
    if (bits != 2 && bits != 4 && bits != 8) {
        return MP_FAIL(UNSUPPORTED, "weights of %lld bits; 2, 4 and 8 are supported",
                       (long long)bits);
    }
    if (block < 16 || block > 1 << 20 || (block & (block - 1)) != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "block_size is %lld; it is a power of two from 16 on",
                       (long long)block);
    }
    if (w->k < 1 || w->n < 1 || a->rank < 1 || a->dim[a->rank - 1] != w->k) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "A of shape %s does not go with weights for K = %lld and N = %lld",
                       mp_shape_text(a, text), (long long)w->k, (long long)w->n);
    }
    if (mp_node_int(p->node, "weight_prepacked", 0) != 0) {
        return MP_FAIL(UNSUPPORTED, "weights packed for another kernel; export the model with "
                                    "weight_prepacked = 0");
    }
    while ((int64_t)1 << w->block_shift < block) {
        w->block_shift++;
    }
    w->bits = (int32_t)bits;
    w->middle = 1 << (bits - 1);
    w->blocks = MP_CEIL_DIV(w->k, block);
    w->weight_row = w->blocks * (block * bits / 8);
    w->zero_row = (w->blocks * bits + 7) / 8;
    return MP_OK;
}

static mp_status check_count(const mp_planner *p, int i, const char *what, int64_t columns,
                             int64_t each) {
    const mp_tensor *tensor = mp_plan_in(p, i);
    int64_t want = 0;
    char text[MP_SHAPE_TEXT];
    return tensor == NULL || (!__builtin_mul_overflow(columns, each, &want) &&
                              mp_shape_count(&tensor->shape) == want)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s of shape %s do not fit %lld times %lld values", what,
                         mp_shape_text(&tensor->shape, text), (long long)columns, (long long)each);
}

static mp_status read_inputs(const mp_planner *p, k_nbits *w) {
    const mp_tensor *zero = mp_plan_in(p, ZEROS);
    MP_TRY(read_sizes(p, w));
    w->zero_packed = zero != NULL && zero->type == MP_U8;
    if (zero != NULL && !w->zero_packed && zero->type != p->in[A].type) {
        return MP_FAIL(UNSUPPORTED,
                       "zero points of %s for A of %s; they are packed as uint8 or of "
                       "the same type",
                       mp_dtype_name(zero->type), mp_dtype_name(p->in[A].type));
    }
    MP_TRY(check_count(p, B, "weights", w->n, w->weight_row));
    MP_TRY(check_count(p, SCALES, "scales", w->n, w->blocks));
    MP_TRY(check_count(p, ZEROS, "zero points", w->n, w->zero_packed ? w->zero_row : w->blocks));
    MP_TRY(check_count(p, BIAS, "values of the bias", w->n, 1));
    const mp_tensor *group = mp_plan_in(p, GROUPS);
    if (group != NULL && mp_shape_count(&group->shape) < w->k) {
        return MP_FAIL(INVALID_ARGUMENT, "g_idx has %lld values for K = %lld",
                       (long long)mp_shape_count(&group->shape), (long long)w->k);
    }
    const bool whole = w->k % K_NBITS_PIECE == 0;
    w->aligned = p->align >= 16 && whole;
    return MP_OK;
}

/* ---- the work ---- */

static mp_ref ref_of(const mp_planner *p, int i) {
    return mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

static mp_status launch(mp_planner *p, const char *word, mp_grid grid, const mp_nbits_args *args,
                        mp_ref out) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "nbits_%s_%s", word, mp_dtype_word(p->in[A].type)));
    return MP_LAUNCH(
        p, kernel, grid, *args, MP_BIND(mp_nbits_args, a, MP_IN(A)),
        MP_BIND(mp_nbits_args, bias, ref_of(p, BIAS)), MP_BIND(mp_nbits_args, w.weight, MP_IN(B)),
        MP_BIND(mp_nbits_args, w.scale, MP_IN(SCALES)),
        MP_BIND(mp_nbits_args, w.zero, ref_of(p, ZEROS)),
        MP_BIND(mp_nbits_args, w.group, ref_of(p, GROUPS)), MP_BIND(mp_nbits_args, out, out));
}

static mp_status by_rows(mp_planner *p, const mp_nbits_args *args) {
    const int64_t columns = (int64_t)LANES / GROUP_LANES * K_NBITS_COLUMNS;
    return launch(p, "rows", mp_plan_grid_rows(p, MP_CEIL_DIV(args->w.n, columns), LANES), args,
                  MP_OUT(0));
}

static mp_status by_library(mp_planner *p, const mp_nbits_args *args) {
    const mp_dtype dtype = p->in[A].type;
    const k_nbits *w = &args->w;
    const mp_shape shape = {.rank = 2, .dim = {w->n, w->k}};
    mp_ref numbers;
    MP_TRY(mp_plan_scratch_shape(p, &shape, dtype, &numbers));
    MP_TRY(launch(p, "unpack", mp_plan_grid(p, w->n * w->k, K_NBITS_PIECE), args, numbers));
    const mp_gemm gemm = {.type = dtype,
                          .trans_b = true,
                          .tf32 = p->node->options.tf32,
                          .bias = mp_plan_in(p, BIAS) != NULL,
                          .m = args->m,
                          .n = w->n,
                          .k = w->k,
                          .lda = w->k,
                          .ldb = w->k,
                          .ldc = w->n,
                          .batch = 1,
                          .alpha = 1,
                          .align = p->align};
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = MP_IN(A),
                                               [MP_GEMM_B] = numbers,
                                               [MP_GEMM_C] = MP_OUT(0),
                                               [MP_GEMM_BIAS] = ref_of(p, BIAS)};
    return mp_plan_gemm(p, &gemm, operands);
}

static mp_status plan(mp_planner *p) {
    mp_nbits_args args = {.m = 0};
    mp_shape shape = p->in[A].shape;
    MP_TRY(read_inputs(p, &args.w));
    args.m = mp_shape_span(&shape, 0, shape.rank - 1);
    shape.dim[shape.rank - 1] = args.w.n;
    MP_TRY(mp_plan_output(p, 0, p->in[A].type, &shape));
    if (args.m == 0) {
        return MP_OK;
    }
    return args.m <= ROWS_MAX && mp_plan_in(p, GROUPS) == NULL ? by_rows(p, &args)
                                                               : by_library(p, &args);
}

static const mp_attr_def attrs[] = {{"K", MP_ATTR_INT},
                                    {"N", MP_ATTR_INT},
                                    {"bits", MP_ATTR_INT},
                                    {"block_size", MP_ATTR_INT},
                                    {"weight_prepacked", MP_ATTR_INT},
                                    {NULL, 0}};

enum {
    FLOATS = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16),
    BYTE = MP_BIT(MP_U8),
};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "MatMulNBits",
     .since = 1,
     .until = 1,
     .types = {{"T1", FLOATS}, {"T2", BYTE}, {"T3", FLOATS | BYTE}},
     .attrs = attrs,
     .plan = plan},
};

const mp_op_family mp__family_matmul_nbits = {"matmul_nbits", ops, MP_COUNT_OF(ops)};
