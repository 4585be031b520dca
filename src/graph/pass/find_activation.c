/* find_activation.c - activations written out in primitive operators become one operator: Gelu by
 * erf (of x, or of -x, which TensorFlow takes from 1) and by tanh, x times the sigmoid of x or of a
 * multiple of it, and the hard kinds of both, by x + 3 between 0 and 6.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <math.h>
#include <stdio.h>

/* Constants come rounded to float16, too; what float16 holds must be right. */
static bool is_about(double number, double wanted) {
    return fabs(number - wanted) <= (wanted == 0.5 ? 0 : 2e-4 * fabs(wanted));
}

/* The value that the maker of `value`, Mul, Add or Div, joins with a number. Div: by it. */
static int32_t joined(const mp_graph *graph, int32_t value, const char *name, double *number) {
    const int32_t n = mp_graph_maker(graph, value, name);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->in_count != 2) {
        return MP_NO_VALUE;
    }
    if (mp_graph_number(graph, v->in[1], number)) {
        return v->in[0];
    }
    return !mp_vertex_is(v, "Div") && mp_graph_number(graph, v->in[0], number) ? v->in[1]
                                                                               : MP_NO_VALUE;
}

/* x where `value` is x times a number that is about `factor`. */
static int32_t multiplied(const mp_graph *graph, int32_t value, double factor) {
    double number = 0;
    int32_t x = joined(graph, value, "Mul", &number);
    if (x != MP_NO_VALUE && is_about(number, factor)) {
        return x;
    }
    x = joined(graph, value, "Div", &number);
    return x != MP_NO_VALUE && number != 0 && is_about(1 / number, factor) ? x : MP_NO_VALUE;
}

/* ---- 0.5 x (1 + f) ---- */

static int32_t other_of(const mp_vertex *v, int32_t value) {
    return v->in[0] == value ? v->in[1] : v->in[0];
}

/* The node that makes 0.5 x (1 + f), in whatever order, of f and x; or 0.5 x (1 - f). */
static int32_t half_of_both(const mp_graph *graph, int32_t f, int32_t x, bool less) {
    double number = 0;
    const int32_t sum = mp_graph_reader(graph, f, less ? "Sub" : "Add");
    if (sum == MP_NO_NODE || (less && graph->nodes[sum].in[1] != f) ||
        !mp_graph_number(graph, other_of(&graph->nodes[sum], f), &number) || number != 1) {
        return MP_NO_NODE;
    }
    const int32_t one_more = graph->nodes[sum].out[0];
    const int32_t n = mp_graph_reader(graph, one_more, "Mul");
    if (n == MP_NO_NODE) {
        return MP_NO_NODE;
    }
    const int32_t with = other_of(&graph->nodes[n], one_more);
    if (multiplied(graph, with, 0.5) == x) {
        return n;
    }
    const int32_t result = graph->nodes[n].out[0];
    int32_t next = mp_graph_reader(graph, result, NULL);
    if (next == MP_NO_NODE) {
        return MP_NO_NODE;
    }
    if (with == x) {
        return multiplied(graph, graph->nodes[next].out[0], 0.5) == result ? next : MP_NO_NODE;
    }
    return mp_graph_number(graph, with, &number) && number == 0.5 &&
                   mp_vertex_is(&graph->nodes[next], "Mul") &&
                   other_of(&graph->nodes[next], result) == x
               ? next
               : MP_NO_NODE;
}

