/* flat_heads.c - products of [batch * heads, rows, columns], as torch's bmm and baddbmm have them,
 * are products of the four dimensions that are there before and behind, where find_attention looks
 * for them.
 *
 *     Reshape(q) x Transpose(Reshape(k)), each times a number, and a bias of each head added
 *       --> Reshape to [batch, heads, rows, keys]
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/add_view.h"
#include "graph/pass/attention_match.h"
#include "graph/pass/flat_bias.h"
#include "graph/pass/flat_sizes.h"

enum { FLAT = 3, RANK = 4, STEPS_MAX = 4 /* behind the product */, CLIMB_MAX = 8 };
enum { BATCH, HEADS, ROWS, COLUMNS };

typedef struct flat_product {
    int32_t x, y;   /* values of four dimensions */
    int32_t x_like; /* x, or what it was before masks, which has its dimensions */
    int32_t
        x_sizes; /* the list that x is seen in, with batch * heads and rows in it; MP_NO_VALUE */
    bool turned; /* columns of y are its rows */
    int32_t x_scale, y_scale;     /* nodes that multiply them by a number; or MP_NO_NODE */
    int32_t steps[STEPS_MAX + 1]; /* nodes: the product first, then what is done with it */
    int count;
    int adds;          /* the step that adds a bias; 0: none */
    mp_flat_bias bias; /* what it adds */
    int32_t back;      /* node */
} flat_product;

/* ---- proofs ---- */

/* Whether `sizes` are [batch * heads, rows, columns] of `like`, one of which may be what is left.
 */
static bool merges(const mp_graph *graph, int32_t sizes, int32_t like) {
    const int64_t heads = mp_graph_rank(graph, like) == RANK ? mp_graph_dim(graph, like, HEADS) : 0;
    return heads > 1 && mp_graph_list_length(graph, sizes) == FLAT &&
           (mp_graph_entry_is_product(graph, sizes, 0, like, BATCH, heads) ||
            mp_graph_entry_is_rest(graph, sizes, 0)) &&
           (mp_graph_entry_is(graph, sizes, 1, like, ROWS) ||
            mp_graph_entry_is_rest(graph, sizes, 1)) &&
           (mp_graph_entry_is(graph, sizes, 2, like, COLUMNS) ||
            mp_graph_entry_is_rest(graph, sizes, 2));
}

/* The Reshape of four dimensions to three that makes `value`; or MP_NO_NODE. */
static int32_t flat_view(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Reshape");
    return n != MP_NO_NODE && graph->nodes[n].in_count == 2 &&
                   mp_graph_rank(graph, graph->nodes[n].in[0]) == RANK &&
                   mp_graph_rank(graph, value) == FLAT
               ? n
               : MP_NO_NODE;
}

/* What `*value` is before it is multiplied by a number, if it is, and not yet by another. */
static void peel_scale(const mp_graph *graph, int32_t *value, int32_t *scale) {
    const int32_t n = mp_graph_maker(graph, *value, NULL);
    const int scaled = n != MP_NO_NODE ? mp_scaled_input(graph, &graph->nodes[n]) : -1;
    if (scaled >= 0 && *scale == MP_NO_NODE) {
        *scale = n;
        *value = graph->nodes[n].in[scaled];
    }
}

static bool find_y(const mp_graph *graph, int32_t value, flat_product *m) {
    peel_scale(graph, &value, &m->y_scale);
    const int32_t t = mp_graph_maker(graph, value, "Transpose");
    const mp_attr *perm = t != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[t]) : NULL;
    m->turned = perm != NULL;
    if (perm != NULL && (perm->count != FLAT || perm->ints[0] != 0 || perm->ints[1] != 2)) {
        return false;
    }
    value = m->turned ? graph->nodes[t].in[0] : value;
    peel_scale(graph, &value, &m->y_scale);
    const int32_t r = flat_view(graph, value);
    m->y = r != MP_NO_NODE ? graph->nodes[r].in[0] : MP_NO_VALUE;
    return r != MP_NO_NODE && merges(graph, graph->nodes[r].in[1], m->y);
}

/* A value that masks, casts and a Softmax have made `value` of, whose dimensions are `sizes`. None
 * of it takes elements away, so that with as many rows as y has, nothing has more of them. */
