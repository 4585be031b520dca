/* find_rotary.c - rotary positions written out in primitive operators become one operator:
 *
 *     x cos + Concat(-x[half:], x[:half]) sin
 *     x cos + Reshape(Concat(-x[1::2], x[::2]) along a new axis) sin
 *
 * with halves by Slice or Split, and a Transpose of heads before it, or of one product behind that,
 * read as it lies. x may be the first part of longer heads, whose rest is then put behind it again
 * by a Concat. Of cosines and sines both halves of a row must be known to be the same, or the two
 * of each pair; of pairs the operator gets one of the two.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"
#include "graph/pass/add_view.h"
#include "graph/pass/attention_part.h"
#include "graph/pass/cut.h"
#include "graph/pass/rotary_angles.h"

#include <stdio.h>

typedef struct rotary {
    int32_t x, cosine, sine; /* values */
    int32_t turned;          /* the value behind x's Transpose; MP_NO_VALUE: there is none */
    bool paired;             /* neighbours are rotated, not halves */
    bool cosine_in_rows;     /* cosines are of heads in rows, before x's Transpose */
} rotary;

/* ---- the turned halves, and pairs ---- */

/* x where `value` is Concat(-x[half:], x[:half]); else MP_NO_VALUE. */
static int32_t turned_of(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Concat");
    if (n == MP_NO_NODE || graph->nodes[n].in_count != 2 ||
        !mp_graph_axis_is(graph, n, mp_graph_rank(graph, value) - 1)) {
        return MP_NO_VALUE;
    }
    const int32_t negated = mp_graph_maker(graph, graph->nodes[n].in[0], "Neg");
    int32_t x = MP_NO_VALUE, same = MP_NO_VALUE;
    int64_t size = 0;
    return negated != MP_NO_NODE &&
                   mp_cut_is_half(graph, graph->nodes[negated].in[0], true, &x, &size) &&
                   mp_cut_is_half(graph, graph->nodes[n].in[1], false, &same, &size) && x == same
               ? x
               : MP_NO_VALUE;
}

/* Whether the Reshape of `stacked`, which has x's dimensions but for the last one in halves and
 * behind it a 2, gives x's: with three of them the same the fourth is, too. */
static bool gives_back(const mp_graph *graph, const mp_vertex *reshape, int32_t x) {
    const int32_t stacked = reshape->in[0], shape = reshape->in[1];
    int same = 0;
    if (mp_graph_list_length(graph, shape) != 4) {
        return false;
    }
    for (int d = 0; d < 4; d++) {
        const int64_t entry = mp_graph_entry(graph, shape, d);
        same += (entry > 0 && entry == mp_graph_dim(graph, x, d)) ||
                (d < 3 && entry == 0 && mp_node_int(&reshape->node, "allowzero", 0) == 0) ||
                mp_graph_entry_is(graph, shape, d, x, d) ||
                (d < 3 && mp_graph_entry_is(graph, shape, d, stacked, d));
    }
    return same >= 3;
}

/* x, of four dimensions, where `value` is Concat(-x[1::2], x[::2]) along a new last axis, seen as x
 * is; else MP_NO_VALUE. */
static int32_t turned_pairs_of(const mp_graph *graph, int32_t value) {
    const int32_t r = mp_graph_maker(graph, value, "Reshape");
    const int32_t n =
        r != MP_NO_NODE ? mp_graph_maker(graph, graph->nodes[r].in[0], "Concat") : MP_NO_NODE;
    const int64_t axis = n != MP_NO_NODE ? mp_node_int(&graph->nodes[n].node, "axis", 0) : 0;
    if (n == MP_NO_NODE || graph->nodes[n].in_count != 2 || (axis != -1 && axis != 4)) {
        return MP_NO_VALUE;
    }
    const int32_t first = mp_graph_before_last(graph, graph->nodes[n].in[0]);
    const int32_t negated = mp_graph_maker(graph, first, "Neg");
    const int32_t second = mp_graph_before_last(graph, graph->nodes[n].in[1]);
    int32_t x = MP_NO_VALUE, same = MP_NO_VALUE;
    return negated != MP_NO_NODE &&
                   mp_cut_is_every_second(graph, graph->nodes[negated].in[0], true, &x) &&
                   mp_cut_is_every_second(graph, second, false, &same) && x == same &&
                   mp_graph_rank(graph, x) == 4 && gives_back(graph, &graph->nodes[r], x)
               ? x
               : MP_NO_VALUE;
}

