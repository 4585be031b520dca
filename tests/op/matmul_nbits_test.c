/* matmul_nbits_test.c - MatMulNBits against plain loops, for few rows and many, every type, width
 * and kind of zero point.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

typedef struct subject {
    int64_t m, k, n;
    int bits, block;
    int zeros; /* 0: none; 1: packed; 2: of A's type */
    bool bias, groups;
    uint32_t skew;
} subject;

/* Weight or zero point `i` of a row that begins at `row`. */
static int packed_at(const uint8_t *row, int bits, int64_t i) {
    return row[i * bits / 8] >> i * bits % 8 & ((1 << bits) - 1);
}

/* Element `i` of what was made: each weight may have been rounded to the type, and so is the
 * result. `size` is what the terms are together. */
static void check_near(const op_case *c, int64_t i, double want, double size) {
    const mp_dtype type = c->out[0].type;
    const double off = fabs(op_real(type, c->out[0].data, i) - want);
    if (!(off <= size * op_precision(type) * 2)) {
        test_fail(__FILE__, __LINE__, "element %lld of %s is off by %g of %g", (long long)i,
                  mp_dtype_name(type), off, size);
    }
}

static void check(mp_device *device, const subject *s, mp_dtype type) {
    const int64_t blocks = (s->k - 1) / s->block + 1, blob = s->block * s->bits / 8;
    const int64_t zero_row = (blocks * s->bits + 7) / 8;
    void *a = op_numbers(type, 1, s->m * s->k);
    void *scale = op_memory(type, s->n * blocks);
    void *zero = op_memory(type, s->n * blocks);
    void *bias = op_numbers(type, 4, s->n);
    uint8_t *weight = malloc((size_t)(s->n * blocks * blob) + 1);
    uint8_t *packed = malloc((size_t)(s->n * zero_row) + 1);
    int32_t *group = malloc((size_t)s->k * sizeof *group);
    CHECK(weight != NULL && packed != NULL && group != NULL);
    for (int64_t i = 0; i < s->n * blocks * blob; i++) {
        weight[i] = (uint8_t)(i * 167 + (i >> 5) * 31);
    }
    for (int64_t i = 0; i < s->n * zero_row; i++) {
        packed[i] = (uint8_t)(i * 59 + 5);
    }
    for (int64_t i = 0; i < s->n * blocks; i++) {
        op_store_real(type, scale, i, 0.0625 * (double)(1 + i % 5));
        op_store_real(type, zero, i, 0.25 * (double)(i % 9));
    }
    for (int64_t i = 0; i < s->k; i++) {
        group[i] = (int32_t)((i * 7) % blocks);
    }
    const mp_attr attrs[] = {OP_INT("K", s->k), OP_INT("N", s->n), OP_INT("bits", s->bits),
                             OP_INT("block_size", s->block)};
    op_case c = {.domain = "com.microsoft",
                 .name = "MatMulNBits",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 4,
                 .align = s->skew != 0 ? 1 : 16,
                 .constant = s->m % 2 == 0 ? 0 : 1u << 1 | 1u << 2 | 1u << 3,
                 .skew = s->skew,
                 .in = {OP_TENSOR(type, a, s->m, s->k),
                        OP_TENSOR(MP_U8, weight, s->n, blocks, blob),
                        OP_TENSOR(type, scale, s->n, blocks)},
                 .in_count = 6,
                 .out_count = 1};
    if (s->zeros == 1) {
        c.in[3] = OP_TENSOR(MP_U8, packed, s->n, zero_row);
    } else if (s->zeros == 2) {
        c.in[3] = OP_TENSOR(type, zero, s->n, blocks);
    }
    c.in[4] = s->groups ? OP_TENSOR(MP_I32, group, s->k) : c.in[4];
    c.in[5] = s->bias ? OP_TENSOR(type, bias, s->n) : c.in[5];
    op_run(device, &c);
    CHECK(c.out[0].type == type);
    for (int64_t i = 0; i < s->m * s->n; i++) {
        const int64_t row = i / s->n, column = i % s->n;
        double sum = s->bias ? op_real(type, bias, column) : 0;
        double size = fabs(sum);
        for (int64_t k = 0; k < s->k; k++) {
            const int64_t block = s->groups ? group[k] : k / s->block;
            const int64_t at = column * blocks + block;
            const double z = s->zeros == 0   ? 1 << (s->bits - 1)
                             : s->zeros == 1 ? packed_at(packed + column * zero_row, s->bits, block)
                                             : op_real(type, zero, at);
            const int q = packed_at(weight + column * blocks * blob, s->bits, k);
            const double term =
                op_real(type, a, row * s->k + k) * (q - z) * op_real(type, scale, at);
            sum += term;
            size += fabs(term);
        }
        check_near(&c, i, sum, size);
    }
    op_close(device, &c);
    free(a);
    free(scale);
    free(zero);
    free(bias);
    free(weight);
    free(packed);
    free(group);
}