static int32_t find_like(const mp_graph *graph, int32_t value, int32_t sizes, int32_t y, int left) {
    static const char *const kept[] = {"Cast", "Softmax", "Identity"};
    if (mp_graph_rank(graph, value) == RANK && merges(graph, sizes, value) &&
        mp_graph_entry_is(graph, sizes, 1, value, ROWS) &&
        mp_graph_same_dim(graph, value, COLUMNS, y, ROWS) &&
        mp_graph_same_dim(graph, value, BATCH, y, BATCH)) {
        return value;
    }
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE && left > 0 ? &graph->nodes[n] : NULL;
    const int scaled = v != NULL ? mp_scaled_input(graph, v) : -1;
    if (v != NULL && (scaled >= 0 || mp_vertex_is_any(v, kept, MP_COUNT_OF(kept)))) {
        return find_like(graph, v->in[scaled > 0], sizes, y, left - 1);
    }
    int32_t like = MP_NO_VALUE;
    for (int i = 0; i < 2 && v != NULL && mp_vertex_is(v, "Add") && like == MP_NO_VALUE; i++) {
        like = find_like(graph, v->in[i], sizes, y, left - 1);
    }
    return like;
}

static bool find_x(const mp_graph *graph, int32_t value, flat_product *m) {
    peel_scale(graph, &value, &m->x_scale);
    const int32_t r = flat_view(graph, value);
    if (r == MP_NO_NODE) {
        return false;
    }
    const int32_t sizes = graph->nodes[r].in[1];
    m->x = graph->nodes[r].in[0];
    m->x_like = merges(graph, sizes, m->x) ? m->x
                : m->turned                ? MP_NO_VALUE
                                           : find_like(graph, m->x, sizes, m->y, CLIMB_MAX);
    const bool is_said =
        !mp_graph_entry_is_rest(graph, sizes, 0) && !mp_graph_entry_is_rest(graph, sizes, 1);
    m->x_sizes = is_said ? sizes : MP_NO_VALUE;
    return m->x_like != MP_NO_VALUE &&
           mp_graph_dim(graph, m->x, HEADS) == mp_graph_dim(graph, m->y, HEADS) &&
           mp_graph_dim(graph, m->x_like, HEADS) == mp_graph_dim(graph, m->y, HEADS);
}

/* Which of [batch, rows, columns] are sizes that the product, with all that is done to it, has. */
static int proven_sizes(const mp_graph *graph, const flat_product *m, int32_t sizes) {
    const int32_t flat = graph->nodes[m->back].in[0];
    int rows = mp_graph_entry_is(graph, sizes, ROWS, m->x_like, ROWS);
    int columns = mp_graph_entry_is(graph, sizes, COLUMNS, flat, 2);
    if (m->adds == 0) { /* else the bias may have more columns */
        columns |= mp_graph_entry_is(graph, sizes, COLUMNS, m->y, m->turned ? ROWS : COLUMNS);
    }
    for (int i = 0; i < m->count; i++) {
        rows |= mp_graph_entry_is(graph, sizes, ROWS, graph->nodes[m->steps[i]].out[0], 1);
    }
    return rows + columns + mp_graph_entry_is(graph, sizes, BATCH, m->x_like, BATCH);
}

/* The same of a sum with a bias that may have more rows and columns than the product. */
static bool is_proven_sum(const mp_graph *graph, const flat_product *m, int32_t sizes) {
    const int32_t flat = graph->nodes[m->back].in[0];
    return mp_graph_entry_is_rest(graph, sizes, BATCH) &&
           mp_graph_entry_is(graph, sizes, ROWS, flat, 1) &&
           mp_graph_entry_is(graph, sizes, COLUMNS, flat, 2);
}

/* Whether the Reshape behind gives [batch, heads, rows, columns]; one of them, beside the heads,
 * follows from the others. */
