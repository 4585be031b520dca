/* channels_conv.c - see channels_conv.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channels_conv.h"

#include "graph/look.h"
#include "graph/pass/channels_patches.h"
#include "op/core/channels.h"

#include <string.h>

enum {
    PIXEL_BYTES = 16, /* that tensor cores load at once */
    FEW_MAX = 8,      /* outputs of a channel that op/linear/conv_few.c takes */
    MANY_MIN = 16,    /* channels that a library's tensor cores are filled by */
};

static mp_node with_op(const mp_vertex *v, const mp_op *op) {
    mp_node node = v->node;
    node.op = op;
    return node;
}

const mp_op *mp_last_conv_op(const mp_vertex *v) {
    if (mp_vertex_is(v, "Conv")) {
        return mp_op_find(MP_NHWC_DOMAIN, "Conv", v->node.version);
    }
    return mp_vertex_is_own(v, "FusedConv") ? mp_op_find(MP_OWN_NHWC_DOMAIN, "FusedConv", 1) : NULL;
}

static bool is_depthwise(const mp_vertex *v, const mp_shape *w) {
    return w->dim[1] == 1 && mp_node_int(&v->node, "group", 1) == w->dim[0];
}

/* Whether so few outputs are known to be made of windows that a kernel of ours, which reads planes,
 * takes them one by one. */
static bool is_few(const mp_graph *graph, const mp_vertex *v, const mp_shape *w) {
    int64_t places = 1;
    for (int d = 0; d < w->rank; d++) {
        const int64_t size = d != 1 ? mp_graph_dim(graph, v->out[0], d) : 1;
        places = size > 0 && size <= FEW_MAX ? places * size : FEW_MAX + 1;
        if (places > FEW_MAX) {
            return false;
        }
    }
    return mp_shape_span(w, 2, w->rank) > 1;
}

/* Convolutions for which the order of dimensions matters little, so that to turn the image would
 * take longer than they do: each plane by itself, few outputs, products of single pixels where
 * nothing follows that would be a pass over planes, and windows of floats with gaps, for which
 * cuDNN turns the image for itself, whatever its order. */
static bool takes_planes(const mp_graph *graph, const mp_vertex *v, const mp_shape *w) {
    const int64_t groups = mp_node_int(&v->node, "group", 1);
    const mp_dtype type = graph->values[v->in[1]].tensor.type;
    if (is_depthwise(v, w) || is_few(graph, v, w) ||
        (type == MP_F32 && !mp_node_ints_are(&v->node, "dilations", 1))) {
        return true;
    }
    bool single = mp_vertex_is(v, "Conv") && mp_vertex_in(v, 2) == MP_NO_VALUE && groups == 1;
    for (int d = 2; d < w->rank; d++) {
        single = single && w->dim[d] == 1;
    }
    return single && mp_node_ints_are(&v->node, "strides", 1) &&
           mp_node_ints_are(&v->node, "pads", 0);
}

bool mp_may_last(const mp_layout *l, const mp_vertex *v) {
    const mp_tensor *w = &l->graph->values[v->in[1]].tensor;
    const bool can = l->graph->values[v->in[1]].is_constant && w->shape.rank >= MP_TWIN_RANK_LINE &&
                     w->shape.rank <= MP_TWIN_RANK_VOLUME;
    const bool is_fast =
        w->type == MP_F16 || w->type == MP_BF16 || (w->type == MP_F32 && v->node.options.tf32);
    return can && (is_fast || l->rewrites->forced);
}

bool mp_wants_last(const mp_layout *l, const mp_vertex *v) {
    const mp_tensor *w = &l->graph->values[v->in[1]].tensor;
    if (!mp_may_last(l, v) || l->rewrites->forced) {
        return mp_may_last(l, v);
    }
    /* Libraries take each channel of a volume by itself ten times as long as to turn it. */
    const bool turns = w->shape.rank == MP_TWIN_RANK_VOLUME && is_depthwise(v, &w->shape);
    return (mp_twin_of(l, v->in[0]) != MP_NO_VALUE && !turns) ||
           !takes_planes(l->graph, v, &w->shape);
}

/* Channels that a pixel has when it is loaded at once; 0 where a convolution gains nothing by zeros
 * behind the channels that there are, or others read the image, too. */
static int64_t padded_channels(const mp_layout *l, const mp_vertex *v) {
    const mp_tensor *w = &l->graph->values[v->in[1]].tensor;
    const int64_t all = PIXEL_BYTES / (int64_t)mp_dtype_size(w->type);
    return w->data != 0 && w->type != MP_F64 && w->shape.dim[1] < all && w->shape.dim[1] > 0 &&
                   mp_node_int(&v->node, "group", 1) == 1 &&
                   mp_graph_dim(l->graph, v->in[0], 1) == w->shape.dim[1] &&
                   mp_twin_of(l, v->in[0]) == MP_NO_VALUE && mp_graph_uses(l->graph, v->in[0]) == 1
               ? all
               : 0;
}

/* Zeros for those channels. */
static mp_status pad_weights(mp_layout *l, int32_t weights, int64_t channels, int32_t *out) {
    const mp_value w = l->graph->values[weights];
    mp_tensor tensor = w.tensor;
    tensor.data = 0;
    tensor.shape.dim[1] = channels;
    MP_TRY(mp_graph_add_constant(l->graph, w.name, &tensor, out));
    const size_t inner =
        (size_t)mp_shape_span(&tensor.shape, 2, tensor.shape.rank) * mp_dtype_size(tensor.type);
    const size_t from = (size_t)w.tensor.shape.dim[1] * inner, to = (size_t)channels * inner;
    const unsigned char *source = (const unsigned char *)w.tensor.data;
    unsigned char *target = (unsigned char *)l->graph->values[*out].tensor.data;
    for (int64_t i = 0; i < tensor.shape.dim[0]; i++) {
        memcpy(target + (size_t)i * to, source + (size_t)i * from, from);
    }
    return MP_OK;
}