DEVICE_TEST(nbits_products) {
    static const subject subjects[] = {
        {1, 64, 9, 4, 32, 0, false, false, 0},    {1, 576, 40, 4, 32, 1, true, false, 0},
        {3, 300, 5, 4, 16, 1, false, false, 0},   {5, 300, 5, 8, 64, 1, true, false, 0},
        {6, 99, 3, 4, 32, 2, true, false, 0},     {2, 96, 7, 2, 32, 1, false, false, 0},
        {17, 64, 9, 4, 32, 1, true, false, 0},    {20, 300, 5, 8, 128, 0, false, false, 0},
        {18, 99, 3, 4, 16, 2, true, false, 0},    {40, 96, 7, 2, 16, 1, true, false, 0},
        {2, 96, 7, 4, 32, 1, false, true, 0},     {20, 99, 7, 4, 16, 0, true, true, 0},
        {3, 64, 9, 4, 32, 1, true, false, 4},     {20, 64, 9, 8, 32, 1, true, false, 4},
        {1, 17, 1, 4, 256, 0, false, false, 0},   {4, 1536, 70, 4, 32, 1, true, false, 0},
        {3, 1064, 33, 8, 64, 1, false, false, 0}, {1, 200, 300, 4, 128, 1, false, false, 0},
        {2, 4160, 9, 4, 64, 0, false, false, 0},  {1, 4160, 9, 8, 32, 0, true, false, 0},
        {4, 8192, 3, 4, 32, 1, false, false, 0}, /* more than a block holds of A, in float */
        {1, 32, 16, 4, 32, 1, true, false, 0},    {1, 304, 5, 4, 16, 1, false, false, 0},
        {8, 544, 35, 4, 32, 1, true, false, 0},   {6, 256, 50, 8, 64, 0, false, false, 0},
        {7, 2336, 17, 4, 64, 1, false, false, 0}, {8, 1312, 5, 8, 256, 1, true, false, 0},
        {9, 544, 35, 4, 32, 1, true, false, 0},   {2, 72, 18, 8, 32, 1, false, false, 0},
        {1, 10248, 5, 4, 256, 1, true, false, 0}, {8, 4616, 33, 4, 128, 0, false, false, 0},
        {16, 544, 35, 4, 32, 1, true, false, 0},  {13, 288, 9, 8, 32, 0, false, false, 0},
        {5, 4352, 3, 8, 128, 1, false, false, 0}, {3, 2560, 31, 4, 32, 0, true, false, 0},
        {17, 128, 6, 8, 64, 1, true, false, 0},   {19, 96, 7, 4, 32, 0, false, false, 0},
        {18, 96, 7, 4, 32, 1, false, false, 0},   {20, 640, 90, 4, 16, 1, true, false, 0},
        {32, 544, 35, 4, 32, 1, true, false, 0},  {24, 288, 9, 8, 32, 0, true, false, 0},
        {33, 544, 35, 4, 32, 1, true, false, 0},  {25, 288, 9, 8, 32, 0, true, false, 0},
        {31, 200, 18, 4, 32, 1, true, false, 0},  {48, 672, 7, 4, 64, 1, false, false, 0},
        {64, 576, 20, 4, 32, 0, true, false, 0},  {65, 608, 5, 8, 128, 1, true, false, 0},
        {1, 2368, 35, 2, 64, 1, true, false, 0},  {1, 4096, 20, 2, 32, 0, false, false, 0},
        {130, 64, 12, 4, 32, 1, false, false, 0}, {10, 96, 140, 4, 32, 1, true, false, 0},
        {1, 576, 40, 2, 32, 1, true, false, 0},   {4, 4160, 9, 2, 64, 0, false, false, 0},
        {7, 544, 35, 2, 32, 1, true, false, 0},   {8, 72, 18, 2, 32, 0, false, false, 0},
        {1, 10248, 5, 2, 256, 1, true, false, 0}, {9, 544, 35, 2, 32, 1, true, false, 0},
    };
    const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(subjects); i++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            check(device, &subjects[i], types[t]);
        }
    }
}

