/* channel_slots.c - see channel_slots.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channel_slots.h"

#include "graph/look.h"
#include "graph/pass/channel_copies.h"
#include "op/core/channels.h"
#include "op/core/host_float.h"

#include <string.h>

enum { X, W, BIAS, RESIDUAL, CONV_INPUTS };

static bool is_in(const mp_vertex *v, const char *domain, const char *name) {
    return strcmp(v->node.op->domain, domain) == 0 && strcmp(v->node.op->name, name) == 0;
}

/* ---- inputs ---- */

static bool is_kept(const mp_graph *graph, int32_t value) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    return t != NULL && t->data != 0;
}

/* Whether the constant has one dimension, and so many elements. */
static bool is_row(const mp_graph *graph, int32_t value, int64_t count) {
    return is_kept(graph, value) && graph->values[value].tensor.shape.rank == 1 &&
           graph->values[value].tensor.shape.dim[0] == count;
}

/* Whether a value has the channels that the result has, and is stored as that is. */
static bool has_same(const mp_graph *graph, const mp_vertex *v, int32_t value) {
    const int64_t channels = mp_graph_dim(graph, v->out[0], -1);
    return channels > 0 && mp_graph_dim(graph, value, -1) == channels &&
           mp_graph_rank(graph, value) == mp_graph_rank(graph, v->out[0]) &&
           mp_channels_stored(graph, value) == mp_channels_stored(graph, v->out[0]);
}

/* What is broadcast to the result. */
static bool broadcast_slot(const mp_graph *graph, const mp_vertex *v, int32_t value,
                           mp_channel_slot *slot) {
    const bool is_scalar = value == MP_NO_VALUE || mp_graph_rank(graph, value) == 0;
    *slot = MP_SLOT_PLAIN;
    if (is_scalar || mp_graph_dim(graph, value, -1) == 1) {
        return true;
    }
    *slot = graph->values[value].is_constant ? MP_SLOT_LAST : MP_SLOT_SAME;
    return *slot == MP_SLOT_LAST ? is_kept(graph, value) && mp_graph_dim(graph, value, -1) ==
                                                                mp_graph_dim(graph, v->out[0], -1)
                                 : has_same(graph, v, value);
}

/* Element `i` of a constant list. */
static bool kept_element(const mp_tensor *t, int64_t i, double *out) {
    if (t->shape.rank != 1 || i < 0 || i >= t->shape.dim[0] ||
        (t->type != MP_I64 && t->type != MP_F32)) {
        return false;
    }
    *out = t->type == MP_I64 ? (double)((const int64_t *)t->data)[i] : mp_host_float(t, i);
    return true;
}

/* Element `i` of a list that is a constant, or made of some, also where others are not known. */
static bool element(const mp_graph *graph, int32_t list, int64_t i, double *out) {
    int32_t n = mp_graph_maker(graph, list, "Gather");
    while (n != MP_NO_NODE) {
        const mp_vertex *v = &graph->nodes[n];
        double at = 0;
        if (!is_kept(graph, v->in[1]) || graph->values[v->in[1]].tensor.type != MP_I64 ||
            !kept_element(&graph->values[v->in[1]].tensor, i, &at)) {
            return false;
        }
        i = (int64_t)at;
        list = v->in[0];
        n = mp_graph_maker(graph, list, "Gather");
    }
    if (is_kept(graph, list)) {
        return kept_element(&graph->values[list].tensor, i, out);
    }
    *out = i >= 0 && i < MP_RANK_MAX ? (double)mp_graph_entry(graph, list, (int)i) : -1;
    return *out >= 0;
}

/* ---- convolutions ---- */

static const mp_tensor *weights_of(const mp_graph *graph, const mp_vertex *v) {
    return &graph->values[v->in[W]].tensor;
}

/* Whether a library is spared it: an image with channels first and few of them, which a kernel of
 * ours reads. */
static bool is_stem(const mp_vertex *v) {
    return is_in(v, MP_OWN_DOMAIN, "StemConv");
}

static bool is_transposed(const mp_vertex *v) {
    return is_in(v, MP_NHWC_DOMAIN, "ConvTranspose");
}

static bool is_conv(const mp_vertex *v) {
    return v->in_count > W && v->in[W] != MP_NO_VALUE &&
           (is_in(v, MP_NHWC_DOMAIN, "Conv") || is_in(v, MP_OWN_NHWC_DOMAIN, "FusedConv") ||
            is_stem(v) || is_transposed(v));
}

