/* matmul_coded.c - products with weights that are floats of 4 or 8 bits in blocks that share a
 * scale: MatMulBnb4, MatMulBlockQuantizedFp4Weight, MatMulBlockQuantizedFp8Weight.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/quantize/nbits_steps.h"

/* ---- MatMulBnb4 ---- */

/* What the 16 codes of bitsandbytes mean. */
static const float bnb_codes[2][16] = {
    /* FP4: a sign, and eighths and thirds */
    {0.0F, 5.208333333e-03F, 0.66666667F, 1.0F, 0.33333333F, 0.5F, 0.16666667F, 0.25F, -0.0F,
     -5.208333333e-03F, -0.66666667F, -1.0F, -0.33333333F, -0.5F, -0.16666667F, -0.25F},
    /* NF4: quantiles of a normal distribution */
    {-1.0F, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F,
     -0.28444138169288635F, -0.18477343022823334F, -0.09105003625154495F, 0.0F,
     0.07958029955625534F, 0.16093020141124725F, 0.24611230194568634F, 0.33791524171829224F,
     0.44070982933044434F, 0.5626170039176941F, 0.7229568362236023F, 1.0F},
};

enum { A, B, ABSMAX };

typedef struct bnb {
    int64_t k, n; /* of the weights as stored, [n][k] */
    int64_t block, kind;
    bool transposed; /* A has k columns, as usual; otherwise n */
} bnb;

static mp_status read_bnb(const mp_planner *p, bnb *b) {
    const mp_shape *a = &p->in[A].shape;
    char text[MP_SHAPE_TEXT];
    int64_t count = 0;
    *b = (bnb){.k = mp_node_int(p->node, "K", 0),
               .n = mp_node_int(p->node, "N", 0),
               .block = mp_node_int(p->node, "block_size", 0),
               .kind = mp_node_int(p->node, "quant_type", 0),
               .transposed = mp_node_int(p->node, "transB", 1) != 0};
    if (b->kind != 0 && b->kind != 1) {
        return MP_FAIL(INVALID_ARGUMENT, "quant_type is %lld; 0 is FP4 and 1 is NF4",
                       (long long)b->kind);
    }
    if (b->block < 16 || (b->block & (b->block - 1)) != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "block_size is %lld; it is a power of two from 16 on",
                       (long long)b->block);
    }
    if (b->k < 1 || b->n < 1 || __builtin_mul_overflow(b->k, b->n, &count) || a->rank < 1 ||
        a->dim[a->rank - 1] != (b->transposed ? b->k : b->n)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "A of shape %s does not go with weights for K = %lld and N = %lld",
                       mp_shape_text(a, text), (long long)b->k, (long long)b->n);
    }
    MP_TRY(mp_packed_count(p, B, "weights", MP_CEIL_DIV(count, 2), 1));
    return mp_packed_count(p, ABSMAX, "absmax", MP_CEIL_DIV(count, b->block), 1);
}

/* The weights in rows of k, or all in one where blocks go beyond the end of a row. */
static mp_status bnb_weights(mp_planner *p, const bnb *b, bool in_rows, mp_packed *out) {
    const mp_dtype type = p->in[A].type;
    *out = (mp_packed){.type = type,
                       .weight = MP_IN(B),
                       .scale = MP_IN(ABSMAX),
                       .w = {.n = in_rows ? b->n : 1,
                             .k = in_rows ? b->k : b->n * b->k,
                             .bits = 4,
                             .swapped = 1,
                             .scale_type = mp_scale_word(type)}};
    out->w.weight_row = MP_CEIL_DIV(out->w.k, 2);
    MP_TRY(mp_packed_block(&out->w, b->block));
    return mp_packed_codes(p, out, bnb_codes[b->kind], MP_COUNT_OF(bnb_codes[0]));
}

static mp_status bnb_by_library(mp_planner *p, const bnb *b, int64_t m) {
    mp_packed flat;
    mp_ref numbers;
    MP_TRY(bnb_weights(p, b, false, &flat));
    MP_TRY(mp_plan_scratch_of(p, flat.w.k, flat.type, &numbers));
    MP_TRY(mp_plan_unpack(p, &flat, numbers));
    const int64_t n = b->transposed ? b->n : b->k, k = b->transposed ? b->k : b->n;
    const mp_gemm gemm = {.type = flat.type,
                          .trans_b = b->transposed,
                          .tf32 = p->node->options.tf32,
                          .m = m,
                          .n = n,
                          .k = k,
                          .lda = k,
                          .ldb = b->k,
                          .ldc = n,
                          .batch = 1,
                          .alpha = 1,
                          .align = p->align};
    const mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = MP_IN(A), [MP_GEMM_B] = numbers, [MP_GEMM_C] = MP_OUT(0)};
    return mp_plan_gemm(p, &gemm, operands);
}

static mp_status plan_bnb4(mp_planner *p) {
    mp_shape shape = p->in[A].shape;
    mp_packed packed;
    bnb b;
    MP_TRY(read_bnb(p, &b));
    const int64_t m = mp_shape_span(&shape, 0, shape.rank - 1);
    shape.dim[shape.rank - 1] = b.transposed ? b.n : b.k;
    MP_TRY(mp_plan_output(p, 0, p->in[A].type, &shape));
    if (m == 0) {
        return MP_OK;
    }
    if (!b.transposed || b.k % b.block != 0) {
        return bnb_by_library(p, &b, m);
    }
    MP_TRY(bnb_weights(p, &b, true, &packed));
    return mp_plan_packed_product(p, &packed, MP_IN(A), m, MP_NOWHERE, MP_OUT(0));
}

/* ---- float4 and float8 ---- */