/* ---- weights written out as numbers ---- */

/* Gives: the product, until op_close; where `groups` says of each weight which block it is in, it
 * is asked about each of them. */
static void run_grouped(mp_device *device, const subject *s, mp_dtype type, const void *const *data,
                        bool groups, op_case *c) {
    const int64_t blocks = s->k / s->block, blob = s->block * s->bits / 8;
    const mp_attr attrs[] = {OP_INT("K", s->k), OP_INT("N", s->n), OP_INT("bits", s->bits),
                             OP_INT("block_size", s->block)};
    *c = (op_case){.domain = "com.microsoft",
                   .name = "MatMulNBits",
                   .version = 1,
                   .attrs = attrs,
                   .attr_count = 4,
                   .in = {OP_TENSOR(type, data[0], s->m, s->k),
                          OP_TENSOR(MP_U8, data[1], s->n, blocks, blob),
                          OP_TENSOR(type, data[2], s->n, blocks)},
                   .in_count = 5,
                   .out_count = 1};
    if (s->zeros != 0) {
        c->in[3] = OP_TENSOR(MP_U8, data[3], s->n, blocks * s->bits / 8);
    }
    if (groups) {
        c->in[4] = OP_TENSOR(MP_I32, data[4], s->k);
    }
    op_run(device, c);
}

static void check_grouped(mp_device *device, const subject *s, mp_dtype type) {
    const int64_t blocks = s->k / s->block, bytes = s->n * s->k * s->bits / 8;
    uint8_t *weight = op_memory(MP_U8, bytes), *zero = op_memory(MP_U8, s->n * blocks);
    int32_t *group = op_memory(MP_I32, s->k);
    void *a = op_numbers(type, 1, s->m * s->k), *scale = op_numbers(type, 2, s->n * blocks);
    const void *const data[] = {a, weight, scale, zero, group};
    op_case flat, grouped;
    for (int64_t i = 0; i < bytes; i++) {
        weight[i] = (uint8_t)(i * 167 + (i >> 5) * 31);
    }
    for (int64_t i = 0; i < s->n * blocks; i++) {
        zero[i] = (uint8_t)(i * 59 + 5);
    }
    for (int64_t i = 0; i < s->k; i++) {
        group[i] = (int32_t)(i / s->block);
    }
    run_grouped(device, s, type, data, false, &flat);
    run_grouped(device, s, type, data, true, &grouped);
    CHECK(memcmp(flat.out[0].data, grouped.out[0].data,
                 (size_t)(s->m * s->n) * mp_dtype_size(type)) == 0);
    op_close(device, &flat);
    op_close(device, &grouped);
    free(a);
    free(weight);
    free(scale);
    free(zero);
    free(group);
}

/* Rows without gaps are unpacked as one, by a kernel of its own: it writes the same numbers. */
DEVICE_TEST(nbits_of_rows_without_gaps) {
    static const subject subjects[] = {
        {300, 64, 9, 4, 32, 1, false, false, 0},
        {40, 480, 31, 8, 16, 1, false, false, 0},
        {300, 1056, 61, 4, 32, 0, false, false, 0},
        {300, 4096, 1400, 4, 128, 1, false, false, 0}, /* so many that a lane has two pieces */
    };
    const bool all = device->info.kind == MP_DEVICE_CUDA;
    const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(subjects) - (all ? 0 : 1); i++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            check_grouped(device, &subjects[i], types[t]);
        }
    }
}

