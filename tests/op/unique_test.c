/* unique_test.c - Unique against loops, sorted by digits and by the network, in every mode of the
 * device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

/* Slices of `length` elements; -1, 0 or 1. */
static int compare(const int64_t *x, int64_t length, int64_t a, int64_t b) {
    for (int64_t j = 0; j < length; j++) {
        const int64_t left = x[a * length + j], right = x[b * length + j];
        if (left != right) {
            return left < right ? -1 : 1;
        }
    }
    return 0;
}

/* The first slice equal to `i`. */
static int64_t first_of(const int64_t *x, int64_t length, int64_t i) {
    int64_t first = 0;
    while (compare(x, length, first, i) != 0) {
        first++;
    }
    return first;
}

/* How many groups come before that of slice `i`. */
static int64_t rank_of(const int64_t *x, int64_t slices, int64_t length, int64_t i, bool sorted) {
    int64_t rank = 0;
    const int64_t mine = first_of(x, length, i);
    for (int64_t k = 0; k < slices; k++) {
        const bool leads = first_of(x, length, k) == k;
        rank += leads && (sorted ? compare(x, length, k, i) < 0 : k < mine);
    }
    return rank;
}

static void check_unique(mp_device *device, int64_t slices, int64_t length, bool sorted) {
    int64_t *x = calloc((size_t)(slices * length) + 1, sizeof *x);
    for (int64_t i = 0; i < slices * length; i++) {
        x[i] = (int64_t)((double)op_value(2, i) * (length == 1 ? 30 : 1));
    }
    const mp_attr attrs[] = {OP_INT("axis", 0), OP_INT("sorted", sorted)};
    op_case c = {.name = "Unique",
                 .version = 11,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {op_i64(x, slices, length)},
                 .in_count = 1,
                 .out_count = 4};
    op_run(device, &c);
    const int64_t *y = c.out[0].data, *indices = c.out[1].data, *inverse = c.out[2].data,
                  *counts = c.out[3].data;
    int64_t groups = 0;
    for (int64_t i = 0; i < slices; i++) {
        groups += first_of(x, length, i) == i;
    }
    CHECK_EQ_INT(c.out[0].shape.dim[0], groups);
    CHECK_EQ_INT(c.out[3].shape.dim[0], groups);
    for (int64_t i = 0; i < slices; i++) {
        const int64_t at = rank_of(x, slices, length, i, sorted);
        int64_t equal = 0;
        CHECK_EQ_INT(inverse[i], at);
        CHECK_EQ_INT(indices[at], first_of(x, length, i));
        for (int64_t j = 0; j < length; j++) {
            CHECK_EQ_INT(y[at * length + j], x[i * length + j]);
        }
        for (int64_t k = 0; k < slices; k++) {
            equal += compare(x, length, i, k) == 0;
        }
        CHECK_EQ_INT(counts[at], equal);
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(unique_of_elements_and_slices) {
    for (int sorted = 0; sorted < 2; sorted++) {
        check_unique(device, 1, 1, sorted != 0);
        check_unique(device, 300, 1, sorted != 0);
        check_unique(device, 60, 3, sorted != 0);
        check_unique(device, 5, 0, sorted != 0);
        check_unique(device, 0, 2, sorted != 0);
    }
}
