/* byte_concat.c - quantised tensors side by side are joined as integers, those of another scale
 * than the result's when they have that. What has it as it is, byte_moves.c leaves alone.
 *
 *     QLinearConcat                              becomes   Concat of QuantizeLinear of
 *     QuantizeLinear of a Concat of floats                 DequantizeLinear of each
 *
 * The floats of the second are DequantizeLinear's, all of them. Integers of another scale that
 * others read, too, such as all layers behind read them in DenseNet, would be brought to a scale
 * for each of those: they are joined as floats, which are made once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/quantized.h"

enum { WIDTH_MAX = 64, FIRST = 2, EACH = 3 };

static mp_status add(mp_graph *graph, int32_t n, const char *op, const int32_t *in, mp_dtype type,
                     const mp_shape *shape, int32_t *out) {
    const mp_node node = {.op = mp_op_find("", op, 13),
                          .version = 13,
                          .name = graph->nodes[n].node.name,
                          .options = graph->nodes[n].node.options};
    const mp_tensor tensor = {.type = type, .shape = *shape};
    MP_TRY(mp_graph_add_value(graph, graph->values[in[0]].name, &tensor, out));
    return mp_graph_add_part(graph, n, &node, in, in[2] != MP_NO_VALUE ? 3 : 2, *out);
}

/* ---- QLinearConcat ---- */

static bool is_linear(const mp_graph *graph, const mp_vertex *v) {
    if (v->is_gone || v->node.op != mp_op_find("com.microsoft", "QLinearConcat", 1) ||
        v->in_count < FIRST + EACH || v->in_count > FIRST + EACH * WIDTH_MAX ||
        (v->in_count - FIRST) % EACH != 0) {
        return false;
    }
    for (int i = FIRST; i < v->in_count; i += EACH) {
        const mp_dtype type = mp_graph_type(graph, v->in[i]);
        if ((type != MP_I8 && type != MP_U8) || type != mp_graph_type(graph, v->in[1])) {
            return false;
        }
    }
    return true;
}

/* Whether it is as the result, or the only one to read it brings it there. */
static bool is_own(const mp_graph *graph, const mp_quantized *from, const mp_quantized *to) {
    return mp_quantized_alike(from, to) || mp_graph_uses(graph, from->value) == 1;
}

static bool are_own(const mp_graph *graph, const mp_vertex *v) {
    mp_quantized to, from;
    bool own = mp_quantized_by(graph, v, 0, v->out[0], &to);
    for (int i = FIRST; own && i < v->in_count; i += EACH) {
        own = mp_quantized_by(graph, v, i + 1, v->in[i], &from) && is_own(graph, &from, &to);
    }
    return own;
}

static mp_status from_linear(mp_graph *graph, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    const mp_dtype type = mp_graph_type(graph, v.in[1]);
    const bool own = are_own(graph, &v);
    const mp_attr axis = {
        .name = "axis", .kind = MP_ATTR_INT, .i = mp_node_int(&v.node, "axis", 0)};
    const mp_node node = {.op = mp_op_find("", "Concat", 13),
                          .version = 13,
                          .name = v.node.name,
                          .attrs = &axis,
                          .attr_count = 1,
                          .options = v.node.options};
    int32_t in[WIDTH_MAX], to[] = {MP_NO_VALUE, v.in[0], v.in[1]};
    int count = 0;
    for (int i = FIRST; i < v.in_count; i += EACH) {
        const mp_shape shape = graph->values[v.in[i]].tensor.shape;
        const int32_t from[] = {v.in[i], v.in[i + 1], v.in[i + 2]};
        MP_TRY(add(graph, n, "DequantizeLinear", from, MP_F32, &shape, &in[count]));
        to[0] = in[count];
        if (own) {
            MP_TRY(add(graph, n, "QuantizeLinear", to, type, &shape, &in[count]));
        }
        count++;
    }
    if (own) {
        return mp_graph_change_node(graph, n, &node, in, count, v.out, 1);
    }
    const mp_node quantize = {.op = mp_op_find("", "QuantizeLinear", 13),
                              .version = 13,
                              .name = v.node.name,
                              .options = v.node.options};
    const mp_tensor floats = {.type = MP_F32, .shape = graph->values[v.out[0]].tensor.shape};
    MP_TRY(mp_graph_add_value(graph, graph->values[v.out[0]].name, &floats, &to[0]));
    MP_TRY(mp_graph_add_part(graph, n, &node, in, count, to[0]));
    return mp_graph_change_node(graph, n, &quantize, to, 3, v.out, 1);
}

/* ---- between floats ---- */

/* The Concat of floats, all dequantised of bytes, that alone node `n` quantises; or MP_NO_NODE. */
static int32_t joined_before(const mp_graph *graph, int32_t n) {
    mp_quantized to, from;
    const int32_t c = mp_quantizes(graph, n, &to)
                          ? mp_graph_maker(graph, graph->nodes[n].in[0], "Concat")
                          : MP_NO_NODE;
    const mp_vertex *v = c != MP_NO_NODE ? &graph->nodes[c] : NULL;
    if (v == NULL || v->in_count > WIDTH_MAX ||
        mp_graph_reader(graph, v->out[0], "QuantizeLinear") != n) {
        return MP_NO_NODE;
    }
    for (int i = 0; i < v->in_count; i++) {
        if (!mp_dequantized(graph, v->in[i], &from) || from.type != to.type ||
            !is_own(graph, &from, &to)) {
            return MP_NO_NODE;
        }
    }
    return c;
}

static mp_status from_floats(mp_graph *graph, int32_t n, int32_t concat) {
    const mp_vertex c = graph->nodes[concat];
    const mp_vertex q = graph->nodes[n];
    int32_t in[WIDTH_MAX];
    for (int i = 0; i < c.in_count; i++) {
        const int32_t x[] = {c.in[i], q.in[1], mp_vertex_in(&q, 2)};
        const mp_shape shape = graph->values[c.in[i]].tensor.shape;
        MP_TRY(add(graph, n, "QuantizeLinear", x, mp_graph_type(graph, q.out[0]), &shape, &in[i]));
    }
    MP_TRY(mp_graph_change_node(graph, n, &c.node, in, c.in_count, q.out, 1));
    mp_graph_remove_node(graph, concat);
    return MP_OK;
}

mp_status mp_pass_byte_concat(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        const bool linear = is_linear(graph, &graph->nodes[n]);
        const int32_t concat = !linear ? joined_before(graph, n) : MP_NO_NODE;
        if ((linear || concat != MP_NO_NODE) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(linear ? from_linear(graph, n) : from_floats(graph, n, concat));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
