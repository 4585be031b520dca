/* channel_copies.c - see channel_copies.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/channel_copies.h"

#include "graph/look.h"
#include "graph/pass/add_view.h"
#include "op/core/host_float.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PACK_BYTES = 16 }; /* that tensor cores and copies load at once */

int64_t mp_channel_at(const mp_channel_map *map, int64_t i) {
    return i < map->count ? i : map->first + (i - map->count) % map->period;
}

/* Libraries bring images, and the weights, into whole packs by kernels of their own in each run, so
 * that no more than these would move is lost by half as many channels again; with more a
 * convolution takes longer than that. */
int64_t mp_channels_stored(const mp_graph *graph, int32_t value) {
    const mp_dtype type = mp_graph_type(graph, value);
    const int rank = mp_graph_rank(graph, value);
    if ((type != MP_F32 && type != MP_F16 && type != MP_BF16) || rank < 3 || rank > 5 ||
        graph->values[value].is_constant) {
        return 0;
    }
    const int64_t pack = PACK_BYTES / (int64_t)mp_dtype_size(type);
    const int64_t count = mp_graph_dim(graph, value, -1);
    const int64_t stored = count > 0 && count <= INT32_MAX ? (count + pack - 1) / pack * pack : 0;
    return stored > count && stored * 2 <= count * 3 ? stored : 0;
}

/* ---- constants ---- */

/* A constant as [outer][channels][inner]. */
typedef struct parts {
    int64_t outer;
    size_t inner; /* bytes */
} parts;

static mp_status add_constant(mp_graph *graph, int32_t constant, int axis,
                              const mp_channel_map *map, int32_t *out, parts *p) {
    const mp_value from = graph->values[constant];
    mp_tensor tensor = from.tensor;
    tensor.data = 0;
    tensor.shape.dim[axis] = map->stored;
    p->outer = mp_shape_span(&tensor.shape, 0, axis);
    p->inner = (size_t)mp_shape_span(&tensor.shape, axis + 1, tensor.shape.rank) *
               mp_dtype_size(tensor.type);
    return mp_graph_add_constant(graph, from.name, &tensor, out);
}

mp_status mp_channels_copy(mp_graph *graph, int32_t constant, int axis, const mp_channel_map *map,
                           int32_t *out) {
    parts p;
    MP_TRY(add_constant(graph, constant, axis, map, out, &p));
    const unsigned char *from = (const unsigned char *)graph->values[constant].tensor.data;
    unsigned char *to = (unsigned char *)graph->values[*out].tensor.data;
    for (int64_t o = 0; o < p.outer; o++) {
        for (int64_t i = 0; i < map->stored; i++) {
            memcpy(to + (size_t)(o * map->stored + i) * p.inner,
                   from + (size_t)(o * map->count + mp_channel_at(map, i)) * p.inner, p.inner);
        }
    }
    return MP_OK;
}

static void put(const mp_tensor *t, int64_t i, double number) {
    if (t->type == MP_F32) {
        ((float *)t->data)[i] = (float)number;
    } else {
        ((uint16_t *)t->data)[i] =
            t->type == MP_F16 ? mp_to_f16((float)number) : mp_to_bf16((float)number);
    }
}

/* Half of element `from` goes to element `to`. What is left is a number of the type, too, also
 * where half of it is rounded. */
static void share(const mp_tensor *t, int64_t from, int64_t to) {
    const double whole = mp_host_float(t, from);
    put(t, to, whole / 2);
    put(t, from, isfinite(whole) ? whole - mp_host_float(t, to) : whole);
}

mp_status mp_channels_share(mp_graph *graph, int32_t weights, int axis, const mp_channel_map *map,
                            int32_t *out) {
    parts p;
    MP_TRY(mp_channels_copy(graph, weights, axis, map, out));
    const mp_tensor *t = &graph->values[*out].tensor;
    const int64_t inner = mp_shape_span(&t->shape, axis + 1, t->shape.rank);
    p.outer = mp_shape_span(&t->shape, 0, axis);
    for (int64_t o = 0; o < p.outer; o++) {
        for (int64_t i = map->count; i < map->stored; i++) {
            const int64_t from = (o * map->stored + mp_channel_at(map, i)) * inner;
            const int64_t to = (o * map->stored + i) * inner;
            for (int64_t k = 0; k < inner; k++) {
                share(t, from + k, to + k);
            }
        }
    }
    return MP_OK;
}

/* ---- images ---- */

mp_status mp_channels_add(mp_graph *graph, int32_t image, const mp_channel_map *map,
                          int32_t stored) {
    const mp_attr axis = {
        .name = "axis", .kind = MP_ATTR_INT, .i = mp_graph_rank(graph, image) - 1};
    const mp_node node = {.op = mp_op_find("", "Gather", 13),
                          .version = 13,
                          .name = graph->values[image].name,
                          .attrs = &axis,
                          .attr_count = 1};
    const mp_tensor list = {.type = MP_I64, .shape = {.rank = 1, .dim = {map->stored}}};
    int32_t in[] = {image, MP_NO_VALUE};
    MP_TRY(mp_graph_add_constant(graph, "", &list, &in[1]));
    int64_t *indices = (int64_t *)graph->values[in[1]].tensor.data;
    for (int64_t i = 0; i < map->stored; i++) {
        indices[i] = mp_channel_at(map, i);
    }
    return mp_graph_add_node(graph, &node, in, MP_COUNT_OF(in), &stored, 1);
}

mp_status mp_channels_cut(mp_graph *graph, int32_t stored, const mp_channel_map *map,
                          int32_t image) {
    const mp_node node = {
        .op = mp_op_find("", "Slice", 13), .version = 13, .name = graph->values[image].name};
    int32_t in[] = {stored, MP_NO_VALUE, MP_NO_VALUE, MP_NO_VALUE};
    MP_TRY(mp_graph_add_number(graph, 0, &in[1]));
    MP_TRY(mp_graph_add_number(graph, map->count, &in[2]));
    MP_TRY(mp_graph_add_number(graph, mp_graph_rank(graph, stored) - 1, &in[3]));
    return mp_graph_add_node(graph, &node, in, MP_COUNT_OF(in), &image, 1);
}
