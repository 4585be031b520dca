/* read_parts.c - heads of attention, of rotary positions before it, and those that are put first
 * for something else, are read where they lie in the rows of one product for all, not in what a
 * Split, a Slice or a Gather copies out of them. Those by which a cache grows are cut out of the
 * rows themselves, so that join_caches finds them there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "base/macros.h"
#include "graph/pass/add_view.h"
#include "graph/pass/attention_part.h"
#include "graph/pass/cut.h"
#include "graph/pass/side_view.h"

#include <string.h>

/* ---- rows of values that have other dimensions ---- */

/* The rows that were seen last: those of Q, K and V are mostly the same. */
typedef struct rows {
    int32_t of, guard, view; /* of: MP_NO_VALUE for none */
    int64_t dim[3];
} rows;

/* `of` seen as these three dimensions, for node `n`. */
static mp_status view_rows(mp_graph *graph, int32_t n, int32_t of, const int64_t dim[3],
                           rows *seen) {
    const int32_t guard = graph->nodes[n].guard;
    if (seen->of == of && seen->guard == guard && memcmp(seen->dim, dim, sizeof seen->dim) == 0) {
        return MP_OK;
    }
    *seen = (rows){.of = MP_NO_VALUE, .guard = guard, .dim = {dim[0], dim[1], dim[2]}};
    MP_TRY(mp_graph_add_view(graph, n, graph->values[of].name, "Reshape", of, dim, 3, &seen->view));
    seen->of = of;
    return MP_OK;
}

/* ---- pieces of a Split or a Slice ---- */

/* Where the rows of output `value` of a Split along the last dimension begin; -1. All outputs are
 * `width` long. */
static int64_t split_first(const mp_graph *graph, const mp_vertex *split, int32_t value,
                           int64_t width) {
    const int64_t axis = mp_node_int(&split->node, "axis", 0);
    int64_t sizes[MP_RANK_MAX];
    int64_t first = 0;
    int count = 0;
    if (axis != -1 && axis != 2) {
        return -1;
    }
    const bool listed = mp_graph_ints(graph, split, "split", 1, sizes, &count);
    const int64_t all = mp_graph_dim(graph, split->in[0], 2);
    if (listed ? count != split->out_count
               : mp_vertex_in(split, 1) != MP_NO_VALUE || all != width * split->out_count) {
        return -1;
    }
    for (int i = 0; i < split->out_count; i++) {
        const int64_t size = listed ? sizes[i] : width;
        if (split->out[i] == value) {
            return size == width ? first : -1;
        }
        first += size;
    }
    return -1;
}

/* Where along `axis` a Slice begins that takes elements off it, and how many it leaves; false where
 * that is not known. */
static bool cut_range(const mp_graph *graph, const mp_cut *cut, int64_t axis, int64_t *first,
                      int64_t *width) {
    const int64_t all = mp_graph_dim(graph, cut->of, (int)axis);
    const int64_t begin = cut->start < 0 ? cut->start + all : cut->start;
    const int64_t end = cut->end < 0 ? cut->end + all : MP_MIN(cut->end, all);
    if (cut->axis != axis || all <= 0 || begin < 0 || begin >= end) {
        return false;
    }
    *first = begin;
    *width = end - begin;
    return true;
}

/* [batch, rows, heads, size] of part of the rows that a Split or a Slice takes apart. */
static int32_t find_piece(const mp_graph *graph, int32_t value, int64_t part[MP_PART_NUMBERS]) {
    int64_t heads = 0, size = 0, first = -1, begin = 0, width = 0;
    mp_cut cut = {.of = MP_NO_VALUE};
    const int32_t piece = mp_heads_whole(graph, value, &heads, &size);
    const int32_t n = mp_graph_maker(graph, piece, "Split");
    if (n != MP_NO_NODE) {
        cut.of = graph->nodes[n].in[0];
        first = split_first(graph, &graph->nodes[n], piece, heads * size);
    } else if (piece != MP_NO_VALUE && mp_cut_read(graph, piece, &cut) &&
               cut_range(graph, &cut, 2, &begin, &width) && width == heads * size) {
        first = begin;
    }
    part[0] = first;
    part[1] = heads;
    part[2] = part[3] = size;
    return first >= 0 && mp_graph_rank(graph, cut.of) == 3 ? cut.of : MP_NO_VALUE;
}

