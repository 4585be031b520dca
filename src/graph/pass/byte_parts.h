/* byte_parts.h - what passes put a product of integers together from.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_BYTE_PARTS_H
#define MP_GRAPH_PASS_BYTE_PARTS_H

#include "graph/pass.h"
#include "graph/pass/quantized.h"
#include "op/core/byte_rows.h"

/* Whether the device has such products of so many bytes beside each other; where it is no GPU,
 * whether they are wanted all the same. */
bool mp_byte_wanted(const mp_graph *graph, const mp_rewrites *rewrites, int64_t channels);

/* Products that one sum has at most, so that it does not wrap. */
enum { MP_BYTE_K_MAX = 1 << 16 };

/* What a product is made of: rows of weights, and what becomes of the sums. */
typedef struct mp_byte_parts {
    mp_quantized x;
    mp_quantized_weights w;
    int64_t columns;
    int32_t bias;    /* a row in float, or integers of the sums, or MP_NO_VALUE */
    mp_quantized to; /* .type is MP_NONE: the result is float */
    int32_t low;     /* of a byte of the result; INT32_MIN: its type's */
} mp_byte_parts;

/* Whether the bias is an integer of the sums, near enough, and all factors are numbers. */
bool mp_byte_parts_fit(const mp_graph *graph, const mp_byte_parts *parts);

/* Weights whose dimension `moved` goes behind the others, as a constant. */
mp_status mp_byte_turned(mp_graph *graph, const char *name, const mp_tensor *of, int moved,
                         int32_t *out);
/* The sums of the rows of such a constant. */
mp_status mp_byte_sums(mp_graph *graph, int32_t rows, int32_t *out);

enum { MP_BYTE_GONE = 8, MP_BYTE_ATTRS = 5 };

/* A product's result: the node that makes it, which may be what quantises it, and what goes. */
typedef struct mp_byte_result {
    int32_t last;
    int32_t gone[MP_BYTE_GONE];
    int gone_count;
    bool has_sum;         /* something is added to what was quantised, and both quantised again */
    mp_quantized between; /* of the product alone, where there is a sum */
    mp_quantized beside;  /* of a tensor that is added; or, where its type is MP_NONE, ... */
    int32_t row;          /* ... of a constant row */
    float sum[5];         /* for the attribute of that name */
} mp_byte_result;

/* What quantises the result of node `n`, if nobody else reads that, behind a Relu or not; else the
 * node itself, and the result stays float. Fills in `to` and `low`. */
void mp_byte_find_result(const mp_graph *graph, int32_t n, mp_byte_parts *parts,
                         mp_byte_result *out);

/* The same of a sum behind it. `takes` says whether `value`, the product's, may be added to
 * `other`, and fills in `beside` or `row`. */
typedef bool mp_byte_takes_fn(const mp_graph *graph, int32_t value, int32_t other,
                              const mp_byte_parts *parts, mp_byte_result *out);
void mp_byte_find_sum(const mp_graph *graph, mp_byte_takes_fn *takes, mp_byte_parts *parts,
                      mp_byte_result *out);

/* From now on the result is what a sum is quantised to, `to`: of what there was, by its scale, and
 * of `beside` or `row`, which are filled in. */
void mp_byte_set_sum(mp_byte_parts *parts, const mp_quantized *to, int32_t low,
                     mp_byte_result *out);

/* The attributes of the result. Borrows: `result`. Gives how many there are. */
size_t mp_byte_attrs(const mp_byte_parts *parts, const mp_byte_result *result,
                     mp_attr attrs[MP_BYTE_ATTRS]);

/* Takes out what goes, for whose nodes the result's now stands. */
mp_status mp_byte_remove(mp_graph *graph, const mp_byte_result *result);

/* Constants for inputs MP_ROWS_W to MP_ROWS_SCALE; the others are left out. `moved`: the dimension
 * of the weights that goes last, so that a row for each column of the result comes first. */
mp_status mp_byte_constants(mp_graph *graph, const mp_byte_parts *parts,
                            const mp_byte_result *result, int moved, int32_t in[MP_ROWS_INPUTS]);

/* The product, in the place of node `v`. Borrows: `attrs`. */
mp_node mp_byte_node(const mp_vertex *v, const mp_attr *attrs, size_t count);

/* Whether the value is a constant row that may be added to what was quantised; and that in float.
 */
bool mp_byte_row_fits(const mp_graph *graph, int32_t value, int64_t columns);
mp_status mp_byte_row(mp_graph *graph, int32_t value, int64_t columns, int32_t *out);

#endif
