/* dequantized.c - weights of bytes that are dequantised for a node that computes in float are that
 * once, and not in each run: what passes and operators do with them as they are was done before.
 * They are larger then, so not all of a large model are.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass/fold.h"

#include "graph/host_value.h"

enum { INPUTS = 3, RESULT_MAX = 64 << 20, TOTAL_MAX = 256 << 20 /* bytes */ };

static bool read_inputs(const mp_graph *graph, const mp_vertex *v, mp_tensor in[INPUTS]) {
    for (int i = 0; i < v->in_count; i++) {
        const bool is_there = v->in[i] != MP_NO_VALUE;
        const mp_tensor *t = is_there ? mp_graph_constant(graph, v->in[i]) : NULL;
        if (is_there && (t == NULL || t->data == 0)) {
            return false;
        }
        in[i] = is_there ? *t : (mp_tensor){.type = MP_NONE};
    }
    const mp_dtypes taken = MP_BIT(MP_I8) | MP_BIT(MP_U8) | MP_BIT(MP_I32);
    return (MP_BIT(in[0].type) & taken) != 0;
}

static mp_status try_node(mp_graph *graph, mp_rewrites *rewrites, int32_t n, size_t *total) {
    const mp_vertex v = graph->nodes[n];
    mp_tensor in[INPUTS] = {{.type = MP_NONE}}, out;
    mp_host_values values;
    bool done = false;
    if (!mp_vertex_is(&v, "DequantizeLinear") || v.in_count > INPUTS || *total > TOTAL_MAX ||
        mp_graph_uses(graph, v.out[0]) == 0 || !read_inputs(graph, &v, in) ||
        !mp_fold_may(graph, &v) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    mp_host_values_open(&values);
    values.most = RESULT_MAX;
    const mp_status computed =
        mp_host_value_compute(&values, &v.node, in, v.in_count, &out, 1, &done);
    mp_status status = MP_OK;
    if (computed == MP_OK && done) {
        status = mp_fold_into(graph, n, &out, total);
    } else { /* a node that fails does so where it runs */
        rewrites->done--;
    }
    mp_host_values_close(&values);
    return status;
}

mp_status mp_pass_dequantized(mp_graph *graph, mp_rewrites *rewrites) {
    size_t total = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        MP_TRY(try_node(graph, rewrites, n, &total));
    }
    return MP_OK;
}
