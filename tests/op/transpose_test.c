/* transpose_test.c - Transpose of every element size against a walk over coordinates: any extents,
 * tiles' edges, starts that are not aligned, batches, permutations of many axes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

static const mp_dtype widths[] = {MP_U8, MP_F16, MP_F32, MP_F64}; /* 1, 2, 4 and 8 bytes */

static uint64_t draws = 1;

static int64_t below(int64_t count) {
    return (int64_t)(test_random(&draws) % (uint64_t)count);
}

/* Offset in x of the element that lies at output coordinates of number `i`. */
static int64_t source_of(const mp_shape *x, const int *order, int64_t i) {
    int64_t at[MP_RANK_MAX];
    for (int d = x->rank - 1; d >= 0; d--) {
        at[order[d]] = i % x->dim[order[d]];
        i /= x->dim[order[d]];
    }
    int64_t offset = 0;
    for (int d = 0; d < x->rank; d++) {
        offset = offset * x->dim[d] + at[d];
    }
    return offset;
}

/* Transposes random bytes that miss their alignment by `skew` elements. */
static void check_order(mp_device *device, mp_dtype type, int rank, const int64_t *dims,
                        const int *order, int skew) {
    const size_t size = mp_dtype_size(type);
    const op_tensor in = op_tensor_of(type, NULL, rank, dims);
    const int64_t count = mp_shape_count(&in.shape);
    unsigned char *x = op_memory(type, count);
    for (size_t i = 0; i < (size_t)count * size; i++) {
        x[i] = (unsigned char)below(256);
    }
    int64_t perm[MP_RANK_MAX];
    mp_shape want = {.rank = rank};
    for (int d = 0; d < rank; d++) {
        perm[d] = order[d];
        want.dim[d] = dims[order[d]];
    }
    const mp_attr attrs[] = {
        {.name = "perm", .kind = MP_ATTR_INTS, .ints = perm, .count = (size_t)rank}};
    op_case c = {.name = "Transpose",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = 1,
                 .align = skew != 0 ? 1 : 16,
                 .skew = (uint32_t)((size_t)skew * size),
                 .in = {{type, in.shape, x}},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(mp_shape_equal(&c.out[0].shape, &want));
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *got = (const unsigned char *)c.out[0].data + (size_t)i * size;
        if (memcmp(got, x + (size_t)source_of(&in.shape, order, i) * size, size) != 0) {
            char text[MP_SHAPE_TEXT];
            test_fail(__FILE__, __LINE__, "%s of %s, skew %d: element %lld is another",
                      mp_dtype_name(type), mp_shape_text(&in.shape, text), skew, (long long)i);
        }
    }
    op_close(device, &c);
    free(x);
}

static void check_matrix(mp_device *device, mp_dtype type, int64_t rows, int64_t columns,
                         int skew) {
    check_order(device, type, 2, (const int64_t[]){rows, columns}, (const int[]){1, 0}, skew);
}

static void check_every_width(mp_device *device, int rank, const int64_t *dims, const int *order) {
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        check_order(device, widths[w], rank, dims, order, 0);
    }
}

/* Rows and columns of 1 to 70, each beside some short, long and odd number of the other. */
DEVICE_TEST(transpose_of_any_extents) {
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (int64_t n = 1; n <= 70; n++) {
            check_matrix(device, widths[w], n, (n * 29 + 7) % 70 + 1, 0);
            check_matrix(device, widths[w], 24 + n % 3, n, (int)(n % 5));
        }
    }
}

DEVICE_TEST(transpose_at_the_edges_of_tiles) {
    static const int64_t sizes[] = {16, 17, 31, 32, 63, 64, 65, 129};
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (size_t r = 0; r < MP_COUNT_OF(sizes); r++) {
            for (size_t c = 0; c < MP_COUNT_OF(sizes); c++) {
                check_matrix(device, widths[w], sizes[r], sizes[c], (int)((r + c) % 3));
            }
        }
    }
}

/* Tiles are as wide as others are long. */
DEVICE_TEST(transpose_of_few_rows_or_columns) {
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (int64_t few = 7; few <= 20; few += 4) {
            check_matrix(device, widths[w], few, 1100, 0);
            check_matrix(device, widths[w], 1037, few, 0);
            check_matrix(device, widths[w], few + 1, 516, 1);
        }
    }
}

DEVICE_TEST(transpose_of_batches) {
    check_every_width(device, 3, (const int64_t[]){37, 8, 8}, (const int[]){0, 2, 1});
    check_every_width(device, 3, (const int64_t[]){5, 64, 36}, (const int[]){0, 2, 1});
    check_every_width(device, 3, (const int64_t[]){70, 3, 66}, (const int[]){2, 1, 0});
    check_every_width(device, 4, (const int64_t[]){2, 12, 9, 16}, (const int[]){0, 2, 3, 1});
    check_every_width(device, 8, (const int64_t[]){2, 3, 2, 9, 2, 2, 8, 2},
                      (const int[]){7, 5, 3, 1, 0, 2, 4, 6});
    check_every_width(device, 3, (const int64_t[]){9, 0, 4}, (const int[]){2, 0, 1});
}

