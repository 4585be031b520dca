/* loop_constants.c - what a Loop carries from round to round and never changes is read from outside
 * of it: a constant is one of its body, where passes know it, and nothing of it is copied.
 *
 * TensorFlow's while_loop carries all weights of a recurrent layer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/rounds.h"

enum { CONSTANT_MOST = 64 << 20 /* bytes of a constant, which may be there twice for a while */ };

/* Whether the body gives its carried value `k` as it gets it. */
static bool is_kept(const mp_loop *loop, int k) {
    const mp_graph *body = loop->body;
    int32_t value = body->outputs[MP_LOOP_HEAD_OUT + k];
    for (int32_t n = body->values[value].producer; n != MP_NO_NODE;
         n = body->values[value].producer) {
        if (!mp_vertex_is(&body->nodes[n], "Identity") || body->nodes[n].guard != 0) {
            return false;
        }
        value = body->nodes[n].in[0];
    }
    return value == body->inputs[MP_LOOP_HEAD_IN + k];
}

static void take_out(int32_t *list, int32_t *count, int32_t at) {
    for (int32_t i = at; i + 1 < *count; i++) {
        list[i] = list[i + 1];
    }
    --*count;
}

/* Puts entry `at` behind the others. */
static void put_last(int32_t *list, int32_t count, int32_t at) {
    const int32_t entry = list[at];
    int32_t others = count;
    take_out(list, &others, at);
    list[others] = entry;
}

/* The value as a constant of the body; MP_NO_VALUE where it is none, or too large. */
static mp_status as_constant(const mp_graph *graph, int32_t value, mp_graph *body, int32_t *out) {
    const mp_tensor *constant = mp_graph_constant(graph, value);
    size_t bytes = 0;
    *out = MP_NO_VALUE;
    if (constant == NULL || constant->data == 0 || mp_graph_bytes(graph, value, &bytes) != MP_OK ||
        bytes > CONSTANT_MOST) {
        return MP_OK;
    }
    return mp_graph_add_constant(body, graph->values[value].name, constant, out);
}

static mp_status rewrite(mp_graph *graph, int32_t n, int k) {
    mp_vertex *v = &graph->nodes[n];
    mp_graph *body = v->loop->body;
    const int32_t given = v->in[MP_LOOP_HEAD_IN + k], made = v->out[k];
    const int32_t input = body->inputs[MP_LOOP_HEAD_IN + k];
    const int32_t output = body->outputs[MP_LOOP_HEAD_OUT + k];
    void *memory = NULL;
    int32_t constant = MP_NO_VALUE;
    MP_TRY(mp_graph_keep(graph, sizeof(mp_loop), &memory));
    MP_TRY(as_constant(graph, given, body, &constant));
    mp_loop *loop = memory;
    *loop = *v->loop;
    loop->carried--;
    v->loop = loop;
    take_out(body->outputs, &body->output_count, MP_LOOP_HEAD_OUT + k);
    if (constant != MP_NO_VALUE) {
        take_out(body->inputs, &body->input_count, MP_LOOP_HEAD_IN + k);
        take_out(v->in, &v->in_count, MP_LOOP_HEAD_IN + k);
        mp_graph_replace(body, input, constant, true);
    } else {
        put_last(body->inputs, body->input_count, MP_LOOP_HEAD_IN + k);
        put_last(v->in, v->in_count, MP_LOOP_HEAD_IN + k);
    }
    mp_graph_drop_unread(body, output);
    mp_graph_compact(body);
    take_out(v->out, &v->out_count, k);
    if (made != MP_NO_VALUE) {
        graph->values[made].producer = MP_NO_NODE;
        mp_graph_replace(graph, made, given, false);
    }
    return MP_OK;
}

mp_status mp_pass_loop_constants(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        for (int k = 0; !graph->nodes[n].is_gone && graph->nodes[n].loop != NULL &&
                        !graph->nodes[n].loop->is_scan && k < graph->nodes[n].loop->carried;) {
            const mp_vertex *v = &graph->nodes[n];
            const bool fits = is_kept(v->loop, k) && v->out_count > 1 &&
                              (v->out[k] == MP_NO_VALUE || !mp_graph_is_output(graph, v->out[k]));
            if (!fits || !mp_rewrite_allowed(rewrites)) {
                k++;
                continue;
            }
            MP_TRY(rewrite(graph, n, k));
        }
    }
    return MP_OK;
}
