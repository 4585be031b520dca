/* find_norm.c - layer normalisation and its kind without a mean, written out in primitive
 * operators, become LayerNormalization and RMSNormalization.
 *
 *     d   = x - ReduceMean(x)                  (or x itself)
 *     out = d / Sqrt(ReduceMean(d * d) + epsilon) * scale + bias
 *
 * or, as Keras has it, with f = scale / Sqrt(ReduceMean(d * d) + epsilon)
 *
 *     out = x * f + (bias - ReduceMean(x) * f)
 *
 * Casts to float around it go where the operator, which computes in float, takes the type before.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <math.h>
#include <stdio.h>

typedef struct match {
    int32_t mean, square; /* nodes: the mean of squares; what squares */
    int32_t x;            /* value */
    bool centred;
    double epsilon;
    int axes;     /* how many of the last dimensions a row has */
    int32_t cast; /* a Cast back to the type of x between the norm and the scale; MP_NO_NODE */
    int32_t last; /* node whose output is the result */
    int32_t scale, bias; /* values; no bias: MP_NO_VALUE */
} match;

/* ---- pieces ---- */

/* The other input of a node of two inputs, if `value` is one of them. */
static int32_t other_input(const mp_vertex *v, int32_t value) {
    if (v->in_count != 2 || (v->in[0] != value && v->in[1] != value)) {
        return MP_NO_VALUE;
    }
    return v->in[0] == value ? v->in[1] : v->in[0];
}

/* Whether it is a mean; tf2onnx has it as that of an image's channels, too. */
static bool is_mean(const mp_vertex *v) {
    return mp_vertex_is(v, "ReduceMean") || mp_vertex_is(v, "GlobalAveragePool");
}

/* A mean along the last dimensions, which stay as 1; how many; 0. */
static int trailing_axes(const mp_graph *graph, int32_t n) {
    const mp_vertex *v = &graph->nodes[n];
    const int rank = mp_graph_rank(graph, v->in[0]);
    if (mp_vertex_is(v, "GlobalAveragePool")) {
        return rank > 2 ? rank - 2 : 0;
    }
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    uint32_t seen = 0;
    if (rank < 1 || mp_node_int(&v->node, "keepdims", 1) != 1 ||
        !mp_graph_ints(graph, v, "axes", 1, axes, &count) || count < 1 || count > rank) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        const int64_t at = axes[i] < 0 ? axes[i] + rank : axes[i];
        seen |= at >= 0 && at < rank ? 1u << at : 0;
    }
    const uint32_t wanted = ((1u << count) - 1) << (rank - count);
    return seen == wanted ? count : 0;
}

/* What is squared, by Pow or Mul. */
static int32_t squared(const mp_graph *graph, int32_t value, int32_t *node) {
    double two = 0;
    *node = mp_graph_maker(graph, value, "Pow");
    if (*node != MP_NO_NODE) {
        const mp_vertex *v = &graph->nodes[*node];
        return mp_graph_number(graph, v->in[1], &two) && two == 2 ? v->in[0] : MP_NO_VALUE;
    }
    *node = mp_graph_maker(graph, value, "Mul");
    const mp_vertex *v = *node != MP_NO_NODE ? &graph->nodes[*node] : NULL;
    return v != NULL && v->in[0] == v->in[1] ? v->in[0] : MP_NO_VALUE;
}

/* x, where `value` is x less `*mean`, its mean along the same dimensions. */
static int32_t off_the_mean(const mp_graph *graph, int32_t value, int axes, int32_t *mean) {
    const int32_t n = mp_graph_maker(graph, value, "Sub");
    const int32_t by =
        n != MP_NO_NODE ? mp_graph_maker(graph, graph->nodes[n].in[1], NULL) : MP_NO_NODE;
    const bool fits = by != MP_NO_NODE && is_mean(&graph->nodes[by]) &&
                      graph->nodes[by].in[0] == graph->nodes[n].in[0] &&
                      trailing_axes(graph, by) == axes;
    *mean = fits ? graph->nodes[by].out[0] : MP_NO_VALUE;
    return fits ? graph->nodes[n].in[0] : MP_NO_VALUE;
}