/* Also where blocks share the sums of a tile. */
DEVICE_TEST(nbits_products_are_the_same_each_time) {
    const subject s = {40, 1056, 200, 4, 32, 0, false, false, 0};
    uint8_t *weight = op_memory(MP_U8, s.n * s.k / 2);
    void *a = op_numbers(MP_F16, 1, s.m * s.k), *scale = op_numbers(MP_F16, 2, s.n * s.k / 32);
    const void *const data[] = {a, weight, scale};
    op_case first, again;
    for (int64_t i = 0; i < s.n * s.k / 2; i++) {
        weight[i] = (uint8_t)(i * 167 + (i >> 5) * 31);
    }
    run_grouped(device, &s, MP_F16, data, false, &first);
    for (int i = 0; i < 4; i++) {
        run_grouped(device, &s, MP_F16, data, false, &again);
        CHECK(memcmp(first.out[0].data, again.out[0].data, (size_t)(s.m * s.n) * 2) == 0);
        op_close(device, &again);
    }
    op_close(device, &first);
    free(a);
    free(weight);
    free(scale);
}

/* More weights than a cache holds have a kernel of their own, on GPUs. */
static bool has_many(const mp_device *device) {
    return device->info.kind == MP_DEVICE_CUDA;
}

DEVICE_TEST(nbits_products_of_many_weights) {
    static const subject subjects[] = {
        {1, 2048, 4112, 4, 32, 0, false, false, 0}, {1, 4096, 2064, 4, 32, 1, true, false, 0},
        {1, 14336, 608, 4, 64, 1, false, false, 0}, {1, 1536, 5472, 4, 128, 1, true, false, 0},
        {1, 1536, 19024, 4, 32, 0, true, false, 0}, {1, 2560, 3280, 8, 128, 1, false, false, 0},
        {1, 3328, 2528, 8, 32, 0, true, false, 0},  {2, 2048, 4120, 4, 32, 1, true, false, 0},
        {7, 4128, 2063, 4, 32, 0, true, false, 0},  {8, 2560, 3280, 8, 64, 1, false, false, 0},
    };
    const mp_dtype types[] = {MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(subjects) * MP_COUNT_OF(types) && has_many(device); i++) {
        check(device, &subjects[i / MP_COUNT_OF(types)], types[i % MP_COUNT_OF(types)]);
    }
}

/* ---- rows that the product makes ---- */

typedef struct made {
    int64_t k, n;
    int bits, block;
    bool gate, skip, zeros;
} made;

/* Gives: the row, rounded as it would be between two kernels; `out` of k numbers. */
static void make_row(const made *s, mp_dtype type, const void *x, const void *skip,
                     const void *scale, double *out) {
    double squares = 0;
    for (int64_t i = 0; i < s->k; i++) {
        const double a = op_real(type, x, i);
        if (s->gate) {
            const double active = op_rounded(type, a / (1 + exp(-a)) * op_real(type, x, s->k + i));
            out[i] = active;
            continue;
        }
        out[i] = a + (s->skip ? op_real(type, skip, i) : 0);
        squares += out[i] * out[i];
    }
    const double inverse = 1 / sqrt(squares / (double)s->k + 0.25);
    for (int64_t i = 0; i < s->k && !s->gate; i++) {
        out[i] = op_rounded(type, out[i] * inverse * op_real(type, scale, i));
    }
}

