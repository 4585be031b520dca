/* find_select.c - one of two values by a condition, written out as a sum of products, becomes a
 * Where, as tf2onnx writes SelectV2 the other way round:
 *
 *     a * Cast(c) + b * Cast(Not(c))     or, of constants,     a * ones + numbers
 *
 * A Where gives the same unless the value that is not taken is infinite or no number. What it then
 * selects by needs no ones in the shape of a; and indexes that are counted from the end need not be
 * made such from the beginning for a Gather, which does that itself.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "op/core/host_float.h"

#include <math.h>

enum { CONSTANT_MOST = 4 << 20 /* elements of a condition */ };

typedef struct select {
    int32_t condition, a, b; /* values */
    int32_t ones, numbers;   /* of constants: these in place of the condition and of b */
    double fill;
} select;

/* ---- sums of products ---- */

static bool is_boolean(const mp_graph *graph, int32_t value) {
    static const char *const tests[] = {"Not", "And", "Or", "Less", "Greater", "Equal"};
    const int32_t n = mp_graph_maker(graph, value, NULL);
    return mp_graph_type(graph, value) == MP_BOOL ||
           (n != MP_NO_NODE && mp_vertex_is_any(&graph->nodes[n], tests, MP_COUNT_OF(tests)));
}

/* What the product `value` has beside the condition `*c`, which is read negated if `negated`. */
static int32_t selected(const mp_graph *graph, int32_t value, int i, int32_t *c, bool *negated) {
    const int32_t n = mp_graph_reader(graph, value, "Add") != MP_NO_NODE
                          ? mp_graph_maker(graph, value, "Mul")
                          : MP_NO_NODE;
    const int32_t cast =
        n != MP_NO_NODE ? mp_graph_maker(graph, graph->nodes[n].in[i], "Cast") : MP_NO_NODE;
    const int32_t from = cast != MP_NO_NODE ? graph->nodes[cast].in[0] : MP_NO_VALUE;
    const int32_t inverse = mp_graph_maker(graph, from, "Not");
    *negated = inverse != MP_NO_NODE;
    *c = *negated ? graph->nodes[inverse].in[0] : from;
    if (from == MP_NO_VALUE || !is_boolean(graph, *c)) {
        return MP_NO_VALUE;
    }
    return graph->nodes[n].in[1 - i];
}

static bool find_computed(const mp_graph *graph, const mp_vertex *sum, select *out) {
    for (int k = 0; k < 4; k++) {
        int32_t of_a = MP_NO_VALUE, of_b = MP_NO_VALUE;
        bool a_negated = false, b_negated = false;
        const int32_t a = selected(graph, sum->in[0], k & 1, &of_a, &a_negated);
        const int32_t b = selected(graph, sum->in[1], k >> 1, &of_b, &b_negated);
        if (a != MP_NO_VALUE && b != MP_NO_VALUE && of_a == of_b && a_negated != b_negated) {
            *out = (select){.condition = of_a,
                            .a = a_negated ? b : a,
                            .b = a_negated ? a : b,
                            .ones = MP_NO_VALUE};
            return true;
        }
    }
    return false;
}

/* Whether `numbers` are 0 where `ones` are 1, and all the same number where these are 0. */
static bool fit_together(const mp_tensor *ones, const mp_tensor *numbers, double *fill) {
    const int64_t count = mp_shape_count(&ones->shape);
    bool any = false;
    if (ones->data == 0 || numbers->data == 0 || ones->type != numbers->type ||
        (ones->type != MP_F32 && ones->type != MP_F16 && ones->type != MP_BF16) ||
        count > CONSTANT_MOST || !mp_shape_equal(&ones->shape, &numbers->shape)) {
        return false;
    }
    for (int64_t i = 0; i < count; i++) {
        const double one = mp_host_float(ones, i), number = mp_host_float(numbers, i);
        const bool is_one = one == 1 && number == 0;
        if (!is_one && (one != 0 || !isfinite(number) || (any && number != *fill))) {
            return false;
        }
        *fill = is_one ? *fill : number;
        any |= !is_one;
    }
    return any;
}

static bool find_constant(const mp_graph *graph, const mp_vertex *sum, select *out) {
    for (int k = 0; k < 4; k++) {
        const int32_t numbers = sum->in[k & 1], product = sum->in[1 - (k & 1)];
        const int32_t n = mp_graph_maker(graph, product, "Mul");
        const int32_t ones = n != MP_NO_NODE ? graph->nodes[n].in[k >> 1] : MP_NO_VALUE;
        const mp_tensor *x = mp_graph_constant(graph, ones);
        const mp_tensor *y = mp_graph_constant(graph, numbers);
        if (x != NULL && y != NULL && mp_graph_reader(graph, product, "Add") != MP_NO_NODE &&
            fit_together(x, y, &out->fill)) {
            out->ones = ones;
            out->numbers = numbers;
            out->a = graph->nodes[n].in[1 - (k >> 1)];
            return true;
        }
    }
    return false;
}

/* A condition for constants, and the number that they hold. */
static mp_status add_constants(mp_graph *graph, select *s) {
    const mp_tensor ones = graph->values[s->ones].tensor;
    const mp_tensor condition = {.type = MP_BOOL, .shape = ones.shape};
    const mp_tensor numbers = graph->values[s->numbers].tensor;
    mp_tensor number = {.type = numbers.type, .shape = {.rank = 0}};
    MP_TRY(mp_graph_add_constant(graph, graph->values[s->ones].name, &condition, &s->condition));
    bool *bytes = (bool *)graph->values[s->condition].tensor.data;
    for (int64_t i = 0; i < mp_shape_count(&ones.shape); i++) {
        bytes[i] = mp_host_float(&ones, i) == 1;
        if (!bytes[i]) {
            number.data = numbers.data + (mp_addr)i * mp_dtype_size(numbers.type);
        }
    }
    return mp_graph_add_constant(graph, graph->values[s->numbers].name, &number, &s->b);
}

