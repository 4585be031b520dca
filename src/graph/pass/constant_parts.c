/* constant_parts.c - what follows from constants by products, reductions and the like, which fold.c
 * does not compute on the host, becomes constants: it is computed once, on the device.
 *
 *     E, W const        E, W const
 *     p = MatMul(E, W)  k const
 *     k = Transpose(p)
 *
 * ONNX Runtime folds all that its CPU provider has kernels for, so it is models of half precision
 * that have such parts. Element-wise nodes before and behind are of the part. All results together
 * are little larger than what they are made of.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/compute.h"
#include "graph/pass/fold.h"

#include <stdlib.h>
#include <string.h>

enum { INPUTS_MAX = 256 << 20, GROWTH_MAX = 4 << 20 }; /* bytes, of all parts together */

typedef struct parts {
    mp_graph *graph;
    bool *follows;  /* by node: from constants alone */
    bool *is_taken; /* by node: it is of a part */
    size_t *source; /* by value: 1 and bytes of the largest constant that it is made of; else 0 */
    bool *is_heavy; /* by value: a node of a part's own made it, or it is made of such */
    bool *is_read;  /* by value: by a node that is taken; then: by others */
    int32_t *place; /* by value: in the part's own graph; MP_NO_VALUE */
    mp_graph *own;
    int32_t *results; /* values of the graph that become constants */
    int32_t result_count;
} parts;

/* ---- which nodes ---- */

/* 0 where it is not known. */
static size_t bytes_of(const mp_value *value) {
    const mp_tensor *t = &value->tensor;
    size_t bytes = 0;
    return t->shape.rank >= 0 && mp_shape_bytes(&t->shape, t->type, &bytes) == MP_OK ? bytes : 0;
}

static bool may_follow(const mp_graph *graph, const mp_vertex *v) {
    const mp_op *op = v->node.op;
    return !v->is_gone && v->guard == 0 && v->loop == NULL && v->in_count > 0 &&
           op->domain[0] == '\0' && op->plan != NULL && op->finish == NULL && !op->draws &&
           strcmp(op->name, "DequantizeLinear") != 0 && mp_fold_may(graph, v);
}

/* 1 and the bytes of the largest constant that the node's inputs are made of; 0: they are made of
 * others, too. */
static size_t source_of(const parts *p, const mp_vertex *v) {
    size_t largest = 0;
    for (int i = 0; i < v->in_count; i++) {
        if (v->in[i] == MP_NO_VALUE) {
            continue;
        }
        const mp_value *value = &p->graph->values[v->in[i]];
        const bool is_there = value->is_constant && value->tensor.data != 0;
        const size_t source = is_there ? 1 + bytes_of(value) : p->source[v->in[i]];
        if (source == 0) {
            return 0;
        }
        largest = MP_MAX(largest, source);
    }
    return largest;
}

/* As far as sizes are known. */
static bool results_fit(const parts *p, const mp_vertex *v, size_t source) {
    const size_t most = MP_MAX(source, (size_t)MP_FOLD_RESULT_MAX);
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE && bytes_of(&p->graph->values[v->out[i]]) > most) {
            return false;
        }
    }
    return true;
}

static bool is_made_of_heavy(const parts *p, const mp_vertex *v) {
    for (int i = 0; i < v->in_count; i++) {
        if (v->in[i] != MP_NO_VALUE && p->is_heavy[v->in[i]]) {
            return true;
        }
    }
    return false;
}

/* Nodes are in their order: what follows from constants, and of that what is made by a node of a
 * part's own. */
static bool find_following(const parts *p) {
    bool any = false;
    for (int32_t n = 0; n < p->graph->node_count; n++) {
        const mp_vertex *v = &p->graph->nodes[n];
        const size_t source = may_follow(p->graph, v) ? source_of(p, v) : 0;
        p->follows[n] = source > 0 && results_fit(p, v, source);
        if (!p->follows[n]) {
            continue;
        }
        p->is_taken[n] = !mp_fold_wants(v) || is_made_of_heavy(p, v);
        any = any || p->is_taken[n];
        for (int i = 0; i < v->out_count; i++) {
            if (v->out[i] != MP_NO_VALUE) {
                p->source[v->out[i]] = source;
                p->is_heavy[v->out[i]] = p->is_taken[n];
            }
        }
    }
    return any;
}

/* And back: what those read, and fold.c has left. */
static void take_makers(const parts *p) {
    for (int32_t n = p->graph->node_count; n-- > 0;) {
        const mp_vertex *v = &p->graph->nodes[n];
        for (int i = 0; p->follows[n] && i < v->out_count; i++) {
            p->is_taken[n] |= v->out[i] != MP_NO_VALUE && p->is_read[v->out[i]];
        }
        for (int i = 0; p->is_taken[n] && i < v->in_count; i++) {
            if (v->in[i] != MP_NO_VALUE) {
                p->is_read[v->in[i]] = true;
            }
        }
    }
}

/* ---- a graph of these nodes alone ---- */

static mp_status place_of(parts *p, int32_t value, int32_t *out) {
    if (value == MP_NO_VALUE || p->place[value] != MP_NO_VALUE) {
        *out = value == MP_NO_VALUE ? MP_NO_VALUE : p->place[value];
        return MP_OK;
    }
    const mp_value *from = &p->graph->values[value];
    MP_TRY(mp_graph_add_value(p->own, from->name, &from->tensor, out));
    p->place[value] = *out;
    return from->is_constant ? mp_graph_add_input(p->own, *out) : MP_OK;
}

