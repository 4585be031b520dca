/* find_shuffle.c - channels that are dealt to groups and taken from these in turns (ShuffleNet): a
 * Reshape takes the groups apart, a Transpose exchanges them with the channels of each, a Reshape
 * makes one dimension of both again. With a Concat in front, whose parts are read where they lie,
 * and what cuts the result behind, all of it is one operator.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/cut.h"

enum { PARTS_MAX = 8 };

typedef struct shuffle {
    int32_t x;      /* what is shuffled */
    int32_t beside; /* it, or a part of it: as large but for the axis */
    int axis;
    int64_t channels, groups;
    int32_t in[PARTS_MAX], out[PARTS_MAX];
    int64_t sizes[PARTS_MAX]; /* channels of outputs */
    int32_t cutter[PARTS_MAX];
    int ins, outs, cutters;
} shuffle;

/* ---- the dimensions ---- */

/* Which dimension of two neighbours that a Transpose exchanges comes first, if it does just that;
 * or -1. */
static int exchanged(const mp_attr *perm) {
    int first = -1;
    for (int d = 0; d < (int)perm->count; d++) {
        if (perm->ints[d] == d) {
            continue;
        }
        if (first >= 0 || d + 1 == (int)perm->count || perm->ints[d] != d + 1 ||
            perm->ints[d + 1] != d) {
            return -1;
        }
        first = d++;
    }
    return first;
}

/* Whether dimension `at` of what the Reshape makes is known to be dimension `d` of the value. */
static bool is_dim_of(const mp_graph *graph, const mp_vertex *reshape, int at, int32_t value,
                      int d) {
    return mp_graph_entry_is(graph, reshape->in[1], at, value, d) ||
           mp_graph_same_dim(graph, reshape->out[0], at, value, d);
}

/* How many dimensions of what the Reshape makes are not known to be those of x: dimension d of x
 * before the axis, and those behind it `shift` further. All of them, if one is neither known nor
 * what is left over. */
static int unknown_dims(const mp_graph *graph, const mp_vertex *reshape, const shuffle *s,
                        int shift) {
    const int rank = mp_graph_rank(graph, s->x);
    const bool copies = mp_node_int(&reshape->node, "allowzero", 0) == 0; /* where it says 0 */
    int unknown = 0;
    for (int d = 0; d < rank; d++) {
        const int at = d < s->axis ? d : d + shift;
        const bool stays = copies && d < s->axis && mp_graph_entry(graph, reshape->in[1], d) == 0;
        if (d == s->axis || stays || is_dim_of(graph, reshape, at, s->x, d) ||
            is_dim_of(graph, reshape, at, s->beside, d)) {
            continue;
        }
        if (!mp_graph_entry_is_rest(graph, reshape->in[1], at)) {
            return rank;
        }
        unknown++;
    }
    return unknown;
}

/* Whether element `i` of the list is this number; one that is left over counts as unknown. */
static bool is_size(const mp_graph *graph, int32_t list, int i, int64_t size, int *unknown) {
    const bool rest = mp_graph_entry_is_rest(graph, list, i);
    *unknown += rest;
    return rest || mp_graph_entry_dim(graph, list, i) == size;
}

/* The parts that x is joined of, or it alone. */
static void find_parts(const mp_graph *graph, shuffle *s) {
    const int32_t n = mp_graph_maker(graph, s->x, "Concat");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    const bool joins = v != NULL && v->in_count <= PARTS_MAX && mp_graph_axis_is(graph, n, s->axis);
    s->ins = 0;
    for (int i = 0; joins && i < v->in_count; i++) {
        s->in[s->ins++] = v->in[i];
    }
    if (!joins) {
        s->in[s->ins++] = s->x;
    }
    s->beside = s->in[0];
}

/* What x has along the axis: as it is known, or what the Reshape takes apart, which then has to be
 * as much. */