/* The root of `value`, or what that root divides 1 by; MP_NO_VALUE for neither. */
static int32_t root_of(const mp_graph *graph, int32_t value, bool *is_inverse) {
    double number = 0;
    int32_t n = mp_graph_reader(graph, value, NULL);
    if (n == MP_NO_NODE) {
        return MP_NO_VALUE;
    }
    const mp_vertex *v = &graph->nodes[n];
    *is_inverse = mp_vertex_is(v, "Pow") && v->in[0] == value &&
                  mp_graph_number(graph, v->in[1], &number) && number == -0.5;
    if (!*is_inverse && !mp_vertex_is(v, "Sqrt")) {
        return MP_NO_VALUE;
    }
    const int32_t root = v->out[0];
    n = mp_graph_reader(graph, root, NULL);
    v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (!*is_inverse && v != NULL &&
        (mp_vertex_is(v, "Reciprocal") ||
         (mp_vertex_is(v, "Div") && v->in[1] == root && mp_graph_number(graph, v->in[0], &number) &&
          number == 1))) {
        *is_inverse = true;
        return v->out[0];
    }
    return root;
}

/* The node that divides `d` by the root of `value`, or multiplies it by what that root divides 1
 * by. */
static int32_t divided(const mp_graph *graph, int32_t value, int32_t d) {
    bool is_inverse = false;
    const int32_t root = root_of(graph, value, &is_inverse);
    const int32_t n = root != MP_NO_VALUE ? mp_graph_reader(graph, root, NULL) : MP_NO_NODE;
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || other_input(v, root) != d) {
        return MP_NO_NODE;
    }
    return mp_vertex_is(v, "Mul")
               ? (is_inverse ? n : MP_NO_NODE)
               : (mp_vertex_is(v, "Div") && !is_inverse && v->in[0] == d ? n : MP_NO_NODE);
}

/* ---- scale, bias and casts ---- */

/* A constant of the last dimensions of x, or one with more of 1 in front, whose bytes are here. */
static bool is_row(const mp_graph *graph, const match *m, int32_t value) {
    const mp_tensor *row = mp_graph_constant(graph, value);
    const int more = row != NULL ? row->shape.rank - m->axes : -1;
    if (more < 0 || (more > 0 && row->data == 0) || row->shape.rank > mp_graph_rank(graph, m->x)) {
        return false;
    }
    for (int d = 0; d < row->shape.rank; d++) {
        if (row->shape.dim[d] != (d < more ? 1 : mp_graph_dim(graph, m->x, d - row->shape.rank))) {
            return false;
        }
    }
    return true;
}

/* The only reader of the result so far, if it is `name` with a row. */
static int32_t row_behind(const mp_graph *graph, const match *m, const char *name, int32_t *row) {
    const int32_t value = graph->nodes[m->last].out[0];
    const int32_t n = mp_graph_reader(graph, value, name);
    *row = n != MP_NO_NODE ? other_input(&graph->nodes[n], value) : MP_NO_VALUE;
    return is_row(graph, m, *row) ? n : MP_NO_NODE;
}

static bool find_scale(const mp_graph *graph, match *m) {
    const int32_t cast = mp_graph_reader(graph, graph->nodes[m->last].out[0], "Cast");
    m->cast = MP_NO_NODE;
    m->bias = MP_NO_VALUE;
    if (cast != MP_NO_NODE) {
        m->cast = cast;
        m->last = cast;
    }
    const int32_t scaled = row_behind(graph, m, "Mul", &m->scale);
    if (scaled == MP_NO_NODE) {
        return false;
    }
    m->last = scaled;
    const int32_t added = m->centred ? row_behind(graph, m, "Add", &m->bias) : MP_NO_NODE;
    if (added == MP_NO_NODE) {
        m->bias = MP_NO_VALUE;
    } else {
        m->last = added;
    }
    return true;
}

/* ---- as Keras has it ---- */

/* Both products of the factor `f`, whose readers are two nodes: with x, and with the mean or what
 * it is less than 0. */