bool mp_is_channel_alone(const mp_graph *graph, const mp_vertex *v) {
    const mp_shape *w = is_conv(v) ? &weights_of(graph, v)->shape : NULL;
    return w != NULL && !is_transposed(v) && w->rank > 2 && w->dim[1] == 1 &&
           mp_node_int(&v->node, "group", 1) == w->dim[0] && w->dim[0] > 1;
}

/* Whether the kernel of ours takes it with as many channels as will be stored. */
static bool takes_stored(const mp_graph *graph, const mp_vertex *v) {
    const int64_t stored = mp_channels_stored(graph, v->out[0]);
    mp_tensor in[] = {graph->values[v->in[X]].tensor, *weights_of(graph, v)};
    const mp_planner known = {.node = &v->node, .in = in, .in_count = MP_COUNT_OF(in)};
    in[W].shape.dim[0] = stored > 0 ? stored : in[W].shape.dim[0];
    return v->node.op->accept(&known) == MP_OK;
}

static bool conv_slots(const mp_graph *graph, const mp_vertex *v, mp_channel_slot *slots) {
    const bool turned = is_transposed(v), alone = mp_is_channel_alone(graph, v);
    const int32_t bias = mp_vertex_in(v, BIAS), residual = mp_vertex_in(v, RESIDUAL);
    const mp_shape *w = &weights_of(graph, v)->shape;
    if (!is_kept(graph, v->in[W]) || w->rank < 3 || v->in_count > CONV_INPUTS ||
        (!alone && mp_node_int(&v->node, "group", 1) != 1)) {
        return false;
    }
    const int64_t channels = w->dim[turned ? 1 : 0];
    slots[X] = alone ? MP_SLOT_SAME : is_stem(v) ? MP_SLOT_PLAIN : MP_SLOT_MIXED;
    slots[W] = alone ? MP_SLOT_FIRST : turned ? MP_SLOT_TURNED : MP_SLOT_WEIGHTS;
    slots[BIAS] = bias != MP_NO_VALUE ? MP_SLOT_FIRST : MP_SLOT_PLAIN;
    return mp_graph_dim(graph, v->out[0], -1) == channels &&
           (is_stem(v) || mp_graph_dim(graph, v->in[X], -1) == w->dim[turned || alone ? 0 : 1]) &&
           (bias == MP_NO_VALUE || is_row(graph, bias, channels)) &&
           (!alone || has_same(graph, v, v->in[X])) && (!is_stem(v) || takes_stored(graph, v)) &&
           (residual == MP_NO_VALUE || (!graph->values[residual].is_constant &&
                                        broadcast_slot(graph, v, residual, &slots[RESIDUAL])));
}

bool mp_gains_by_packs(const mp_graph *graph, const mp_vertex *v) {
    bool one = true;
    for (int d = 1; is_conv(v) && d < mp_graph_rank(graph, v->out[0]) - 1; d++) {
        one = one && mp_graph_dim(graph, v->in[X], d) == 1;
    }
    return !one && !is_stem(v) && !mp_is_channel_alone(graph, v);
}

/* ---- each channel alone ---- */

static bool is_pool(const mp_vertex *v) {
    static const char *const names[] = {"MaxPool", "AveragePool", "GlobalAveragePool",
                                        "GlobalMaxPool"};
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        if (is_in(v, MP_NHWC_DOMAIN, names[i])) {
            return v->in_count == 1;
        }
    }
    return false;
}

static bool norm_slots(const mp_graph *graph, const mp_vertex *v, mp_channel_slot *slots) {
    slots[X] = MP_SLOT_SAME;
    for (int i = 1; i < v->in_count; i++) {
        slots[i] = MP_SLOT_FIRST;
        if (v->in[i] == MP_NO_VALUE ||
            !is_row(graph, v->in[i], mp_graph_dim(graph, v->out[0], -1))) {
            return false;
        }
    }
    return has_same(graph, v, v->in[X]);
}

/* Sizes or scales of all dimensions, of which the channels keep theirs. */
static bool keeps_size(const mp_graph *graph, const mp_vertex *v) {
    enum { SCALES = 2, SIZES };
    const int32_t sizes = mp_vertex_in(v, SIZES), scales = mp_vertex_in(v, SCALES);
    const int last = mp_graph_rank(graph, v->in[X]) - 1;
    const int64_t channels = mp_graph_dim(graph, v->in[X], -1);
    double number = 0;
    if (last < 0 || v->node.version < 11 || mp_node_attr(&v->node, "axes") != NULL) {
        return false;
    }
    return sizes == MP_NO_VALUE
               ? scales != MP_NO_VALUE && element(graph, scales, last, &number) && number == 1
           : element(graph, sizes, last, &number) ? number == (double)channels
                                                  : mp_graph_dim(graph, v->out[0], -1) == channels;
}