/* ---- the sum ---- */

/* What is there twice is no single number, so rows are as long as x's. */
static bool goes_with(const mp_graph *graph, int32_t angles, int32_t x, bool paired) {
    const int rank = mp_graph_rank(graph, angles);
    return rank >= 1 && rank <= 4 && mp_graph_type(graph, angles) == mp_graph_type(graph, x) &&
           mp_angles_are_twice(graph, angles, rank, paired);
}

/* The Transpose that puts heads first and makes `value`; or MP_NO_NODE. */
static int32_t heads_first(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Transpose");
    return n != MP_NO_NODE && mp_is_heads_first(mp_vertex_perm(&graph->nodes[n])) ? n : MP_NO_NODE;
}

/* The product of x and cosines, also in front of a Transpose: ONNX Runtime moves that of x behind
 * one of both products. */
static int32_t plain_product(const mp_graph *graph, int32_t value, bool *in_rows) {
    const int32_t turn = heads_first(graph, value);
    *in_rows = turn != MP_NO_NODE;
    return mp_graph_maker(graph, *in_rows ? graph->nodes[turn].in[0] : value, "Mul");
}

/* What x is multiplied by there; or MP_NO_VALUE. */
static int32_t cosine_of(const mp_graph *graph, int32_t product, const rotary *m) {
    const int32_t turn = m->cosine_in_rows ? heads_first(graph, m->x) : MP_NO_NODE;
    const int32_t *in = graph->nodes[product].in;
    if (m->cosine_in_rows && turn == MP_NO_NODE) {
        return MP_NO_VALUE;
    }
    const int32_t x = m->cosine_in_rows ? graph->nodes[turn].in[0] : m->x;
    const int32_t cosine = in[0] == x ? in[1] : in[1] == x ? in[0] : MP_NO_VALUE;
    return m->cosine_in_rows && cosine != MP_NO_VALUE && !mp_angles_can_move(graph, cosine)
               ? MP_NO_VALUE
               : cosine;
}

/* Dimension `d` of four, of which those in front that are missing are 1. */
static int64_t dim_of_four(const mp_graph *graph, int32_t value, int d) {
    const int at = d - 4 + mp_graph_rank(graph, value);
    return at >= 0 ? mp_graph_dim(graph, value, at) : 1;
}

/* Whether rows of cosines and of sines may be as many: no dimension is known to differ. */
static bool may_be_alike(const mp_graph *graph, const rotary *m) {
    static const int in_rows[] = {0, 2, 1, 3};
    for (int d = 0; d < 4; d++) {
        const int64_t c = dim_of_four(graph, m->cosine, m->cosine_in_rows ? in_rows[d] : d);
        const int64_t s = dim_of_four(graph, m->sine, d);
        if (c >= 0 && s >= 0 && c != s) {
            return false;
        }
    }
    return true;
}

static bool match(const mp_graph *graph, const mp_vertex *sum, rotary *m) {
    for (int i = 0; i < 2; i++) {
        const int32_t plain = plain_product(graph, sum->in[i], &m->cosine_in_rows);
        const int32_t other = mp_graph_maker(graph, sum->in[1 - i], "Mul");
        if (plain == MP_NO_NODE || other == MP_NO_NODE) {
            continue;
        }
        for (int k = 0; k < 2; k++) {
            m->x = turned_of(graph, graph->nodes[other].in[k]);
            m->paired = m->x == MP_NO_VALUE;
            if (m->paired) {
                m->x = turned_pairs_of(graph, graph->nodes[other].in[k]);
            }
            if (m->x == MP_NO_VALUE) {
                continue;
            }
            m->sine = graph->nodes[other].in[1 - k];
            m->cosine = cosine_of(graph, plain, m);
            const mp_dtype type = mp_graph_type(graph, m->x);
            return m->cosine != MP_NO_VALUE && mp_graph_rank(graph, m->x) == 4 &&
                   (type == MP_F32 || type == MP_F16 || type == MP_BF16) &&
                   goes_with(graph, m->cosine, m->x, m->paired) &&
                   goes_with(graph, m->sine, m->x, m->paired) && may_be_alike(graph, m);
        }
    }
    return false;
}

