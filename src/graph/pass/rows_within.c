/* rows_within.c - parts of images whose channels come last lie within them: what a Concat puts
 * together is made there, and what a Slice or a Split takes out is read there, so that nothing is
 * copied (mp_value.within). Only where all that makes or reads a part knows of rows that lie apart
 * (mp_op.apart_in): convolutions of single pixels, which are products, those of single channels,
 * pools, Resize, and element-wise nodes. A library copies such images for other convolutions, so
 * what one of these makes is copied into a Concat, unless a step of ours follows it, and what one
 * reads is cut out for it.
 *
 *     Conv --- a --+                      a, b and c lie in y
 *              Conv --- b -- Concat --- y
 *                           /
 *        x --- Split --- c               (c in x, where Split makes a part of a Concat, too)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/cut.h"
#include "op/core/channels.h"

#include <string.h>

enum { X, W, RESIDUAL = 3, PACK_BYTES = 16, CHANNELS_MIN = 16 };

/* `part` is channels [first, first + its own) of `whole`. */
typedef struct place {
    int32_t part, whole;
    int64_t first;
} place;

enum { LOOKED_AT = 64 /* makers of makers */ };

static bool is_last(const mp_graph *graph, int32_t n, int32_t value) {
    const int rank = mp_graph_rank(graph, value);
    const int64_t axis = mp_node_int(&graph->nodes[n].node, "axis", 0);
    return rank > 1 && (axis == -1 || axis == rank - 1);
}

/* ---- who knows of rows that lie apart ---- */

static bool is_conv(const mp_vertex *v) {
    const mp_op *op = v->node.op;
    return (strcmp(op->name, "Conv") == 0 || strcmp(op->name, "FusedConv") == 0) &&
           (strcmp(op->domain, MP_NHWC_DOMAIN) == 0 || strcmp(op->domain, MP_OWN_NHWC_DOMAIN) == 0);
}

static bool is_of_channels(const mp_vertex *v, const mp_shape *w) {
    return w->rank == 4 && w->dim[1] == 1 && w->dim[0] >= CHANNELS_MIN &&
           mp_node_int(&v->node, "group", 1) == w->dim[0];
}

/* Whether kernels that know of pixels that lie apart do it. Not with a residual, which would be
 * added by a step of its own. */
static bool is_own_conv(const mp_graph *graph, const mp_vertex *v) {
    const mp_tensor *w = is_conv(v) ? mp_graph_constant(graph, mp_vertex_in(v, W)) : NULL;
    return w != NULL && w->shape.rank >= 3 && mp_vertex_in(v, RESIDUAL) == MP_NO_VALUE &&
           ((mp_vertex_is_of_pixels(v, &w->shape) && w->shape.dim[1] >= CHANNELS_MIN) ||
            is_of_channels(v, &w->shape));
}

/* Whether a step of ours computes the activation behind a library's convolution, and so may write
 * anywhere. cuDNN has these, and Silu, with which it is slower than without. */
static bool has_own_step(const mp_vertex *v) {
    static const char *const others[] = {"", "Relu", "LeakyRelu", "Clip", "Sigmoid", "Gelu"};
    const char *name = is_conv(v) ? mp_node_string(&v->node, "activation", "") : "";
    bool is_own = true;
    for (size_t i = 0; i < MP_COUNT_OF(others); i++) {
        is_own = is_own && strcmp(name, others[i]) != 0;
    }
    return is_own;
}

static bool is_pool(const mp_vertex *v) {
    const mp_op *op = v->node.op;
    return (strcmp(op->name, "MaxPool") == 0 || strcmp(op->name, "AveragePool") == 0) &&
           strcmp(op->domain, MP_NHWC_DOMAIN) == 0 && v->out_count == 1;
}

/* Whether it makes pixels of pixels, as far as is known. */
static bool is_resize(const mp_graph *graph, const mp_vertex *v) {
    return mp_vertex_is(v, "Resize") && mp_node_int(&v->node, "antialias", 0) == 0 &&
           mp_graph_dim(graph, v->out[0], -1) > 0 &&
           mp_graph_dim(graph, v->out[0], -1) == mp_graph_dim(graph, v->in[X], -1);
}

static bool is_of_images(const mp_graph *graph, const mp_vertex *v) {
    return is_own_conv(graph, v) || is_pool(v) || is_resize(graph, v);
}

/* ---- what is known of an image ---- */

static mp_dtype type_of(const mp_graph *graph, int32_t value) {
    mp_dtype type = MP_NONE;
    for (int left = LOOKED_AT; left > 0 && value != MP_NO_VALUE && type == MP_NONE; left--) {
        const int32_t n = graph->values[value].producer;
        const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
        type = mp_graph_type(graph, value);
        value = v != NULL ? mp_vertex_in(v, is_conv(v) ? W : X) : MP_NO_VALUE;
    }
    return type;
}

