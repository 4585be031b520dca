/* flat_heads.c - products of [batch * heads, rows, columns], as torch's bmm and baddbmm have them,
 * are products of the four dimensions that are there before and behind, where find_attention looks
 * for them.
 *
 *     Reshape(q) x Transpose(Reshape(k)), times numbers, and a bias of each head added
 *       --> Reshape to [batch, heads, rows, keys]
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/add_view.h"
#include "graph/pass/attention_match.h"

enum { FLAT = 3, RANK = 4, STEPS_MAX = 4 /* behind the product */, CLIMB_MAX = 8 };
enum { BATCH, HEADS, ROWS, COLUMNS };

typedef struct flat_product {
    int32_t x, y;   /* values of four dimensions */
    int32_t x_like; /* x, or what it was before masks, which has its dimensions */
    int32_t
        x_sizes; /* the list that x is seen in, with batch * heads and rows in it; MP_NO_VALUE */
    bool turned; /* columns of y are its rows */
    int32_t steps[STEPS_MAX + 1]; /* nodes: the product first, then what is done with it */
    int count;
    int bias;                   /* the step that adds a bias; 0: none */
    int32_t bias_flat, bias_of; /* values: what it adds, and [batch, heads, keys] it is made of */
    int32_t back;               /* node */
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

static bool find_y(const mp_graph *graph, int32_t value, flat_product *m) {
    const int32_t t = mp_graph_maker(graph, value, "Transpose");
    const mp_attr *perm = t != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[t]) : NULL;
    m->turned = perm != NULL;
    if (perm != NULL && (perm->count != FLAT || perm->ints[0] != 0 || perm->ints[1] != 2)) {
        return false;
    }
    const int32_t r = flat_view(graph, m->turned ? graph->nodes[t].in[0] : value);
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

/* [batch, heads, keys] that `value`, [batch * heads, 1, keys], is a view of. As there are several
 * heads, a sum with the scores repeats neither of them along the first dimension. */
static int32_t find_bias(const mp_graph *graph, int32_t value, int64_t heads) {
    const int32_t n = mp_graph_maker(graph, value, "Reshape");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->in_count != 2 || mp_graph_rank(graph, v->in[0]) != FLAT ||
        mp_graph_list_length(graph, v->in[1]) != FLAT ||
        mp_graph_dim(graph, v->in[0], 1) != heads || mp_graph_entry_dim(graph, v->in[1], 1) != 1) {
        return MP_NO_VALUE;
    }
    return mp_graph_entry_is(graph, v->in[1], 2, v->in[0], 2) ? v->in[0] : MP_NO_VALUE;
}

/* Whether the Reshape behind gives [batch, heads, rows, columns]; one of them, beside the heads,
 * follows from the others. */
static bool goes_back(const mp_graph *graph, const flat_product *m) {
    const mp_vertex *v = &graph->nodes[m->back];
    const int32_t sizes = v->in[1];
    int proven = mp_graph_entry_is(graph, sizes, BATCH, m->x_like, BATCH);
    int rows = mp_graph_entry_is(graph, sizes, ROWS, m->x_like, ROWS);
    int columns = mp_graph_entry_is(graph, sizes, COLUMNS, v->in[0], 2);
    if (m->bias == 0) { /* which may have more columns than one */
        columns |= mp_graph_entry_is(graph, sizes, COLUMNS, m->y, m->turned ? ROWS : COLUMNS);
    }
    for (int i = 0; i < m->count; i++) {
        rows |= mp_graph_entry_is(graph, sizes, ROWS, graph->nodes[m->steps[i]].out[0], 1);
    }
    proven += rows + columns;
    return proven >= 2 && v->in_count == 2 && mp_graph_list_length(graph, sizes) == RANK &&
           mp_graph_rank(graph, v->out[0]) == RANK &&
           mp_graph_entry_dim(graph, sizes, HEADS) == mp_graph_dim(graph, m->y, HEADS);
}

/* ---- from the product down ---- */

/* Whether a Gather takes nothing but the first two sizes. */
static bool takes_lead(const mp_graph *graph, const mp_vertex *v) {
    int64_t at[MP_RANK_MAX];
    int count = 0;
    if (!mp_vertex_is(v, "Gather") || !mp_graph_ints(graph, v, "", 1, at, &count)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (at[i] != 0 && at[i] != 1) {
            return false;
        }
    }
    return true;
}

/* Whether a Shape is asked for no more than the first two sizes, which the product has from x. */
static bool asks_for_lead(const mp_graph *graph, const mp_vertex *shape) {
    if (!mp_vertex_is(shape, "Shape") || mp_node_int(&shape->node, "start", 0) != 0 ||
        mp_graph_is_output(graph, shape->out[0])) {
        return false;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !v->is_gone; i++) {
            if (v->in[i] == shape->out[0] && (i > 0 || !takes_lead(graph, v))) {
                return false;
            }
        }
    }
    return true;
}

/* The only node that reads a product, beside such a Shape; or MP_NO_NODE. */
static int32_t reader_of_product(const mp_graph *graph, const flat_product *m, int32_t value) {
    int32_t found = MP_NO_NODE;
    if (m->x_sizes == MP_NO_VALUE) {
        return mp_graph_reader(graph, value, NULL);
    }
    if (mp_graph_is_output(graph, value) || mp_graph_is_condition(graph, value)) {
        return MP_NO_NODE;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !v->is_gone; i++) {
            if (v->in[i] != value || asks_for_lead(graph, v)) {
                continue;
            }
            if (found != MP_NO_NODE) {
                return MP_NO_NODE;
            }
            found = n;
        }
    }
    return found;
}