static bool resize_slots(const mp_graph *graph, const mp_vertex *v, mp_channel_slot *slots) {
    enum { SIZES = 3 };
    const int32_t sizes = mp_vertex_in(v, SIZES);
    slots[X] = MP_SLOT_SAME;
    slots[SIZES] = sizes != MP_NO_VALUE ? MP_SLOT_SIZES : MP_SLOT_PLAIN;
    return keeps_size(graph, v) && has_same(graph, v, v->in[X]) &&
           (sizes == MP_NO_VALUE || mp_graph_is_planned(graph, sizes)) &&
           strcmp(mp_node_string(&v->node, "coordinate_transformation_mode", ""),
                  "tf_crop_and_resize") != 0 &&
           strcmp(mp_node_string(&v->node, "keep_aspect_ratio_policy", "stretch"), "stretch") == 0;
}

/* Padding of all dimensions, of which the channels have none. */
static bool keeps_ends(const mp_graph *graph, const mp_vertex *v) {
    enum { PADS = 1, VALUE, AXES };
    const int rank = mp_graph_rank(graph, v->in[X]);
    double begin = 0, end = 0;
    return v->node.version >= 11 && mp_vertex_in(v, AXES) == MP_NO_VALUE && rank > 0 &&
           element(graph, v->in[PADS], rank - 1, &begin) &&
           element(graph, v->in[PADS], 2 * rank - 1, &end) && begin == 0 && end == 0;
}

/* Whether only channels are added, behind those that there are, each of the same number. */
static bool adds_channels(const mp_graph *graph, const mp_vertex *v) {
    enum { PADS = 1, VALUE, AXES };
    const int rank = mp_graph_rank(graph, v->in[X]);
    const int32_t value = mp_vertex_in(v, VALUE);
    double pad = 0;
    if (v->node.version < 11 || mp_vertex_in(v, AXES) != MP_NO_VALUE || rank < 1 ||
        strcmp(mp_node_string(&v->node, "mode", "constant"), "constant") != 0 ||
        (value != MP_NO_VALUE &&
         (!is_kept(graph, value) || mp_shape_count(&graph->values[value].tensor.shape) != 1))) {
        return false;
    }
    for (int d = 0; d < 2 * rank; d++) {
        if (!element(graph, v->in[PADS], d, &pad) || (d + 1 < 2 * rank ? pad != 0 : pad <= 0)) {
            return false;
        }
    }
    return mp_graph_dim(graph, v->in[X], -1) > 0;
}

static bool pad_slots(const mp_graph *graph, const mp_vertex *v, mp_channel_slot *slots) {
    slots[X] = MP_SLOT_SAME;
    if (keeps_ends(graph, v)) {
        return has_same(graph, v, v->in[X]);
    }
    slots[X] = MP_SLOT_KEPT;
    return adds_channels(graph, v);
}

static bool elementwise_slots(const mp_graph *graph, const mp_vertex *v, mp_channel_slot *slots) {
    for (int i = 0; i < v->in_count; i++) {
        if (!broadcast_slot(graph, v, v->in[i], &slots[i])) {
            return false;
        }
    }
    return true;
}

/* Whether it puts the channels of images side by side. */
static bool joins_channels(const mp_graph *graph, const mp_vertex *v) {
    const int64_t axis = mp_node_int(&v->node, "axis", 0);
    return mp_vertex_is(v, "Concat") && (axis == -1 || axis == mp_graph_rank(graph, v->in[0]) - 1);
}

static bool concat_slots(const mp_graph *graph, const mp_vertex *v, mp_channel_slot *slots) {
    for (int i = 0; i < v->in_count; i++) {
        slots[i] = MP_SLOT_PART;
    }
    return joins_channels(graph, v);
}

/* ---- what it makes ---- */

static bool is_norm(const mp_vertex *v) {
    return is_in(v, MP_NHWC_DOMAIN, "BatchNormalization");
}

/* Whether the result has the type, the dimensions and the channels of X. */
static bool is_like_x(const mp_graph *graph, const mp_vertex *v) {
    return is_pool(v) || is_norm(v) || (mp_vertex_is(v, "Resize") && keeps_size(graph, v)) ||
           (mp_vertex_is(v, "Pad") && keeps_ends(graph, v));
}