/* x + 0.044715 x^3, or x (1 + 0.044715 x^2): x; else MP_NO_VALUE. */
static int32_t cubic(const mp_graph *graph, int32_t value) {
    static const double share = 0.044715;
    double number = 0;
    const int32_t sum = mp_graph_maker(graph, value, "Add");
    for (int i = 0; sum != MP_NO_NODE && i < 2; i++) {
        const int32_t x = graph->nodes[sum].in[i];
        const int32_t cube = multiplied(graph, graph->nodes[sum].in[1 - i], share);
        const int32_t power = mp_graph_maker(graph, cube, "Pow");
        const int32_t product = mp_graph_maker(graph, cube, "Mul");
        if (power != MP_NO_NODE && graph->nodes[power].in[0] == x &&
            mp_graph_number(graph, graph->nodes[power].in[1], &number) && number == 3) {
            return x;
        }
        for (int k = 0; product != MP_NO_NODE && k < 2; k++) {
            const int32_t square = mp_graph_maker(graph, graph->nodes[product].in[k], "Mul");
            if (square != MP_NO_NODE && graph->nodes[product].in[1 - k] == x &&
                graph->nodes[square].in[0] == x && graph->nodes[square].in[1] == x) {
                return x;
            }
        }
    }
    const int32_t product = mp_graph_maker(graph, value, "Mul");
    for (int i = 0; product != MP_NO_NODE && i < 2; i++) {
        const int32_t x = graph->nodes[product].in[i];
        const int32_t more = joined(graph, graph->nodes[product].in[1 - i], "Add", &number);
        const int32_t square =
            more != MP_NO_VALUE && number == 1 ? multiplied(graph, more, share) : MP_NO_VALUE;
        const int32_t by_itself = mp_graph_maker(graph, square, "Mul");
        const int32_t power = mp_graph_maker(graph, square, "Pow");
        if ((by_itself != MP_NO_NODE && graph->nodes[by_itself].in[0] == x &&
             graph->nodes[by_itself].in[1] == x) ||
            (power != MP_NO_NODE && graph->nodes[power].in[0] == x &&
             mp_graph_number(graph, graph->nodes[power].in[1], &number) && number == 2)) {
            return x;
        }
    }
    return MP_NO_VALUE;
}

/* ---- the operators ---- */