/* ---- [batch, rows, parts, heads, size] or [batch, rows, heads, parts, size] ---- */

/* One of the parts that a value of five dimensions has along an axis, which is left out. */
typedef struct pick {
    int32_t from;
    int64_t axis, index;
} pick;

static bool find_gather(const mp_graph *graph, int32_t value, pick *out) {
    const int32_t n = mp_graph_maker(graph, value, "Gather");
    const mp_vertex *gather = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    int64_t index[MP_RANK_MAX];
    int indexes = 0;
    if (gather == NULL || mp_graph_rank(graph, gather->in[1]) != 0 ||
        !mp_graph_ints(graph, gather, "", 1, index, &indexes) || indexes != 1) {
        return false;
    }
    *out = (pick){gather->in[0], mp_node_int(&gather->node, "axis", 0), index[0]};
    return true;
}

/* All parts of a Split, each of length 1. */
static bool find_squeeze(const mp_graph *graph, int32_t value, pick *out) {
    const int32_t n = mp_graph_maker(graph, value, "Squeeze");
    const int32_t piece = n != MP_NO_NODE ? graph->nodes[n].in[0] : MP_NO_VALUE;
    const int32_t s = mp_graph_maker(graph, piece, "Split");
    const mp_vertex *split = s != MP_NO_NODE ? &graph->nodes[s] : NULL;
    int64_t axes[MP_RANK_MAX], sizes[MP_RANK_MAX];
    int count = 0, listed = 0;
    if (split == NULL || !mp_graph_ints(graph, &graph->nodes[n], "axes", 1, axes, &count) ||
        count != 1 || axes[0] != mp_node_int(&split->node, "axis", 0) ||
        (mp_vertex_in(split, 1) != MP_NO_VALUE &&
         !mp_graph_ints(graph, split, "split", 1, sizes, &listed))) {
        return false;
    }
    *out = (pick){split->in[0], axes[0], 0};
    for (int i = 0; i < listed; i++) {
        if (sizes[i] != 1) {
            return false;
        }
    }
    while (out->index < split->out_count && split->out[out->index] != piece) {
        out->index++;
    }
    return mp_graph_rank(graph, split->in[0]) == 5 &&
           mp_graph_dim(graph, split->in[0], (int)axes[0]) == split->out_count;
}

/* The Reshape that makes what parts are picked of; its shape has `dim`, of which the first two are
 * 0 or -1 where they are said so. */
static int32_t find_whole(const mp_graph *graph, const pick *from, int64_t dim[5]) {
    const int32_t r = mp_graph_maker(graph, from->from, "Reshape");
    if (r == MP_NO_NODE || graph->nodes[r].in_count != 2 || (from->axis != 2 && from->axis != 3) ||
        mp_graph_rank(graph, from->from) != 5) {
        return MP_NO_NODE;
    }
    const bool empties = mp_node_int(&graph->nodes[r].node, "allowzero", 0) != 0;
    for (int d = 0; d < 5; d++) {
        dim[d] = mp_graph_entry(graph, graph->nodes[r].in[1], d);
        if (dim[d] == 0 && empties) {
            return MP_NO_NODE;
        }
    }
    const int64_t count = dim[from->axis], heads = dim[from->axis == 2 ? 3 : 2], size = dim[4];
    return count > 0 && heads > 0 && size > 0 && heads <= INT32_MAX / size &&
                   count <= INT32_MAX / (heads * size) && from->index >= -count &&
                   from->index < count
               ? r
               : MP_NO_NODE;
}

/* Whether both dimensions before the parts are those of what the Reshape reads. */
static bool keeps_rows(const mp_graph *graph, const mp_vertex *reshape, const int64_t *dim) {
    bool kept = mp_graph_rank(graph, reshape->in[0]) == 3;
    for (int d = 0; d < 2; d++) {
        kept = kept &&
               (dim[d] == 0 || (dim[d] > 0 && dim[d] == mp_graph_dim(graph, reshape->in[0], d)) ||
                mp_graph_entry_is(graph, reshape->in[1], d, reshape->in[0], d));
    }
    return kept;
}