static bool goes_back(const mp_graph *graph, const flat_product *m) {
    const mp_vertex *v = &graph->nodes[m->back];
    const bool any = m->adds > 0 && m->bias.row == MP_NO_VALUE;
    return v->in_count == 2 && mp_graph_list_length(graph, v->in[1]) == RANK &&
           mp_graph_rank(graph, v->out[0]) == RANK &&
           mp_graph_entry_dim(graph, v->in[1], HEADS) == mp_graph_dim(graph, m->y, HEADS) &&
           (any ? is_proven_sum(graph, m, v->in[1]) : proven_sizes(graph, m, v->in[1]) >= 2);
}

/* ---- from the product down ---- */

static bool add_step(const mp_graph *graph, flat_product *m, int32_t n, int32_t value) {
    const mp_vertex *v = &graph->nodes[n];
    const bool adds = mp_vertex_is(v, "Add") && m->adds == 0;
    if (m->count > STEPS_MAX || !mp_graph_same_guard(graph, m->steps[0], n)) {
        return false;
    }
    m->adds = adds ? m->count : m->adds;
    m->steps[m->count++] = n;
    if (adds) {
        return mp_flat_bias_find(graph, v->in[v->in[0] == value], graph->nodes[m->steps[0]].in[0],
                                 mp_graph_dim(graph, m->y, HEADS), &m->bias);
    }
    const int scaled = mp_scaled_input(graph, v);
    return scaled >= 0 && v->in[scaled] == value;
}

static bool find(const mp_graph *graph, int32_t n, flat_product *m) {
    const mp_vertex *v = &graph->nodes[n];
    *m = (flat_product){.steps = {n}, .count = 1, .x_scale = MP_NO_NODE, .y_scale = MP_NO_NODE};
    if (!mp_vertex_is(v, "MatMul") || !find_y(graph, v->in[1], m) || !find_x(graph, v->in[0], m)) {
        return false;
    }
    for (int32_t value = v->out[0];;) {
        const bool has_lead = value == v->out[0] && m->x_sizes != MP_NO_VALUE;
        const int32_t next = mp_flat_reader(graph, value, has_lead);
        if (next == MP_NO_NODE) {
            return false;
        }
        if (mp_vertex_is(&graph->nodes[next], "Reshape")) {
            m->back = next;
            return graph->nodes[next].in[0] == value && goes_back(graph, m) &&
                   mp_graph_same_guard(graph, n, next);
        }
        if (!add_step(graph, m, next, value)) {
            return false;
        }
        value = graph->nodes[next].out[0];
    }
}

/* ---- four dimensions ---- */

/* What step `i` gives. With a bias it may have more rows and columns. */
static mp_status add_value(mp_graph *graph, const flat_product *m, int i, const char *name,
                           int32_t *out) {
    const mp_shape *x = &graph->values[m->x_like].tensor.shape;
    const mp_shape *y = &graph->values[m->y].tensor.shape;
    const bool plain = m->adds == 0 || i < m->adds;
    const int64_t rows = plain ? x->dim[ROWS] : MP_DIM_UNKNOWN;
    const int64_t columns = plain ? y->dim[m->turned ? ROWS : COLUMNS] : MP_DIM_UNKNOWN;
    const mp_tensor tensor = {
        .type = mp_graph_type(graph, m->y),
        .shape = {.rank = RANK, .dim = {x->dim[BATCH], x->dim[HEADS], rows, columns}}};
    return mp_graph_add_value(graph, name, &tensor, out);
}

/* A node more in front of the product, with the last dimensions the other way round: of what y was
 * before a Transpose, if there is one, as nothing then stands between heads and the product. */
static mp_status add_turn(mp_graph *graph, const flat_product *m, int32_t *out) {
    static const int64_t swapped[RANK] = {BATCH, HEADS, COLUMNS, ROWS};
    const int32_t t = mp_graph_maker(graph, m->y, "Transpose");
    const mp_attr *before = t != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[t]) : NULL;
    const int32_t from = before != NULL ? graph->nodes[t].in[0] : m->y;
    int64_t order[RANK];
    bool moves = false;
    for (int d = 0; d < RANK; d++) {
        order[d] = before != NULL ? before->ints[swapped[d]] : swapped[d];
        moves |= order[d] != d;
    }
    if (!moves) {
        *out = from;
        return MP_OK;
    }
    const mp_attr perm = {.name = "perm", .kind = MP_ATTR_INTS, .ints = order, .count = RANK};
    mp_tensor tensor = {.type = mp_graph_type(graph, m->y), .shape = {.rank = RANK}};
    const mp_vertex *v = &graph->nodes[m->steps[0]];
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = v->node.name,
                          .attrs = &perm,
                          .attr_count = 1,
                          .options = v->node.options};
    for (int d = 0; d < RANK; d++) {
        tensor.shape.dim[d] = graph->values[m->y].tensor.shape.dim[swapped[d]];
    }
    MP_TRY(mp_graph_add_value(graph, graph->values[m->y].name, &tensor, out));
    return mp_graph_add_beside(graph, m->steps[0], &node, &from, 1, *out);
}

