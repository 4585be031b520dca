/* find_upsample.c - pixels that are repeated by Tile, in dimensions that are there for that alone,
 * become a Resize to the nearest, as Keras's UpSampling is one:
 *
 *     x [n,h,w,c] --> [n,h,1,w,c] --> Tile --> [n,2h,w,c] --> [n,2h,w,1,c] --> Tile --> [n,2h,2w,c]
 *
 * with Transposes anywhere between. Each dimension of a value is followed as the dimensions of x
 * that it holds, the outermost first, and as how often these are repeated.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

enum {
    RANK_LEAST = 3,
    RANK_MOST = 5,
    STEPS_MOST = 12,
    PARTS_MOST = 16,
    TIMES_MOST = 1 << 20, /* which floats have exactly, as Resize has scales */
    REPEATED = -1
};

/* A dimension of x, or REPEATED; and how many elements it has, MP_DIM_UNKNOWN of the first. */
typedef struct part {
    int of;
    int64_t size;
} part;

/* A value, as parts from the outermost to the innermost; `first`: where those of a dimension begin.
 */
typedef struct parts {
    part list[PARTS_MOST];
    int first[MP_RANK_MAX + 1];
    int rank, count;
} parts;

static bool begin(const mp_graph *graph, int32_t x, parts *p) {
    *p = (parts){.rank = mp_graph_rank(graph, x)};
    if (p->rank < RANK_LEAST || p->rank > RANK_MOST) {
        return false;
    }
    for (int d = 0; d < p->rank; d++) {
        const int64_t size = mp_graph_dim(graph, x, d);
        if (size <= 0 && d > 0) {
            return false;
        }
        p->first[d] = d;
        p->list[p->count++] = (part){d, d > 0 ? size : MP_DIM_UNKNOWN};
    }
    p->first[p->rank] = p->count;
    return true;
}

static bool put_dims(const mp_graph *graph, const mp_vertex *v, parts *p) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    uint32_t fresh = 0;
    if (!mp_graph_ints(graph, v, "axes", 1, axes, &count) || p->rank + count > MP_RANK_MAX) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + p->rank + count : axes[i];
        fresh |= axis >= 0 && axis < p->rank + count ? 1U << axis : 0;
    }
    parts next = *p;
    next.rank = p->rank + count;
    for (int d = 0, old = 0; d <= next.rank; d++) {
        next.first[d] = p->first[old];
        old += d < next.rank && (fresh >> d & 1) == 0;
    }
    *p = next;
    return __builtin_popcount(fresh) == count;
}

/* Repeats dimensions of 1 only: others would come again as a whole. */
static bool repeat(const mp_graph *graph, const mp_vertex *v, parts *p) {
    int64_t times[MP_RANK_MAX];
    int count = 0;
    if (!mp_graph_ints(graph, v, "repeats", 1, times, &count) || count != p->rank) {
        return false;
    }
    for (int d = 0; d < count; d++) {
        if (times[d] == 1) {
            continue;
        }
        if (times[d] < 1 || times[d] > TIMES_MOST || p->first[d + 1] != p->first[d] ||
            p->count == PARTS_MOST) {
            return false;
        }
        for (int i = p->count; i > p->first[d]; i--) {
            p->list[i] = p->list[i - 1];
        }
        p->list[p->first[d]] = (part){REPEATED, times[d]};
        p->count++;
        for (int e = d + 1; e <= p->rank; e++) {
            p->first[e]++;
        }
    }
    return true;
}

static bool turn(const mp_vertex *v, parts *p) {
    const mp_attr *perm = mp_vertex_perm(v);
    const parts was = *p;
    int count = 0;
    if (perm == NULL || (int)perm->count != p->rank) {
        return false;
    }
    for (int d = 0; d < p->rank; d++) {
        const int64_t from = perm->ints[d];
        p->first[d] = count;
        for (int i = was.first[from]; i < was.first[from + 1]; i++) {
            p->list[count++] = was.list[i];
        }
    }
    p->first[p->rank] = count;
    return true;
}

/* The parts in other dimensions, none of which may be cut. */
static bool regroup(const mp_graph *graph, int32_t result, parts *p) {
    const int rank = mp_graph_rank(graph, result);
    int at = 0;
    if (rank < 1 || rank > MP_RANK_MAX) {
        return false;
    }
    for (int d = 0; d < rank; d++) {
        const int64_t size = mp_graph_dim(graph, result, d);
        int64_t made = 1;
        p->first[d] = at;
        if (d == 0) { /* the batch alone */
            if (at == p->count || p->list[at].of != 0) {
                return false;
            }
            at++;
            continue;
        }
        while (size > made && at < p->count && p->list[at].size > 0) {
            if (__builtin_mul_overflow(made, p->list[at++].size, &made)) {
                return false;
            }
        }
        if (size != made) {
            return false;
        }
    }
    while (at < p->count && p->list[at].size == 1) {
        at++;
    }
    p->rank = rank;
    p->first[rank] = at;
    return at == p->count;
}

static bool go_on(const mp_graph *graph, const mp_vertex *v, parts *p) {
    return mp_vertex_is(v, "Unsqueeze")   ? put_dims(graph, v, p)
           : mp_vertex_is(v, "Tile")      ? repeat(graph, v, p)
           : mp_vertex_is(v, "Transpose") ? turn(v, p)
           : mp_vertex_is(v, "Reshape")   ? regroup(graph, v->out[0], p)
                                          : false;
}

