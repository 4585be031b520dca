/* join_lookups.c - rows of several tables that are put side by side, each found by a list of
 * indices or by a column of what all lists are in, become one node, which is one launch:
 *
 *     Concat(.., Unsqueeze(Gather(t0, Gather(ids, 0))), Unsqueeze(Gather(t1, Gather(ids, 1))), ..)
 *     becomes   Concat(.., millpond.TableRows(t0, t1, ids, ids), ..)
 *
 * or without the Unsqueeze nodes, where rows are joined to longer ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

#include <stdlib.h>

enum { LEAST = 3 }; /* of two it is hardly worth it */

typedef struct lookup {
    int32_t table, ids;
    int64_t column;               /* of ids; -1: all of it is a list */
    bool is_row;                  /* behind an Unsqueeze: one of several rows */
    int32_t gather, pick, behind; /* the nodes: of rows, of the column, the Unsqueeze, or none */
} lookup;

/* Of which indices `value` is a column; or it is a list of its own. */
static void read_column(const mp_graph *graph, int32_t value, lookup *out) {
    const int32_t n = mp_graph_maker(graph, value, "Gather");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    double number = 0;
    out->ids = value;
    out->column = -1;
    out->pick = MP_NO_NODE;
    if (v == NULL || mp_graph_rank(graph, v->in[0]) != 2 || mp_graph_rank(graph, v->in[1]) != 0 ||
        mp_node_int(&v->node, "axis", 0) != 1 || !mp_graph_number(graph, v->in[1], &number)) {
        return;
    }
    const int64_t columns = mp_graph_dim(graph, v->in[0], 1);
    if (columns > 0 && number >= (double)-columns && number < (double)columns) {
        out->ids = v->in[0];
        out->column = (int64_t)number + (number < 0 ? columns : 0);
        out->pick = n;
    }
}

/* Whether `value`, which only node `n` reads, are rows of a table. */
static bool read_lookup(const mp_graph *graph, int32_t n, int32_t value, lookup *out) {
    const int32_t behind = mp_graph_maker(graph, value, "Unsqueeze");
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    *out = (lookup){.is_row = behind != MP_NO_NODE, .behind = behind};
    const int64_t axis = mp_node_int(&graph->nodes[n].node, "axis", 0);
    if (mp_graph_reader(graph, value, "Concat") != n ||
        (axis != 1 && axis != (out->is_row ? -2 : -1))) {
        return false;
    }
    if (out->is_row) {
        const mp_vertex *v = &graph->nodes[behind];
        if (!mp_graph_ints(graph, v, "axes", 1, axes, &count) || count != 1 ||
            (axes[0] != 1 && axes[0] != -2)) {
            return false;
        }
        value = v->in[0];
    }
    out->gather = mp_graph_maker(graph, value, "Gather");
    if (out->gather == MP_NO_NODE ||
        mp_graph_reader(graph, value, NULL) != (out->is_row ? behind : n)) {
        return false;
    }
    const mp_vertex *v = &graph->nodes[out->gather];
    out->table = v->in[0];
    read_column(graph, v->in[1], out);
    const mp_dtype type = mp_graph_type(graph, out->ids);
    return mp_node_int(&v->node, "axis", 0) == 0 && mp_graph_rank(graph, out->table) == 2 &&
           mp_graph_dim(graph, out->table, 1) > 0 &&
           mp_graph_rank(graph, out->ids) == (out->column < 0 ? 1 : 2) &&
           (type == MP_I32 || type == MP_I64) && mp_graph_same_guard(graph, out->gather, n);
}

/* Whether both may be of one node. */
static bool are_alike(const mp_graph *graph, const lookup *a, const lookup *b) {
    return a->is_row == b->is_row &&
           mp_graph_type(graph, a->table) == mp_graph_type(graph, b->table) &&
           mp_graph_type(graph, a->ids) == mp_graph_type(graph, b->ids) &&
           mp_graph_dim(graph, a->table, 1) == mp_graph_dim(graph, b->table, 1);
}

/* The first inputs of a Concat, from `*from` on, that are alike: how many, LEAST or more, or 0.
 * `all` has room for all inputs; theirs are at the same places. */
static int find_run(const mp_graph *graph, int32_t n, lookup *all, int *from) {
    const mp_vertex *v = &graph->nodes[n];
    int count = 0;
    for (int i = *from; i < v->in_count; i++) {
        const bool is_one = read_lookup(graph, n, v->in[i], &all[i]);
        if (is_one && count > 0 && are_alike(graph, &all[i - 1], &all[i])) {
            count++;
            continue;
        }
        if (count >= LEAST) {
            return count;
        }
        *from = i;
        count = is_one ? 1 : 0;
    }
    return count >= LEAST ? count : 0;
}

