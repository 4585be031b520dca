/* find_group_norm.c - group normalisation as torch writes it becomes GroupNormalization:
 *
 *     y = InstanceNormalization(Reshape(x, [n, groups, -1]), 1, 0)
 *     out = Reshape(y, shape of x) * scale + bias
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

#include <stdio.h>
#include <string.h>

enum { BATCH, CHANNEL, REST, ROWS_RANK, VERSION = 21 };

typedef struct match {
    int32_t norm; /* nodes: InstanceNormalization; the one that makes the result */
    int32_t last;
    int32_t x, scale, bias; /* values */
    int64_t groups, channels;
} match;

/* ---- constants ---- */

/* Whether all elements of a constant row of so many are 1, or else 0. */
static bool is_filled(const mp_graph *graph, int32_t value, int64_t count, bool with_one) {
    static const double one_f64 = 1;
    static const float one_f32 = 1;
    static const uint16_t one_f16 = 0x3c00, one_bf16 = 0x3f80;
    static const uint64_t zero = 0;
    const mp_tensor *t = mp_graph_constant(graph, value);
    if (t == NULL || t->data == 0 || t->shape.rank != 1 || t->shape.dim[0] != count) {
        return false;
    }
    const void *wanted = t->type == MP_F64    ? (const void *)&one_f64
                         : t->type == MP_F32  ? (const void *)&one_f32
                         : t->type == MP_F16  ? (const void *)&one_f16
                         : t->type == MP_BF16 ? (const void *)&one_bf16
                                              : NULL;
    const size_t size = mp_dtype_size(t->type);
    bool all = wanted != NULL;
    for (int64_t i = 0; i < count && all; i++) {
        all = memcmp((const unsigned char *)t->data + (size_t)i * size, with_one ? wanted : &zero,
                     size) == 0;
    }
    return all;
}

/* Whether a constant, of this type, has a number for each channel of an image of `rank`. */
static bool is_of_channels(const mp_graph *graph, int32_t value, const match *m, int rank) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    if (t == NULL || t->data == 0 || t->type != mp_graph_type(graph, m->x) ||
        t->shape.rank > rank || t->shape.rank < rank - CHANNEL) {
        return false;
    }
    for (int d = 0; d < t->shape.rank; d++) {
        const int64_t wanted = d + rank - t->shape.rank == CHANNEL ? m->channels : 1;
        if (t->shape.dim[d] != wanted) {
            return false;
        }
    }
    return true;
}

/* ---- the pattern ---- */

/* Whether dimension d of `y`, made by a Reshape to `list`, is that of x. */
static bool is_kept(const mp_graph *graph, int32_t list, int32_t y, int32_t x, int d) {
    const int64_t size = mp_graph_dim(graph, x, d);
    return mp_graph_entry_is(graph, list, d, x, d) || mp_graph_same_dim(graph, x, d, y, d) ||
           (size > 0 && mp_graph_entry(graph, list, d) == size);
}

/* Whether node `n` sees [n, channels, ...] as [n, groups, ...]. */
static bool makes_groups(const mp_graph *graph, int32_t n, match *m) {
    const mp_vertex *v = &graph->nodes[n];
    const bool copies = mp_node_int(&v->node, "allowzero", 0) == 0; /* where it says 0 */
    m->x = v->in[0];
    m->channels = mp_graph_dim(graph, m->x, CHANNEL);
    if (v->in_count != 2 || mp_graph_rank(graph, m->x) < ROWS_RANK || m->channels < 1 ||
        mp_graph_list_length(graph, v->in[1]) != ROWS_RANK || m->groups < 1 ||
        m->channels % m->groups != 0 || mp_graph_entry(graph, v->in[1], CHANNEL) != m->groups) {
        return false;
    }
    return (copies && mp_graph_entry(graph, v->in[1], BATCH) == 0) ||
           is_kept(graph, v->in[1], v->out[0], m->x, BATCH);
}

/* Whether a list of sizes is known to have so many: by its own length, or as all that Shape gives.
 */
static bool is_long(const mp_graph *graph, int32_t list, int rank) {
    const int32_t n = mp_graph_maker(graph, list, "Shape");
    return mp_graph_list_length(graph, list) == rank ||
           (n != MP_NO_NODE && graph->nodes[n].node.attr_count == 0 &&
            mp_graph_rank(graph, graph->nodes[n].in[0]) == rank);
}

