/* find_talking.c - attention whose heads talk before and behind its softmax: by convolutions of
 * single pixels over scores, or by products where heads are the last dimension:
 *
 *     Conv --> Softmax --> Conv
 *     Transpose --> times w, plus a row --> Softmax --> times v, plus a row --> Transpose
 *
 * becomes one operator (op/attention/talking_heads.c). The Transposes may also be around each
 * product.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "op/core/talking.h"

enum { RANK = 4, STEPS_MAX = 3, INPUTS = 5 };

static const int64_t to_last[RANK] = {0, 2, 3, 1}, to_first[RANK] = {0, 3, 1, 2};

/* Heads mixed before or behind the softmax. */
typedef struct mix {
    int32_t value;           /* what goes in, or before the softmax what comes out behind */
    int32_t weight, bias;    /* bias: MP_NO_VALUE for none */
    bool turned;             /* the weight is [heads made, heads] */
    int32_t step[STEPS_MAX]; /* nodes */
    int count;
} mix;

/* ---- one mix ---- */

static bool read_conv(const mp_graph *graph, int32_t n, mix *m) {
    const mp_vertex *v = &graph->nodes[n];
    const mp_tensor *w = mp_vertex_is(v, "Conv") ? mp_graph_constant(graph, v->in[1]) : NULL;
    if (w == NULL || w->shape.rank != RANK || w->shape.dim[2] != 1 || w->shape.dim[3] != 1 ||
        mp_node_int(&v->node, "group", 1) != 1 || !mp_node_ints_are(&v->node, "pads", 0) ||
        !mp_node_ints_are(&v->node, "strides", 1)) {
        return false;
    }
    m->weight = v->in[1];
    m->bias = mp_vertex_in(v, 2);
    m->turned = true;
    return m->bias == MP_NO_VALUE || mp_graph_constant(graph, m->bias) != NULL;
}

static bool read_product(const mp_graph *graph, int32_t n, mix *m) {
    const mp_vertex *v = &graph->nodes[n];
    const bool biased = mp_vertex_is_own(v, "MatMulBias");
    if ((!biased && !mp_vertex_is(v, "MatMul")) || v->node.attr_count != 0) {
        return false;
    }
    const mp_tensor *w = mp_graph_constant(graph, v->in[1]);
    m->weight = v->in[1];
    m->bias = biased ? mp_vertex_in(v, 2) : MP_NO_VALUE;
    m->turned = false;
    return w != NULL && w->shape.rank == 2 &&
           (m->bias == MP_NO_VALUE || mp_graph_constant(graph, m->bias) != NULL);
}

/* Goes on to the node that alone reads the value, or that makes it for nobody else. */
static int32_t step(const mp_graph *graph, mix *m, bool behind) {
    const int32_t maker = behind ? MP_NO_NODE : mp_graph_maker(graph, m->value, NULL);
    const int32_t reader = mp_graph_reader(graph, m->value, NULL);
    const int32_t n = behind ? reader : maker;
    if (n == MP_NO_NODE || reader == MP_NO_NODE || m->count == STEPS_MAX ||
        (behind && graph->nodes[n].in[0] != m->value)) {
        return MP_NO_NODE;
    }
    m->step[m->count++] = n;
    m->value = behind ? graph->nodes[n].out[0] : graph->nodes[n].in[0];
    return n;
}

/* `is_last`: the softmax has heads last. */
static bool find_mix(const mp_graph *graph, int32_t value, bool behind, bool is_last, mix *m) {
    *m = (mix){.value = value};
    int32_t n = step(graph, m, behind);
    if (n != MP_NO_NODE && !is_last && read_conv(graph, n, m)) {
        return true;
    }
    if (!is_last && mp_graph_turns(graph, n, behind ? to_last : to_first, RANK)) {
        n = step(graph, m, behind);
        is_last = true;
    }
    return is_last && n != MP_NO_NODE && read_product(graph, n, m) &&
           mp_graph_turns(graph, step(graph, m, behind), behind ? to_first : to_last, RANK);
}

/* ---- all of it ---- */

static bool fits(const mp_graph *graph, const mix *before, const mix *after) {
    const mp_shape *b = &graph->values[before->weight].tensor.shape;
    const mp_shape *a = &graph->values[after->weight].tensor.shape;
    const int64_t from = b->dim[before->turned], between = b->dim[!before->turned];
    return mp_graph_rank(graph, before->value) == RANK && a->dim[after->turned] == between &&
           mp_talking_fits(from, between, a->dim[!after->turned],
                           mp_graph_dim(graph, before->value, 3));
}

static bool same_guards(const mp_graph *graph, int32_t n, const mix *m) {
    for (int i = 0; i < m->count; i++) {
        if (!mp_graph_same_guard(graph, n, m->step[i])) {
            return false;
        }
    }
    return true;
}

static bool find(const mp_graph *graph, int32_t n, mix *before, mix *after) {
    const mp_vertex *v = &graph->nodes[n];
    const int64_t axis = mp_node_int(&v->node, "axis", -1);
    const mp_dtype type = mp_vertex_is(v, "Softmax") ? mp_graph_type(graph, v->in[0]) : MP_NONE;
    if ((type != MP_F32 && type != MP_F16 && type != MP_BF16) || v->node.version < 13) {
        return false;
    }
    const bool is_last = axis == 2 || axis == -2;
    return (is_last || axis == 3 || axis == -1) &&
           find_mix(graph, v->in[0], false, is_last, before) &&
           find_mix(graph, v->out[0], true, is_last, after) && before->turned == after->turned &&
           fits(graph, before, after) && same_guards(graph, n, before) &&
           same_guards(graph, n, after);
}

static mp_status rewrite(mp_graph *graph, int32_t n, const mix *before, const mix *after) {
    const mp_vertex was = graph->nodes[n];
    const mp_attr turned = {.name = "turned", .kind = MP_ATTR_INT, .i = 1};
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "TalkingHeads", 1),
                          .version = 1,
                          .name = was.node.name,
                          .attrs = &turned,
                          .attr_count = before->turned ? 1 : 0,
                          .options = was.node.options};
    const int32_t in[INPUTS] = {before->value, before->weight, before->bias, after->weight,
                                after->bias};
    for (int i = after->count - 1; i >= 0; i--) {
        mp_graph_remove_node(graph, after->step[i]);
    }
    MP_TRY(mp_graph_change_node(graph, n, &node, in, INPUTS, &after->value, 1));
    mp_graph_drop_unread(graph, was.in[0]);
    return MP_OK;
}

mp_status mp_pass_find_talking(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        mix before, after;
        if (!graph->nodes[n].is_gone && find(graph, n, &before, &after) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &before, &after));
        }
    }
    return MP_OK;
}