static int64_t split_size(const mp_graph *graph, const mp_vertex *v, int32_t value, int64_t all) {
    int64_t sizes[MP_RANK_MAX];
    int count = 0;
    const bool listed = mp_graph_ints(graph, v, "split", 1, sizes, &count);
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] == value && listed) {
            return i < count ? sizes[i] : 0;
        }
    }
    return mp_vertex_in(v, 1) == MP_NO_VALUE && all % v->out_count == 0 ? all / v->out_count : 0;
}

/* Channels of a value; 0 where it is not known. */
static int64_t row_of(const mp_graph *graph, int32_t value, int *left) {
    const int32_t n = value != MP_NO_VALUE ? graph->values[value].producer : MP_NO_NODE;
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    const int64_t known = value != MP_NO_VALUE ? mp_graph_dim(graph, value, -1) : 0;
    mp_cut cut;
    if (known > 0 || v == NULL || (*left)-- <= 0) {
        return MP_MAX(known, 0);
    }
    if (is_conv(v)) {
        const mp_tensor *w = mp_graph_constant(graph, mp_vertex_in(v, W));
        return w != NULL && w->shape.rank >= 3 ? w->shape.dim[0] : 0;
    }
    if (mp_vertex_keeps_shape(v) || is_pool(v)) {
        return row_of(graph, mp_vertex_in(v, X), left);
    }
    if (mp_vertex_is(v, "Slice") && mp_cut_read(graph, value, &cut) &&
        cut.axis == mp_graph_rank(graph, cut.of) - 1) {
        return MP_MIN(cut.end, row_of(graph, cut.of, left)) - cut.start;
    }
    if (mp_vertex_is(v, "Split") && is_last(graph, n, mp_vertex_in(v, X))) {
        return split_size(graph, v, value, row_of(graph, v->in[X], left));
    }
    int64_t sum = 0;
    for (int i = 0; mp_vertex_is(v, "Concat") && i < v->in_count; i++) {
        const int64_t own = row_of(graph, v->in[i], left);
        if (own < 1 || !is_last(graph, n, value) || __builtin_add_overflow(sum, own, &sum)) {
            return 0;
        }
    }
    return sum;
}

static int64_t channels_of(const mp_graph *graph, int32_t value) {
    int left = LOOKED_AT;
    return row_of(graph, value, &left);
}

/* ---- who reads and makes it ---- */

/* Whether node `n` reads `value` as its input `i` wherever that lies. */
static bool reads_apart(const mp_graph *graph, int32_t n, int i, int32_t value) {
    const mp_vertex *v = &graph->nodes[n];
    if (v->node.op->express != NULL) { /* a cluster, if it is but a node */
        return graph->has_clusters && v->out_count == 1;
    }
    if (!mp_op_apart_in(v->node.op, (size_t)i) || v->loop != NULL) {
        return false;
    }
    const bool cuts = mp_vertex_is(v, "Split") || mp_vertex_is(v, "Concat");
    return cuts                       ? is_last(graph, n, value)
           : mp_vertex_is(v, "Slice") ? true
                                      : is_of_images(graph, v);
}

static bool all_read_apart(const mp_graph *graph, int32_t value) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !v->is_gone; i++) {
            if (v->in[i] == value && !reads_apart(graph, n, i, value)) {
                return false;
            }
        }
    }
    return true;
}

/* Whether node `n` makes `value` wherever that is to lie. */
static bool makes_apart(const mp_graph *graph, int32_t n) {
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->node.op->express != NULL) {
        return v != NULL && graph->has_clusters && v->out_count == 1;
    }
    return v->loop == NULL && mp_op_apart_out(v->node.op, 0) &&
           (is_of_images(graph, v) || has_own_step(v) ||
            (mp_vertex_is(v, "Concat") && is_last(graph, n, v->out[0])));
}

/* ---- where ---- */

/* Whether rows of the part are whole packs, at whole packs of the rows of the whole. */
static bool is_even(const mp_graph *graph, const place *p) {
    const mp_dtype type = type_of(graph, p->part);
    const int64_t size = type != MP_NONE ? (int64_t)mp_dtype_size(type) : 0;
    const int64_t own = channels_of(graph, p->part), all = channels_of(graph, p->whole);
    const int rank = mp_graph_rank(graph, p->part);
    if (size == 0 || own < 1 || all < 1 || rank < 2 || rank != mp_graph_rank(graph, p->whole) ||
        type != type_of(graph, p->whole)) {
        return false;
    }
    const int64_t pack = PACK_BYTES / size;
    return pack > 0 && own % pack == 0 && all % pack == 0 && p->first % pack == 0 &&
           p->first >= 0 && p->first <= all - own;
}

