/* conv_parts.c - a convolution of single pixels whose channels are cut into parts, to each of which
 * something is added, is one convolution for each part: where channels come last a part would be
 * copied out of its rows, and the sum becomes part of such a convolution (conv_epilogue.c). So
 * WaveNet makes what goes to the next layer, and what goes to the result.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/cut.h"

#include <string.h>

enum { X, W, BIAS, CHANNEL = 1, PARTS_MAX = 4 };

typedef struct part {
    int32_t value;
    int64_t start, end; /* channels */
} part;

typedef struct match {
    int32_t conv; /* the node */
    part parts[PARTS_MAX];
    int count;
} match;

/* ---- which ---- */

/* Constants with their bytes, of a type whose channels come last on a GPU. */
static bool is_of_pixels(const mp_graph *graph, const mp_vertex *v) {
    if (!mp_vertex_is(v, "Conv") || v->in_count > BIAS + 1) {
        return false;
    }
    const mp_tensor *w = mp_graph_constant(graph, v->in[W]);
    const int32_t bias = mp_vertex_in(v, BIAS);
    const mp_tensor *b = bias != MP_NO_VALUE ? mp_graph_constant(graph, bias) : NULL;
    return w != NULL && w->data != 0 && mp_vertex_is_of_pixels(v, &w->shape) &&
           (bias == MP_NO_VALUE || (b != NULL && b->data != 0 && b->shape.rank == 1 &&
                                    b->shape.dim[0] == w->shape.dim[0])) &&
           (w->type == MP_F16 || w->type == MP_BF16 ||
            (w->type == MP_F32 && v->node.options.tf32)) &&
           !mp_graph_is_output(graph, v->out[0]);
}

/* Notes a part that only an addition reads. */
static bool add_part(const mp_graph *graph, match *m, int32_t value, int64_t start, int64_t end,
                     int64_t channels) {
    const int32_t add = mp_graph_reader(graph, value, "Add");
    start += start < 0 ? channels : 0;
    end = end < 0 ? end + channels : MP_MIN(end, channels);
    if (m->count == PARTS_MAX || add == MP_NO_NODE || start < 0 || end <= start ||
        !mp_graph_same_guard(graph, m->conv, add)) {
        return false;
    }
    m->parts[m->count++] = (part){value, start, end};
    return true;
}

static bool add_split(const mp_graph *graph, match *m, const mp_vertex *v, int64_t channels) {
    const int rank = mp_graph_rank(graph, v->in[0]);
    const int64_t axis = mp_node_int(&v->node, "axis", 0);
    int64_t start = 0;
    for (int i = 0; i < v->out_count; i++) {
        const int64_t size =
            v->out[i] != MP_NO_VALUE ? mp_graph_dim(graph, v->out[i], CHANNEL) : -1;
        if ((axis != CHANNEL && axis + rank != CHANNEL) || size < 1 ||
            !add_part(graph, m, v->out[i], start, start + size, channels)) {
            return false;
        }
        start += size;
    }
    return start == channels;
}

/* What node `v` reads of the convolution is such parts. */
static bool add_reader(const mp_graph *graph, match *m, const mp_vertex *v, int64_t channels) {
    mp_cut cut;
    if (mp_vertex_is(v, "Split")) {
        return add_split(graph, m, v, channels);
    }
    return mp_vertex_is(v, "Slice") && mp_cut_read(graph, v->out[0], &cut) && cut.axis == CHANNEL &&
           add_part(graph, m, v->out[0], cut.start, cut.end, channels);
}

static bool reads(const mp_vertex *v, int32_t value) {
    bool found = false;
    for (int i = 0; i < v->in_count && !v->is_gone; i++) {
        found = found || v->in[i] == value;
    }
    return found;
}

static bool find(const mp_graph *graph, int32_t n, match *m) {
    const mp_vertex *conv = &graph->nodes[n];
    *m = (match){.conv = n};
    if (!is_of_pixels(graph, conv)) {
        return false;
    }
    const int64_t channels = graph->values[conv->in[W]].tensor.shape.dim[0];
    for (int32_t i = n + 1; i < graph->node_count; i++) {
        const mp_vertex *v = &graph->nodes[i];
        if (reads(v, conv->out[0]) && !add_reader(graph, m, v, channels)) {
            return false;
        }
    }
    return m->count > 1;
}

/* ---- rewriting ---- */

/* The rows [start, end) of a constant. */
static mp_status take_rows(mp_graph *graph, int32_t value, const part *p, int32_t *out) {
    if (value == MP_NO_VALUE) {
        *out = MP_NO_VALUE;
        return MP_OK;
    }
    const mp_value v = graph->values[value];
    const size_t row = (size_t)mp_shape_span(&v.tensor.shape, 1, v.tensor.shape.rank) *
                       mp_dtype_size(v.tensor.type);
    mp_tensor rows = v.tensor;
    rows.shape.dim[0] = p->end - p->start;
    rows.data = v.tensor.data + (mp_addr)p->start * row;
    return mp_graph_add_constant(graph, v.name, &rows, out);
}

static mp_status add_conv(mp_graph *graph, const match *m, const part *p, int32_t *out) {
    const mp_vertex conv = graph->nodes[m->conv];
    const mp_value made = graph->values[p->value];
    int32_t in[] = {conv.in[X], MP_NO_VALUE, MP_NO_VALUE};
    MP_TRY(take_rows(graph, conv.in[W], p, &in[W]));
    MP_TRY(take_rows(graph, mp_vertex_in(&conv, BIAS), p, &in[BIAS]));
    MP_TRY(mp_graph_add_value(graph, made.name, &made.tensor, out));
    return mp_graph_add_beside(graph, m->conv, &conv.node, in, conv.in_count, *out);
}

static mp_status rewrite(mp_graph *graph, const match *m) {
    int32_t out[PARTS_MAX];
    for (int i = 0; i < m->count; i++) {
        MP_TRY(add_conv(graph, m, &m->parts[i], &out[i]));
    }
    for (int i = 0; i < m->count; i++) {
        mp_graph_replace(graph, m->parts[i].value, out[i], false);
        mp_graph_drop_unread(graph, m->parts[i].value);
    }
    return MP_OK;
}

mp_status mp_pass_conv_parts(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        match m;
        if ((graph->prefers_last || rewrites->forced) && find(graph, n, &m) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &m));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