/* Node `rows` stands for those of the lookups that nobody needs any more. */
static mp_status stand_for(mp_graph *graph, int32_t rows, const lookup *all, int count) {
    for (int i = 0; i < count; i++) {
        const int32_t nodes[] = {all[i].pick, all[i].gather, all[i].behind};
        for (size_t k = 0; k < MP_COUNT_OF(nodes); k++) {
            if (nodes[k] != MP_NO_NODE && graph->nodes[nodes[k]].is_gone) {
                MP_TRY(mp_graph_absorb(graph, rows, nodes[k]));
            }
        }
    }
    return MP_OK;
}

/* A value for the rows of these lookups, of which it is known how many there are of each list. */
static mp_status add_value(mp_graph *graph, const char *name, const lookup *all, int count,
                           int32_t *out) {
    mp_tensor rows = {.type = mp_graph_type(graph, all->table),
                      .shape = {.rank = all->is_row ? 3 : 2, .dim = {MP_DIM_UNKNOWN}}};
    rows.shape.dim[1] = all->is_row ? count : MP_DIM_UNKNOWN;
    rows.shape.dim[2] = mp_graph_dim(graph, all->table, 1);
    return mp_graph_add_value(graph, name, &rows, out);
}

/* The lookups as one node beside the Concat, whose result is `*out`; or in its place where they are
 * all that it joins. `columns` and `in` have room for what the node says and reads. */
static mp_status add_rows(mp_graph *graph, int32_t n, const lookup *all, int count,
                          int64_t *columns, int32_t *in, int32_t *out) {
    const mp_vertex was = graph->nodes[n];
    const mp_attr attrs[] = {
        {.name = "columns", .kind = MP_ATTR_INTS, .ints = columns, .count = (size_t)count},
        {.name = "flat", .kind = MP_ATTR_INT, .i = !all->is_row}};
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "TableRows", 1),
                          .version = 1,
                          .name = was.node.name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs),
                          .options = was.node.options};
    for (int i = 0; i < count; i++) {
        in[i] = all[i].table;
        in[count + i] = all[i].ids;
        columns[i] = all[i].column;
    }
    if (count == was.in_count) {
        return mp_graph_change_node(graph, n, &node, in, 2 * count, was.out, was.out_count);
    }
    MP_TRY(add_value(graph, node.name, all, count, out));
    return mp_graph_add_beside(graph, n, &node, in, 2 * count, *out);
}

/* The run from `from` on becomes one input of the Concat; `in` has room for all of them. */
static mp_status read_rows(mp_graph *graph, int32_t n, int from, int count, int32_t rows,
                           int32_t *in) {
    const mp_vertex was = graph->nodes[n];
    int kept = 0;
    for (int i = 0; i < was.in_count; i++) {
        if (i <= from || i >= from + count) {
            in[kept++] = i == from ? rows : was.in[i];
        }
    }
    return mp_graph_change_node(graph, n, &was.node, in, kept, was.out, was.out_count);
}

static mp_status rewrite(mp_graph *graph, int32_t n, const lookup *all, int from, int count) {
    const mp_vertex was = graph->nodes[n];
    const bool is_all = count == was.in_count;
    int64_t *columns = calloc((size_t)count, sizeof *columns);
    int32_t *in = calloc(2 * (size_t)was.in_count, sizeof *in);
    int32_t rows = MP_NO_VALUE;
    mp_status status = MP_OK;
    if (columns == NULL || in == NULL) {
        status = MP_FAIL(OUT_OF_MEMORY, "cannot allocate a list of %d tables", count);
    }
    if (status == MP_OK) {
        status = add_rows(graph, n, all + from, count, columns, in, &rows);
    }
    const int32_t made = is_all ? n : graph->node_count - 1;
    if (status == MP_OK && !is_all) {
        status = read_rows(graph, n, from, count, rows, in);
    }
    if (status == MP_OK) {
        mp_graph_drop_inputs(graph, &was);
        status = stand_for(graph, made, all + from, count);
    }
    free(in);
    free(columns);
    return status;
}

/* All runs of a Concat. */
static mp_status join(mp_graph *graph, mp_rewrites *rewrites, int32_t n, lookup *all,
                      bool *changed) {
    for (int from = 0; mp_vertex_is(&graph->nodes[n], "Concat"); from++) {
        const int count = find_run(graph, n, all, &from);
        if (count == 0 || !mp_rewrite_allowed(rewrites)) {
            return MP_OK;
        }
        MP_TRY(rewrite(graph, n, all, from, count));
        *changed = true;
    }
    return MP_OK;
}

mp_status mp_pass_join_lookups(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t nodes = graph->node_count;
    mp_status status = MP_OK;
    bool changed = false;
    for (int32_t n = 0; n < nodes && status == MP_OK; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (!mp_vertex_is(v, "Concat") || v->in_count < LEAST) {
            continue;
        }
        lookup *all = calloc((size_t)v->in_count, sizeof *all);
        status = all != NULL
                     ? join(graph, rewrites, n, all, &changed)
                     : MP_FAIL(OUT_OF_MEMORY, "cannot allocate a list of %d inputs", v->in_count);
        free(all);
    }
    MP_TRY(status);
    return mp_graph_tidy(graph, changed);
}
