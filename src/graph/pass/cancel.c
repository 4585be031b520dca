/* cancel.c - a Transpose of a Transpose, and a Cast back to the type that a value had before it was
 * cast to one that holds all its values. The first of the two stays for others that read it; what
 * nobody reads any more goes at once, so that the passes behind see who reads the value.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

static const mp_vertex *maker(const mp_graph *graph, const mp_vertex *v, const char *name) {
    const int32_t n = mp_graph_maker(graph, mp_vertex_in(v, 0), name);
    return n != MP_NO_NODE && graph->nodes[n].in[0] != MP_NO_VALUE ? &graph->nodes[n] : NULL;
}

/* Whether every value of `from` is one of `to`, too. */
static bool holds_all(mp_dtype from, mp_dtype to) {
    static const struct {
        mp_dtype from;
        mp_dtypes to;
    } wider[] = {
        {MP_F16, MP_BIT(MP_F32) | MP_BIT(MP_F64)},
        {MP_BF16, MP_BIT(MP_F32) | MP_BIT(MP_F64)},
        {MP_F32, MP_BIT(MP_F64)},
        {MP_I8, MP_BIT(MP_I16) | MP_BIT(MP_I32) | MP_BIT(MP_I64)},
        {MP_U8, MP_BIT(MP_I16) | MP_BIT(MP_U16) | MP_BIT(MP_I32) | MP_BIT(MP_U32) | MP_BIT(MP_I64)},
        {MP_I16, MP_BIT(MP_I32) | MP_BIT(MP_I64)},
        {MP_I32, MP_BIT(MP_I64) | MP_BIT(MP_F64)},
    };
    for (size_t i = 0; i < MP_COUNT_OF(wider); i++) {
        if (wider[i].from == from) {
            return (wider[i].to & MP_BIT(to)) != 0;
        }
    }
    return false;
}

/* The value that the second Cast gives back; MP_NO_VALUE where it does not. */
static int32_t cast_back(const mp_graph *graph, const mp_vertex *v) {
    const mp_vertex *first = mp_vertex_is(v, "Cast") ? maker(graph, v, "Cast") : NULL;
    if (first == NULL) {
        return MP_NO_VALUE;
    }
    const mp_dtype type = mp_graph_type(graph, first->in[0]);
    const int64_t between = mp_node_int(&first->node, "to", 0);
    return type != MP_NONE && between > 0 && between < MP_DTYPE_END &&
                   mp_node_int(&v->node, "to", 0) == (int64_t)type &&
                   holds_all(type, (mp_dtype)between)
               ? first->in[0]
               : MP_NO_VALUE;
}

static int32_t turned_back(const mp_graph *graph, const mp_vertex *v) {
    const mp_vertex *first = mp_vertex_is(v, "Transpose") ? maker(graph, v, "Transpose") : NULL;
    const mp_attr *a = first != NULL ? mp_vertex_perm(first) : NULL;
    const mp_attr *b = first != NULL ? mp_vertex_perm(v) : NULL;
    if (a == NULL || b == NULL || a->count != b->count) {
        return MP_NO_VALUE;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (a->ints[b->ints[i]] != (int64_t)i) {
            return MP_NO_VALUE;
        }
    }
    return first->in[0];
}

mp_status mp_pass_cancel(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const int32_t cast = v->is_gone ? MP_NO_VALUE : cast_back(graph, v);
        const int32_t same = v->is_gone || cast != MP_NO_VALUE ? cast : turned_back(graph, v);
        if (same == MP_NO_VALUE || mp_graph_is_output(graph, v->out[0]) ||
            !mp_rewrite_allowed(rewrites)) {
            continue;
        }
        const int32_t between = v->in[0];
        mp_graph_replace(graph, v->out[0], same, false);
        mp_graph_remove_node(graph, n);
        mp_graph_drop_unread(graph, between);
    }
    return MP_OK;
}