static mp_status replace(mp_graph *graph, int32_t last, int32_t x, mp_node node) {
    const mp_vertex was = graph->nodes[last];
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", node.name, was.node.name);
    node.name = name;
    node.options = was.node.options;
    MP_TRY(mp_graph_change_node(graph, last, &node, &x, 1, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

/* Whether node `last` may become one of x alone: a number that is added or multiplied by may give
 * the result more dimensions than x has. */
static bool may_replace(const mp_graph *graph, int32_t last, int32_t x, mp_rewrites *rewrites) {
    return mp_graph_same_rank(graph, x, graph->nodes[last].out[0]) && mp_rewrite_allowed(rewrites);
}

/* Around an Erf or Tanh. */
static mp_status try_gelu(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    static const double root_of_half = 0.70710678118654752, root_of_two_by_pi = 0.79788456080286536;
    static const mp_attr by_tanh = {.name = "approximate", .kind = MP_ATTR_STRING, .s = "tanh"};
    const mp_vertex *v = &graph->nodes[n];
    const bool is_tanh = mp_vertex_is(v, "Tanh");
    const int32_t inner = multiplied(graph, v->in[0], is_tanh ? root_of_two_by_pi : root_of_half);
    const int32_t neg = is_tanh ? MP_NO_NODE : mp_graph_maker(graph, inner, "Neg");
    const int32_t x = is_tanh && inner != MP_NO_VALUE ? cubic(graph, inner)
                      : neg != MP_NO_NODE             ? graph->nodes[neg].in[0]
                                                      : inner;
    const int32_t last =
        x != MP_NO_VALUE ? half_of_both(graph, v->out[0], x, neg != MP_NO_NODE) : MP_NO_NODE;
    if (last == MP_NO_NODE || !may_replace(graph, last, x, rewrites)) {
        return MP_OK;
    }
    const mp_node node = {.op = mp_op_find("", "Gelu", 20),
                          .version = 20,
                          .name = v->node.name,
                          .attrs = &by_tanh,
                          .attr_count = is_tanh ? 1 : 0};
    return replace(graph, last, x, node);
}

/* x * Sigmoid(alpha x). */
static mp_status try_swish(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex *v = &graph->nodes[n];
    const int32_t last = mp_graph_reader(graph, v->out[0], "Mul");
    const int32_t x = last != MP_NO_NODE ? other_of(&graph->nodes[last], v->out[0]) : MP_NO_VALUE;
    double alpha = 1;
    const bool fits = x != MP_NO_VALUE &&
                      (v->in[0] == x || joined(graph, v->in[0], "Mul", &alpha) == x) &&
                      mp_graph_type(graph, x) != MP_F64; /* alpha is a float */
    if (!fits || !may_replace(graph, last, x, rewrites)) {
        return MP_OK;
    }
    const mp_attr attr = {.name = "alpha", .kind = MP_ATTR_FLOAT, .f = (float)alpha};
    const mp_node node = {.op = mp_op_find("com.microsoft", "QuickGelu", 1),
                          .version = 1,
                          .name = v->node.name,
                          .attrs = &attr,
                          .attr_count = 1};
    return replace(graph, last, x, node);
}

/* ---- hard ones ---- */

/* Whether a value times `number` is a sixth of it, as well as the type has that. */
static bool is_sixth(double number, mp_dtype type) {
    return fabs(6 * number - 1) <= (type == MP_F16 ? 5e-4 : 1e-6);
}

/* The node that alone reads `value` and gives a sixth of it. */
static int32_t sixth_of(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_reader(graph, value, NULL);
    double number = 0;
    if (n == MP_NO_NODE || graph->nodes[n].out_count != 1) {
        return MP_NO_NODE;
    }
    const int32_t result = graph->nodes[n].out[0];
    const bool times = joined(graph, result, "Mul", &number) == value &&
                       is_sixth(number, mp_graph_type(graph, value));
    const bool by = !times && joined(graph, result, "Div", &number) == value && number == 6;
    return times || by ? n : MP_NO_NODE;
}

/* The product that alone reads `value`, with x. */
static int32_t product_with(const mp_graph *graph, int32_t value, int32_t x) {
    const int32_t n = mp_graph_reader(graph, value, "Mul");
    return n != MP_NO_NODE && other_of(&graph->nodes[n], value) == x ? n : MP_NO_NODE;
}

static bool is_bound(const mp_graph *graph, const mp_vertex *v, int i, const char *name,
                     double wanted) {
    double number = (double)mp_node_float(&v->node, name, -1);
    return (mp_vertex_in(v, i) == MP_NO_VALUE || mp_graph_number(graph, v->in[i], &number)) &&
           number == wanted;
}

/* What Clip node `v` holds between 0 and 6 behind an added 3; else MP_NO_VALUE. */
static int32_t ramp(const mp_graph *graph, const mp_vertex *v) {
    double number = 0;
    const bool fits = is_bound(graph, v, 1, "min", 0) && is_bound(graph, v, 2, "max", 6);
    const int32_t x = fits ? joined(graph, v->in[0], "Add", &number) : MP_NO_VALUE;
    return number == 3 ? x : MP_NO_VALUE;
}

/* Behind node `n`, which makes a ramp of x or a hard sigmoid, a sixth of a ramp. */
static mp_status try_hard(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex *v = &graph->nodes[n];
    const bool is_ramp = mp_vertex_is(v, "Clip");
    const int32_t x = is_ramp ? ramp(graph, v) : v->in[0];
    const mp_attr attrs[] = {{.name = "alpha", .kind = MP_ATTR_FLOAT, .f = 1.0F / 6},
                             {.name = "beta", .kind = MP_ATTR_FLOAT, .f = 0.5F}};
    if (x == MP_NO_VALUE || mp_graph_type(graph, x) == MP_F64) {
        return MP_OK;
    }
    const int32_t gate = is_ramp ? sixth_of(graph, v->out[0]) : n;
    const int32_t early = is_ramp ? product_with(graph, v->out[0], x) : MP_NO_NODE;
    const int32_t product = gate != MP_NO_NODE ? product_with(graph, graph->nodes[gate].out[0], x)
                            : early != MP_NO_NODE ? sixth_of(graph, graph->nodes[early].out[0])
                                                  : MP_NO_NODE;
    const bool swishes = product != MP_NO_NODE;
    const int32_t last = swishes ? product : is_ramp ? gate : MP_NO_NODE;
    if (last == MP_NO_NODE || !may_replace(graph, last, x, rewrites)) {
        return MP_OK;
    }
    const mp_node node = {
        .op = mp_op_find("", swishes ? "HardSwish" : "HardSigmoid", swishes ? 14 : 6),
        .version = swishes ? 14 : 6,
        .name = v->node.name,
        .attrs = attrs,
        .attr_count = swishes ? 0 : MP_COUNT_OF(attrs)};
    return replace(graph, last, x, node);
}

static bool is_hard_sigmoid(const mp_vertex *v) {
    return mp_vertex_is(v, "HardSigmoid") &&
           is_sixth((double)mp_node_float(&v->node, "alpha", 0.2F), MP_F32) &&
           mp_node_float(&v->node, "beta", 0.5F) == 0.5F;
}

mp_status mp_pass_find_activation(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (mp_vertex_is(v, "Erf") || mp_vertex_is(v, "Tanh")) {
            MP_TRY(try_gelu(graph, n, rewrites));
        } else if (mp_vertex_is(v, "Sigmoid")) {
            MP_TRY(try_swish(graph, n, rewrites));
        } else if (mp_vertex_is(v, "Clip") || is_hard_sigmoid(v)) {
            MP_TRY(try_hard(graph, n, rewrites));
        }
    }
    return MP_OK;
}