/* Which input is what: the two operators differ. */
typedef struct float_form {
    mp_dtype narrow;
    int scale, factor, activation, bias; /* inputs; -1: it has none */
    mp_dtype scale_type;
    int64_t block; /* unless the model says */
} float_form;

static const float_form fp4_form = {MP_F4E2M1, 2, 3, -1, 5, MP_F8E4M3FN, 16};
static const float_form fp8_form = {MP_F8E4M3FN, 2, -1, 3, 4, MP_F32, 128};

static mp_ref optional(const mp_planner *p, int i) {
    return i >= 0 && mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

static mp_status read_float(const mp_planner *p, const float_form *f, k_nbits *w) {
    const mp_shape *a = &p->in[A].shape;
    const mp_shape *b = &p->in[B].shape;
    const int64_t packed = 8 / (int64_t)mp_dtype_bits(f->narrow);
    char text[MP_SHAPE_TEXT];
    char of[MP_SHAPE_TEXT];
    *w = (k_nbits){.bits = (int32_t)mp_dtype_bits(f->narrow),
                   .scale_type = mp_scale_word(f->scale_type)};
    if (b->rank != 2 || a->rank < 1 || b->dim[0] < 1 || b->dim[1] < 1 ||
        __builtin_mul_overflow(b->dim[1], packed, &w->k) || a->dim[a->rank - 1] != w->k) {
        return MP_FAIL(INVALID_ARGUMENT, "A of shape %s does not go with %s weights of shape %s",
                       mp_shape_text(a, text), mp_dtype_name(f->narrow), mp_shape_text(b, of));
    }
    w->n = b->dim[0];
    w->weight_row = b->dim[1];
    MP_TRY(mp_packed_block(w, mp_node_int(p->node, "block_size", f->block)));
    MP_TRY(mp_packed_count(p, f->scale, "scales", w->n, w->blocks));
    MP_TRY(mp_packed_count(p, f->factor, "the weights' scale", 1, 1));
    MP_TRY(mp_packed_count(p, f->activation, "A's scale", 1, 1));
    return mp_packed_count(p, f->bias, "values of the bias", w->n, 1);
}

/* A rounded to float8 with the scale that it has, and back. */
static mp_status round_activation(mp_planner *p, const float_form *f, int64_t count, mp_ref *out) {
    const k_scales single = {.shared = K_SCALES_SINGLE};
    mp_conversion c = {.narrow = f->narrow,
                       .wide = p->in[A].type,
                       .scale_type = MP_F32,
                       .x = MP_IN(A),
                       .scale = MP_IN(f->activation),
                       .count = count};
    MP_TRY(mp_plan_scratch(p, (size_t)count, &c.out));
    MP_TRY(mp_plan_convert(p, &c, &single, true));
    c.back = true;
    c.x = c.out;
    MP_TRY(mp_plan_scratch_of(p, count, c.wide, &c.out));
    *out = c.out;
    return mp_plan_convert(p, &c, &single, true);
}

static mp_status plan_float(mp_planner *p) {
    const float_form *f = p->node->op->detail;
    mp_shape shape = p->in[A].shape;
    const int64_t count = mp_shape_count(&shape);
    const int64_t m = mp_shape_span(&shape, 0, shape.rank - 1);
    mp_ref a = MP_IN(A);
    mp_packed packed = {.type = p->in[A].type,
                        .weight = MP_IN(B),
                        .scale = MP_IN(f->scale),
                        .factor = optional(p, f->factor)};
    MP_TRY(read_float(p, f, &packed.w));
    shape.dim[shape.rank - 1] = packed.w.n;
    MP_TRY(mp_plan_output(p, 0, packed.type, &shape));
    if (m == 0) {
        return MP_OK;
    }
    MP_TRY(mp_packed_codes_of(p, &packed, f->narrow));
    if (optional(p, f->activation).place != MP_PLACE_NONE) {
        MP_TRY(round_activation(p, f, count, &a));
    }
    return mp_plan_packed_product(p, &packed, a, m, optional(p, f->bias), MP_OUT(0));
}

/* ---- the rows ---- */

static const mp_attr_def bnb_attrs[] = {{"K", MP_ATTR_INT},          {"N", MP_ATTR_INT},
                                        {"block_size", MP_ATTR_INT}, {"quant_type", MP_ATTR_INT},
                                        {"transB", MP_ATTR_INT},     {NULL, 0}};
static const mp_attr_def float_attrs[] = {{"block_size", MP_ATTR_INT}, {NULL, 0}};

enum {
    FLOATS = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16),
    HALVES = MP_BIT(MP_F16) | MP_BIT(MP_BF16), /* the schemas have no more */
    BYTE = MP_BIT(MP_U8),
    F32 = MP_BIT(MP_F32),
};

#define ROW(op_name, function, names, what, ...)                                       \
    {                                                                                  \
        .domain = "com.microsoft", .name = (op_name), .since = 1, .until = 1,          \
        .types = {__VA_ARGS__}, .attrs = (names), .plan = (function), .detail = (what) \
    }

static const mp_op ops[] = {
    ROW("MatMulBnb4", plan_bnb4, bnb_attrs, NULL, {"T1", FLOATS}, {"T2", BYTE}),
    ROW("MatMulBlockQuantizedFp4Weight", plan_float, float_attrs, &fp4_form, {"T", HALVES},
        {"T1", BYTE}, {"T2", BYTE}, {"T3", F32}),
    ROW("MatMulBlockQuantizedFp8Weight", plan_float, float_attrs, &fp8_form, {"T", HALVES},
        {"T1", MP_BIT(MP_F8E4M3FN)}, {"T2", F32}),
};

const mp_op_family mp__family_matmul_coded = {"matmul_coded", ops, MP_COUNT_OF(ops)};
