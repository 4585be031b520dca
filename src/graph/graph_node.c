/* graph_node.c - nodes of a graph, and which of the model they stand for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph_private.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- what a node has ---- */

size_t mp_attr_texts_bytes(const mp_attr *attr) {
    const char *at = attr->s;
    for (size_t i = 0; i < attr->count; i++) {
        at += strlen(at) + 1;
    }
    return (size_t)(at - attr->s);
}

static mp_status keep_attr(mp_graph *graph, const mp_attr *from, mp_attr *to) {
    size_t bytes = 0;
    *to = *from;
    MP_TRY(mp_graph_keep_text(graph, from->name, &to->name));
    switch (from->kind) {
    case MP_ATTR_INT:
    case MP_ATTR_FLOAT:
        return MP_OK;
    case MP_ATTR_STRING:
        return mp_graph_keep_text(graph, from->s, &to->s);
    case MP_ATTR_STRINGS:
        return mp__graph_keep_copy(graph, from->s, mp_attr_texts_bytes(from),
                                   (const void **)&to->s);
    case MP_ATTR_INTS:
        return mp__graph_keep_copy(graph, from->ints, from->count * sizeof *from->ints,
                                   (const void **)&to->ints);
    case MP_ATTR_FLOATS:
        return mp__graph_keep_copy(graph, from->floats, from->count * sizeof *from->floats,
                                   (const void **)&to->floats);
    case MP_ATTR_TENSOR:
        MP_TRY(mp_shape_bytes(&from->tensor.shape, from->tensor.type, &bytes));
        return mp__graph_keep_copy(graph, (const void *)from->tensor.data, bytes,
                                   (const void **)&to->tensor.data);
    }
    return MP_FAIL(INTERNAL, "attribute '%s' is of an unknown kind", from->name);
}

static mp_status keep_node(mp_graph *graph, const mp_node *from, mp_node *to) {
    void *attrs = NULL;
    *to = *from;
    to->title = NULL;
    MP_TRY(mp_graph_keep_text(graph, from->name, &to->name));
    MP_TRY(mp_graph_keep(graph, (from->attr_count + 1) * sizeof(mp_attr), &attrs));
    for (size_t i = 0; i < from->attr_count; i++) {
        MP_TRY(keep_attr(graph, &from->attrs[i], (mp_attr *)attrs + i));
    }
    to->attrs = attrs;
    return MP_OK;
}

static mp_status keep_list(mp_graph *graph, const int32_t *list, int count, int32_t **out) {
    void *copy = NULL;
    MP_TRY(mp_graph_keep(graph, ((size_t)count + 1) * sizeof *list, &copy));
    for (int i = 0; i < count; i++) {
        if (list[i] != MP_NO_VALUE && (list[i] < 0 || list[i] >= graph->value_count)) {
            return MP_FAIL(INVALID_ARGUMENT, "there is no value %d", (int)list[i]);
        }
        ((int32_t *)copy)[i] = list[i];
    }
    *out = copy;
    return MP_OK;
}

/* Everything of a node but its place. */
static mp_status make_vertex(mp_graph *graph, const mp_node *node, const int32_t *in, int in_count,
                             const int32_t *out, int out_count, mp_vertex *fresh) {
    *fresh = (mp_vertex){.in_count = in_count, .out_count = out_count};
    MP_TRY(keep_list(graph, in, in_count, &fresh->in));
    MP_TRY(keep_list(graph, out, out_count, &fresh->out));
    MP_TRY(keep_node(graph, node, &fresh->node));
    for (int i = 0; i < out_count; i++) {
        const mp_value *value = out[i] != MP_NO_VALUE ? &graph->values[out[i]] : NULL;
        if (value != NULL && (value->producer != MP_NO_NODE || value->is_constant)) {
            return MP_FAIL(INVALID_ARGUMENT, "the value '%s' has two producers", value->name);
        }
    }
    return MP_OK;
}

void mp__graph_set_producer(mp_graph *graph, const mp_vertex *v, int32_t producer) {
    assert(graph->values != NULL || v->out_count == 0);
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            graph->values[v->out[i]].producer = producer;
        }
    }
}

/* ---- which nodes of the model a node stands for ---- */

