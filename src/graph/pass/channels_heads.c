/* channels_heads.c - see channels_heads.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channels_heads.h"

#include "graph/look.h"

enum { BATCH, CHANNELS, LENGTH, LINE_RANK, HEADS = 1, SIZE, HEADS_LENGTH, HEADS_RANK };

/* From [batch, length, heads, size] to [batch, heads, size, length], and back. */
static const int64_t to_lines[HEADS_RANK] = {0, 2, 3, 1}, to_rows[HEADS_RANK] = {0, 3, 1, 2};

/* Whether dimension `d` of what the Reshape makes is known to be dimension `e` of what it reads. */
static bool keeps(const mp_graph *graph, const mp_vertex *reshape, int d, int e) {
    const bool copies = mp_node_int(&reshape->node, "allowzero", 0) == 0 && d == e;
    const int64_t entry = mp_graph_entry(graph, reshape->in[1], d);
    return (copies && entry == 0) ||
           mp_graph_entry_is(graph, reshape->in[1], d, reshape->in[0], e) ||
           (entry > 0 && entry == mp_graph_dim(graph, reshape->in[0], e)) ||
           mp_graph_same_dim(graph, reshape->out[0], d, reshape->in[0], e);
}

/* ---- heads of a line ---- */

/* With all channels in both and the batch or the length the same, so is the other. */
bool mp_makes_heads(const mp_layout *l, const mp_vertex *v) {
    if (!mp_vertex_is(v, "Reshape") || v->in_count != 2 || mp_twin_rank(l, v->in[0]) != LINE_RANK ||
        mp_graph_list_length(l->graph, v->in[1]) != HEADS_RANK) {
        return false;
    }
    const int64_t heads = mp_graph_entry(l->graph, v->in[1], HEADS);
    const int64_t size = mp_graph_entry(l->graph, v->in[1], SIZE);
    const int64_t channels = mp_graph_dim(l->graph, v->in[0], CHANNELS);
    return heads > 0 && size > 0 && channels > 0 && channels % heads == 0 &&
           channels / heads == size &&
           (keeps(l->graph, v, BATCH, BATCH) || keeps(l->graph, v, HEADS_LENGTH, LENGTH));
}

/* What a value has in the order that `perm` gives. */
static mp_tensor ordered(const mp_tensor *t, const int64_t *perm) {
    mp_tensor out = {.type = t->type, .shape = {.rank = HEADS_RANK}};
    for (int d = 0; d < HEADS_RANK; d++) {
        out.shape.dim[d] = t->shape.rank == HEADS_RANK ? t->shape.dim[perm[d]] : MP_DIM_UNKNOWN;
    }
    return out;
}

mp_status mp_turn_heads(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    const int64_t dim[HEADS_RANK] = {0, 0, mp_graph_entry(l->graph, v.in[1], HEADS),
                                     mp_graph_entry(l->graph, v.in[1], SIZE)};
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {HEADS_RANK}}, .data = (mp_addr)dim};
    const mp_tensor rows = ordered(&l->graph->values[v.out[0]].tensor, to_rows);
    const mp_node node = {.op = mp_op_find("", "Reshape", 13),
                          .version = 13,
                          .name = v.node.name,
                          .options = v.node.options};
    int32_t in[] = {mp_twin_of(l, v.in[0]), MP_NO_VALUE}, out = MP_NO_VALUE;
    MP_TRY(mp_graph_add_constant(l->graph, "", &list, &in[1]));
    MP_TRY(mp_graph_add_value(l->graph, l->graph->values[v.out[0]].name, &rows, &out));
    MP_TRY(mp_graph_change_node(l->graph, n, &node, in, 2, &out, 1));
    return mp_twin_transpose(l, out, v.out[0], to_lines, HEADS_RANK);
}

/* ---- a line of heads ---- */

bool mp_line_of_heads(const mp_graph *graph, int32_t line) {
    const int32_t n = mp_graph_maker(graph, line, "Reshape");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->in_count != 2 || mp_graph_rank(graph, v->in[0]) != HEADS_RANK ||
        mp_graph_list_length(graph, v->in[1]) != LINE_RANK) {
        return false;
    }
    const int64_t heads = mp_graph_dim(graph, v->in[0], HEADS);
    const int64_t size = mp_graph_dim(graph, v->in[0], SIZE);
    const int64_t channels = mp_graph_entry(graph, v->in[1], CHANNELS);
    return heads > 0 && size > 0 && channels > 0 && channels % heads == 0 &&
           channels / heads == size &&
           (keeps(graph, v, BATCH, BATCH) || keeps(graph, v, LENGTH, HEADS_LENGTH));
}

mp_status mp_twin_of_heads(mp_layout *l, int32_t line, int32_t twin) {
    const mp_vertex v = l->graph->nodes[mp_graph_maker(l->graph, line, "Reshape")];
    const int64_t dim[LINE_RANK] = {0, 0, mp_graph_entry(l->graph, v.in[1], CHANNELS)};
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {LINE_RANK}}, .data = (mp_addr)dim};
    const mp_tensor rows = ordered(&l->graph->values[v.in[0]].tensor, to_rows);
    const mp_node node = {.op = mp_op_find("", "Reshape", 13), .version = 13, .name = v.node.name};
    int32_t in[] = {MP_NO_VALUE, MP_NO_VALUE};
    MP_TRY(mp_graph_add_value(l->graph, l->graph->values[v.in[0]].name, &rows, &in[0]));
    MP_TRY(mp_twin_transpose(l, v.in[0], in[0], to_rows, HEADS_RANK));
    MP_TRY(mp_graph_add_constant(l->graph, "", &list, &in[1]));
    return mp_graph_add_node(l->graph, &node, in, 2, &twin, 1);
}
