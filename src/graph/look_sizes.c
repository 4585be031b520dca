/* look_sizes.c - sizes in lists that are dimensions of something: by what a Shape gives and what
 * takes it apart and together again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"

enum { DEEP = 24 }; /* so many nodes in a row are looked at */

/* A dimension of a value, where it was before transpositions; or a number. */
typedef struct source {
    int32_t value; /* MP_NO_VALUE: `number` alone is known */
    int dim;
    int64_t number; /* MP_DIM_UNKNOWN: not known */
    bool is_rest;   /* the number -1 */
    int64_t times;  /* what a dimension that is not known is multiplied by */
} source;

static const source none = {.value = MP_NO_VALUE, .number = MP_DIM_UNKNOWN, .times = 1};

/* Where dimension `*dim` of an Unsqueeze's result is in what it reads; false where it is a new one,
 * or that is not known. */
static bool before_unsqueeze(const mp_graph *graph, const mp_vertex *v, int *dim) {
    const int rank = mp_graph_rank(graph, v->in[0]);
    int64_t axes[MP_RANK_MAX];
    int count = 0, fewer = 0;
    if (rank < 0 || !mp_graph_ints(graph, v, "axes", 1, axes, &count)) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + rank + count : axes[i];
        if (axis == *dim) {
            return false;
        }
        fewer += axis < *dim;
    }
    *dim -= fewer;
    return *dim < rank;
}

static source source_of(const mp_graph *graph, int32_t value, int d) {
    source out = {.value = value, .dim = d, .number = mp_graph_dim(graph, value, d), .times = 1};
    for (int depth = 0; depth < DEEP; depth++) {
        const int32_t n = mp_graph_maker(graph, out.value, NULL);
        const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
        if (v != NULL && mp_vertex_is(v, "Unsqueeze")) {
            if (!before_unsqueeze(graph, v, &out.dim)) {
                break;
            }
        } else {
            const mp_attr *perm =
                v != NULL && mp_vertex_is(v, "Transpose") ? mp_vertex_perm(v) : NULL;
            if (perm == NULL || out.dim >= (int)perm->count) {
                break;
            }
            out.dim = (int)perm->ints[out.dim];
        }
        out.value = v->in[0];
    }
    return out;
}

/* The dimensions [from, to) that a Shape gives; false where the rank is not known. */
static bool shape_range(const mp_graph *graph, const mp_vertex *v, int64_t *from, int64_t *to) {
    const int rank = mp_graph_rank(graph, v->in[0]);
    *from = mp_node_int(&v->node, "start", 0);
    *to = mp_node_int(&v->node, "end", rank);
    *from += *from < 0 ? rank : 0;
    *to += *to < 0 ? rank : 0;
    return rank >= 0 && *from >= 0 && *to >= *from && *to <= rank;
}

/* Elements of a list, one that a Shape gives included; or MP_DIM_UNKNOWN. */
static int64_t sizes_length(const mp_graph *graph, int32_t list, int depth) {
    const int32_t cast = mp_graph_maker(graph, list, "Cast");
    const int32_t from = cast != MP_NO_NODE ? graph->nodes[cast].in[0] : list;
    const int32_t n = mp_graph_maker(graph, from, "Shape");
    const int64_t known = mp_graph_list_length(graph, list);
    int64_t begin = 0, end = 0;
    return known >= 0 || n == MP_NO_NODE || depth == 0          ? known
           : shape_range(graph, &graph->nodes[n], &begin, &end) ? end - begin
                                                                : MP_DIM_UNKNOWN;
}

static bool find_entry(const mp_graph *graph, int32_t list, int64_t i, int depth, source *out);

/* A Slice of a list from one place on, in steps of one. */
static bool find_sliced(const mp_graph *graph, const mp_vertex *v, int64_t i, int depth,
                        source *out) {
    int64_t start[MP_RANK_MAX], step[MP_RANK_MAX];
    int starts = 0, steps = 0;
    const int64_t length = sizes_length(graph, v->in[0], depth);
    if (length < 0 || !mp_graph_ints(graph, v, "starts", 1, start, &starts) || starts != 1 ||
        (mp_vertex_in(v, 4) != MP_NO_VALUE &&
         (!mp_graph_ints(graph, v, "steps", 4, step, &steps) || steps != 1 || step[0] != 1))) {
        return false;
    }
    const int64_t from = start[0] >= 0 ? start[0] : start[0] < -length ? 0 : start[0] + length;
    return i < length && from < length && find_entry(graph, v->in[0], from + i, depth - 1, out);
}

static bool find_joined(const mp_graph *graph, const mp_vertex *v, int64_t i, int depth,
                        source *out) {
    for (int part = 0; part < v->in_count; part++) {
        const bool one = mp_graph_maker(graph, v->in[part], "Unsqueeze") != MP_NO_NODE;
        const int64_t length = one ? 1 : sizes_length(graph, v->in[part], depth);
        if (length < 0) {
            return false;
        }
        if (i < length) {
            return find_entry(graph, v->in[part], i, depth - 1, out);
        }
        i -= length;
    }
    return false;
}