/* Room doubles, so a list is moved at each power of two. A list belongs to one node. */
static mp_status add_origin(mp_graph *graph, mp_origins *origins, const mp_origin *fresh) {
    const int32_t count = origins->count;
    mp_origin *list = (mp_origin *)(uintptr_t)origins->list;
    if ((count & (count - 1)) == 0) {
        void *room = NULL;
        MP_TRY(mp_graph_keep(graph, 2 * ((size_t)count + 1) * sizeof *list, &room));
        list = room;
        if (count > 0) {
            memcpy(list, origins->list, (size_t)count * sizeof *list);
        }
    }
    int32_t at = count;
    for (; at > 0 && list[at - 1].number > fresh->number; at--) {
        list[at] = list[at - 1];
    }
    list[at] = *fresh;
    *origins = (mp_origins){.list = list, .count = count + 1};
    return MP_OK;
}

static bool stands_for(const mp_vertex *v, const mp_origin *node) {
    for (int32_t i = 0; i < v->origins.count; i++) {
        if (v->origins.list[i].number == node->number) {
            return true;
        }
    }
    return false;
}

/* What errors call a node that stands for others than itself. */
static mp_status set_title(mp_graph *graph, mp_vertex *v) {
    char title[MP_TITLE_MAX];
    v->node.title = NULL;
    if (v->origins.count == 0 ||
        (v->origins.count == 1 && strcmp(v->origins.list[0].name, v->node.name) == 0 &&
         strcmp(v->origins.list[0].op, v->node.op->name) == 0)) {
        return MP_OK;
    }
    mp_origins_title(v->origins, title, sizeof title);
    return mp_graph_keep_text(graph, title, &v->node.title);
}

/* Of a node of the model: itself. */
static mp_status set_origin(mp_graph *graph, mp_vertex *v) {
    const mp_op *op = v->node.op;
    mp_origin itself = {.op = op->name, .name = v->node.name, .number = graph->origin_count++};
    char word[MP_TITLE_MAX];
    if (strcmp(op->domain, MP_OWN_DOMAIN) == 0) {
        return MP_OK;
    }
    if (op->domain[0] != '\0') {
        (void)snprintf(word, sizeof word, "%s.%s", op->domain, op->name);
        MP_TRY(mp_graph_keep_text(graph, word, &itself.op));
    }
    return add_origin(graph, &v->origins, &itself);
}

static mp_status add_origins(mp_graph *graph, mp_vertex *v, mp_origins more) {
    for (int32_t i = 0; i < more.count; i++) {
        if (!stands_for(v, &more.list[i])) {
            MP_TRY(add_origin(graph, &v->origins, &more.list[i]));
        }
    }
    return set_title(graph, v);
}

mp_status mp_graph_set_origins(mp_graph *graph, int32_t n, mp_origins origins) {
    mp_vertex *v = &graph->nodes[n];
    v->origins = (mp_origins){NULL, 0};
    for (int32_t i = 0; i < origins.count; i++) {
        mp_origin fresh = origins.list[i];
        fresh.number = graph->origin_count++;
        MP_TRY(add_origin(graph, &v->origins, &fresh));
    }
    return set_title(graph, v);
}

mp_status mp_graph_absorb(mp_graph *graph, int32_t n, int32_t other) {
    graph->nodes[other].is_absorbed = true;
    return add_origins(graph, &graph->nodes[n], graph->nodes[other].origins);
}

/* ---- nodes ---- */

/* What the old node read, and what was there before that. */
static mp_status keep_former(mp_graph *graph, const mp_vertex *old, mp_vertex *fresh) {
    void *list = NULL;
    const size_t before = (size_t)old->former_count;
    MP_TRY(mp_graph_keep(graph, (before + (size_t)old->in_count + 1) * sizeof *old->in, &list));
    fresh->former = list;
    fresh->former_count = old->former_count + old->in_count;
    if (before > 0) {
        memcpy(fresh->former, old->former, before * sizeof *old->former);
    }
    memcpy(fresh->former + before, old->in, (size_t)old->in_count * sizeof *old->in);
    return MP_OK;
}

