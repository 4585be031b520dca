/* turn_rotary.c - heads that are rotated before they are put first are put first by what rotates
 * them:
 *
 *     Transpose(RotaryHalves(x, c, s))          becomes     RotaryHalves(x, c, s) turned=1
 *
 * and so do those that an Attention reads in that order. Rows of x are then rows of the result, as
 * they are for the passes behind this one, and angles are seen accordingly: [.., 1, rows, length]
 * instead of [.., rows, 1, length].
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/add_view.h"
#include "graph/pass/attention_part.h"
#include "graph/pass/rotary_angles.h"

#include <string.h>

enum { ANGLES = 2, RANK = 4, ATTRS_MAX = 16, INPUTS_MAX = 32 /* of an Attention */ };

/* ---- the node ---- */

/* The node that rotates `value` for its only reader, as heads lie in rows; or MP_NO_NODE. */
static int32_t find_rotated(const mp_graph *graph, int32_t value) {
    const int32_t n = value != MP_NO_VALUE ? graph->values[value].producer : MP_NO_NODE;
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    return v != NULL && mp_vertex_is_own(v, "RotaryHalves") && v->in_count == 3 &&
                   !mp_side_has_part(v, 0) && !mp_node_flag(&v->node, "turned", false) &&
                   mp_angles_can_move(graph, v->in[1]) && mp_angles_can_move(graph, v->in[2]) &&
                   mp_graph_reader(graph, value, NULL) != MP_NO_NODE
               ? n
               : MP_NO_NODE;
}

/* What node `r` is when heads are put first. */
typedef struct turned {
    mp_node node; /* `attrs` are these */
    mp_attr attrs[2];
    int32_t in[1 + ANGLES];
} turned;

static mp_status turn(mp_graph *graph, int32_t r, mp_angles_seen seen[ANGLES], turned *out) {
    const mp_vertex *v = &graph->nodes[r];
    const bool paired = mp_node_flag(&v->node, "interleaved", false);
    *out = (turned){.node = v->node,
                    .attrs = {{.name = "interleaved", .kind = MP_ATTR_INT, .i = 1},
                              {.name = "turned", .kind = MP_ATTR_INT, .i = 1}}};
    out->node.attrs = paired ? out->attrs : out->attrs + 1;
    out->node.attr_count = paired ? 2 : 1;
    memcpy(out->in, v->in, sizeof out->in);
    for (int i = 0; i < ANGLES; i++) {
        MP_TRY(mp_angles_move(graph, r, &seen[i], &out->in[1 + i]));
    }
    return MP_OK;
}

/* ---- who reads it ---- */

static mp_status turn_for_transpose(mp_graph *graph, int32_t n, mp_angles_seen seen[ANGLES],
                                    mp_rewrites *rewrites) {
    const mp_vertex was = graph->nodes[n];
    const int32_t r =
        mp_puts_heads_first(graph, &was) ? find_rotated(graph, was.in[0]) : MP_NO_NODE;
    if (r == MP_NO_NODE || !mp_graph_same_guard(graph, r, n) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    turned fresh;
    MP_TRY(turn(graph, r, seen, &fresh));
    MP_TRY(mp_graph_change_node(graph, n, &fresh.node, fresh.in, 1 + ANGLES, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

/* The node without the attribute that says in which order it reads side `i`. */
static mp_status forget_order(mp_graph *graph, int32_t n, int i, int32_t value) {
    const mp_vertex v = graph->nodes[n];
    const mp_attr *order = mp_side_perm(&v, i);
    mp_attr attrs[ATTRS_MAX];
    int32_t in[INPUTS_MAX];
    mp_node node = v.node;
    node.attrs = attrs;
    node.attr_count = 0;
    for (size_t a = 0; a < v.node.attr_count; a++) {
        if (&v.node.attrs[a] != order) {
            attrs[node.attr_count++] = v.node.attrs[a];
        }
    }
    memcpy(in, v.in, (size_t)v.in_count * sizeof *in);
    in[i] = value;
    return mp_graph_change_node(graph, n, &node, in, v.in_count, v.out, v.out_count);
}

static mp_status turn_for_attention(mp_graph *graph, int32_t n, int i, mp_angles_seen seen[ANGLES],
                                    mp_rewrites *rewrites) {
    const mp_vertex *v = &graph->nodes[n];
    const int32_t rotated = v->in[i];
    const int32_t r = mp_side_is_turned(graph, v, i) ? find_rotated(graph, rotated) : MP_NO_NODE;
    int32_t out = MP_NO_VALUE;
    if (r == MP_NO_NODE || v->node.attr_count > ATTRS_MAX || v->in_count > INPUTS_MAX ||
        !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    const mp_tensor heads = {
        .type = mp_graph_type(graph, rotated),
        .shape = {.rank = RANK,
                  .dim = {mp_graph_dim(graph, rotated, 0), mp_graph_dim(graph, rotated, 2),
                          mp_graph_dim(graph, rotated, 1), mp_graph_dim(graph, rotated, 3)}}};
    MP_TRY(mp_graph_add_value(graph, graph->values[rotated].name, &heads, &out));
    turned fresh;
    MP_TRY(turn(graph, r, seen, &fresh));
    MP_TRY(mp_graph_add_beside(graph, r, &fresh.node, fresh.in, 1 + ANGLES, out));
    MP_TRY(mp_graph_absorb(graph, graph->node_count - 1, r));
    MP_TRY(forget_order(graph, n, i, out));
    mp_graph_drop_unread(graph, rotated);
    return MP_OK;
}

mp_status mp_pass_turn_rotary(mp_graph *graph, mp_rewrites *rewrites) {
    mp_angles_seen seen[ANGLES] = {{.of = MP_NO_VALUE}, {.of = MP_NO_VALUE}};
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        MP_TRY(turn_for_transpose(graph, n, seen, rewrites));
        for (int i = 0; i < 2 && mp_vertex_is_own(&graph->nodes[n], "Attention"); i++) {
            MP_TRY(turn_for_attention(graph, n, i, seen, rewrites));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