static int64_t channels_of(const mp_graph *graph, const mp_vertex *apart, const shuffle *s) {
    const int64_t known = mp_graph_dim(graph, s->x, s->axis);
    const int64_t size = mp_graph_entry_dim(graph, apart->in[1], s->axis + 1);
    int64_t sum = 0;
    for (int i = 0; i < s->ins && known < 1; i++) {
        const int64_t part = mp_graph_dim(graph, s->in[i], s->axis);
        if (part < 0 || __builtin_add_overflow(sum, part, &sum)) {
            return size < 1 || __builtin_mul_overflow(s->groups, size, &sum) ? MP_DIM_UNKNOWN : sum;
        }
    }
    return known > 0 ? known : sum;
}

/* Whether all sizes are as they have to be: of what is left over there may be one in each list. */
static bool read_sizes(const mp_graph *graph, const mp_vertex *apart, const mp_vertex *joined,
                       shuffle *s) {
    const int rank = mp_graph_rank(graph, s->x);
    if (rank <= s->axis || mp_graph_rank(graph, apart->out[0]) != rank + 1 ||
        mp_graph_rank(graph, joined->out[0]) != rank) {
        return false;
    }
    s->groups = mp_graph_entry_dim(graph, apart->in[1], s->axis);
    s->channels = s->groups > 1 ? channels_of(graph, apart, s) : MP_DIM_UNKNOWN;
    if (s->channels <= s->groups || s->channels % s->groups != 0) {
        return false;
    }
    int first = unknown_dims(graph, apart, s, 1), second = unknown_dims(graph, joined, s, 0);
    return is_size(graph, apart->in[1], s->axis + 1, s->channels / s->groups, &first) &&
           is_size(graph, joined->in[1], s->axis, s->channels, &second) && first <= 1 &&
           second <= 1;
}

/* Whether node `n` is the second Reshape of such. */
static bool find(const mp_graph *graph, int32_t n, shuffle *s) {
    const mp_vertex *joined = &graph->nodes[n];
    if (!mp_vertex_is(joined, "Reshape") || joined->in_count != 2) {
        return false;
    }
    const int32_t turn = mp_graph_maker(graph, joined->in[0], "Transpose");
    const mp_attr *perm = turn != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[turn]) : NULL;
    if (perm == NULL || mp_graph_reader(graph, joined->in[0], NULL) != n) {
        return false;
    }
    const int32_t grouped = graph->nodes[turn].in[0];
    const int32_t first = mp_graph_maker(graph, grouped, "Reshape");
    if (first == MP_NO_NODE || mp_graph_reader(graph, grouped, NULL) != turn) {
        return false;
    }
    const mp_vertex *apart = &graph->nodes[first];
    *s = (shuffle){.x = apart->in[0], .axis = exchanged(perm)};
    if (s->axis < 0 || apart->in_count != 2 || mp_dtype_size(mp_graph_type(graph, s->x)) == 0) {
        return false;
    }
    find_parts(graph, s);
    return read_sizes(graph, apart, joined, s);
}

/* ---- what cuts it ---- */

/* Adds what a Slice leaves, in the order of the channels. */
static bool add_slice(const mp_graph *graph, int32_t n, shuffle *s, int64_t *starts) {
    const int32_t out = graph->nodes[n].out[0];
    mp_cut cut;
    if (s->outs == PARTS_MAX || !mp_cut_read(graph, out, &cut) || cut.axis != s->axis) {
        return false;
    }
    const int64_t start = cut.start < 0 ? cut.start + s->channels : cut.start;
    const int64_t end = MP_MIN(cut.end < 0 ? cut.end + s->channels : cut.end, s->channels);
    int at = s->outs++;
    if (start < 0 || end <= start) {
        return false;
    }
    for (; at > 0 && starts[at - 1] > start; at--) {
        starts[at] = starts[at - 1];
        s->sizes[at] = s->sizes[at - 1];
        s->out[at] = s->out[at - 1];
    }
    starts[at] = start;
    s->sizes[at] = end - start;
    s->out[at] = out;
    return true;
}