static bool may_lie(const mp_graph *graph, const place *p) {
    const int32_t maker = graph->values[p->part].producer;
    const int32_t other = graph->values[p->whole].producer;
    return maker != MP_NO_NODE && other != MP_NO_NODE && graph->values[p->part].within == 0 &&
           !mp_graph_is_output(graph, p->part) && !mp_graph_is_condition(graph, p->part) &&
           mp_graph_same_guard(graph, maker, other) && graph->nodes[other].loop == NULL &&
           is_even(graph, p) && all_read_apart(graph, p->part);
}

static void lay(mp_graph *graph, const place *p, mp_rewrites *rewrites) {
    if (may_lie(graph, p) && mp_rewrite_allowed(rewrites)) {
        graph->values[p->part].within = 1 + p->whole;
        graph->values[p->part].within_first = p->first;
        graph->values[p->part].within_row = channels_of(graph, p->whole);
    }
}

/* ---- of which nodes ---- */

static void lay_inputs(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex *v = &graph->nodes[n];
    place p = {.whole = v->out[0]};
    for (int i = 0; i < v->in_count && p.first >= 0 && is_last(graph, n, v->out[0]); i++) {
        const int64_t own = channels_of(graph, v->in[i]);
        p.part = v->in[i];
        if (own > 0 && makes_apart(graph, graph->values[p.part].producer)) {
            lay(graph, &p, rewrites);
        }
        p.first = own > 0 ? p.first + own : -1; /* where the next one begins is not known */
    }
}

static void lay_outputs(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex *v = &graph->nodes[n];
    place p = {.whole = mp_vertex_in(v, X)};
    for (int i = 0; i < v->out_count && p.first >= 0 && is_last(graph, n, p.whole); i++) {
        const int64_t own = channels_of(graph, v->out[i]);
        p.part = v->out[i];
        if (own > 0) {
            lay(graph, &p, rewrites);
        }
        p.first = own > 0 ? p.first + own : -1;
    }
}

static void lay_slice(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex *v = &graph->nodes[n];
    mp_cut cut;
    if (!mp_op_apart_out(v->node.op, 0) || !mp_cut_read(graph, v->out[0], &cut) || cut.start < 0 ||
        cut.axis != mp_graph_rank(graph, cut.of) - 1) {
        return;
    }
    const place p = {.part = v->out[0], .whole = cut.of, .first = cut.start};
    lay(graph, &p, rewrites);
}

/* ---- a Concat of what another one has put together ---- */

/* Whether the inputs of the Concat `n` begin with those of `other`, an earlier one. */
static bool begins_with(const mp_graph *graph, int32_t n, int32_t other) {
    const mp_vertex *v = &graph->nodes[n], *first = &graph->nodes[other];
    bool same = mp_vertex_is(first, "Concat") && first->in_count > 1 &&
                first->in_count < v->in_count && mp_graph_same_guard(graph, n, other) &&
                mp_node_int(&v->node, "axis", 0) == mp_node_int(&first->node, "axis", 0);
    for (int i = 0; same && i < first->in_count; i++) {
        same = v->in[i] == first->in[i];
    }
    return same;
}

/* DenseNet puts together in each layer all that was made before: one channel more each time. */
static mp_status nest(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    enum { INPUTS_MAX = 256 };
    const mp_vertex v = graph->nodes[n];
    int32_t in[INPUTS_MAX], longest = MP_NO_NODE;
    for (int32_t other = 0; other < n && v.in_count <= INPUTS_MAX; other++) {
        if (begins_with(graph, n, other) &&
            (longest == MP_NO_NODE ||
             graph->nodes[other].in_count > graph->nodes[longest].in_count)) {
            longest = other;
        }
    }
    if (longest == MP_NO_NODE || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    const int32_t whole = graph->nodes[longest].out[0];
    const int skipped = graph->nodes[longest].in_count;
    const mp_node node = v.node;
    in[0] = whole;
    for (int i = skipped; i < v.in_count; i++) {
        in[1 + i - skipped] = v.in[i];
    }
    return mp_graph_change_node(graph, n, &node, in, 1 + v.in_count - skipped, v.out, 1);
}

static mp_status nest_all(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = graph->node_count - 1; n >= 0; n--) { /* the longest first */
        const mp_vertex *v = &graph->nodes[n];
        if (mp_vertex_is(v, "Concat") && is_last(graph, n, v->out[0])) {
            MP_TRY(nest(graph, n, rewrites));
        }
    }
    return MP_OK;
}

mp_status mp_pass_rows_within(mp_graph *graph, mp_rewrites *rewrites) {
    graph->lays_within = graph->prefers_last || rewrites->forced;
    if (!graph->lays_within) {
        return MP_OK;
    }
    MP_TRY(nest_all(graph, rewrites));
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (mp_vertex_is(v, "Concat")) {
            lay_inputs(graph, n, rewrites);
        } else if (mp_vertex_is(v, "Split")) {
            lay_outputs(graph, n, rewrites);
        } else if (mp_vertex_is(v, "Slice")) {
            lay_slice(graph, n, rewrites);
        }
    }
    return MP_OK;
}
