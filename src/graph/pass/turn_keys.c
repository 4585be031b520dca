/* turn_keys.c - keys that are a part of longer rows, whose heads are put first and whose rows
 * become columns at once, for a product that is no part of attention as find_attention knows it,
 * are put first alone: the product reads them transposed (matmul_epilogue.c), and they are read
 * where they lie (read_parts.c).
 *
 *     Transpose [0,2,3,1]      becomes      Transpose [0,2,1,3] --> Transpose [0,1,3,2]
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

enum { RANK = 4, RIGHT = 1 };

static const int64_t both[RANK] = {0, 2, 3, 1}, first[RANK] = {0, 2, 1, 3},
                     last[RANK] = {0, 1, 3, 2};

/* Whether the value is cut out of another one. */
static bool is_part(const mp_graph *graph, int32_t value) {
    static const char *const cuts[] = {"Gather", "Squeeze", "Split", "Slice"};
    int32_t n = mp_graph_maker(graph, value, NULL);
    if (n != MP_NO_NODE && mp_vertex_is(&graph->nodes[n], "Reshape")) {
        n = mp_graph_maker(graph, graph->nodes[n].in[0], NULL);
    }
    return n != MP_NO_NODE && mp_vertex_is_any(&graph->nodes[n], cuts, MP_COUNT_OF(cuts));
}

static mp_status rewrite(mp_graph *graph, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    const mp_attr heads = {.name = "perm", .kind = MP_ATTR_INTS, .ints = first, .count = RANK};
    const mp_attr rows = {.name = "perm", .kind = MP_ATTR_INTS, .ints = last, .count = RANK};
    mp_tensor like = {.type = mp_graph_type(graph, v.in[0]), .shape = {.rank = RANK}};
    mp_node node = v.node;
    int32_t keys = MP_NO_VALUE;
    node.attrs = &heads;
    node.attr_count = 1;
    for (int d = 0; d < RANK; d++) {
        like.shape.dim[d] = mp_graph_dim(graph, v.in[0], (int)first[d]);
    }
    MP_TRY(mp_graph_add_value(graph, graph->values[v.in[0]].name, &like, &keys));
    MP_TRY(mp_graph_add_beside(graph, n, &node, v.in, 1, keys));
    node.attrs = &rows;
    return mp_graph_change_node(graph, n, &node, &keys, 1, v.out, 1);
}

mp_status mp_pass_turn_keys(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        if (!mp_graph_turns(graph, n, both, RANK) || !is_part(graph, graph->nodes[n].in[0])) {
            continue;
        }
        const int32_t keys = graph->nodes[n].out[0];
        const int32_t product = mp_graph_reader(graph, keys, "MatMul");
        if (product != MP_NO_NODE && graph->nodes[product].in[RIGHT] == keys &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
