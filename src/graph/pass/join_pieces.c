/* join_pieces.c - a Concat of pieces of one value that lie side by side in it, and are all of it,
 * reads the value: blocks of detectors cut a result in two, go on with the second half, and put
 * both halves together with what came of that.
 *
 *     x --- Slice --- a ---------------+
 *      \-- Slice --- b -- ... --- c -- Concat (a, b, c)     becomes     Concat (x, c)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/cut.h"

#include <string.h>

enum { INPUTS_MAX = 64 };

/* Elements [start, end) of `of` along the axis. */
typedef struct piece {
    int32_t of;
    int64_t start, end;
} piece;

static bool read_slice(const mp_graph *graph, int32_t value, int64_t axis, piece *out) {
    mp_cut cut;
    if (!mp_cut_read(graph, value, &cut) || cut.axis != axis) {
        return false;
    }
    const int64_t size = mp_graph_dim(graph, cut.of, (int)axis);
    *out = (piece){.of = cut.of,
                   .start = cut.start < 0 ? cut.start + size : cut.start,
                   .end = cut.end < 0 ? cut.end + size : MP_MIN(cut.end, size)};
    return size > 0 && out->start >= 0 && out->start < out->end;
}

static bool read_split(const mp_graph *graph, int32_t value, int64_t axis, piece *out) {
    const int32_t n = mp_graph_maker(graph, value, "Split");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->out[0] == MP_NO_VALUE || !mp_graph_axis_is(graph, n, (int)axis)) {
        return false;
    }
    int64_t sizes[MP_RANK_MAX];
    int count = 0;
    const bool listed = mp_graph_ints(graph, v, "split", 1, sizes, &count);
    *out = (piece){.of = v->in[0]};
    for (int i = 0; i < v->out_count; i++) {
        const bool is_wanted = v->out[i] != MP_NO_VALUE;
        const int64_t own = listed && i < count ? sizes[i]
                            : is_wanted         ? mp_graph_dim(graph, v->out[i], (int)axis)
                                                : 0;
        out->end = out->start + own;
        if (own < 1 || v->out[i] == value) {
            return own > 0;
        }
        out->start = out->end;
    }
    return false;
}

static bool read_piece(const mp_graph *graph, int32_t value, int64_t axis, piece *out) {
    return value != MP_NO_VALUE &&
           (read_slice(graph, value, axis, out) || read_split(graph, value, axis, out));
}

/* How many inputs from `from` on are all of one value, which is `*of`; 0 for none. */
static int pieces_from(const mp_graph *graph, const mp_vertex *v, int from, int64_t axis,
                       int32_t *of) {
    piece p, next;
    if (!read_piece(graph, v->in[from], axis, &p) || p.start != 0) {
        return 0;
    }
    const int64_t size = mp_graph_dim(graph, p.of, (int)axis);
    int count = 1;
    *of = p.of;
    while (p.end < size && from + count < v->in_count &&
           read_piece(graph, v->in[from + count], axis, &next) && next.of == p.of &&
           next.start == p.end) {
        p.end = next.end;
        count++;
    }
    return p.end == size && count > 1 ? count : 0;
}

static mp_status look_at(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex v = graph->nodes[n];
    const int rank = mp_graph_rank(graph, v.out[0]);
    const int64_t given = mp_node_int(&v.node, "axis", 0), axis = given < 0 ? given + rank : given;
    int32_t in[INPUTS_MAX];
    int count = 0;
    if (v.in_count > INPUTS_MAX || rank < 1 || axis < 0 || axis >= rank) {
        return MP_OK;
    }
    for (int i = 0; i < v.in_count;) {
        int32_t whole = MP_NO_VALUE;
        const int pieces = pieces_from(graph, &v, i, axis, &whole);
        if (pieces > 0 && !mp_rewrite_allowed(rewrites)) {
            return MP_OK;
        }
        in[count++] = pieces > 0 ? whole : v.in[i];
        i += MP_MAX(pieces, 1);
    }
    if (count == v.in_count) {
        return MP_OK;
    }
    const mp_node node = v.node;
    MP_TRY(mp_graph_change_node(graph, n, &node, in, count, v.out, 1));
    mp_graph_drop_inputs(graph, &v);
    return MP_OK;
}

mp_status mp_pass_join_pieces(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (mp_vertex_is(v, "Concat") && v->loop == NULL) {
            MP_TRY(look_at(graph, n, rewrites));
        }
    }
    return MP_OK;
}