static void check_made(mp_device *device, const made *s, mp_dtype type) {
    const int64_t blocks = (s->k - 1) / s->block + 1, blob = s->block * s->bits / 8;
    const int64_t zero_row = (blocks * s->bits + 7) / 8;
    void *x = op_numbers(type, 1, s->k * 2), *skip = op_numbers(type, 2, s->k);
    void *by = op_numbers(type, 3, s->k), *bias = op_numbers(type, 4, s->n);
    void *scale = op_numbers(type, 5, s->n * blocks);
    uint8_t *weight = op_memory(MP_U8, s->n * blocks * blob);
    uint8_t *zero = op_memory(MP_U8, s->n * zero_row);
    double *row = calloc((size_t)s->k, sizeof *row);
    CHECK(row != NULL);
    for (int64_t i = 0; i < s->n * blocks * blob; i++) {
        weight[i] = (uint8_t)(i * 167 + (i >> 5) * 31);
    }
    for (int64_t i = 0; i < s->n * zero_row; i++) {
        zero[i] = (uint8_t)(i * 59 + 5);
    }
    const mp_attr attrs[] = {OP_INT("K", s->k), OP_INT("N", s->n), OP_INT("bits", s->bits),
                             OP_INT("block_size", s->block),
                             s->gate ? (mp_attr)OP_TEXT("gate", "swish")
                                     : (mp_attr)OP_FLOAT("epsilon", 0.25f)};
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = s->gate ? "GatedMatMulNBits" : "NormMatMulNBits",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 5,
                 .constant = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 7,
                 .in = {OP_TENSOR(type, x, 1, s->gate ? s->k * 2 : s->k),
                        OP_TENSOR(MP_U8, weight, s->n, blocks, blob),
                        OP_TENSOR(type, scale, s->n, blocks)},
                 .in_count = s->gate ? 6 : 8,
                 .out_count = s->gate ? 1 : 2,
                 .out_absent = s->skip ? 0 : 1u << 1};
    c.in[3] = s->zeros ? OP_TENSOR(MP_U8, zero, s->n, zero_row) : c.in[3];
    c.in[5] = OP_TENSOR(type, bias, s->n);
    if (!s->gate) {
        c.in[6] = s->skip ? OP_TENSOR(type, skip, 1, s->k) : c.in[6];
        c.in[7] = OP_TENSOR(type, by, s->k);
    }
    op_run(device, &c);
    make_row(s, type, x, skip, by, row);
    for (int64_t i = 0; i < s->n; i++) {
        double sum = op_real(type, bias, i), size = fabs(sum);
        for (int64_t k = 0; k < s->k; k++) {
            const int z = s->zeros ? packed_at(zero + i * zero_row, s->bits, k / s->block)
                                   : 1 << (s->bits - 1);
            const double term = row[k] * (packed_at(weight + i * blocks * blob, s->bits, k) - z) *
                                op_real(type, scale, i * blocks + k / s->block);
            sum += term;
            size += fabs(term);
        }
        check_near(&c, i, sum, size);
    }
    for (int64_t i = 0; i < s->k && s->skip; i++) {
        const double want = op_rounded(type, op_real(type, x, i) + op_real(type, skip, i));
        CHECK(op_real(type, c.out[1].data, i) == want);
    }
    op_close(device, &c);
    free(x);
    free(skip);
    free(by);
    free(bias);
    free(scale);
    free(weight);
    free(zero);
    free(row);
}

DEVICE_TEST(nbits_products_of_rows_made_before) {
    static const made subjects[] = {
        {64, 8, 4, 32, false, false, false},   {576, 35, 4, 32, false, true, true},
        {2336, 50, 8, 32, false, true, false}, {1088, 17, 4, 64, true, false, true},
        {4096, 9, 4, 128, false, true, true},  {6144, 3, 4, 32, true, false, false},
        {6176, 3, 8, 32, true, false, true}, /* more than a block makes */
        {264, 5, 4, 32, false, false, true}, /* no whole chunks */
    };
    const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(subjects) * MP_COUNT_OF(types); i++) {
        check_made(device, &subjects[i / MP_COUNT_OF(types)], types[i % MP_COUNT_OF(types)]);
    }
}

DEVICE_TEST(nbits_products_of_many_weights_and_a_row_made_before) {
    static const made subjects[] = {
        {2048, 4112, 4, 32, false, false, false}, {4096, 2064, 4, 64, false, true, true},
        {1536, 5472, 8, 32, false, true, false},  {8192, 1040, 4, 128, false, true, true},
        {14336, 608, 4, 32, false, true, false}, /* more than a block makes */
    };
    const mp_dtype types[] = {MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(subjects) * MP_COUNT_OF(types) && has_many(device); i++) {
        check_made(device, &subjects[i / MP_COUNT_OF(types)], types[i % MP_COUNT_OF(types)]);
    }
}

/* ---- rows of which the product's left half gates its right half ---- */

typedef struct gated {
    int64_t m, k, n; /* n: of both halves */
    int bits, block;
    bool norm;
} gated;

