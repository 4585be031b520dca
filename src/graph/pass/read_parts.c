/* read_parts.c - heads of attention are read where they lie in the rows of one product for all,
 * not in what a Split or a Gather copies out of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/attention_part.h"

/* Where the rows of output `value` of a Split along the last dimension begin; -1. All outputs are
 * `width` long. */
static int64_t split_first(const mp_graph *graph, const mp_vertex *split, int32_t value,
                           int64_t width) {
    const int64_t axis = mp_node_int(&split->node, "axis", 0);
    int64_t sizes[MP_RANK_MAX];
    int64_t first = 0;
    int count = 0;
    if (axis != -1 && axis != 2) {
        return -1;
    }
    const bool listed = mp_graph_ints(graph, split, "split", 1, sizes, &count);
    const int64_t all = mp_graph_dim(graph, split->in[0], 2);
    if (listed ? count != split->out_count
               : mp_vertex_in(split, 1) != MP_NO_VALUE || all != width * split->out_count) {
        return -1;
    }
    for (int i = 0; i < split->out_count; i++) {
        const int64_t size = listed ? sizes[i] : width;
        if (split->out[i] == value) {
            return size == width ? first : -1;
        }
        first += size;
    }
    return -1;
}

/* [batch, rows, heads, size] of part of the rows that a Split takes apart. */
static int32_t find_split(const mp_graph *graph, int32_t value, int64_t part[MP_PART_NUMBERS]) {
    int64_t heads = 0, size = 0;
    const int32_t piece = mp_heads_whole(graph, value, &heads, &size);
    const int32_t n = mp_graph_maker(graph, piece, "Split");
    const int64_t first =
        n != MP_NO_NODE ? split_first(graph, &graph->nodes[n], piece, heads * size) : -1;
    part[0] = first;
    part[1] = heads;
    part[2] = part[3] = size;
    return first >= 0 && mp_graph_rank(graph, graph->nodes[n].in[0]) == 3 ? graph->nodes[n].in[0]
                                                                          : MP_NO_VALUE;
}

/* The same of [batch, rows, parts, heads, size] or [batch, rows, heads, parts, size]. */
static int32_t find_gather(const mp_graph *graph, int32_t value, int64_t part[MP_PART_NUMBERS]) {
    const int32_t n = mp_graph_maker(graph, value, "Gather");
    const mp_vertex *gather = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    const int64_t axis = gather != NULL ? mp_node_int(&gather->node, "axis", 0) : 0;
    const int32_t r = gather != NULL ? mp_graph_maker(graph, gather->in[0], "Reshape") : MP_NO_NODE;
    int64_t index[MP_RANK_MAX];
    int indexes = 0;
    if (r == MP_NO_NODE || (axis != 2 && axis != 3) ||
        mp_graph_rank(graph, graph->nodes[n].in[0]) != 5 ||
        mp_graph_rank(graph, gather->in[1]) != 0 ||
        !mp_graph_ints(graph, gather, "", 1, index, &indexes) || indexes != 1) {
        return MP_NO_VALUE;
    }
    const int32_t whole = graph->nodes[r].in[0], shape = graph->nodes[r].in[1];
    int64_t dim[5];
    for (int d = 0; d < 5; d++) {
        dim[d] = mp_graph_entry(graph, shape, d);
    }
    const int64_t count = dim[axis], heads = dim[axis == 2 ? 3 : 2], size = dim[4];
    if (dim[0] != 0 || dim[1] != 0 || mp_node_int(&graph->nodes[r].node, "allowzero", 0) != 0 ||
        count <= 0 || heads <= 0 || size <= 0 || heads > INT32_MAX / size ||
        count > INT32_MAX / (heads * size) || mp_graph_rank(graph, whole) != 3) {
        return MP_NO_VALUE;
    }
    const int64_t at = index[0] < 0 ? index[0] + count : index[0];
    if (at < 0 || at >= count) {
        return MP_NO_VALUE;
    }
    part[0] = at * size * (axis == 2 ? heads : 1);
    part[1] = heads;
    part[2] = size;
    part[3] = size * (axis == 2 ? 1 : count);
    return whole;
}

static mp_status read_side(mp_graph *graph, int32_t n, int i, mp_rewrites *rewrites) {
    int64_t part[MP_PART_NUMBERS];
    const int32_t value = graph->nodes[n].in[i];
    if (!mp_side_is_turned(graph, &graph->nodes[n], i)) {
        return MP_OK;
    }
    const int32_t split = find_split(graph, value, part);
    const int32_t whole = split != MP_NO_VALUE ? split : find_gather(graph, value, part);
    if (whole == MP_NO_VALUE || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    MP_TRY(mp_side_set_part(graph, n, i, whole, part));
    mp_graph_drop_unread(graph, value);
    return MP_OK;
}

mp_status mp_pass_read_parts(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        for (int i = 0; i < 3 && mp_vertex_is_own(&graph->nodes[n], "Attention"); i++) {
            MP_TRY(read_side(graph, n, i, rewrites));
        }
    }
    return MP_OK;
}