/* Of two to four elements in turns each goes to a plane of its own, which are whole packs or not.
 */
DEVICE_TEST(transpose_of_turns) {
    for (int64_t by = 2; by <= 5; by++) {
        for (int64_t n = 16; n <= 352; n += n % 16 == 0 ? 5 : 11) {
            check_every_width(device, 2, (const int64_t[]){n, by}, (const int[]){1, 0});
            check_every_width(device, 3, (const int64_t[]){3, n, by}, (const int[]){0, 2, 1});
            check_every_width(device, 4, (const int64_t[]){2, 3, n, by}, (const int[]){3, 1, 0, 2});
        }
        check_order(device, MP_F32, 3, (const int64_t[]){2, 64, by}, (const int[]){0, 2, 1}, 1);
    }
    check_every_width(device, 2, (const int64_t[]){70000, 3}, (const int[]){1, 0});
}

/* Rows that are one unit of 2 to 16 bytes: they are what is transposed. */
DEVICE_TEST(transpose_of_whole_rows) {
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        const int64_t most = 16 / (int64_t)mp_dtype_size(widths[w]);
        for (int64_t row = 2; row <= most; row *= 2) {
            for (int skew = 0; skew < 2; skew++) {
                check_order(device, widths[w], 3, (const int64_t[]){33, 18, row},
                            (const int[]){1, 0, 2}, skew);
                check_order(device, widths[w], 4, (const int64_t[]){2, 5, 41, row},
                            (const int[]){0, 2, 1, 3}, skew);
            }
        }
    }
}

DEVICE_TEST(transpose_in_random_orders) {
    for (int k = 0; k < 160; k++) {
        const int rank = k % 4 == 3 ? 3 + (int)below(6) : 4 + k % 2;
        int64_t dims[MP_RANK_MAX];
        int order[MP_RANK_MAX];
        int64_t count = 1;
        for (int d = 0; d < rank; d++) {
            dims[d] = 1 + below(count > 2000 ? 2 : 17);
            count *= dims[d];
            order[d] = d;
        }
        for (int d = rank - 1; d > 0; d--) {
            const int64_t other = below(d + 1);
            const int swapped = order[d];
            order[d] = order[other];
            order[other] = swapped;
        }
        check_order(device, widths[below(4)], rank, dims, order, (int)below(3));
    }
}

DEVICE_TEST(transpose_in_every_order) {
    int order[4];
    for (int k = 0; k < 256; k++) {
        uint32_t seen = 0;
        for (int d = 0; d < 4; d++) {
            order[d] = k >> 2 * d & 3;
            seen |= 1u << order[d];
        }
        if (seen == 0xf) {
            check_every_width(device, 4, (const int64_t[]){2, 3, 4, 8}, order);
            check_every_width(device, 4, (const int64_t[]){9, 1, 10, 12}, order);
        }
    }
}

/* Many elements whose dimensions are short, so that boxes of several are moved; prime ones do not
 * divide, the long prime one goes element by element. */
DEVICE_TEST(transpose_of_short_dimensions) {
    check_every_width(device, 5, (const int64_t[]){64, 2, 2, 9, 17}, (const int[]){0, 3, 1, 4, 2});
    check_every_width(device, 6, (const int64_t[]){2, 8, 9, 12, 2, 6},
                      (const int[]){0, 1, 4, 2, 5, 3});
    check_every_width(device, 6, (const int64_t[]){7, 4, 5, 6, 7, 6},
                      (const int[]){5, 4, 3, 2, 1, 0});
    check_every_width(device, 3, (const int64_t[]){5, 3571, 3}, (const int[]){1, 0, 2});
    check_every_width(device, 3, (const int64_t[]){1783, 5, 3}, (const int[]){2, 1, 0});
    check_every_width(device, 4, (const int64_t[]){3, 8209, 2, 2}, (const int[]){3, 0, 2, 1});
    check_order(device, MP_F16, 4, (const int64_t[]){40, 4, 8, 16}, (const int[]){0, 3, 2, 1}, 1);
    for (int k = 0; k < 60; k++) {
        int64_t dims[6];
        int order[6];
        int64_t count = 1;
        for (int d = 0; d < 6; d++) {
            dims[d] = d < 5 ? 2 + below(8) : 20000 / count + 1 + below(4);
            count *= dims[d];
            const int64_t other = below(d + 1);
            order[d] = order[other];
            order[other] = d;
        }
        const int64_t last = below(6), long_one = dims[5];
        dims[5] = dims[last];
        dims[last] = long_one;
        check_order(device, widths[below(4)], 6, dims, order, (int)below(3) / 2);
    }
}