/* Whether each dimension is one of x, with what repeats its elements behind it: in which order, and
 * how often. */
static bool is_resized(const parts *p, int rank, int64_t order[RANK_MOST], float times[RANK_MOST]) {
    bool any = false;
    if (p->rank != rank) {
        return false;
    }
    for (int d = 0; d < rank; d++) {
        int64_t count = 1;
        if (p->first[d] == p->first[d + 1] || p->list[p->first[d]].of == REPEATED) {
            return false;
        }
        for (int i = p->first[d] + 1; i < p->first[d + 1]; i++) {
            if (p->list[i].of != REPEATED) {
                return false;
            }
            count *= p->list[i].size; /* no more than the whole dimension, which is known */
        }
        if (count > TIMES_MOST) {
            return false;
        }
        order[d] = p->list[p->first[d]].of;
        times[order[d]] = (float)count;
        any |= count > 1;
    }
    return any;
}

/* From the result up: the first value in front of all Tiles of which it is such. */
static int32_t find(const mp_graph *graph, int32_t n, int64_t order[RANK_MOST],
                    float times[RANK_MOST]) {
    static const char *const names[] = {"Unsqueeze", "Tile", "Transpose", "Reshape"};
    int32_t chain[STEPS_MOST], found = MP_NO_VALUE;
    int count = 0;
    for (int32_t m = n; m != MP_NO_NODE && count < STEPS_MOST;) {
        const mp_vertex *v = &graph->nodes[m];
        if (!mp_vertex_is_any(v, names, MP_COUNT_OF(names)) || !mp_graph_same_guard(graph, m, n)) {
            break;
        }
        chain[count++] = m;
        parts p;
        bool fits = mp_vertex_is(v, "Unsqueeze") && begin(graph, v->in[0], &p);
        for (int i = count - 1; i >= 0 && fits; i--) {
            fits = go_on(graph, &graph->nodes[chain[i]], &p);
        }
        int64_t order_now[RANK_MOST];
        float times_now[RANK_MOST];
        if (fits && is_resized(&p, mp_graph_rank(graph, v->in[0]), order_now, times_now)) {
            found = v->in[0];
            for (int d = 0; d < p.rank; d++) {
                order[d] = order_now[d];
                times[d] = times_now[d];
            }
        }
        m = mp_graph_maker(graph, v->in[0], NULL);
    }
    return found;
}

static mp_status add_resize(mp_graph *graph, int32_t n, int32_t x, const float *times,
                            int32_t *out) {
    const int rank = mp_graph_rank(graph, x);
    const mp_tensor scales = {
        .type = MP_F32, .shape = {.rank = 1, .dim = {rank}}, .data = (mp_addr)times};
    const mp_attr attrs[] = {
        {.name = "mode", .kind = MP_ATTR_STRING, .s = "nearest"},
        {.name = "coordinate_transformation_mode", .kind = MP_ATTR_STRING, .s = "asymmetric"},
        {.name = "nearest_mode", .kind = MP_ATTR_STRING, .s = "floor"}};
    const mp_node node = {.op = mp_op_find("", "Resize", 13),
                          .version = 13,
                          .name = graph->nodes[n].node.name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs),
                          .options = graph->nodes[n].node.options};
    mp_tensor made = {.type = mp_graph_type(graph, x), .shape = {.rank = rank}};
    int32_t in[] = {x, MP_NO_VALUE, MP_NO_VALUE};
    for (int d = 0; d < rank; d++) {
        const int64_t size = mp_graph_dim(graph, x, d);
        made.shape.dim[d] = size > 0 ? size * (int64_t)times[d] : MP_DIM_UNKNOWN;
    }
    MP_TRY(mp_graph_add_constant(graph, "", &scales, &in[2]));
    MP_TRY(mp_graph_add_value(graph, graph->values[x].name, &made, out));
    return mp_graph_add_beside(graph, n, &node, in, 3, *out);
}

static mp_status rewrite(mp_graph *graph, int32_t n, int32_t x, const int64_t *order,
                         const float *times) {
    const mp_vertex was = graph->nodes[n];
    const mp_attr perm = {.name = "perm",
                          .kind = MP_ATTR_INTS,
                          .ints = order,
                          .count = (size_t)mp_graph_rank(graph, x)};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = was.node.name,
                          .attrs = &perm,
                          .attr_count = 1,
                          .options = was.node.options};
    int32_t resized = MP_NO_VALUE;
    MP_TRY(add_resize(graph, n, x, times, &resized));
    MP_TRY(mp_graph_change_node(graph, n, &node, &resized, 1, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_find_upsample(mp_graph *graph, mp_rewrites *rewrites) {
    bool changed = false;
    for (int32_t n = graph->node_count - 1; n >= 0; n--) { /* the last of a chain first */
        int64_t order[RANK_MOST];
        float times[RANK_MOST];
        const int32_t x =
            mp_vertex_is(&graph->nodes[n], "Reshape") ? find(graph, n, order, times) : MP_NO_VALUE;
        if (x != MP_NO_VALUE && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, x, order, times));
            changed = true;
        }
    }
    return mp_graph_tidy(graph, changed);
}
