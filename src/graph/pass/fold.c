/* fold.c - element-wise nodes of constants, and those that move their elements, become constants.
 *
 * They are computed by the operators themselves, on the built-in host device. What a constant is
 * dequantized to is left: it would be larger, and passes and operators look for the form it has.
 * Large results are left as well, since each takes memory for as long as the session lives.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/fold.h"

#include "graph/host_value.h"

#include <string.h>

enum {
    WIDTH_MAX = 64,
    INPUTS_MAX = 64 << 20,
    TOTAL_MAX = 64 << 20, /* bytes of all results that one pass makes */
};

typedef struct folding {
    mp_graph *graph;
    mp_rewrites *rewrites;
    size_t total;
} folding;

/* ---- which nodes ---- */

static bool moves(const mp_vertex *v) {
    static const char *const names[] = {
        "Concat", "Expand",  "Flatten", "Gather",    "GatherElements", "GatherND", "Identity",
        "Pad",    "Reshape", "Slice",   "Split",     "Squeeze",        "Tile",     "Transpose",
        "Trilu",  "Shape",   "Size",    "Unsqueeze", "ConstantOfShape"};
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        if (mp_vertex_is(v, names[i])) {
            return true;
        }
    }
    return false;
}

bool mp_fold_wants(const mp_vertex *v) {
    return !v->is_gone && v->loop == NULL && v->in_count > 0 && v->in_count <= WIDTH_MAX &&
           v->out_count <= WIDTH_MAX && strcmp(v->node.op->name, "DequantizeLinear") != 0 &&
           (v->node.op->express != NULL || moves(v));
}

/* What the node reads; false where that is not all known, or very large. */
static bool read_inputs(const mp_graph *graph, const mp_vertex *v, mp_tensor *in) {
    size_t total = 0;
    for (int i = 0; i < v->in_count; i++) {
        const mp_value *value = v->in[i] != MP_NO_VALUE ? &graph->values[v->in[i]] : NULL;
        size_t bytes = 0;
        in[i] = value != NULL ? value->tensor : (mp_tensor){.type = MP_NONE};
        if (value == NULL) {
            continue;
        }
        if (!value->is_constant || value->tensor.data == 0 || value->tensor.type == MP_NONE ||
            mp_shape_bytes(&in[i].shape, in[i].type, &bytes) != MP_OK || bytes > INPUTS_MAX) {
            return false;
        }
        total += bytes;
    }
    return total <= INPUTS_MAX;
}

/* An output of the graph is written in each run, and a condition is asked for by its maker. */
bool mp_fold_may(const mp_graph *graph, const mp_vertex *v) {
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE &&
            (mp_graph_is_output(graph, v->out[i]) || mp_graph_is_condition(graph, v->out[i]))) {
            return false;
        }
    }
    return true;
}

/* ---- rewriting ---- */

mp_status mp_fold_into(mp_graph *graph, int32_t n, const mp_tensor *out, size_t *total) {
    const mp_vertex v = graph->nodes[n];
    void *kept[WIDTH_MAX] = {NULL};
    size_t bytes = 0;
    for (int i = 0; i < v.out_count; i++) {
        MP_TRY(mp_shape_bytes(&out[i].shape, out[i].type, &bytes));
        MP_TRY(mp_graph_keep(graph, bytes + 1, &kept[i]));
        if (bytes > 0) {
            memcpy(kept[i], (const void *)out[i].data, bytes);
        }
        *total += bytes;
    }
    mp_graph_remove_node(graph, n);
    for (int i = 0; i < v.out_count; i++) {
        if (v.out[i] != MP_NO_VALUE) {
            mp_value *value = &graph->values[v.out[i]];
            value->tensor =
                (mp_tensor){.type = out[i].type, .shape = out[i].shape, .data = (mp_addr)kept[i]};
            value->is_constant = true;
            value->owns_data = true;
        }
    }
    return MP_OK;
}

/* Results between nodes that are folded one behind the other. */
static void forget_unread(mp_graph *graph, const mp_vertex *v) {
    for (int i = 0; i < v->in_count; i++) {
        const int32_t value = v->in[i];
        if (value != MP_NO_VALUE && graph->values[value].owns_data &&
            mp_graph_uses(graph, value) == 0) {
            mp_graph_forget_data(graph, value);
        }
    }
}

static mp_status fold(folding *f, int32_t n) {
    mp_tensor in[WIDTH_MAX], out[WIDTH_MAX];
    mp_host_values values;
    bool done = false;
    const mp_vertex v = f->graph->nodes[n];
    if (!mp_fold_wants(&v) || !read_inputs(f->graph, &v, in) || !mp_fold_may(f->graph, &v) ||
        !mp_host_value_is_known(&v.node, in, v.in_count) || !mp_rewrite_allowed(f->rewrites)) {
        return MP_OK;
    }
    mp_host_values_open(&values);
    values.most = MP_FOLD_RESULT_MAX;
    const mp_status computed =
        mp_host_value_compute(&values, &v.node, in, v.in_count, out, v.out_count, &done);
    mp_status status = MP_OK;
    if (computed == MP_OK && done && f->total <= TOTAL_MAX) {
        status = mp_fold_into(f->graph, n, out, &f->total);
        forget_unread(f->graph, &v);
    } else { /* a node that fails does so where it runs, if it does: it may be in a branch */
        f->rewrites->done--;
    }
    mp_host_values_close(&values);
    return status;
}

mp_status mp_fold_constants(mp_graph *graph, mp_rewrites *rewrites) {
    folding f = {.graph = graph, .rewrites = rewrites};
    for (int32_t n = 0; n < graph->node_count; n++) {
        MP_TRY(fold(&f, n));
    }
    return MP_OK;
}

mp_status mp_pass_fold(mp_graph *graph, mp_rewrites *rewrites) {
    return mp_fold_constants(graph, rewrites);
}