mp_status mp_graph_add_node(mp_graph *graph, const mp_node *node, const int32_t *in, int in_count,
                            const int32_t *out, int out_count) {
    mp_vertex fresh;
    MP_TRY(make_vertex(graph, node, in, in_count, out, out_count, &fresh));
    MP_TRY(set_origin(graph, &fresh));
    MP_TRY(mp__graph_grow((void **)&graph->nodes, graph->node_count, &graph->node_capacity,
                          sizeof fresh));
    mp__graph_set_producer(graph, &fresh, graph->node_count);
    fresh.guard = graph->guard;
    graph->nodes[graph->node_count++] = fresh;
    return MP_OK;
}

mp_status mp_graph_open_guard(mp_graph *graph, int32_t condition, bool wanted) {
    MP_TRY(mp__graph_grow((void **)&graph->guards, graph->guard_count, &graph->guard_capacity,
                          sizeof *graph->guards));
    graph->guards[graph->guard_count++] =
        (mp_guard){.condition = condition, .wanted = wanted, .outer = graph->guard};
    graph->guard = graph->guard_count;
    return MP_OK;
}

void mp_graph_close_guard(mp_graph *graph) {
    assert(graph->guard > 0);
    graph->guard = graph->guards[graph->guard - 1].outer;
}

static const mp_op loop_op = {
    .domain = MP_OWN_DOMAIN, .name = "Loop", .since = 1, .until = 1, .host_in = 3};
static const mp_op scan_op = {.domain = MP_OWN_DOMAIN, .name = "Scan", .since = 1, .until = 1};

static mp_status keep_body(mp_graph *graph, mp_graph *body) {
    const mp_status status = mp__graph_grow((void **)&graph->bodies, graph->body_count,
                                            &graph->body_capacity, sizeof *graph->bodies);
    if (status != MP_OK) {
        mp_graph_destroy(body);
        return status;
    }
    graph->bodies[graph->body_count++] = body;
    return MP_OK;
}

mp_status mp_graph_add_loop(mp_graph *graph, const mp_node *node, const mp_loop *loop,
                            const int32_t *in, int in_count, const int32_t *out, int out_count) {
    const size_t flags = ((size_t)loop->sliced + (size_t)loop->stacked) * sizeof(bool);
    mp_node ours = *node;
    void *kept = NULL;
    MP_TRY(keep_body(graph, loop->body));
    MP_TRY(mp_graph_keep(graph, sizeof *loop + flags, &kept));
    mp_loop *copy = kept;
    *copy = *loop;
    copy->backwards = (bool *)(copy + 1);
    if (loop->backwards != NULL) {
        memcpy(copy->backwards, loop->backwards, flags);
    }
    ours.op = loop->is_scan ? &scan_op : &loop_op;
    ours.version = 1;
    MP_TRY(mp_graph_add_node(graph, &ours, in, in_count, out, out_count));
    mp_vertex *v = &graph->nodes[graph->node_count - 1];
    const mp_origin itself = {.op = ours.op->name, .name = v->node.name};
    v->loop = copy;
    return mp_graph_set_origins(graph, graph->node_count - 1, (mp_origins){&itself, 1});
}

mp_status mp_graph_change_node(mp_graph *graph, int32_t n, const mp_node *node, const int32_t *in,
                               int in_count, const int32_t *out, int out_count) {
    mp_vertex fresh;
    const mp_vertex old = graph->nodes[n];
    mp__graph_set_producer(graph, &old, MP_NO_NODE);
    mp_status status = make_vertex(graph, node, in, in_count, out, out_count, &fresh);
    if (status == MP_OK) {
        fresh.origins = old.origins;
        status = set_title(graph, &fresh);
    }
    if (status == MP_OK) {
        status = keep_former(graph, &old, &fresh);
    }
    if (status != MP_OK) {
        mp__graph_set_producer(graph, &old, n);
        return status;
    }
    mp__graph_set_producer(graph, &fresh, n);
    fresh.guard = old.guard;
    graph->nodes[n] = fresh;
    return MP_OK;
}

bool mp_vertex_is(const mp_vertex *v, const char *name) {
    return !v->is_gone && v->node.op->domain[0] == '\0' && strcmp(v->node.op->name, name) == 0;
}

void mp_vertex_title(const mp_vertex *v, char *text, size_t size) {
    if (v->origins.count > 0) {
        mp_origins_title(v->origins, text, size);
    } else {
        (void)snprintf(text, size, "%s", v->node.op->name);
    }
}