static bool add_step(const mp_graph *graph, flat_product *m, int32_t n, int32_t value) {
    const mp_vertex *v = &graph->nodes[n];
    const bool adds = mp_vertex_is(v, "Add") && m->bias == 0;
    if (m->count > STEPS_MAX || !mp_graph_same_guard(graph, m->steps[0], n)) {
        return false;
    }
    if (adds) {
        m->bias = m->count;
        m->bias_flat = v->in[v->in[0] == value];
        m->bias_of = find_bias(graph, m->bias_flat, mp_graph_dim(graph, m->y, HEADS));
    }
    const int scaled = mp_scaled_input(graph, v);
    m->steps[m->count++] = n;
    return adds ? m->bias_of != MP_NO_VALUE : scaled >= 0 && v->in[scaled] == value;
}

static bool find(const mp_graph *graph, int32_t n, flat_product *m) {
    const mp_vertex *v = &graph->nodes[n];
    *m = (flat_product){.steps = {n}, .count = 1};
    if (!mp_vertex_is(v, "MatMul") || !find_y(graph, v->in[1], m) || !find_x(graph, v->in[0], m)) {
        return false;
    }
    for (int32_t value = v->out[0];;) {
        const int32_t next = value == v->out[0] ? reader_of_product(graph, m, value)
                                                : mp_graph_reader(graph, value, NULL);
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

static mp_status add_value(mp_graph *graph, const flat_product *m, const char *name, int32_t *out) {
    const mp_shape *x = &graph->values[m->x_like].tensor.shape;
    const mp_shape *y = &graph->values[m->y].tensor.shape;
    const int64_t columns = y->dim[m->turned ? ROWS : COLUMNS];
    const mp_tensor tensor = {
        .type = mp_graph_type(graph, m->y),
        .shape = {.rank = RANK, .dim = {x->dim[BATCH], x->dim[HEADS], x->dim[ROWS], columns}}};
    return mp_graph_add_value(graph, name, &tensor, out);
}

/* A node more in front of the product: an own order, or a dimension of 1. */
static mp_status add_turn(mp_graph *graph, const flat_product *m, int32_t *out) {
    static const int64_t swapped[RANK] = {BATCH, HEADS, COLUMNS, ROWS};
    const mp_attr perm = {.name = "perm", .kind = MP_ATTR_INTS, .ints = swapped, .count = RANK};
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
    return mp_graph_add_beside(graph, m->steps[0], &node, &m->y, 1, *out);
}

/* `*axes`: a constant that all rewrites share, so that equal nodes stay equal. */
static mp_status add_bias(mp_graph *graph, const flat_product *m, int32_t *axes, int32_t *out) {
    static const int64_t at = ROWS;
    const mp_tensor axis = {.type = MP_I64, .shape = {.rank = 1, .dim = {1}}, .data = (mp_addr)&at};
    const mp_shape *from = &graph->values[m->bias_of].tensor.shape;
    const mp_tensor tensor = {
        .type = mp_graph_type(graph, m->bias_of),
        .shape = {.rank = RANK, .dim = {from->dim[0], from->dim[1], 1, from->dim[2]}}};
    const mp_vertex *v = &graph->nodes[m->steps[m->bias]];
    const mp_node node = {.op = mp_op_find("", "Unsqueeze", 13),
                          .version = 13,
                          .name = v->node.name,
                          .options = v->node.options};
    MP_TRY(*axes != MP_NO_VALUE ? MP_OK : mp_graph_add_constant(graph, "axes", &axis, axes));
    const int32_t in[] = {m->bias_of, *axes};
    MP_TRY(mp_graph_add_value(graph, graph->values[m->bias_of].name, &tensor, out));
    return mp_graph_add_beside(graph, m->steps[m->bias], &node, in, 2, *out);
}

/* Inputs of step `i`, whose own were `was`, now that the step before it, which gave `flat`, gives
 * `before`. */
static void inputs_of(const flat_product *m, int i, const int32_t *was, int32_t flat,
                      int32_t before, int32_t bias, int32_t in[2]) {
    for (int k = 0; k < 2; k++) {
        in[k] = was[k] == flat ? before : i == m->bias ? bias : was[k];
    }
}

/* Who asks for sizes of the product gets those that x was seen in. */
static void ask_x(mp_graph *graph, const flat_product *m) {
    const int32_t flat = graph->nodes[m->steps[0]].out[0];
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (mp_vertex_is(v, "Shape") && v->in[0] == flat) {
            mp_graph_replace(graph, v->out[0], m->x_sizes, false);
            mp_graph_drop_unread(graph, v->out[0]);
        }
    }
}

static mp_status rewrite(mp_graph *graph, const flat_product *m, int32_t *axes) {
    const mp_vertex product = graph->nodes[m->steps[0]], back = graph->nodes[m->back];
    const int32_t result = back.out[0];
    int32_t in[] = {m->x, m->y}, fresh[STEPS_MAX + 1] = {MP_NO_VALUE};
    int32_t bias = MP_NO_VALUE, flat = MP_NO_VALUE;
    const int32_t flat_bias = m->bias > 0 ? m->bias_flat : MP_NO_VALUE;
    MP_TRY(m->turned ? add_turn(graph, m, &in[1]) : MP_OK);
    MP_TRY(m->bias > 0 ? add_bias(graph, m, axes, &bias) : MP_OK);
    for (int i = 0; i + 1 < m->count; i++) {
        MP_TRY(add_value(graph, m, graph->values[result].name, &fresh[i]));
    }
    ask_x(graph, m);
    for (int i = 0; i < m->count; i++) {
        const mp_vertex was = graph->nodes[m->steps[i]];
        if (i > 0) {
            inputs_of(m, i, was.in, flat, fresh[i - 1], bias, in);
        }
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
    if (!changed) {
        return MP_OK;
    }
    mp_graph_compact(graph);
    return mp_graph_sort(graph);
}