/* ---- conditions ---- */

/* Whether the value is true wherever `like` has elements, and has no others. */
static bool is_all_true(const mp_graph *graph, int32_t value, int32_t like) {
    const int32_t n = mp_graph_maker(graph, value, "Expand");
    const mp_tensor *one = n != MP_NO_NODE ? mp_graph_constant(graph, graph->nodes[n].in[0]) : NULL;
    const int rank = mp_graph_rank(graph, like);
    if (one == NULL || one->type != MP_BOOL || one->data == 0 || mp_shape_count(&one->shape) != 1 ||
        *(const bool *)one->data == false || rank < 0 || mp_graph_rank(graph, value) != rank ||
        one->shape.rank > rank) {
        return false;
    }
    for (int d = 0; d < rank; d++) {
        if (!mp_graph_entry_is(graph, graph->nodes[n].in[1], d, like, d)) {
            return false;
        }
    }
    return true;
}

/* The condition without such trues, of what selects between `a` and a number. */
static int32_t without_trues(const mp_graph *graph, int32_t condition, int32_t a) {
    const int32_t n = mp_graph_maker(graph, condition, "And");
    for (int i = 0; n != MP_NO_NODE && i < 2; i++) {
        if (is_all_true(graph, graph->nodes[n].in[i], a)) {
            return graph->nodes[n].in[1 - i];
        }
    }
    return condition;
}

/* ---- indexes ---- */

/* Whether integers keep their signs as such. */
static bool is_signed_float(mp_dtype type) {
    return type == MP_F16 || type == MP_BF16 || type == MP_F32 || type == MP_F64;
}

/* Whether a number leaves `value` as many dimensions as it has. */
static bool is_no_wider(const mp_graph *graph, int32_t number, int32_t value) {
    const int rank = mp_graph_rank(graph, number);
    return rank >= 0 && rank <= mp_graph_rank(graph, value);
}

/* i, where the value is i, or i + `count` if i is below 0; else MP_NO_VALUE. */
static int32_t from_the_end(const mp_graph *graph, int32_t value, int64_t count) {
    const int32_t n = mp_graph_maker(graph, value, "Where");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    const int32_t less = v != NULL ? mp_graph_maker(graph, v->in[0], "Less") : MP_NO_NODE;
    const int32_t sum = less != MP_NO_NODE ? mp_graph_maker(graph, v->in[1], "Add") : MP_NO_NODE;
    double zero = 1, more = 0;
    if (sum == MP_NO_NODE || !mp_graph_number(graph, graph->nodes[less].in[1], &zero) ||
        zero != 0) {
        return MP_NO_VALUE;
    }
    const int32_t i = v->in[2], tested = graph->nodes[less].in[0];
    const int32_t cast = mp_graph_maker(graph, tested, "Cast");
    const int by = graph->nodes[sum].in[0] == i;
    const bool tests = tested == i || (cast != MP_NO_NODE && graph->nodes[cast].in[0] == i &&
                                       is_signed_float(mp_graph_type(graph, tested)));
    return tests && graph->nodes[sum].in[1 - by] == i &&
                   mp_graph_number(graph, graph->nodes[sum].in[by], &more) &&
                   more == (double)count && is_no_wider(graph, graph->nodes[sum].in[by], i) &&
                   is_no_wider(graph, graph->nodes[less].in[1], i)
               ? i
               : MP_NO_VALUE;
}

static mp_status try_gather(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex gather = graph->nodes[n];
    const int64_t axis = mp_node_int(&gather.node, "axis", 0);
    const int rank = mp_graph_rank(graph, gather.in[0]);
    const int64_t count = rank > 0 && axis >= -rank && axis < rank
                              ? mp_graph_dim(graph, gather.in[0], (int)axis)
                              : MP_DIM_UNKNOWN;
    const int32_t i = count > 0 ? from_the_end(graph, gather.in[1], count) : MP_NO_VALUE;
    if (i == MP_NO_VALUE || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    const int32_t in[] = {gather.in[0], i};
    MP_TRY(mp_graph_change_node(graph, n, &gather.node, in, 2, gather.out, 1));
    mp_graph_drop_unread(graph, gather.in[1]);
    return MP_OK;
}

/* ---- the operator ---- */

static mp_status try_sum(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex sum = graph->nodes[n];
    select s = {.condition = MP_NO_VALUE};
    double number = 0;
    if ((!find_computed(graph, &sum, &s) && !find_constant(graph, &sum, &s)) ||
        !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    if (s.ones != MP_NO_VALUE) {
        MP_TRY(add_constants(graph, &s));
    } else if (mp_graph_number(graph, s.b, &number)) {
        s.condition = without_trues(graph, s.condition, s.a);
    }
    const mp_node node = {.op = mp_op_find("", "Where", 16),
                          .version = 16,
                          .name = sum.node.name,
                          .options = sum.node.options};
    const int32_t in[] = {s.condition, s.a, s.b};
    MP_TRY(mp_graph_change_node(graph, n, &node, in, 3, sum.out, 1));
    mp_graph_drop_inputs(graph, &sum);
    return MP_OK;
}

mp_status mp_pass_find_select(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (mp_vertex_is(&graph->nodes[n], "Add")) {
            MP_TRY(try_sum(graph, n, rewrites));
        } else if (mp_vertex_is(&graph->nodes[n], "Gather")) {
            MP_TRY(try_gather(graph, n, rewrites));
        }
    }
    return MP_OK;
}
