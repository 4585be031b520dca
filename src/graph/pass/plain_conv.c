/* plain_conv.c - a convolution that ONNX Runtime's tools have given channels last is one of
 * channels first between two transpositions, as exporters write it: channels_last.c, which follows,
 * takes these out again, and other passes know what stands between them.
 *
 *     NhwcConv      becomes      Transpose --> Conv --> Transpose
 *
 * That is done where convolutions will have their channels last again. Where the device does not
 * care it is done between transpositions, which cancel.c takes out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/swapped.h"

enum { RANK = 4 };

static const int64_t to_last[RANK] = {0, 2, 3, 1}, to_first[RANK] = {0, 3, 1, 2};

static bool is_between_turns(const mp_graph *graph, const mp_vertex *v) {
    const int32_t before = mp_graph_maker(graph, v->in[0], "Transpose");
    const int32_t behind = mp_graph_reader(graph, v->out[0], "Transpose");
    return mp_graph_turns(graph, before, to_last, RANK) &&
           mp_graph_turns(graph, behind, to_first, RANK);
}

/* Whether channels_last.c will have convolutions of such weights with their channels last. */
static bool is_fast(const mp_vertex *v, mp_dtype type) {
    return type == MP_F16 || type == MP_BF16 || (type == MP_F32 && v->node.options.tf32);
}

/* Of constant weights, whose bytes are here. */
static bool fits(const mp_graph *graph, const mp_vertex *v, bool forced) {
    const bool is_last = !v->is_gone && v->node.op == mp_op_find("com.microsoft", "NhwcConv", 1);
    const mp_tensor *w = is_last ? mp_graph_constant(graph, v->in[1]) : NULL;
    return w != NULL && w->data != 0 && w->shape.rank == RANK &&
           (forced || (graph->prefers_last ? is_fast(v, w->type) : is_between_turns(graph, v)));
}

static mp_status turn(mp_graph *graph, int32_t n, const int64_t *order, int32_t from, int32_t to) {
    const mp_attr perm = {.name = "perm", .kind = MP_ATTR_INTS, .ints = order, .count = RANK};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = graph->nodes[n].node.name,
                          .attrs = &perm,
                          .attr_count = 1};
    return mp_graph_add_part(graph, n, &node, &from, 1, to);
}

/* A value that is `last` with its channels first. */
static mp_status add_first(mp_graph *graph, mp_dtype type, int32_t last, int32_t *out) {
    mp_tensor tensor = {.type = type, .shape = {.rank = RANK}};
    for (int d = 0; d < RANK; d++) {
        tensor.shape.dim[d] = mp_graph_dim(graph, last, (int)to_first[d]);
    }
    return mp_graph_add_value(graph, graph->values[last].name, &tensor, out);
}

static mp_status turn_weights(mp_graph *graph, int32_t *weights) {
    const mp_shape was = graph->values[*weights].tensor.shape;
    const mp_shape shape = {.rank = RANK, .dim = {was.dim[0], was.dim[3], was.dim[1], was.dim[2]}};
    return mp_graph_add_swapped(graph, *weights, shape.dim[1], shape.dim[2] * shape.dim[3], &shape,
                                weights);
}

static mp_status rewrite(mp_graph *graph, int32_t n) {
    const mp_vertex was = graph->nodes[n];
    const mp_dtype type = graph->values[was.in[1]].tensor.type;
    mp_node node = was.node;
    int32_t in[] = {MP_NO_VALUE, was.in[1], mp_vertex_in(&was, 2)}, out = MP_NO_VALUE;
    node.op = mp_op_find("", "Conv", 11);
    node.version = 11;
    MP_TRY(turn_weights(graph, &in[1]));
    MP_TRY(add_first(graph, type, was.in[0], &in[0]));
    MP_TRY(add_first(graph, type, was.out[0], &out));
    MP_TRY(turn(graph, n, to_first, was.in[0], in[0]));
    MP_TRY(mp_graph_change_node(graph, n, &node, in, was.in_count, &out, 1));
    return turn(graph, n, to_last, out, was.out[0]);
}

/* What a Transpose that only node `n` reads, or others too where not `alone`, has put channels last
 * of; or MP_NO_VALUE. */
static int32_t before_last(const mp_graph *graph, int32_t n, int i, bool alone) {
    const int32_t value = graph->nodes[n].in[i];
    const int32_t t = mp_graph_maker(graph, value, "Transpose");
    return mp_graph_turns(graph, t, to_last, RANK) &&
                   (!alone || mp_graph_reader(graph, value, NULL) == n)
               ? graph->nodes[t].in[0]
               : MP_NO_VALUE;
}

/* Whether node `n` adds images that are both turned before, one of them for it alone: such as what
 * a convolution makes, which may then add the other itself. */
static bool adds_turned(const mp_graph *graph, int32_t n) {
    const mp_vertex *v = &graph->nodes[n];
    return mp_vertex_is(v, "Add") && before_last(graph, n, 0, false) != MP_NO_VALUE &&
           before_last(graph, n, 1, false) != MP_NO_VALUE &&
           (before_last(graph, n, 0, true) != MP_NO_VALUE ||
            before_last(graph, n, 1, true) != MP_NO_VALUE);
}

/* They are added before, and their sum is turned. */
static mp_status add_first_of_all(mp_graph *graph, int32_t n) {
    const mp_vertex was = graph->nodes[n];
    const int32_t in[] = {before_last(graph, n, 0, false), before_last(graph, n, 1, false)};
    int32_t sum = MP_NO_VALUE;
    MP_TRY(add_first(graph, mp_graph_type(graph, in[0]), was.out[0], &sum));
    MP_TRY(mp_graph_change_node(graph, n, &was.node, in, 2, &sum, 1));
    MP_TRY(turn(graph, n, to_last, sum, was.out[0]));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_plain_conv(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    bool changed = false;
    for (int32_t n = 0; n < count; n++) {
        if (fits(graph, &graph->nodes[n], rewrites->forced) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n));
            changed = true;
        }
    }
    for (int32_t n = 0; n < count && changed; n++) {
        if (adds_turned(graph, n) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(add_first_of_all(graph, n));
        }
    }
    return mp_graph_tidy(graph, changed);
}