/* `in`: image and weights, which become those of so many channels. */
static mp_status pad_channels(mp_layout *l, int32_t *in, int64_t channels) {
    const int rank = l->graph->values[in[1]].tensor.shape.rank;
    mp_tensor tensor = mp_twin_tensor(&l->graph->values[in[0]].tensor, rank);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "PadChannels", 1),
                          .version = 1,
                          .name = l->graph->values[in[0]].name};
    const mp_origin itself = {.op = "Transpose", .name = node.name}; /* as where it pads nothing */
    const int32_t x = in[0];
    tensor.type = l->graph->values[in[1]].tensor.type;
    tensor.shape.dim[rank - 1] = channels;
    MP_TRY(mp_graph_add_value(l->graph, node.name, &tensor, &in[0]));
    MP_TRY(mp_graph_add_node(l->graph, &node, &x, 1, &in[0], 1));
    MP_TRY(mp_graph_set_origins(l->graph, l->graph->node_count - 1, (mp_origins){&itself, 1}));
    return pad_weights(l, in[1], channels, &in[1]);
}

/* What a node becomes whose image a kernel of ours reads as it is, so that only the output becomes
 * a twin; without an operator where there is no such kernel. */
static mp_node stem_of(const mp_layout *l, const mp_vertex *v) {
    const mp_tensor in[] = {l->graph->values[v->in[0]].tensor, l->graph->values[v->in[1]].tensor};
    mp_node node = with_op(v, mp_op_find(MP_OWN_DOMAIN, "StemConv", 1));
    const mp_planner known = {.node = &node, .in = in, .in_count = MP_COUNT_OF(in)};
    node.version = 1;
    if (v->in_count > 3 || mp_twin_of(l, v->in[0]) != MP_NO_VALUE || node.op == NULL ||
        node.op->accept(&known) != MP_OK) {
        node.op = NULL;
    }
    return node;
}

mp_status mp_turn_conv(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    const int rank = l->graph->values[v.in[1]].tensor.shape.rank;
    if (mp_is_of_patches(l, &v)) {
        return mp_turn_patches(l, n);
    }
    const mp_node stem = stem_of(l, &v);
    if (stem.op != NULL) {
        return mp_twin_node(l, n, &stem, v.in, v.in_count, rank);
    }
    const mp_node node = with_op(&v, mp_last_conv_op(&v));
    const int64_t channels = padded_channels(l, &v);
    int32_t in[MP_TWIN_WIDTH_MAX];
    memcpy(in, v.in, (size_t)v.in_count * sizeof *in);
    if (channels > 0) {
        MP_TRY(pad_channels(l, in, channels));
    } else {
        MP_TRY(mp_twin_need(l, v.in[0], rank, &in[0]));
    }
    if (v.in_count > 3) {
        MP_TRY(mp_twin_need(l, v.in[3], rank, &in[3]));
    }
    return mp_twin_node(l, n, &node, in, v.in_count, rank);
}

/* ---- transposed ---- */

/* Whether windows lie side by side, so that they are a product and one pass over planes. */
static bool are_apart(const mp_vertex *v, const mp_shape *w) {
    const mp_attr *strides = mp_node_attr(&v->node, "strides");
    bool apart = mp_node_ints_are(&v->node, "pads", 0);
    for (int d = 2; d < w->rank; d++) {
        const size_t i = (size_t)d - 2;
        const int64_t stride = strides != NULL && i < strides->count ? strides->ints[i] : 1;
        apart = apart && w->dim[d] == stride;
    }
    return apart;
}

/* Others are a library's, which turns image, weights and result in each run, where it fills its
 * tensor cores. */
bool mp_begins_last(const mp_layout *l, const mp_vertex *v) {
    if (!mp_vertex_is(v, "ConvTranspose") || v->in_count < 2 || v->out_count != 1 ||
        mp_twin_of(l, v->in[0]) != MP_NO_VALUE || !mp_may_last(l, v)) {
        return false;
    }
    const mp_shape *w = &l->graph->values[v->in[1]].tensor.shape;
    return w->rank == MP_TWIN_RANK_PICTURE &&
           (l->rewrites->forced ||
            (mp_node_int(&v->node, "group", 1) == 1 && mp_node_ints_are(&v->node, "dilations", 1) &&
             w->dim[0] >= MANY_MIN && w->dim[1] >= MANY_MIN && !are_apart(v, w)));
}

mp_status mp_turn_transposed(mp_layout *l, int32_t n) {
    const mp_vertex v = l->graph->nodes[n];
    const mp_node node = with_op(&v, mp_op_find(MP_NHWC_DOMAIN, v.node.op->name, v.node.version));
    int32_t in[MP_TWIN_WIDTH_MAX];
    memcpy(in, v.in, (size_t)v.in_count * sizeof *in);
    MP_TRY(mp_twin_need(l, v.in[0], MP_TWIN_RANK_PICTURE, &in[0]));
    return mp_twin_node(l, n, &node, in, v.in_count, MP_TWIN_RANK_PICTURE);
}
