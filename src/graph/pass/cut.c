/* cut.c - see cut.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/cut.h"

#include "graph/look.h"
#include "graph/pass/left_dims.h"

static bool read_steps(const mp_graph *graph, int32_t value, mp_cut *out, int64_t *by) {
    const int32_t n = mp_graph_maker(graph, value, "Slice");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    int64_t start[MP_RANK_MAX], end[MP_RANK_MAX], axis[MP_RANK_MAX] = {0}, step[MP_RANK_MAX];
    int starts = 0, ends = 0, axes = 1, steps = 1;
    step[0] = 1;
    if (v == NULL || !mp_graph_ints(graph, v, "starts", 1, start, &starts) ||
        !mp_graph_ints(graph, v, "ends", 2, end, &ends) || starts != 1 || ends != 1) {
        return false;
    }
    const bool has_axes =
        mp_node_attr(&v->node, "axes") != NULL || mp_vertex_in(v, 3) != MP_NO_VALUE;
    if ((has_axes && !mp_graph_ints(graph, v, "axes", 3, axis, &axes)) || axes != 1 ||
        (mp_vertex_in(v, 4) != MP_NO_VALUE && !mp_graph_ints(graph, v, "", 4, step, &steps)) ||
        steps != 1) {
        return false;
    }
    *by = step[0];
    const int rank = mp_graph_rank(graph, v->in[0]);
    *out = (mp_cut){v->in[0], axis[0] < 0 ? axis[0] + rank : axis[0], start[0], end[0]};
    return rank > 0 && out->axis >= 0 && out->axis < rank;
}

bool mp_cut_read(const mp_graph *graph, int32_t value, mp_cut *out) {
    int64_t by = 0;
    return read_steps(graph, value, out, &by) && by == 1;
}

bool mp_cut_read_piece(const mp_graph *graph, int32_t value, mp_cut *out) {
    const int32_t n = mp_graph_maker(graph, value, "Split");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL) {
        return mp_cut_read(graph, value, out);
    }
    const int rank = mp_graph_rank(graph, v->in[0]);
    const int64_t axis = mp_node_int(&v->node, "axis", 0);
    *out = (mp_cut){.of = v->in[0], .axis = axis < 0 ? axis + rank : axis};
    if (rank <= 0 || out->axis < 0 || out->axis >= rank) {
        return false;
    }
    for (int i = 0; i < v->out_count; i++) {
        const int64_t size = mp_dim_of_split(graph, v, i, (int)out->axis);
        out->start = out->end;
        out->end = i < v->out_count - 1 ? out->start + size : INT64_MAX;
        if (size <= 0 || v->out[i] == value) {
            return size > 0;
        }
    }
    return false;
}

bool mp_cut_is_every_second(const mp_graph *graph, int32_t value, bool odd, int32_t *x) {
    mp_cut cut;
    int64_t by = 0;
    if (!read_steps(graph, value, &cut, &by) || by != 2 ||
        cut.axis != mp_graph_rank(graph, cut.of) - 1 || cut.start != (odd ? 1 : 0)) {
        return false;
    }
    const int64_t size = mp_graph_dim(graph, cut.of, -1);
    *x = cut.of;
    return size > 0 && size % 2 == 0 && cut.end >= size;
}

bool mp_cut_is_half(const mp_graph *graph, int32_t value, bool second, int32_t *x, int64_t *size) {
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL) {
        return false;
    }
    *x = v->in[0];
    *size = mp_graph_dim(graph, *x, -1);
    if (*size < 2 || *size % 2 != 0) {
        return false;
    }
    const int rank = mp_graph_rank(graph, *x);
    if (mp_vertex_is(v, "Split")) {
        const int64_t axis = mp_node_int(&v->node, "axis", 0);
        return v->out_count == 2 && v->out[second ? 1 : 0] == value &&
               (axis == -1 || axis == rank - 1) && mp_graph_dim(graph, value, -1) == *size / 2;
    }
    mp_cut cut;
    if (!mp_cut_read(graph, value, &cut) || cut.axis != rank - 1) {
        return false;
    }
    const int64_t start = cut.start < 0 ? cut.start + *size : cut.start;
    const int64_t end = cut.end < 0 ? cut.end + *size : cut.end;
    return second ? start == *size / 2 && end >= *size : start == 0 && end == *size / 2;
}
