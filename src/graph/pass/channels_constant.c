/* channels_constant.c - see channels_constant.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channels_constant.h"

#include <string.h>

bool mp_is_one_element(const mp_layout *l, int32_t value, int rank) {
    const mp_shape *shape = &l->graph->values[value].tensor.shape;
    bool one = shape->rank >= 0 && shape->rank <= rank;
    for (int d = 0; d < shape->rank; d++) {
        one = one && shape->dim[d] == 1;
    }
    return one;
}

bool mp_is_twin_constant(const mp_layout *l, int32_t value, int rank) {
    const mp_value *v = &l->graph->values[value];
    return v->is_constant && v->tensor.data != 0 && v->tensor.shape.rank >= 0 &&
           v->tensor.shape.rank <= rank && mp_dtype_size(v->tensor.type) > 0;
}

/* With dimensions of 1 in front, so that there are `rank`. */
static mp_shape padded(const mp_shape *shape, int rank) {
    mp_shape out = {.rank = rank};
    for (int d = 0; d < rank; d++) {
        const int from = d - rank + shape->rank;
        out.dim[d] = from >= 0 ? shape->dim[from] : 1;
    }
    return out;
}

/* Whether the elements lie in the same order in both: at most one dimension is longer than 1. */
static bool keeps_order(const mp_shape *shape) {
    int longer = 0;
    for (int d = 0; d < shape->rank; d++) {
        longer += shape->dim[d] != 1;
    }
    return longer <= 1;
}

/* `to` has the dimensions of `from`, which are `first`, in the order of a twin's. */
static void turn(const mp_shape *first, size_t size, const unsigned char *from, unsigned char *to) {
    const int64_t *order = mp_to_last(first->rank);
    const int64_t count = mp_shape_count(first);
    int64_t stride[MP_RANK_MAX], at[MP_RANK_MAX] = {0}, source = 0;
    mp_shape_strides(first, stride);
    for (int64_t i = 0; i < count; i++) {
        memcpy(to + (size_t)i * size, from + (size_t)source * size, size);
        for (int d = first->rank - 1; d >= 0; d--) {
            source += stride[order[d]];
            if (++at[d] < first->dim[order[d]]) {
                break;
            }
            source -= at[d] * stride[order[d]];
            at[d] = 0;
        }
    }
}

mp_status mp_twin_constant(mp_layout *l, int32_t value, int rank, int32_t *out) {
    const mp_value v = l->graph->values[value];
    const mp_shape first = padded(&v.tensor.shape, rank);
    const bool same = keeps_order(&first);
    mp_tensor tensor = {.type = v.tensor.type, .shape = first};
    tensor = mp_twin_tensor(&tensor, rank);
    tensor.data = same ? v.tensor.data : 0;
    MP_TRY(mp_graph_add_constant(l->graph, v.name, &tensor, out));
    if (same) {
        l->graph->values[*out].device = v.device;
    } else {
        turn(&first, mp_dtype_size(tensor.type), (const unsigned char *)v.tensor.data,
             (unsigned char *)l->graph->values[*out].tensor.data);
    }
    return mp_twin_set(l, value, *out);
}