static mp_status read_pick(mp_graph *graph, int32_t n, int i, const pick *from, rows *seen,
                           mp_rewrites *rewrites) {
    int64_t dim[5];
    const int32_t r = find_whole(graph, from, dim);
    const bool kept = r != MP_NO_NODE && keeps_rows(graph, &graph->nodes[r], dim);
    if (r == MP_NO_NODE || (!kept && dim[0] < 0 && dim[1] < 0) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    const int64_t count = dim[from->axis], heads = dim[from->axis == 2 ? 3 : 2], size = dim[4];
    const int64_t at = from->index < 0 ? from->index + count : from->index;
    const int64_t part[] = {at * size * (from->axis == 2 ? heads : 1), heads, size,
                            size * (from->axis == 2 ? 1 : count)};
    const int32_t value = graph->nodes[n].in[i];
    int32_t whole = graph->nodes[r].in[0];
    if (!kept) {
        const int64_t shape[] = {dim[0], dim[1], count * heads * size};
        MP_TRY(view_rows(graph, n, whole, shape, seen));
        whole = seen->view;
    }
    MP_TRY(mp_side_set_part(graph, n, i, whole, part));
    mp_graph_drop_unread(graph, value);
    return MP_OK;
}

/* ---- where all sizes are known, or all of an entry ---- */

enum { BATCH, HEADS, ROWS, SIZE, SIDE_RANK };

/* The view as a part of rows [batch, rows, elements] that its base can be seen as. */
static bool part_of_view(const mp_side_view *v, const mp_attr *perm, int64_t whole[3],
                         int64_t part[MP_PART_NUMBERS]) {
    int64_t dim[SIDE_RANK], stride[SIDE_RANK];
    if (v->rank != SIDE_RANK ||
        (perm != NULL && (perm->count != SIDE_RANK || (v->is_entry && perm->ints[0] != 0)))) {
        return false;
    }
    for (int d = 0; d < SIDE_RANK; d++) {
        const int64_t at = perm != NULL ? perm->ints[d] : d;
        dim[d] = v->dim[at];
        stride[d] = v->stride[at];
    }
    const int64_t width = dim[ROWS] > 1    ? stride[ROWS]
                          : dim[BATCH] > 1 ? stride[BATCH]
                                           : v->of_base;
    const int64_t step = dim[HEADS] > 1 ? stride[HEADS] : dim[SIZE];
    int64_t reach = 0, image = 0, all = 0;
    const bool fits = (dim[SIZE] == 1 || stride[SIZE] == 1) && width > 0 && step > 0 &&
                      !__builtin_mul_overflow(dim[HEADS] - 1, step, &reach) &&
                      !__builtin_add_overflow(reach, v->first + dim[SIZE], &reach) &&
                      reach <= width && !__builtin_mul_overflow(dim[ROWS], width, &image) &&
                      (dim[BATCH] == 1 || stride[BATCH] == image) &&
                      !__builtin_mul_overflow(dim[BATCH], image, &all) && all == v->of_base;
    const int64_t batch = v->is_entry ? -1 : dim[BATCH];
    memcpy(whole, (int64_t[]){batch, dim[ROWS], width}, 3 * sizeof *whole);
    memcpy(part, (int64_t[]){v->first, dim[HEADS], dim[SIZE], step}, 4 * sizeof *part);
    return fits;
}

static mp_status read_view(mp_graph *graph, int32_t n, int i, rows *seen, mp_rewrites *rewrites) {
    mp_side_view view;
    int64_t whole[3], part[MP_PART_NUMBERS];
    const int32_t value = graph->nodes[n].in[i];
    const mp_attr *perm = mp_side_perm(&graph->nodes[n], i);
    if (mp_graph_reader(graph, value, NULL) == MP_NO_NODE ||
        !mp_side_view_find(graph, value, &view) || !view.moves ||
        !part_of_view(&view, perm, whole, part) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    bool is_whole = mp_graph_rank(graph, view.base) == 3;
    for (int d = view.is_entry ? 1 : 0; d < 3 && is_whole; d++) {
        is_whole = mp_graph_dim(graph, view.base, d) == whole[d];
    }
    if (!is_whole) {
        MP_TRY(view_rows(graph, n, view.base, whole, seen));
    }
    MP_TRY(mp_side_set_part(graph, n, i, is_whole ? view.base : seen->view, part));
    mp_graph_drop_unread(graph, value);
    return MP_OK;
}

/* ---- all ---- */

/* Heads of which a Slice leaves some elements, as they lie in their rows or put first. */
static int32_t find_cut_heads(const mp_graph *graph, int32_t value, const mp_attr *perm,
                              int64_t part[MP_PART_NUMBERS]) {
    mp_cut cut;
    if (mp_graph_reader(graph, value, NULL) == MP_NO_NODE || !mp_cut_read(graph, value, &cut) ||
        !cut_range(graph, &cut, 3, &part[0], &part[2])) {
        return MP_NO_VALUE;
    }
    if (perm == NULL) {
        const int32_t n = mp_graph_maker(graph, cut.of, "Transpose");
        perm = n != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[n]) : NULL;
        cut.of = n != MP_NO_NODE ? graph->nodes[n].in[0] : MP_NO_VALUE;
    }
    const int32_t whole =
        mp_is_heads_first(perm) ? mp_heads_whole(graph, cut.of, &part[1], &part[3]) : MP_NO_VALUE;
    return whole != MP_NO_VALUE && mp_graph_dim(graph, whole, 2) == part[1] * part[3] ? whole
                                                                                      : MP_NO_VALUE;
}

static int sides_of(const mp_graph *graph, const mp_vertex *v) {
    return mp_vertex_is_own(v, "Attention")                                       ? 3
           : mp_vertex_is_own(v, "RotaryHalves") || mp_puts_heads_first(graph, v) ? 1
                                                                                  : 0;
}

static mp_status set_part(mp_graph *graph, int32_t n, int i, int32_t whole,
                          const int64_t part[MP_PART_NUMBERS], mp_rewrites *rewrites) {
    const int32_t value = graph->nodes[n].in[i];
    if (!mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    MP_TRY(mp_side_set_part(graph, n, i, whole, part));
    mp_graph_drop_unread(graph, value);
    return MP_OK;
}

static mp_status read_side(mp_graph *graph, int32_t n, int i, rows *seen, mp_rewrites *rewrites) {
    int64_t part[MP_PART_NUMBERS];
    pick from;
    const int32_t value = graph->nodes[n].in[i];
    const int32_t cut = find_cut_heads(graph, value, mp_side_perm(&graph->nodes[n], i), part);
    if (cut != MP_NO_VALUE) {
        return set_part(graph, n, i, cut, part, rewrites);
    }
    if (!mp_side_is_turned(graph, &graph->nodes[n], i)) {
        return MP_OK;
    }
    if (find_gather(graph, value, &from) || find_squeeze(graph, value, &from)) {
        return read_pick(graph, n, i, &from, seen, rewrites);
    }
    const int32_t whole = find_piece(graph, value, part);
    return whole != MP_NO_VALUE ? set_part(graph, n, i, whole, part, rewrites) : MP_OK;
}

/* Whether only a Concat of rows [past, new] reads the value. */
static bool goes_to_cache(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_reader(graph, value, "Concat");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    const int64_t axis = v != NULL ? mp_node_int(&v->node, "axis", 0) : 0;
    const mp_dtype type = mp_graph_type(graph, value);
    return v != NULL && v->in_count == 2 && v->in[1] == value && (axis == 2 || axis == -2) &&
           type != MP_NONE && (MP_FLOATS & MP_BIT(type)) != 0;
}

/* A Slice of heads that were put first becomes a part of the rows that they lie in. */
static mp_status read_cut(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex was = graph->nodes[n];
    int64_t part[MP_PART_NUMBERS];
    if (!mp_vertex_is(&was, "Slice") || !goes_to_cache(graph, was.out[0])) {
        return MP_OK;
    }
    const int32_t whole = find_cut_heads(graph, was.out[0], NULL, part);
    if (whole == MP_NO_VALUE || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    const mp_attr attr = {
        .name = "part", .kind = MP_ATTR_INTS, .ints = part, .count = MP_PART_NUMBERS};
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "HeadsPart", 1),
                          .version = 1,
                          .name = was.node.name,
                          .attrs = &attr,
                          .attr_count = 1,
                          .options = was.node.options};
    MP_TRY(mp_graph_change_node(graph, n, &node, &whole, 1, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_read_parts(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    rows seen = {.of = MP_NO_VALUE};
    for (int32_t n = 0; n < count; n++) {
        MP_TRY(read_cut(graph, n, rewrites));
        for (int i = 0; i < sides_of(graph, &graph->nodes[n]); i++) {
            MP_TRY(read_side(graph, n, i, &seen, rewrites));
            if (!mp_side_has_part(&graph->nodes[n], i)) {
                MP_TRY(read_view(graph, n, i, &seen, rewrites));
            }
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