static bool find_parts(const mp_graph *graph, const match *m, int32_t f, int32_t mean,
                       int32_t *of_x, int32_t *of_mean, bool *is_negative) {
    *of_x = *of_mean = MP_NO_NODE;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const int32_t by = mp_vertex_is(v, "Mul") ? other_input(v, f) : MP_NO_VALUE;
        const int32_t neg = by != MP_NO_VALUE ? mp_graph_maker(graph, by, "Neg") : MP_NO_NODE;
        if (by == m->x) {
            *of_x = n;
        } else if (by == mean || (neg != MP_NO_NODE && graph->nodes[neg].in[0] == mean)) {
            *of_mean = n;
            *is_negative = by != mean;
        }
    }
    return *of_x != MP_NO_NODE && *of_mean != MP_NO_NODE && mp_graph_uses(graph, f) == 2 &&
           !mp_graph_is_output(graph, f) && mp_graph_same_guard(graph, *of_x, m->mean) &&
           mp_graph_same_guard(graph, *of_mean, m->mean);
}

/* The last sum, behind the parts of the scaled mean: from it the bias is left. */
static int32_t find_sum(const mp_graph *graph, match *m, int32_t of_x, int32_t of_mean,
                        bool is_negative) {
    const int32_t x = graph->nodes[of_x].out[0];
    int32_t shift = graph->nodes[of_mean].out[0];
    const int32_t last = mp_graph_reader(graph, x, NULL);
    const int32_t behind = mp_graph_reader(graph, shift, NULL);
    if (last == MP_NO_NODE || behind == MP_NO_NODE) {
        return MP_NO_NODE;
    }
    const mp_vertex *v = &graph->nodes[behind];
    const bool adds = mp_vertex_is(v, is_negative ? "Add" : "Sub");
    m->bias = behind != last && adds ? other_input(v, shift) : MP_NO_VALUE;
    if (m->bias != MP_NO_VALUE && is_row(graph, m, m->bias) && (is_negative || v->in[1] == shift)) {
        shift = v->out[0];
        is_negative = true;
    } else {
        m->bias = MP_NO_VALUE;
    }
    v = &graph->nodes[last];
    return mp_graph_reader(graph, shift, NULL) == last && other_input(v, x) == shift &&
                   mp_vertex_is(v, is_negative ? "Add" : "Sub") && (is_negative || v->in[0] == x)
               ? last
               : MP_NO_NODE;
}

/* Fills in all that follows the sum of the variance and epsilon. */
static bool find_scaled_first(const mp_graph *graph, int32_t sum, int32_t mean, match *m) {
    bool is_inverse = false, is_negative = false;
    int32_t of_x = MP_NO_NODE, of_mean = MP_NO_NODE;
    const int32_t root = root_of(graph, graph->nodes[sum].out[0], &is_inverse);
    const int32_t scaled =
        is_inverse && root != MP_NO_VALUE ? mp_graph_reader(graph, root, "Mul") : MP_NO_NODE;
    m->cast = MP_NO_NODE;
    m->scale = scaled != MP_NO_NODE ? other_input(&graph->nodes[scaled], root) : MP_NO_VALUE;
    if (!is_row(graph, m, m->scale) ||
        !find_parts(graph, m, graph->nodes[scaled].out[0], mean, &of_x, &of_mean, &is_negative)) {
        return false;
    }
    m->last = find_sum(graph, m, of_x, of_mean, is_negative);
    return m->last != MP_NO_NODE;
}

/* The types of x, and of scale and result, that the operator is to have; false where it has none
 * such. x may become what was cast to it. */
