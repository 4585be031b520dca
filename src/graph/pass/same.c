/* same.c - of nodes that compute the same from the same values only the first stays.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include <stdlib.h>
#include <string.h>

static bool same_bytes(const void *a, const void *b, size_t size) {
    return size == 0 || memcmp(a, b, size) == 0;
}

static bool same_tensor(const mp_tensor *a, const mp_tensor *b) {
    size_t bytes = 0;
    return a->type == b->type && mp_shape_equal(&a->shape, &b->shape) &&
           mp_shape_bytes(&a->shape, a->type, &bytes) == MP_OK &&
           same_bytes((const void *)a->data, (const void *)b->data, bytes);
}

static bool same_value(const mp_attr *a, const mp_attr *b) {
    switch (a->kind) {
    case MP_ATTR_INT:
        return a->i == b->i;
    case MP_ATTR_FLOAT:
        return same_bytes(&a->f, &b->f, sizeof a->f);
    case MP_ATTR_STRING:
        return strcmp(a->s, b->s) == 0;
    case MP_ATTR_STRINGS:
        return a->count == b->count && mp_attr_texts_bytes(a) == mp_attr_texts_bytes(b) &&
               same_bytes(a->s, b->s, mp_attr_texts_bytes(a));
    case MP_ATTR_INTS:
        return a->count == b->count && same_bytes(a->ints, b->ints, a->count * sizeof *a->ints);
    case MP_ATTR_FLOATS:
        return a->count == b->count &&
               same_bytes(a->floats, b->floats, a->count * sizeof *a->floats);
    case MP_ATTR_TENSOR:
        return same_tensor(&a->tensor, &b->tensor);
    }
    return false;
}

/* Attributes are in the order of the operator's list. */
static bool same_attrs(const mp_node *a, const mp_node *b) {
    if (a->attr_count != b->attr_count) {
        return false;
    }
    for (size_t i = 0; i < a->attr_count; i++) {
        if (strcmp(a->attrs[i].name, b->attrs[i].name) != 0 ||
            a->attrs[i].kind != b->attrs[i].kind || !same_value(&a->attrs[i], &b->attrs[i])) {
            return false;
        }
    }
    return true;
}

/* `a` stays, and must be computed wherever `b` is. */
static bool same_nodes(const mp_graph *graph, const mp_vertex *a, const mp_vertex *b) {
    return a->node.op == b->node.op && a->loop == NULL &&
           mp_graph_guard_within(graph, b->guard, a->guard) && a->node.version == b->node.version &&
           a->in_count == b->in_count && a->out_count == b->out_count &&
           a->node.out_absent == b->node.out_absent &&
           same_bytes(a->in, b->in, (size_t)a->in_count * sizeof *a->in) &&
           same_attrs(&a->node, &b->node);
}

static uint64_t hash_of(const mp_vertex *v) {
    uint64_t hash = (uint64_t)(uintptr_t)v->node.op;
    for (int i = 0; i < v->in_count; i++) {
        hash = (hash ^ (uint64_t)(uint32_t)v->in[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return hash;
}

static bool may_go(const mp_graph *graph, const mp_vertex *v) {
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE && mp_graph_is_output(graph, v->out[i])) {
            return false;
        }
    }
    return !v->is_gone && !v->node.op->draws;
}

static mp_status merge(mp_graph *graph, int32_t first, int32_t second) {
    const mp_vertex *v = &graph->nodes[second];
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            mp_graph_replace(graph, v->out[i], graph->nodes[first].out[i], false);
        }
    }
    mp_graph_remove_node(graph, second);
    return mp_graph_absorb(graph, first, second);
}

/* `slots` holds nodes that stay, by their hash; `mask` + 1 of them, twice as many as nodes. */
static mp_status find_same(mp_graph *graph, mp_rewrites *rewrites, int32_t *slots, size_t mask) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (v->is_gone || v->node.op->draws) {
            continue;
        }
        size_t at = (size_t)hash_of(v) & mask;
        while (slots[at] != MP_NO_NODE && !same_nodes(graph, &graph->nodes[slots[at]], v)) {
            at = (at + 1) & mask;
        }
        if (slots[at] == MP_NO_NODE) {
            slots[at] = n;
        } else if (may_go(graph, v) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(merge(graph, slots[at], n));
        }
    }
    return MP_OK;
}

mp_status mp_pass_same(mp_graph *graph, mp_rewrites *rewrites) {
    size_t count = 16;
    while (count < 2 * (size_t)graph->node_count) {
        count *= 2;
    }
    int32_t *slots = malloc(count * sizeof *slots);
    if (slots == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look at a graph");
    }
    for (size_t i = 0; i < count; i++) {
        slots[i] = MP_NO_NODE;
    }
    const mp_status status = find_same(graph, rewrites, slots, count - 1);
    free(slots);
    return status;
}
