/* channels_twin.c - see channels_twin.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channels_twin.h"

#include "graph/look.h"
#include "graph/pass/channels_heads.h"
#include "graph/pass/image_rows.h"

#include <stdlib.h>
#include <string.h>

const int64_t *mp_to_last(int rank) {
    static const int64_t of_one[] = {0, 2, 1};
    static const int64_t of_two[] = {0, 2, 3, 1};
    static const int64_t of_three[] = {0, 2, 3, 4, 1};
    return rank == MP_TWIN_RANK_LINE ? of_one : rank == MP_TWIN_RANK_PICTURE ? of_two : of_three;
}

const int64_t *mp_to_first(int rank) {
    static const int64_t of_one[] = {0, 2, 1};
    static const int64_t of_two[] = {0, 3, 1, 2};
    static const int64_t of_three[] = {0, 4, 1, 2, 3};
    return rank == MP_TWIN_RANK_LINE ? of_one : rank == MP_TWIN_RANK_PICTURE ? of_two : of_three;
}

/* ---- twins ---- */

int32_t mp_twin_of(const mp_layout *l, int32_t value) {
    return value != MP_NO_VALUE && l->twins != NULL && value < l->capacity ? l->twins[value]
                                                                           : MP_NO_VALUE;
}

mp_status mp_twin_set(mp_layout *l, int32_t value, int32_t twin) {
    if (l->twins == NULL || value >= l->capacity) {
        const int32_t wanted = 2 * l->graph->value_count;
        int32_t *more = realloc(l->twins, (size_t)wanted * sizeof *more);
        if (more == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a pass");
        }
        for (int32_t i = l->capacity; i < wanted; i++) {
            more[i] = MP_NO_VALUE;
        }
        l->twins = more;
        l->capacity = wanted;
    }
    l->twins[value] = twin;
    return MP_OK;
}

void mp_twin_replace(mp_layout *l, int32_t twin, int32_t other) {
    for (int32_t i = 0; l->twins != NULL && i < l->capacity; i++) {
        l->twins[i] = l->twins[i] == twin ? other : l->twins[i];
    }
}

int mp_twin_rank(const mp_layout *l, int32_t value) {
    const int32_t twin = mp_twin_of(l, value);
    return twin != MP_NO_VALUE ? MP_MAX(mp_graph_rank(l->graph, twin), 0) : 0;
}

int mp_twins_rank(const mp_layout *l, const mp_vertex *v) {
    int rank = 0;
    for (int i = 0; i < v->in_count && rank == 0; i++) {
        const bool counts = v->in[i] != MP_NO_VALUE && !l->graph->values[v->in[i]].is_constant;
        rank = counts ? mp_twin_rank(l, v->in[i]) : 0;
    }
    return rank;
}

mp_tensor mp_twin_tensor(const mp_tensor *tensor, int rank) {
    const int64_t *perm = mp_to_last(rank);
    mp_tensor out = {.type = tensor->type, .shape = {.rank = rank}};
    for (int d = 0; d < rank; d++) {
        out.shape.dim[d] = tensor->shape.rank == rank ? tensor->shape.dim[perm[d]] : MP_DIM_UNKNOWN;
    }
    return out;
}

mp_status mp_twin_transpose(mp_layout *l, int32_t from, int32_t to, const int64_t *perm, int rank) {
    const mp_attr attr = {
        .name = "perm", .kind = MP_ATTR_INTS, .ints = perm, .count = (size_t)rank};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = l->graph->values[from].name,
                          .attrs = &attr,
                          .attr_count = 1};
    return mp_graph_add_node(l->graph, &node, &from, 1, &to, 1);
}

static mp_status add_view(mp_layout *l, const char *op, int32_t from, const int64_t *axes,
                          int count, int32_t to) {
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {count}}, .data = (mp_addr)axes};
    const mp_node node = {
        .op = mp_op_find("", op, 13), .version = 13, .name = l->graph->values[from].name};
    int32_t in[] = {from, MP_NO_VALUE};
    MP_TRY(mp_graph_add_constant(l->graph, "", &list, &in[1]));
    return mp_graph_add_node(l->graph, &node, in, 2, &to, 1);
}

/* A value [n, c, 1...] is its twin [n, 1..., c] seen in another shape, also where n is 0, which
 * Reshape could not tell. */
static mp_status add_reshape(mp_layout *l, int32_t from, int32_t to, int rank) {
    static const int64_t inner[] = {1, 2, 3}, last[] = {2, 3, 4};
    const mp_tensor *t = &l->graph->values[from].tensor;
    const mp_tensor row = {.type = t->type,
                           .shape = {.rank = 2, .dim = {t->shape.dim[0], t->shape.dim[rank - 1]}}};
    int32_t between = MP_NO_VALUE;
    MP_TRY(mp_graph_add_value(l->graph, l->graph->values[from].name, &row, &between));
    MP_TRY(add_view(l, "Squeeze", from, inner, rank - 2, between));
    return add_view(l, "Unsqueeze", between, last, rank - 2, to);
}