/* A dimension that is not known, times a number. */
static bool find_multiple(const source of[2], source *out) {
    const int by = of[1].number > 0;
    const bool fits = of[by].number > 0 && of[1 - by].value != MP_NO_VALUE && of[1 - by].times == 1;
    *out = of[1 - by];
    out->times = of[by].number;
    return fits;
}

/* Arithmetic between sizes that are numbers, of lists or with one for all. */
static bool find_computed(const mp_graph *graph, const mp_vertex *v, int64_t i, int depth,
                          source *out) {
    int64_t number[2];
    source of[2] = {none, none};
    for (int side = 0; side < 2; side++) {
        const int64_t length =
            mp_graph_rank(graph, v->in[side]) == 0 ? 1 : sizes_length(graph, v->in[side], depth);
        if (length < 0 ||
            !find_entry(graph, v->in[side], length == 1 ? 0 : i, depth / 2, &of[side])) {
            return false;
        }
        number[side] = of[side].number;
    }
    if (number[0] <= 0 || number[1] <= 0) {
        return mp_vertex_is(v, "Mul") && find_multiple(of, out);
    }
    int64_t made = number[0] / number[1];
    const bool fits =
        mp_vertex_is(v, "Add")   ? !__builtin_add_overflow(number[0], number[1], &made)
        : mp_vertex_is(v, "Sub") ? !__builtin_sub_overflow(number[0], number[1], &made)
        : mp_vertex_is(v, "Mul") ? !__builtin_mul_overflow(number[0], number[1], &made)
                                 : mp_vertex_is(v, "Div");
    *out = (source){.value = MP_NO_VALUE, .number = made, .times = 1};
    return fits && made > 0;
}

/* The product of all elements of a list, of which one may not be known. */
static bool find_product(const mp_graph *graph, const mp_vertex *v, int64_t i, int depth,
                         source *out) {
    const int64_t length = sizes_length(graph, v->in[0], depth);
    source made = {.value = MP_NO_VALUE, .number = 1, .times = 1};
    if (i != 0 || length < 1 || length > MP_RANK_MAX || mp_graph_rank(graph, v->in[0]) != 1 ||
        mp_node_int(&v->node, "noop_with_empty_axes", 0) != 0) {
        return false;
    }
    for (int64_t k = 0; k < length; k++) {
        source of[2] = {made, none};
        if (!find_entry(graph, v->in[0], k, depth / 2, &of[1])) {
            return false;
        }
        if (of[0].number == 1 || of[1].number == 1) {
            made = of[of[0].number == 1];
        } else if (of[0].number > 0 && of[1].number > 0) {
            if (__builtin_mul_overflow(of[0].number, of[1].number, &made.number)) {
                return false;
            }
        } else if (!find_multiple(of, &made)) {
            return false;
        }
    }
    *out = made;
    return true;
}

/* Whether it may be a list of sizes; those in 32 bits are what TensorFlow has. */
static bool is_sizes(const mp_graph *graph, int32_t value) {
    const mp_dtype type = value != MP_NO_VALUE ? mp_graph_type(graph, value) : MP_F32;
    return type == MP_I64 || type == MP_I32 || type == MP_NONE;
}

/* Whether the node gives the elements of its first input in their order. */
static bool keeps_elements(const mp_graph *graph, const mp_vertex *v) {
    static const char *const names[] = {"Identity", "Reshape", "Squeeze", "Unsqueeze"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names)) ||
           (mp_vertex_is(v, "Cast") && is_sizes(graph, v->in[0]) && is_sizes(graph, v->out[0]));
}

static bool computes(const mp_graph *graph, const mp_vertex *v) {
    static const char *const names[] = {"Add", "Div", "Mul", "Sub"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names)) && v->in_count == 2 &&
           is_sizes(graph, v->in[0]) && is_sizes(graph, v->in[1]);
}

/* An element of a constant, of which a number above 0 is a size. */
static bool find_constant(const mp_graph *graph, int32_t list, int64_t i, source *out) {
    const mp_tensor *constant = mp_graph_constant(graph, list);
    if (constant == NULL || constant->data == 0 || !is_sizes(graph, list) ||
        i >= mp_shape_count(&constant->shape)) {
        return false;
    }
    *out = none;
    out->number = constant->type == MP_I32 ? ((const int32_t *)constant->data)[i]
                                           : ((const int64_t *)constant->data)[i];
    out->is_rest = out->number == -1;
    return out->number > 0;
}

static int64_t raw_dim(const mp_graph *graph, const source *s) {
    const mp_shape *shape = s->value != MP_NO_VALUE ? &graph->values[s->value].tensor.shape : NULL;
    return shape != NULL && s->dim < shape->rank ? shape->dim[s->dim] : MP_DIM_UNKNOWN;
}

static bool is_one_name(const mp_graph *graph, const source *a, const source *b) {
    const int64_t name = raw_dim(graph, a);
    return name < MP_DIM_UNKNOWN && name == raw_dim(graph, b);
}