/* `*value` times the number that the node multiplies by. */
static mp_status add_scale(mp_graph *graph, const flat_product *m, int32_t scale, int32_t *value) {
    if (scale == MP_NO_NODE) {
        return MP_OK;
    }
    const mp_vertex v = graph->nodes[scale];
    const int scaled = mp_scaled_input(graph, &v);
    const mp_tensor tensor = {.type = mp_graph_type(graph, *value),
                              .shape = graph->values[*value].tensor.shape};
    int32_t in[] = {v.in[0], v.in[1]};
    in[scaled] = *value;
    MP_TRY(mp_graph_add_value(graph, graph->values[*value].name, &tensor, value));
    return mp_graph_add_beside(graph, m->steps[0], &v.node, in, 2, *value);
}

/* Inputs of step `i`, whose own were `was`, now that the step before it, which gave `flat`, gives
 * `before`. */
static void inputs_of(const flat_product *m, int i, const int32_t *was, int32_t flat,
                      int32_t before, int32_t bias, int32_t in[2]) {
    for (int k = 0; k < 2; k++) {
        in[k] = was[k] == flat ? before : i == m->adds ? bias : was[k];
    }
}

static mp_status rewrite(mp_graph *graph, const flat_product *m, int32_t *axes) {
    const mp_vertex product = graph->nodes[m->steps[0]], back = graph->nodes[m->back];
    const int32_t result = back.out[0];
    int32_t in[] = {m->x, m->y}, fresh[STEPS_MAX + 1] = {MP_NO_VALUE};
    int32_t bias = MP_NO_VALUE, flat = MP_NO_VALUE;
    const int32_t flat_bias = m->adds > 0 ? m->bias.flat : MP_NO_VALUE;
    MP_TRY(m->turned ? add_turn(graph, m, &in[1]) : MP_OK);
    MP_TRY(add_scale(graph, m, m->x_scale, &in[0]));
    MP_TRY(add_scale(graph, m, m->y_scale, &in[1]));
    MP_TRY(m->adds > 0 ? mp_flat_bias_widen(graph, &m->bias, m->steps[m->adds], axes, &bias)
                       : MP_OK);
    for (int i = 0; i + 1 < m->count; i++) {
        MP_TRY(add_value(graph, m, i, graph->values[result].name, &fresh[i]));
    }
    for (int i = 0; i < m->count; i++) {
        const mp_vertex was = graph->nodes[m->steps[i]];
        if (i > 0) {
            inputs_of(m, i, was.in, flat, fresh[i - 1], bias, in);
        }
        MP_TRY(mp_flat_ask(graph, was.out[0], i + 1 < m->count ? fresh[i] : result, m->x_sizes));
        MP_TRY(
            i + 1 < m->count
                ? mp_graph_change_node(graph, m->steps[i], &was.node, in, 2, &fresh[i], 1)
                : mp_graph_merge_node(graph, m->back, m->steps[i], &was.node, in, 2, &result, 1));
        flat = was.out[0];
    }
    mp_graph_drop_unread(graph, back.in[1]);
    mp_graph_drop_inputs(graph, &product);
    mp_graph_drop_unread(graph, flat_bias);
    return MP_OK;
}

mp_status mp_pass_flat_heads(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    int32_t axes = MP_NO_VALUE;
    bool changed = false;
    for (int32_t n = 0; n < count; n++) {
        flat_product m;
        if (find(graph, n, &m) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &m, &axes));
            changed = true;
        }
    }
    return mp_graph_tidy(graph, changed);
}