static mp_status copy_node(parts *p, const mp_vertex *v) {
    int32_t *list = calloc((size_t)v->in_count + (size_t)v->out_count + 1, sizeof *list);
    mp_status status =
        list != NULL ? MP_OK : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a graph");
    for (int i = 0; status == MP_OK && i < v->in_count; i++) {
        status = place_of(p, v->in[i], &list[i]);
    }
    for (int i = 0; status == MP_OK && i < v->out_count; i++) {
        status = place_of(p, v->out[i], &list[v->in_count + i]);
    }
    if (status == MP_OK) {
        status = mp_graph_add_node(p->own, &v->node, list, v->in_count, list + v->in_count,
                                   v->out_count);
    }
    free(list);
    return status;
}

/* Who reads what, of all that is not taken. */
static void note_others(const parts *p) {
    memset(p->is_read, 0, (size_t)p->graph->value_count * sizeof *p->is_read);
    for (int32_t n = 0; n < p->graph->node_count; n++) {
        const mp_vertex *v = &p->graph->nodes[n];
        for (int i = 0; !v->is_gone && !p->is_taken[n] && i < v->in_count; i++) {
            if (v->in[i] != MP_NO_VALUE) {
                p->is_read[v->in[i]] = true;
            }
        }
    }
}

static mp_status add_results(parts *p, const mp_vertex *v) {
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE && p->is_read[v->out[i]]) {
            p->results[p->result_count++] = v->out[i];
            MP_TRY(mp_graph_add_output(p->own, p->place[v->out[i]]));
        }
    }
    return MP_OK;
}

static mp_status build(parts *p) {
    MP_TRY(mp_graph_create(&p->own));
    note_others(p);
    for (int32_t n = 0; n < p->graph->node_count; n++) {
        if (p->is_taken[n]) {
            MP_TRY(copy_node(p, &p->graph->nodes[n]));
            MP_TRY(add_results(p, &p->graph->nodes[n]));
        }
    }
    return MP_OK;
}

/* ---- results ---- */

static mp_status keep(const parts *p, const mp_tensor *out) {
    for (int32_t i = 0; i < p->result_count; i++) {
        mp_value *value = &p->graph->values[p->results[i]];
        void *kept = NULL;
        size_t bytes = 0;
        MP_TRY(mp_shape_bytes(&out[i].shape, out[i].type, &bytes));
        MP_TRY(mp_graph_keep(p->graph, bytes + 1, &kept));
        memcpy(kept, (const void *)out[i].data, bytes);
        value->tensor = out[i];
        value->tensor.data = (mp_addr)kept;
        value->owns_data = true;
    }
    return MP_OK;
}

/* The part's nodes go, and its results stay. */
static void replace(const parts *p) {
    for (int32_t n = 0; n < p->graph->node_count; n++) {
        if (p->is_taken[n]) {
            mp_graph_remove_node(p->graph, n);
        }
    }
    for (int32_t i = 0; i < p->result_count; i++) {
        p->graph->values[p->results[i]].is_constant = true;
    }
}

/* What fails does so where it runs, if it does. */
static mp_status compute_to(const parts *p, size_t most, mp_tensor *out, mp_rewrites *rewrites) {
    if (mp_graph_compute(p->graph->computer, p->own, most, out) != MP_OK) {
        rewrites->done--;
        return MP_OK;
    }
    const mp_status status = keep(p, out);
    for (int32_t i = 0; i < p->result_count; i++) {
        free((void *)out[i].data);
    }
    if (status == MP_OK) {
        replace(p);
    }
    return status;
}

static mp_status compute(const parts *p, mp_rewrites *rewrites) {
    size_t source = 0;
    for (int32_t i = 0; i < p->own->input_count; i++) {
        source += bytes_of(&p->own->values[p->own->inputs[i]]);
    }
    if (p->result_count == 0 || source > INPUTS_MAX || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    mp_tensor *out = calloc((size_t)p->result_count, sizeof *out);
    if (out == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for constants");
    }
    const mp_status status = compute_to(p, source + GROWTH_MAX, out, rewrites);
    free(out);
    return status;
}

static mp_status find_and_compute(parts *p, mp_rewrites *rewrites) {
    if (!find_following(p)) {
        return MP_OK;
    }
    take_makers(p);
    MP_TRY(build(p));
    return compute(p, rewrites);
}

mp_status mp_pass_constant_parts(mp_graph *graph, mp_rewrites *rewrites) {
    const size_t nodes = (size_t)graph->node_count + 1;
    const size_t values = (size_t)graph->value_count + 1;
    if (graph->computer == NULL) {
        return MP_OK;
    }
    parts p = {.graph = graph,
               .follows = calloc(nodes, sizeof *p.follows),
               .is_taken = calloc(nodes, sizeof *p.is_taken),
               .source = calloc(values, sizeof *p.source),
               .is_heavy = calloc(values, sizeof *p.is_heavy),
               .is_read = calloc(values, sizeof *p.is_read),
               .place = malloc(values * sizeof *p.place),
               .results = malloc(values * sizeof *p.results)};
    mp_status status = MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a pass");
    if (p.follows != NULL && p.is_taken != NULL && p.source != NULL && p.is_heavy != NULL &&
        p.is_read != NULL && p.place != NULL && p.results != NULL) {
        memset(p.place, 0xff, values * sizeof *p.place); /* MP_NO_VALUE */
        status = find_and_compute(&p, rewrites);
    }
    mp_graph_destroy(p.own);
    free(p.follows);
    free(p.is_taken);
    free(p.source);
    free(p.is_heavy);
    free(p.is_read);
    free(p.place);
    free(p.results);
    return status;
}