static bool is_source(const mp_graph *graph, const source *entry, source wanted) {
    return (entry->number > 0 && entry->number == wanted.number) ||
           (entry->value != MP_NO_VALUE && is_one_name(graph, entry, &wanted)) ||
           (entry->value != MP_NO_VALUE && entry->value == wanted.value &&
            entry->dim == wanted.dim);
}

/* The larger of two sizes: which of two numbers, or of two that are the same. */
static bool find_larger(const mp_graph *graph, const mp_vertex *v, int64_t i, int depth,
                        source *out) {
    source other = none;
    if (v->in_count != 2 || !is_sizes(graph, v->in[0]) ||
        sizes_length(graph, v->in[0], depth) != sizes_length(graph, v->in[1], depth) ||
        !find_entry(graph, v->in[0], i, depth / 2, out) ||
        !find_entry(graph, v->in[1], i, depth / 2, &other)) {
        return false;
    }
    if (out->number > 0 && other.number > 0) {
        out->number = MP_MAX(out->number, other.number);
        return true;
    }
    return out->times == other.times && is_source(graph, out, other);
}

static bool find_entry(const mp_graph *graph, int32_t list, int64_t i, int depth, source *out) {
    const int32_t n = mp_graph_maker(graph, list, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    int64_t order[MP_RANK_MAX];
    int count = 0;
    if (v == NULL || depth == 0 || i < 0) {
        return v == NULL && i >= 0 && find_constant(graph, list, i, out);
    }
    if (keeps_elements(graph, v)) {
        return find_entry(graph, v->in[0], i, depth - 1, out);
    }
    if (computes(graph, v)) {
        return find_computed(graph, v, i, depth - 1, out);
    }
    if (mp_vertex_is(v, "Shape")) {
        int64_t from = 0, to = 0;
        const bool known = shape_range(graph, v, &from, &to) && from + i < to;
        *out = known ? source_of(graph, v->in[0], (int)(from + i)) : *out;
        return known;
    }
    if (mp_vertex_is(v, "ReduceProd")) {
        return find_product(graph, v, i, depth, out);
    }
    if (mp_vertex_is(v, "Max")) {
        return find_larger(graph, v, i, depth, out);
    }
    if (mp_vertex_is(v, "Slice")) {
        return find_sliced(graph, v, i, depth, out);
    }
    if (mp_vertex_is(v, "Concat")) {
        return find_joined(graph, v, i, depth, out);
    }
    if (!mp_vertex_is(v, "Gather")) {
        return false;
    }
    const int64_t length = sizes_length(graph, v->in[0], depth);
    if (length < 0 || !mp_graph_ints(graph, v, "", 1, order, &count) || i >= count) {
        return false;
    }
    const int64_t at = order[i] < 0 ? order[i] + length : order[i];
    return find_entry(graph, v->in[0], at, depth - 1, out);
}

bool mp_graph_same_dim(const mp_graph *graph, int32_t a, int d, int32_t b, int e) {
    const source x = source_of(graph, a, d), y = source_of(graph, b, e);
    return (x.number > 0 && x.number == y.number) || is_one_name(graph, &x, &y) ||
           (x.value == y.value && x.dim == y.dim);
}

bool mp_graph_entry_is_rest(const mp_graph *graph, int32_t list, int i) {
    source entry = none;
    return !find_entry(graph, list, i, DEEP, &entry) && entry.is_rest;
}

int64_t mp_graph_entry_dim(const mp_graph *graph, int32_t list, int i) {
    source entry = none;
    if (!find_entry(graph, list, i, DEEP, &entry)) {
        return MP_DIM_UNKNOWN;
    }
    return entry.number > 0                                 ? entry.number
           : entry.value != MP_NO_VALUE && entry.times == 1 ? raw_dim(graph, &entry)
                                                            : MP_DIM_UNKNOWN;
}

bool mp_graph_entry_is(const mp_graph *graph, int32_t list, int i, int32_t value, int d) {
    const int rank = mp_graph_rank(graph, value);
    const int at = d < 0 ? d + rank : d;
    const int64_t length = i < 0 ? sizes_length(graph, list, DEEP) : 0;
    source entry = none;
    if (at < 0 || at >= rank || length < 0 ||
        !find_entry(graph, list, i < 0 ? i + length : i, DEEP, &entry)) {
        return false;
    }
    return entry.times == 1 && is_source(graph, &entry, source_of(graph, value, at));
}

bool mp_graph_entry_is_product(const mp_graph *graph, int32_t list, int i, int32_t value, int d,
                               int64_t times) {
    source entry = none, wanted = source_of(graph, value, d);
    if (times <= 0 || !find_entry(graph, list, i, DEEP, &entry)) {
        return false;
    }
    if (entry.times == times && entry.number <= 0) {
        return is_source(graph, &entry, wanted);
    }
    return entry.number > 0 && wanted.number > 0 &&
           !__builtin_mul_overflow(wanted.number, times, &wanted.number) &&
           entry.number == wanted.number;
}