/* The value of its twin. */
static mp_status add_back(mp_layout *l, const mp_node *maker, int32_t twin, int32_t value,
                          int rank) {
    return strncmp(maker->op->name, "Global", sizeof "Global" - 1) == 0
               ? add_reshape(l, twin, value, rank)
               : mp_twin_transpose(l, twin, value, mp_to_first(rank), rank);
}

mp_status mp_twin_list(mp_layout *l, int32_t value, int rank, int32_t *out) {
    return mp_twin_pick(l, value, mp_to_last(rank), rank, out);
}

mp_status mp_twin_pick(mp_layout *l, int32_t value, const int64_t *order, int count, int32_t *out) {
    const mp_tensor indices = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {count}}, .data = (mp_addr)order};
    const mp_tensor list = {.type = l->graph->values[value].tensor.type,
                            .shape = {.rank = 1, .dim = {count}}};
    const mp_node gather = {
        .op = mp_op_find("", "Gather", 13), .version = 13, .name = l->graph->values[value].name};
    int32_t in[] = {value, MP_NO_VALUE};
    MP_TRY(mp_graph_add_constant(l->graph, "", &indices, &in[1]));
    MP_TRY(mp_graph_add_value(l->graph, l->graph->values[value].name, &list, out));
    return mp_graph_add_node(l->graph, &gather, in, 2, out, 1);
}

/* The twin of a value that is made of rows of pixels: these, seen as an image. What 0 means in the
 * list stays as it is. */
static mp_status add_image(mp_layout *l, int32_t value, int32_t rows, int32_t list, int32_t twin) {
    const mp_node *reshape = &l->graph->nodes[l->graph->values[value].producer].node;
    const mp_attr *zero = mp_node_attr(reshape, "allowzero");
    const mp_node node = {.op = mp_op_find("", "Reshape", 14),
                          .version = 14,
                          .name = l->graph->values[rows].name,
                          .attrs = zero,
                          .attr_count = zero != NULL ? 1 : 0};
    int32_t in[] = {rows, MP_NO_VALUE};
    MP_TRY(mp_twin_list(l, list, MP_TWIN_RANK_PICTURE, &in[1]));
    return mp_graph_add_node(l->graph, &node, in, 2, &twin, 1);
}

mp_status mp_twin_need(mp_layout *l, int32_t value, int rank, int32_t *out) {
    int32_t rows = MP_NO_VALUE, list = MP_NO_VALUE;
    *out = mp_twin_of(l, value);
    if (value == MP_NO_VALUE || *out != MP_NO_VALUE) {
        return MP_OK;
    }
    const mp_tensor tensor = mp_twin_tensor(&l->graph->values[value].tensor, rank);
    MP_TRY(mp_graph_add_value(l->graph, l->graph->values[value].name, &tensor, out));
    if (rank == MP_TWIN_RANK_LINE && mp_line_of_heads(l->graph, value)) {
        MP_TRY(mp_twin_of_heads(l, value, *out));
        return mp_twin_set(l, value, *out);
    }
    MP_TRY(rank == MP_TWIN_RANK_PICTURE && mp_image_of_rows(l->graph, value, &rows, &list)
               ? add_image(l, value, rows, list, *out)
               : mp_twin_transpose(l, value, *out, mp_to_last(rank), rank));
    return mp_twin_set(l, value, *out);
}

/* ---- nodes over twins ---- */

mp_status mp_twin_node(mp_layout *l, int32_t n, const mp_node *node, const int32_t *in,
                       int in_count, int rank) {
    const mp_vertex v = l->graph->nodes[n];
    int32_t out[MP_TWIN_WIDTH_MAX] = {MP_NO_VALUE};
    for (int i = 0; i < v.out_count; i++) {
        out[i] = MP_NO_VALUE;
        if (v.out[i] != MP_NO_VALUE) {
            const mp_tensor tensor = mp_twin_tensor(&l->graph->values[v.out[i]].tensor, rank);
            MP_TRY(mp_graph_add_value(l->graph, l->graph->values[v.out[i]].name, &tensor, &out[i]));
        }
    }
    MP_TRY(mp_graph_change_node(l->graph, n, node, in, in_count, out, v.out_count));
    for (int i = 0; i < v.out_count; i++) {
        if (v.out[i] != MP_NO_VALUE) {
            MP_TRY(add_back(l, node, out[i], v.out[i], rank));
            MP_TRY(mp_twin_set(l, v.out[i], out[i]));
        }
    }
    return MP_OK;
}