static bool settle_types(const mp_graph *graph, match *m) {
    const int32_t n = mp_graph_maker(graph, m->x, "Cast");
    const mp_dtype type = mp_graph_type(graph, m->x);
    const mp_dtype scale = graph->values[m->scale].tensor.type;
    const mp_dtype given = n != MP_NO_NODE ? mp_graph_type(graph, graph->nodes[n].in[0]) : MP_NONE;
    const bool narrow = type == MP_F32 && (given == MP_F16 || given == MP_BF16);
    if (m->cast != MP_NO_NODE) { /* back to what it was before: rounded once instead of twice */
        const bool back = narrow && scale == given &&
                          mp_node_int(&graph->nodes[m->cast].node, "to", 0) == (int64_t)given;
        m->x = back ? graph->nodes[n].in[0] : m->x;
        return back;
    }
    if (narrow && scale == MP_F32) {
        m->x = graph->nodes[n].in[0];
        return true;
    }
    return type != MP_NONE && type != MP_F64 && type == scale;
}

static bool find(const mp_graph *graph, int32_t n, match *m) {
    int32_t other = MP_NO_VALUE;
    *m = (match){.mean = n, .axes = trailing_axes(graph, n)};
    const int32_t d = m->axes > 0 ? squared(graph, graph->nodes[n].in[0], &m->square) : MP_NO_VALUE;
    const int32_t sum =
        d != MP_NO_VALUE ? mp_graph_reader(graph, graph->nodes[n].out[0], "Add") : MP_NO_NODE;
    if (sum == MP_NO_NODE || mp_graph_reader(graph, graph->nodes[n].in[0], NULL) != n) {
        return false;
    }
    other = other_input(&graph->nodes[sum], graph->nodes[n].out[0]);
    if (!mp_graph_number(graph, other, &m->epsilon) || m->epsilon < 0) {
        return false;
    }
    int32_t mean = MP_NO_VALUE;
    const int32_t centred = off_the_mean(graph, d, m->axes, &mean);
    m->centred = centred != MP_NO_VALUE;
    m->x = m->centred ? centred : d;
    m->last = divided(graph, graph->nodes[sum].out[0], d);
    const bool found = m->last != MP_NO_NODE ? find_scale(graph, m)
                                             : m->centred && find_scaled_first(graph, sum, mean, m);
    return found && settle_types(graph, m) &&
           mp_graph_same_rank(graph, m->x, graph->nodes[m->last].out[0]);
}

/* ---- the operator ---- */

/* A row without more dimensions than those that are normalised. */
static mp_status as_row(mp_graph *graph, const match *m, int32_t *value) {
    if (*value == MP_NO_VALUE || graph->values[*value].tensor.shape.rank == m->axes) {
        return MP_OK;
    }
    const mp_tensor wide = graph->values[*value].tensor;
    mp_tensor row = {.type = wide.type, .shape = {.rank = m->axes}, .data = wide.data};
    for (int d = 0; d < m->axes; d++) {
        row.shape.dim[d] = wide.shape.dim[wide.shape.rank - m->axes + d];
    }
    return mp_graph_add_constant(graph, graph->values[*value].name, &row, value);
}

static mp_status rewrite(mp_graph *graph, const match *m) {
    const mp_vertex was = graph->nodes[m->last];
    const bool mixed = mp_graph_type(graph, m->x) != graph->values[m->scale].tensor.type;
    const int version = !m->centred ? 23 : mixed ? 1 : 17;
    const mp_attr attrs[] = {{.name = "axis", .kind = MP_ATTR_INT, .i = -m->axes},
                             {.name = "epsilon", .kind = MP_ATTR_FLOAT, .f = (float)m->epsilon}};
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", graph->nodes[m->mean].node.name, was.node.name);
    const mp_node node = {
        .op = mp_op_find("", m->centred ? "LayerNormalization" : "RMSNormalization", version),
        .version = version,
        .name = name,
        .attrs = attrs,
        .attr_count = MP_COUNT_OF(attrs),
        .options = was.node.options};
    int32_t in[] = {m->x, m->scale, m->bias};
    MP_TRY(as_row(graph, m, &in[1]));
    MP_TRY(as_row(graph, m, &in[2]));
    MP_TRY(mp_graph_change_node(graph, m->last, &node, in, m->bias != MP_NO_VALUE ? 3 : 2, was.out,
                                1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_find_norm(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        match m;
        if (is_mean(&graph->nodes[n]) && find(graph, n, &m) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &m));
        }
    }
    return MP_OK;
}