/* By the list that a Split has, or by what is known of the output. */
static int64_t split_size(const mp_graph *graph, const mp_vertex *v, int i, int axis) {
    int64_t sizes[MP_RANK_MAX];
    int count = 0;
    return mp_graph_ints(graph, v, "split", 1, sizes, &count) && i < count
               ? sizes[i]
               : mp_graph_dim(graph, v->out[i], axis);
}

static bool add_split(const mp_graph *graph, int32_t n, shuffle *s, int64_t *starts) {
    const mp_vertex *v = &graph->nodes[n];
    int64_t start = 0;
    if (s->outs > 0 || v->out_count > PARTS_MAX || !mp_graph_axis_is(graph, n, s->axis)) {
        return false;
    }
    for (; s->outs < v->out_count; s->outs++) {
        const int32_t out = v->out[s->outs];
        const int64_t size = out != MP_NO_VALUE ? split_size(graph, v, s->outs, s->axis) : 0;
        if (size < 1) {
            return false;
        }
        s->out[s->outs] = out;
        s->sizes[s->outs] = size;
        starts[s->outs] = start;
        start += size;
    }
    return true;
}

static bool reads(const mp_vertex *v, int32_t value) {
    bool found = false;
    for (int i = 0; i < v->in_count && !v->is_gone; i++) {
        found = found || v->in[i] == value;
    }
    return found;
}

/* Whether whoever reads what node `n` makes cuts it, all together into parts that are all of it. */
static bool find_cuts(const mp_graph *graph, int32_t n, shuffle *s) {
    const int32_t y = graph->nodes[n].out[0];
    int64_t starts[PARTS_MAX], end = 0;
    s->outs = s->cutters = 0;
    if (mp_graph_is_output(graph, y) || mp_graph_is_condition(graph, y)) {
        return false;
    }
    for (int32_t i = 0; i < graph->node_count; i++) {
        const mp_vertex *v = &graph->nodes[i];
        if (!reads(v, y)) {
            continue;
        }
        const bool cuts =
            s->cutters < PARTS_MAX && v->in[0] == y && mp_graph_same_guard(graph, i, n) &&
            ((mp_vertex_is(v, "Slice") && add_slice(graph, i, s, starts)) ||
             (mp_vertex_is(v, "Split") && s->cutters == 0 && add_split(graph, i, s, starts)));
        if (!cuts) {
            return false;
        }
        s->cutter[s->cutters++] = i;
    }
    for (int i = 0; i < s->outs; i++) {
        if (starts[i] != end) {
            return false;
        }
        end += s->sizes[i];
    }
    return s->outs > 0 && end == s->channels;
}

/* ---- rewriting ---- */

static mp_status rewrite(mp_graph *graph, int32_t n, const shuffle *s) {
    const mp_vertex was = graph->nodes[n];
    const mp_attr attrs[] = {
        {.name = "axis", .kind = MP_ATTR_INT, .i = s->axis},
        {.name = "groups", .kind = MP_ATTR_INT, .i = s->groups},
        {.name = "sizes", .kind = MP_ATTR_INTS, .ints = s->sizes, .count = (size_t)s->outs},
    };
    const bool cuts = s->outs > 0;
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "ShuffleParts", 1),
                          .version = 1,
                          .name = was.node.name,
                          .attrs = attrs,
                          .attr_count = cuts ? 3 : 2,
                          .options = was.node.options};
    for (int i = 0; i < s->cutters; i++) {
        const mp_vertex cutter = graph->nodes[s->cutter[i]];
        mp_graph_remove_node(graph, s->cutter[i]);
        for (int k = 1; k < cutter.in_count; k++) {
            mp_graph_drop_unread(graph, cutter.in[k]);
        }
    }
    MP_TRY(mp_graph_change_node(graph, n, &node, s->in, s->ins, cuts ? s->out : was.out,
                                cuts ? s->outs : 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_find_shuffle(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        shuffle s;
        if (!find(graph, n, &s) || !mp_rewrite_allowed(rewrites)) {
            continue;
        }
        if (!find_cuts(graph, n, &s)) {
            s.outs = s.cutters = 0;
        }
        MP_TRY(rewrite(graph, n, &s));
    }
    return MP_OK;
}