/* Gives: the rows that are multiplied (free them). */
static double *gated_rows(const gated *s, mp_dtype type, const void *x, const void *by) {
    double *rows = calloc((size_t)(s->m * s->k), sizeof *rows);
    CHECK(rows != NULL);
    for (int64_t row = 0; row < s->m; row++) {
        double squares = 0;
        for (int64_t i = 0; i < s->k; i++) {
            const double a = op_real(type, x, row * s->k + i);
            squares += a * a;
        }
        const double inverse = 1 / sqrt(squares / (double)s->k + 0.25);
        for (int64_t i = 0; i < s->k; i++) {
            const double a = op_real(type, x, row * s->k + i);
            rows[row * s->k + i] =
                s->norm ? op_rounded(type, a * inverse * op_real(type, by, i)) : a;
        }
    }
    return rows;
}

/* A sum, and how large its terms are together. */
static double gated_sum(const gated *s, mp_dtype type, const double *row, const uint8_t *weight,
                        const void *scale, int64_t column, double *size) {
    const int64_t blocks = (s->k - 1) / s->block + 1, blob = s->block * s->bits / 8;
    double sum = 0;
    *size = 0;
    for (int64_t k = 0; k < s->k; k++) {
        const int q = packed_at(weight + column * blocks * blob, s->bits, k);
        const double term = row[k] * (q - (1 << (s->bits - 1))) *
                            op_real(type, scale, column * blocks + k / s->block);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void check_gated(mp_device *device, const gated *s, mp_dtype type) {
    const int64_t blocks = (s->k - 1) / s->block + 1, blob = s->block * s->bits / 8;
    const int64_t half = s->n / 2;
    void *x = op_numbers(type, 1, s->m * s->k), *by = op_numbers(type, 3, s->k);
    void *scale = op_memory(type, s->n * blocks);
    uint8_t *weight = op_memory(MP_U8, s->n * blocks * blob);
    for (int64_t i = 0; i < s->n * blocks * blob; i++) {
        weight[i] = (uint8_t)(i * 167 + (i >> 5) * 31);
    }
    for (int64_t i = 0; i < s->n * blocks; i++) {
        op_store_real(type, scale, i, 0x1p-8 * (double)(1 + i % 5)); /* products stay in range */
    }
    const mp_attr attrs[] = {OP_INT("K", s->k),        OP_INT("N", s->n),
                             OP_INT("bits", s->bits),  OP_INT("block_size", s->block),
                             OP_TEXT("gate", "swish"), OP_FLOAT("epsilon", 0.25f)};
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = s->norm ? "NormMatMulNBitsGated" : "MatMulNBitsGated",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = s->norm ? 6 : 5,
                 .constant = 1u << 1 | 1u << 2 | 1u << 7,
                 .in = {OP_TENSOR(type, x, s->m, s->k),
                        OP_TENSOR(MP_U8, weight, s->n, blocks, blob),
                        OP_TENSOR(type, scale, s->n, blocks)},
                 .in_count = s->norm ? 8 : 3,
                 .out_count = s->norm ? 2 : 1,
                 .out_absent = s->norm ? 1u << 1 : 0};
    if (s->norm) {
        c.in[7] = OP_TENSOR(type, by, s->k);
    }
    op_run(device, &c);
    double *rows = gated_rows(s, type, x, by);
    for (int64_t i = 0; i < s->m * half; i++) {
        const double *row = rows + i / half * s->k, step = op_precision(type);
        double sizes[2];
        const double gate = gated_sum(s, type, row, weight, scale, i % half, &sizes[0]);
        const double other = gated_sum(s, type, row, weight, scale, i % half + half, &sizes[1]);
        const double active = gate / (1 + exp(-gate));
        /* each half may be off, of which the gate's slope is 1.1 at most */
        const double off = step * 2 *
                           (1.1 * sizes[0] * (fabs(other) + step * sizes[1]) +
                            fabs(active) * sizes[1] + fabs(active * other));
        const double got = op_real(type, c.out[0].data, i);
        if (!(fabs(got - active * other) <= off)) {
            test_fail(__FILE__, __LINE__, "element %lld of %s is %g instead of %g", (long long)i,
                      mp_dtype_name(type), got, active * other);
        }
    }
    op_close(device, &c);
    free(rows);
    free(x);
    free(by);
    free(scale);
    free(weight);
}

DEVICE_TEST(nbits_products_of_which_a_half_gates_the_other) {
    static const gated subjects[] = {
        {1, 64, 8, 4, 32, false},   {3, 200, 34, 4, 32, false},   {9, 544, 130, 4, 32, false},
        {17, 576, 36, 8, 64, true}, {40, 320, 150, 4, 128, true}, {65, 96, 20, 4, 32, false},
        {5, 1056, 48, 4, 32, true}, {3, 2080, 4112, 4, 32, true}, /* more weights than a cache holds
                                                                   */
    };
    const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    const size_t count = MP_COUNT_OF(subjects) - (has_many(device) ? 0 : 1);
    for (size_t i = 0; i < count * MP_COUNT_OF(types); i++) {
        check_gated(device, &subjects[i / MP_COUNT_OF(types)], types[i % MP_COUNT_OF(types)]);
    }
}

/* Infinity and NaN stay in their rows. */
DEVICE_TEST(nbits_products_keep_nan_and_infinity_apart) {
    enum { M = 4, K = 320, N = 20, BLOCKS = K / 32 };
    const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    uint8_t weight[N * BLOCKS * 16];
    memset(weight, 0x9b, sizeof weight); /* 3 and 1 above the middle */
    const mp_attr attrs[] = {OP_INT("K", K), OP_INT("N", N), OP_INT("bits", 4),
                             OP_INT("block_size", 32)};
    for (size_t t = 0; t < MP_COUNT_OF(types) * 2; t++) {
        const mp_dtype type = types[t / 2];
        const int64_t rows = t % 2 == 0 ? M : 1;
        void *a = op_memory(type, rows * K), *scale = op_memory(type, N * BLOCKS);
        for (int64_t i = 0; i < N * BLOCKS; i++) {
            op_store_real(type, scale, i, 1);
        }
        op_store_real(type, a, (rows - 1) * K + 301, (double)INFINITY);
        op_store_real(type, a, rows / 2 * K + 7, rows > 1 ? (double)NAN : 0);
        op_case c = {.domain = "com.microsoft",
                     .name = "MatMulNBits",
                     .version = 1,
                     .attrs = attrs,
                     .attr_count = 4,
                     .in = {OP_TENSOR(type, a, rows, K), OP_TENSOR(MP_U8, weight, N, BLOCKS, 16),
                            OP_TENSOR(type, scale, N, BLOCKS)},
                     .in_count = 3,
                     .out_count = 1};
        op_run(device, &c);
        for (int64_t i = 0; i < rows * N; i++) {
            const double got = op_real(type, c.out[0].data, i);
            const bool is_nan = rows > 1 && i / N == rows / 2;
            CHECK(is_nan ? isnan(got) : i / N == rows - 1 ? isinf(got) && got > 0 : got == 0);
        }
        op_close(device, &c);
        free(a);
        free(scale);
    }
}

DEVICE_TEST(nbits_refuses_what_does_not_fit) {
    const float x[64] = {0};
    static const struct {
        int64_t k, bits, block;
        const char *says;
    } wrong[] = {{32, 3, 16, "weights of 3 bits"},
                 {32, 4, 24, "block_size is 24"},
                 {32, 4, 8, "block_size is 8"},
                 {16, 4, 16, "does not go with weights for K = 16"},
                 {32, 8, 16, "weights of shape 1x2x8"}};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const mp_attr attrs[] = {OP_INT("K", wrong[i].k), OP_INT("N", 1),
                                 OP_INT("bits", wrong[i].bits),
                                 OP_INT("block_size", wrong[i].block)};
        mp_plan *plan = NULL;
        const op_case c = {.domain = "com.microsoft",
                           .name = "MatMulNBits",
                           .version = 1,
                           .attrs = attrs,
                           .attr_count = 4,
                           .in = {op_f32(x, 1, 32), OP_TENSOR(MP_U8, x, 1, 2, 8), op_f32(x, 1, 2)},
                           .in_count = 3,
                           .out_count = 1};
        CHECK(op_plan(device, &c, &plan) != MP_OK);
        CHECK_STR_HAS(mp_error_message(), wrong[i].says);
    }
}
