/* table_rows.c - rows of several tables side by side, each table's by a list of its own or by a
 * column of what several lists are in, as recommenders look things up: one launch for up to
 * K_TABLES_MAX of them. The compiler puts it in the place of Gather and Concat nodes.
 * Kernel: move/table_rows.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/indexed_args.h"
#include "op/core/families.h"
#include "op/core/plan.h"
#include "op/move/strided_copy.h"

#include <stddef.h>

/* Inputs are all tables, [rows, width], then the indices of each: a list or [lists, columns]. */
typedef struct tables {
    int count;
    const int64_t *columns; /* of each table's indices; -1: they are a list */
    int64_t lists, width;
} tables;

static mp_status read_tables(const mp_planner *p, tables *out) {
    const mp_attr *columns = mp_node_attr(p->node, "columns");
    *out = (tables){.count = p->in_count / 2};
    if (columns == NULL || columns->count != (size_t)out->count || p->in_count % 2 != 0 ||
        out->count == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%d inputs are no tables with a column for each",
                       p->in_count);
    }
    out->columns = columns->ints;
    out->lists = p->in[out->count].shape.rank > 0 ? p->in[out->count].shape.dim[0] : 0;
    out->width = p->in[0].shape.rank == 2 ? p->in[0].shape.dim[1] : 0;
    for (int i = 0; i < out->count; i++) {
        const mp_shape *table = &p->in[i].shape, *ids = &p->in[out->count + i].shape;
        const int64_t column = out->columns[i];
        char text[MP_SHAPE_TEXT];
        if (table->rank != 2 || table->dim[1] != out->width) {
            return MP_FAIL(INVALID_ARGUMENT, "table %d of shape %s has no rows of %lld elements", i,
                           mp_shape_text(table, text), (long long)out->width);
        }
        if (ids->rank != (column < 0 ? 1 : 2) || ids->dim[0] != out->lists ||
            (column >= 0 && column >= ids->dim[1])) {
            return MP_FAIL(INVALID_ARGUMENT, "indices %d of shape %s are no %lld, column %lld", i,
                           mp_shape_text(ids, text), (long long)out->lists, (long long)column);
        }
        if (table->dim[0] == 0 && out->lists > 0) {
            return MP_FAIL(INVALID_ARGUMENT, "table %d is empty, so no index is valid", i);
        }
    }
    return MP_OK;
}

/* Tables [from, to). */
static mp_status launch(mp_planner *p, const tables *all, int from, int to) {
    const size_t size = mp_dtype_size(p->in[0].type);
    const size_t unit = mp_move_unit(p, all->width * (int64_t)size, size);
    const int64_t inner = all->width * (int64_t)size / (int64_t)unit;
    mp_table_rows_args args = {
        .inner = inner, .tables = to - from, .pitch = all->count * inner, .first = from * inner};
    mp_bind binds[2 * K_TABLES_MAX + 1] = {MP_BIND(mp_table_rows_args, out, MP_OUT(0))};
    size_t count = 1;
    args.count = all->lists * (to - from) * inner;
    args.wide = args.count > INT32_MAX;
    for (int i = from; i < to; i++) {
        k_table *t = &args.table[i - from];
        const mp_shape *ids = &p->in[all->count + i].shape;
        const size_t at =
            offsetof(mp_table_rows_args, table) + (size_t)(i - from) * sizeof(k_table);
        t->rows = p->in[i].shape.dim[0];
        t->column = (int32_t)MP_MAX(all->columns[i], 0);
        t->step = ids->rank == 2 ? ids->dim[1] : 1;
        binds[count++] = (mp_bind){at + offsetof(k_table, x), MP_IN(i)};
        binds[count++] = (mp_bind){at + offsetof(k_table, indices), MP_IN(all->count + i)};
    }
    if (!args.wide) {
        args.by_inner = mp_divider((uint32_t)inner);
        args.by_tables = mp_divider((uint32_t)args.tables);
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "table_rows_b%zu_%s", unit * 8,
                          mp_dtype_word(p->in[all->count].type)));
    return MP_LAUNCH_BOUND(p, kernel, mp_plan_grid(p, args.count, 1), &args, sizeof args, binds,
                           count);
}

static mp_status plan_table_rows(mp_planner *p) {
    tables all;
    MP_TRY(read_tables(p, &all));
    const bool is_flat = mp_node_int(p->node, "flat", 0) != 0;
    const mp_shape shape = {
        .rank = is_flat ? 2 : 3,
        .dim = {all.lists, is_flat ? all.count * all.width : all.count, all.width}};
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &shape));
    if (all.lists == 0 || all.width == 0) {
        return MP_OK;
    }
    for (int from = 0; from < all.count; from += K_TABLES_MAX) {
        MP_TRY(launch(p, &all, from, MP_MIN(from + K_TABLES_MAX, all.count)));
    }
    return MP_OK;
}

static const mp_attr_def attrs[] = {{"columns", MP_ATTR_INTS}, {"flat", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "TableRows",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_ALL_TYPES}},
     .attrs = attrs,
     .plan = plan_table_rows},
};

const mp_op_family mp__family_table_rows = {"table_rows", ops, MP_COUNT_OF(ops)};