/* Of all parts of a Concat; MP_DIM_UNKNOWN. */
static int64_t channels_of_parts(const mp_graph *graph, const mp_vertex *v) {
    int64_t sum = 0;
    for (int i = 0; i < v->in_count; i++) {
        const int64_t part = mp_graph_dim(graph, v->in[i], -1);
        if (part < 0 || __builtin_add_overflow(sum, part, &sum)) {
            return MP_DIM_UNKNOWN;
        }
    }
    return sum;
}

/* Of a Pad that adds some; MP_DIM_UNKNOWN. */
static int64_t channels_with_more(const mp_graph *graph, const mp_vertex *v) {
    const int64_t channels = mp_graph_dim(graph, v->in[X], -1);
    double more = 0;
    return element(graph, v->in[1], 2 * mp_graph_rank(graph, v->in[X]) - 1, &more) &&
                   more + (double)channels <= INT32_MAX
               ? channels + (int64_t)more
               : MP_DIM_UNKNOWN;
}

/* The type, rank and last dimension of what is made, as far as the node says. */
static mp_tensor made_by(const mp_graph *graph, const mp_vertex *v) {
    const bool adds = mp_vertex_is(v, "Pad") && adds_channels(graph, v);
    const int32_t like = adds || is_like_x(graph, v) ? v->in[X] : v->out[0];
    mp_tensor made = {.type = mp_graph_type(graph, like),
                      .shape = {.rank = mp_graph_rank(graph, like)}};
    int64_t channels = joins_channels(graph, v) ? channels_of_parts(graph, v)
                       : adds                   ? channels_with_more(graph, v)
                                                : mp_graph_dim(graph, like, -1);
    if (is_conv(v) && weights_of(graph, v)->shape.rank > 2) {
        const mp_tensor *w = weights_of(graph, v);
        made.type = w->type;
        made.shape.rank = w->shape.rank;
        channels = w->shape.dim[is_transposed(v) ? 1 : 0];
    }
    const bool one = is_pool(v) && strncmp(v->node.op->name, "Global", strlen("Global")) == 0;
    for (int d = 0; d < made.shape.rank; d++) {
        made.shape.dim[d] = d + 1 == made.shape.rank ? channels : one && d > 0 ? 1 : MP_DIM_UNKNOWN;
    }
    return made;
}

void mp_channels_name(mp_graph *graph, const mp_vertex *v) {
    if (v->is_gone || v->loop != NULL || v->out_count != 1 || v->out[0] == MP_NO_VALUE ||
        v->in_count < 1 || v->in[X] == MP_NO_VALUE) {
        return;
    }
    const mp_tensor found = made_by(graph, v);
    mp_tensor *made = &graph->values[v->out[0]].tensor;
    const int last = found.shape.rank - 1;
    if (found.shape.rank < 3) {
        return;
    }
    made->type = made->type == MP_NONE ? found.type : made->type;
    if (made->shape.rank < 0) {
        made->shape = found.shape;
    } else if (made->shape.rank == last + 1 && made->shape.dim[last] < 0) {
        made->shape.dim[last] = found.shape.dim[last];
    }
}

/* Whether it gives all dimensions. */
static bool is_shape(const mp_vertex *v) {
    return mp_vertex_is(v, "Shape") && mp_node_int(&v->node, "start", 0) == 0 &&
           mp_node_attr(&v->node, "end") == NULL;
}

bool mp_channel_slots(const mp_graph *graph, const mp_vertex *v, mp_channel_slot *slots) {
    if (v->is_gone || v->guard != 0 || v->loop != NULL || v->out_count != 1 ||
        v->out[0] == MP_NO_VALUE || v->in_count < 1 || v->in_count > MP_CHANNEL_SLOTS_MAX ||
        v->in[0] == MP_NO_VALUE) {
        return false;
    }
    for (int i = 0; i < MP_CHANNEL_SLOTS_MAX; i++) {
        slots[i] = MP_SLOT_PLAIN;
    }
    if (is_shape(v)) {
        slots[X] = MP_SLOT_SHAPE;
        return true;
    }
    if (mp_graph_rank(graph, v->out[0]) < 3) {
        return false;
    }
    if (is_conv(v)) {
        return conv_slots(graph, v, slots);
    }
    if (is_pool(v)) {
        slots[X] = MP_SLOT_SAME;
        return has_same(graph, v, v->in[X]);
    }
    if (is_norm(v)) {
        return norm_slots(graph, v, slots);
    }
    return mp_vertex_is(v, "Resize") ? resize_slots(graph, v, slots)
           : mp_vertex_is(v, "Pad")  ? pad_slots(graph, v, slots)
           : mp_vertex_is(v, "Concat")
               ? concat_slots(graph, v, slots)
               : v->node.op->express != NULL && elementwise_slots(graph, v, slots);
}
