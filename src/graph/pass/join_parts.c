/* join_parts.c - heads that are put first, of all parts of the rows of one product, by one
 * Transpose, where each part had a copy of its own: the parts lie one behind the other then.
 *
 *     HeadsPart, HeadsPart, HeadsPart
 *       becomes      Reshape --> Transpose [parts, batch, heads, rows, size] --> Split
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/attention_part.h"

enum { WHOLE_RANK = 3, RANK = 5, PARTS_MAX = 8, FIRST = 0, HEADS, SIZE, STEP };
enum { ALIGNED = 16 /* bytes: a piece that begins elsewhere would be copied again */ };

typedef struct parts {
    int32_t whole;           /* value: [batch, rows, parts * heads * size] */
    int32_t node[PARTS_MAX]; /* in the order of the parts */
    int count;
    int64_t heads, size;
} parts;

static const mp_attr *part_of(const mp_vertex *v) {
    const mp_attr *part = mp_vertex_is_own(v, "HeadsPart") ? mp_node_attr(&v->node, "part") : NULL;
    return part != NULL && part->count == MP_PART_NUMBERS ? part : NULL;
}

/* Notes node `n` in its place; false where it is not one of equal parts that lie side by side. */
static bool note(const mp_graph *graph, parts *p, int32_t n) {
    const mp_attr *part = part_of(&graph->nodes[n]);
    const int64_t width = p->heads * p->size;
    const int64_t place = part->ints[FIRST] / width;
    if (part->ints[HEADS] != p->heads || part->ints[SIZE] != p->size ||
        part->ints[STEP] != p->size || part->ints[FIRST] % width != 0 || place < 0 ||
        place >= p->count || p->node[place] != MP_NO_NODE ||
        !mp_graph_same_guard(graph, n, p->node[0] != MP_NO_NODE ? p->node[0] : n)) {
        return false;
    }
    p->node[place] = n;
    return true;
}

/* All parts of what the HeadsPart `n` reads. */
static bool find(const mp_graph *graph, int32_t n, parts *p) {
    const mp_attr *part = part_of(&graph->nodes[n]);
    const int32_t whole = part != NULL ? graph->nodes[n].in[0] : MP_NO_VALUE;
    const mp_dtype type = whole != MP_NO_VALUE ? mp_graph_type(graph, whole) : MP_NONE;
    if (type == MP_NONE || mp_graph_rank(graph, whole) != WHOLE_RANK || part->ints[HEADS] < 1 ||
        part->ints[SIZE] < 1 || part->ints[HEADS] > INT32_MAX / part->ints[SIZE]) {
        return false;
    }
    if (part->ints[SIZE] * (int64_t)mp_dtype_size(type) % ALIGNED != 0) {
        return false;
    }
    *p = (parts){.whole = whole, .heads = part->ints[HEADS], .size = part->ints[SIZE]};
    const int64_t width = p->heads * p->size, all = mp_graph_dim(graph, whole, 2);
    if (all < 2 * width || all % width != 0 || all / width > PARTS_MAX) {
        return false;
    }
    p->count = (int)(all / width);
    int found = 0;
    for (int i = 0; i < p->count; i++) {
        p->node[i] = MP_NO_NODE;
    }
    for (int32_t i = n; i < graph->node_count; i++) {
        if (part_of(&graph->nodes[i]) != NULL && graph->nodes[i].in[0] == whole) {
            if (!note(graph, p, i)) {
                return false;
            }
            found++;
        }
    }
    return found == p->count;
}

/* Values for what the Split gives: one part each. */
static mp_status add_pieces(mp_graph *graph, const parts *p, int32_t *out) {
    for (int i = 0; i < p->count; i++) {
        const mp_value heads = graph->values[graph->nodes[p->node[i]].out[0]];
        mp_tensor piece = {.type = heads.tensor.type, .shape = {.rank = RANK, .dim = {1}}};
        for (int d = 1; d < RANK; d++) {
            piece.shape.dim[d] = heads.tensor.shape.rank == RANK - 1 ? heads.tensor.shape.dim[d - 1]
                                                                     : MP_DIM_UNKNOWN;
        }
        MP_TRY(mp_graph_add_value(graph, heads.name, &piece, &out[i]));
    }
    return MP_OK;
}

static mp_status rewrite(mp_graph *graph, const parts *p) {
    static const int64_t order[RANK] = {2, 0, 3, 1, 4};
    const int64_t dim[RANK] = {0, 0, p->count, p->heads, p->size};
    const mp_attr perm = {.name = "perm", .kind = MP_ATTR_INTS, .ints = order, .count = RANK};
    const mp_attr axis = {.name = "axis", .kind = MP_ATTR_INT, .i = 0};
    const char *name = graph->nodes[p->node[0]].node.name;
    mp_node node = {.op = mp_op_find("", "Transpose", 13),
                    .version = 13,
                    .name = name,
                    .attrs = &perm,
                    .attr_count = 1};
    int32_t rows = MP_NO_VALUE, turned = MP_NO_VALUE, pieces[PARTS_MAX], zero = MP_NO_VALUE;
    MP_TRY(mp_graph_add_view(graph, p->node[0], name, "Reshape", p->whole, dim, RANK, &rows));
    mp_tensor like = {.type = mp_graph_type(graph, p->whole), .shape = {.rank = RANK}};
    for (int d = 0; d < RANK; d++) {
        like.shape.dim[d] =
            dim[order[d]] > 0 ? dim[order[d]] : mp_graph_dim(graph, p->whole, (int)order[d]);
    }
    MP_TRY(mp_graph_add_value(graph, name, &like, &turned));
    MP_TRY(mp_graph_add_beside(graph, p->node[0], &node, &rows, 1, turned));
    MP_TRY(add_pieces(graph, p, pieces));
    node.op = mp_op_find("", "Split", 13);
    node.attrs = &axis;
    const int32_t guard = graph->nodes[p->node[0]].guard;
    MP_TRY(mp_graph_add_node(graph, &node, &turned, 1, pieces, p->count));
    graph->nodes[graph->node_count - 1].guard = guard;
    MP_TRY(mp_graph_add_number(graph, 0, &zero));
    for (int i = 0; i < p->count; i++) {
        const mp_vertex was = graph->nodes[p->node[i]];
        const mp_node squeeze = {
            .op = mp_op_find("", "Squeeze", 13), .version = 13, .name = was.node.name};
        const int32_t in[] = {pieces[i], zero};
        MP_TRY(mp_graph_change_node(graph, p->node[i], &squeeze, in, 2, was.out, 1));
    }
    return MP_OK;
}

mp_status mp_pass_join_parts(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        parts p;
        if (!graph->nodes[n].is_gone && find(graph, n, &p) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &p));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