/* Whether node `n` gives x's dimensions back: all but one, as many elements leave no choice. */
static bool makes_image(const mp_graph *graph, int32_t n, const match *m) {
    const mp_vertex *v = &graph->nodes[n];
    const int rank = mp_graph_rank(graph, m->x);
    int kept = 0;
    if (v->in_count != 2 || !is_long(graph, v->in[1], rank)) {
        return false;
    }
    for (int d = 0; d < rank; d++) {
        kept += is_kept(graph, v->in[1], v->out[0], m->x, d);
    }
    return kept == rank || (kept == rank - 1 && is_kept(graph, v->in[1], v->out[0], m->x, BATCH) &&
                            is_kept(graph, v->in[1], v->out[0], m->x, CHANNEL));
}

/* The only reader of `value`, with the constant of channels that it also reads. */
static int32_t with_channels(const mp_graph *graph, int32_t value, const char *op, const match *m,
                             int32_t *constant) {
    const int32_t n = mp_graph_reader(graph, value, op);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->in_count != 2) {
        return MP_NO_NODE;
    }
    *constant = v->in[0] == value ? v->in[1] : v->in[0];
    return is_of_channels(graph, *constant, m, mp_graph_rank(graph, m->x)) ? n : MP_NO_NODE;
}

static bool find(const mp_graph *graph, int32_t n, match *m) {
    const mp_vertex *v = &graph->nodes[n];
    if (!mp_vertex_is(v, "InstanceNormalization") || v->in_count != 3) {
        return false;
    }
    const int32_t before = mp_graph_maker(graph, v->in[0], "Reshape");
    const mp_tensor *one = mp_graph_constant(graph, v->in[1]);
    *m = (match){.norm = n, .groups = one != NULL && one->shape.rank == 1 ? one->shape.dim[0] : 0};
    if (before == MP_NO_NODE || mp_graph_reader(graph, v->in[0], NULL) != n ||
        !makes_groups(graph, before, m) || !is_filled(graph, v->in[1], m->groups, true) ||
        !is_filled(graph, v->in[2], m->groups, false)) {
        return false;
    }
    const int32_t back = mp_graph_reader(graph, v->out[0], "Reshape");
    if (back == MP_NO_NODE || graph->nodes[back].in[0] != v->out[0] ||
        !makes_image(graph, back, m)) {
        return false;
    }
    const int32_t scaled = with_channels(graph, graph->nodes[back].out[0], "Mul", m, &m->scale);
    m->last = scaled != MP_NO_NODE
                  ? with_channels(graph, graph->nodes[scaled].out[0], "Add", m, &m->bias)
                  : MP_NO_NODE;
    return m->last != MP_NO_NODE;
}

/* ---- the operator ---- */

static mp_status as_row(mp_graph *graph, int32_t value, const match *m, int32_t *out) {
    const mp_value v = graph->values[value];
    mp_tensor row = v.tensor;
    row.shape = (mp_shape){.rank = 1, .dim = {m->channels}};
    return mp_graph_add_constant(graph, v.name, &row, out);
}

static mp_status rewrite(mp_graph *graph, const match *m) {
    const mp_vertex was = graph->nodes[m->last];
    const mp_vertex norm = graph->nodes[m->norm];
    const mp_attr attrs[] = {{.name = "epsilon",
                              .kind = MP_ATTR_FLOAT,
                              .f = mp_node_float(&norm.node, "epsilon", 1e-5F)},
                             {.name = "num_groups", .kind = MP_ATTR_INT, .i = m->groups}};
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", norm.node.name, was.node.name);
    const mp_node node = {.op = mp_op_find("", "GroupNormalization", VERSION),
                          .version = VERSION,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs),
                          .options = was.node.options};
    int32_t in[] = {m->x, MP_NO_VALUE, MP_NO_VALUE};
    MP_TRY(as_row(graph, m->scale, m, &in[1]));
    MP_TRY(as_row(graph, m->bias, m, &in[2]));
    MP_TRY(mp_graph_change_node(graph, m->last, &node, in, 3, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_find_group_norm(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        match m;
        if (find(graph, n, &m) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &m));
        }
    }
    return MP_OK;
}