/* Reads heads where they lie before a Transpose that only the pattern reads. */
static void look_behind_transpose(const mp_graph *graph, rotary *m) {
    const int32_t n = heads_first(graph, m->x);
    m->turned = MP_NO_VALUE;
    if (n != MP_NO_NODE) {
        m->turned = m->x;
        m->x = graph->nodes[n].in[0];
    }
}

/* The node that puts the rest of the heads behind the sum `n`, and m->x becomes all of them; or `n`
 * where there is none. */
static int32_t look_at_rest(const mp_graph *graph, int32_t n, rotary *m) {
    const int32_t sum = graph->nodes[n].out[0];
    const int32_t c = mp_graph_reader(graph, sum, "Concat");
    const mp_vertex *v = c != MP_NO_NODE ? &graph->nodes[c] : NULL;
    const int64_t rotated = mp_graph_dim(graph, m->x, -1);
    mp_cut first = {.of = MP_NO_VALUE}, rest;
    if (v == NULL || v->in_count != 2 || v->in[0] != sum || !mp_graph_axis_is(graph, c, 3) ||
        !mp_cut_read_piece(graph, v->in[1], &rest) || rest.axis != 3) {
        return n;
    }
    if (rest.of == m->x) { /* heads are rotated as a whole, and nothing is left */
        first = (mp_cut){.of = m->x, .axis = 3};
    } else if (!mp_cut_read_piece(graph, m->x, &first) || first.of != rest.of || first.axis != 3) {
        return n;
    }
    const int64_t size = mp_graph_dim(graph, first.of, 3);
    if (rotated <= 0 || size < rotated || first.start != 0 || rest.start != rotated ||
        rest.end < size) {
        return n;
    }
    m->x = first.of;
    return c;
}

/* Angles that nodes before were given: cosines, sines. */
typedef struct angles {
    mp_angles_seen cosine, sine;
    mp_angles_seen moved; /* cosines */
} angles;

static mp_status rewrite(mp_graph *graph, int32_t n, const rotary *m, angles *seen) {
    const mp_vertex was = graph->nodes[n];
    const mp_attr attrs[] = {{.name = "interleaved", .kind = MP_ATTR_INT, .i = 1},
                             {.name = "turned", .kind = MP_ATTR_INT, .i = 1}};
    const bool turned = m->turned != MP_NO_VALUE;
    int32_t in[] = {m->x, m->cosine, m->sine};
    char name[256];
    (void)snprintf(name, sizeof name, "rotary+%s", was.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "RotaryHalves", 1),
                          .version = 1,
                          .name = name,
                          .attrs = m->paired ? attrs : attrs + 1,
                          .attr_count = (size_t)m->paired + (size_t)turned,
                          .options = was.node.options};
    if (m->paired) {
        MP_TRY(mp_angles_once(graph, n, m->cosine, &seen->cosine, &in[1]));
        MP_TRY(mp_angles_once(graph, n, m->sine, &seen->sine, &in[2]));
    }
    if (m->cosine_in_rows) {
        MP_TRY(mp_angles_move(graph, n, &seen->moved, &in[1]));
    }
    MP_TRY(mp_graph_change_node(graph, n, &node, in, 3, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_find_rotary(mp_graph *graph, mp_rewrites *rewrites) {
    angles seen = {
        .cosine = {.of = MP_NO_VALUE}, .sine = {.of = MP_NO_VALUE}, .moved = {.of = MP_NO_VALUE}};
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        rotary m;
        if (mp_vertex_is(&graph->nodes[n], "Add") && match(graph, &graph->nodes[n], &m) &&
            mp_rewrite_allowed(rewrites)) {
            const int32_t last = look_at_rest(graph, n, &m);
            look_behind_transpose(graph, &m);
            MP_TRY(rewrite(graph, last, &m, &seen));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
