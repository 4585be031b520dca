/* graph.c - see graph.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mp_graph_memory_block {
    struct mp_graph_memory_block *next;
    _Alignas(16) unsigned char bytes[];
};

/* ---- memory ---- */

mp_status mp_graph_create(mp_graph **out) {
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a graph");
    }
    (*out)->has_clusters = true;
    return MP_OK;
}

void mp_graph_suit(mp_graph *graph, const mp_computer *computer) {
    graph->prefers_last = computer->device->info.kind == MP_DEVICE_CUDA;
    graph->computer = computer;
}

void mp_graph_destroy(mp_graph *graph) {
    if (graph == NULL) {
        return;
    }
    while (graph->memory != NULL) {
        struct mp_graph_memory_block *next = graph->memory->next;
        free(graph->memory);
        graph->memory = next;
    }
    for (int32_t i = 0; i < graph->body_count; i++) {
        mp_graph_destroy(graph->bodies[i]);
    }
    free(graph->bodies);
    free(graph->guards);
    free(graph->values);
    free(graph->nodes);
    free(graph->inputs);
    free(graph->outputs);
    free(graph);
}

mp_status mp_graph_keep(mp_graph *graph, size_t size, void **out) {
    struct mp_graph_memory_block *fresh =
        size < SIZE_MAX - sizeof *fresh ? calloc(1, sizeof *fresh + size) : NULL;
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory for a graph", size);
    }
    fresh->next = graph->memory;
    graph->memory = fresh;
    *out = fresh->bytes;
    return MP_OK;
}

void mp_graph_forget_data(mp_graph *graph, int32_t value) {
    mp_value *v = &graph->values[value];
    struct mp_graph_memory_block **at = &graph->memory;
    while (v->owns_data && *at != NULL && (mp_addr)(*at)->bytes != v->tensor.data) {
        at = &(*at)->next;
    }
    if (v->owns_data && *at != NULL) {
        struct mp_graph_memory_block *gone = *at;
        *at = gone->next;
        free(gone);
    }
    v->owns_data = false;
    v->tensor.data = 0;
}

static mp_status keep_copy(mp_graph *graph, const void *bytes, size_t size, const void **out) {
    void *copy = NULL;
    *out = NULL;
    if (bytes == NULL) {
        return MP_OK;
    }
    MP_TRY(mp_graph_keep(graph, size, &copy));
    memcpy(copy, bytes, size);
    *out = copy;
    return MP_OK;
}

mp_status mp_graph_keep_text(mp_graph *graph, const char *text, const char **out) {
    const void *copy = NULL;
    MP_TRY(keep_copy(graph, text, strlen(text) + 1, &copy));
    *out = copy;
    return MP_OK;
}

/* Makes room for one more of `width` bytes. */
static mp_status grow(void **list, int32_t count, int32_t *capacity, size_t width) {
    if (count < *capacity) {
        return MP_OK;
    }
    if (count > INT32_MAX / 2 - 64) {
        return MP_FAIL(INVALID_ARGUMENT, "a graph with %d parts is too large", (int)count);
    }
    const int32_t more = count * 2 + 64;
    void *grown = realloc(*list, (size_t)more * width);
    if (grown == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a graph of %d parts",
                       (int)more);
    }
    *list = grown;
    *capacity = more;
    return MP_OK;
}

/* ---- building ---- */

mp_status mp_graph_add_value(mp_graph *graph, const char *name, const mp_tensor *tensor,
                             int32_t *out) {
    mp_value fresh = {.tensor = *tensor, .producer = MP_NO_NODE};
    MP_TRY(mp_graph_keep_text(graph, name, &fresh.name));
    MP_TRY(grow((void **)&graph->values, graph->value_count, &graph->value_capacity, sizeof fresh));
    *out = graph->value_count++;
    graph->values[*out] = fresh;
    return MP_OK;
}

mp_status mp_graph_add_constant(mp_graph *graph, const char *name, const mp_tensor *tensor,
                                int32_t *out) {
    size_t bytes = 0;
    void *copy = NULL;
    mp_tensor kept = *tensor;
    MP_TRY(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
    MP_TRY(mp_graph_keep(graph, bytes + 1, &copy));
    if (tensor->data != 0 && bytes > 0) {
        memcpy(copy, (const void *)tensor->data, bytes);
    }
    kept.data = (mp_addr)copy;
    MP_TRY(mp_graph_add_value(graph, name, &kept, out));
    graph->values[*out].is_constant = true;
    graph->values[*out].owns_data = true;
    return MP_OK;
}

mp_status mp_graph_add_input(mp_graph *graph, int32_t value) {
    MP_TRY(grow((void **)&graph->inputs, graph->input_count, &graph->input_capacity,
                sizeof *graph->inputs));
    graph->inputs[graph->input_count++] = value;
    return MP_OK;
}

mp_status mp_graph_add_output(mp_graph *graph, int32_t value) {
    MP_TRY(grow((void **)&graph->outputs, graph->output_count, &graph->output_capacity,
                sizeof *graph->outputs));
    graph->outputs[graph->output_count++] = value;
    return MP_OK;
}

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
        return keep_copy(graph, from->s, mp_attr_texts_bytes(from), (const void **)&to->s);
    case MP_ATTR_INTS:
        return keep_copy(graph, from->ints, from->count * sizeof *from->ints,
                         (const void **)&to->ints);
    case MP_ATTR_FLOATS:
        return keep_copy(graph, from->floats, from->count * sizeof *from->floats,
                         (const void **)&to->floats);
    case MP_ATTR_TENSOR:
        MP_TRY(mp_shape_bytes(&from->tensor.shape, from->tensor.type, &bytes));
        return keep_copy(graph, (const void *)from->tensor.data, bytes,
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

static void set_producer(mp_graph *graph, const mp_vertex *v, int32_t producer) {
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
    MP_TRY(grow((void **)&graph->nodes, graph->node_count, &graph->node_capacity, sizeof fresh));
    set_producer(graph, &fresh, graph->node_count);
    fresh.guard = graph->guard;
    graph->nodes[graph->node_count++] = fresh;
    return MP_OK;
}

mp_status mp_graph_open_guard(mp_graph *graph, int32_t condition, bool wanted) {
    MP_TRY(grow((void **)&graph->guards, graph->guard_count, &graph->guard_capacity,
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
    const mp_status status = grow((void **)&graph->bodies, graph->body_count, &graph->body_capacity,
                                  sizeof *graph->bodies);
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
    set_producer(graph, &old, MP_NO_NODE);
    mp_status status = make_vertex(graph, node, in, in_count, out, out_count, &fresh);
    if (status == MP_OK) {
        fresh.origins = old.origins;
        status = set_title(graph, &fresh);
    }
    if (status == MP_OK) {
        status = keep_former(graph, &old, &fresh);
    }
    if (status != MP_OK) {
        set_producer(graph, &old, n);
        return status;
    }
    set_producer(graph, &fresh, n);
    fresh.guard = old.guard;
    graph->nodes[n] = fresh;
    return MP_OK;
}

int32_t mp_graph_find_value(const mp_graph *graph, const char *name) {
    for (int32_t i = 0; i < graph->value_count; i++) {
        if (strcmp(graph->values[i].name, name) == 0) {
            return i;
        }
    }
    return MP_NO_VALUE;
}

/* ---- for passes ---- */

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

int mp_graph_uses(const mp_graph *graph, int32_t value) {
    int uses = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count && !v->is_gone; i++) {
            uses += v->in[i] == value;
        }
    }
    for (int32_t i = 0; i < graph->output_count; i++) {
        uses += graph->outputs[i] == value;
    }
    return uses + mp_graph_is_condition(graph, value);
}

bool mp_graph_is_condition(const mp_graph *graph, int32_t value) {
    for (int32_t i = 0; i < graph->guard_count; i++) {
        if (graph->guards[i].condition == value) {
            return true;
        }
    }
    return false;
}

bool mp_graph_is_output(const mp_graph *graph, int32_t value) {
    for (int32_t i = 0; i < graph->output_count; i++) {
        if (graph->outputs[i] == value) {
            return true;
        }
    }
    return false;
}

bool mp_graph_guard_within(const mp_graph *graph, int32_t inner, int32_t outer) {
    while (inner != outer && inner != 0) {
        inner = graph->guards[inner - 1].outer;
    }
    return inner == outer;
}

void mp_graph_replace(mp_graph *graph, int32_t from, int32_t to, bool outputs) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count; i++) {
            v->in[i] = v->in[i] == from ? to : v->in[i];
        }
    }
    for (int32_t i = 0; i < graph->guard_count; i++) {
        mp_guard *guard = &graph->guards[i];
        guard->condition = guard->condition == from ? to : guard->condition;
    }
    for (int32_t i = 0; i < graph->output_count && outputs; i++) {
        graph->outputs[i] = graph->outputs[i] == from ? to : graph->outputs[i];
    }
}

void mp_graph_remove_node(mp_graph *graph, int32_t node) {
    graph->nodes[node].is_gone = true;
    set_producer(graph, &graph->nodes[node], MP_NO_NODE);
}

mp_status mp_graph_merge_node(mp_graph *graph, int32_t n, int32_t gone, const mp_node *node,
                              const int32_t *in, int in_count, const int32_t *out, int out_count) {
    mp_graph_remove_node(graph, gone);
    const mp_status status = mp_graph_change_node(graph, n, node, in, in_count, out, out_count);
    if (status != MP_OK) {
        graph->nodes[gone].is_gone = false;
        set_producer(graph, &graph->nodes[gone], gone);
    }
    return status;
}

static bool is_read(const mp_graph *graph, const mp_vertex *v) {
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE && mp_graph_uses(graph, v->out[i]) > 0) {
            return true;
        }
    }
    return false;
}

/* `top`: the first of a chain of nodes that were taken out; what they read is to be looked at. */
static void drop_maker(mp_graph *graph, int32_t value, int32_t *top) {
    const int32_t n = value != MP_NO_VALUE ? graph->values[value].producer : MP_NO_NODE;
    if (n != MP_NO_NODE && !is_read(graph, &graph->nodes[n])) {
        mp_graph_remove_node(graph, n);
        graph->nodes[n].next = *top;
        *top = n;
    }
}

void mp_graph_drop_unread(mp_graph *graph, int32_t value) {
    int32_t top = MP_NO_NODE;
    drop_maker(graph, value, &top);
    while (top != MP_NO_NODE) {
        const mp_vertex *v = &graph->nodes[top];
        top = v->next;
        for (int i = 0; i < v->in_count; i++) {
            drop_maker(graph, v->in[i], &top);
        }
    }
}

void mp_graph_drop_inputs(mp_graph *graph, const mp_vertex *was) {
    for (int i = 0; i < was->in_count; i++) {
        mp_graph_drop_unread(graph, was->in[i]);
    }
}

void mp_graph_compact(mp_graph *graph) {
    int32_t kept = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (!graph->nodes[n].is_gone) {
            graph->nodes[kept] = graph->nodes[n];
            set_producer(graph, &graph->nodes[kept], kept);
            kept++;
        }
    }
    graph->node_count = kept;
}

/* The maker of `value`, if it is not placed yet, or MP_NO_NODE. */
static int32_t unplaced(const mp_graph *graph, int32_t value, const int32_t *place) {
    const int32_t maker = value != MP_NO_VALUE ? graph->values[value].producer : MP_NO_NODE;
    return maker != MP_NO_NODE && place[maker] < 0 ? maker : MP_NO_NODE;
}

/* The first such maker of an input of node `n`, or of a condition of its guards. */
static int32_t waits_for(const mp_graph *graph, int32_t n, const int32_t *place) {
    const mp_vertex *v = &graph->nodes[n];
    int32_t maker = MP_NO_NODE;
    for (int i = 0; i < v->in_count && maker == MP_NO_NODE; i++) {
        maker = unplaced(graph, v->in[i], place);
    }
    for (int32_t g = v->guard; g != 0 && maker == MP_NO_NODE; g = graph->guards[g - 1].outer) {
        maker = unplaced(graph, graph->guards[g - 1].condition, place);
    }
    return maker;
}

/* `place`: by node, where it goes; `stack` has those that wait for what is above them. */
static void place_nodes(const mp_graph *graph, int32_t *place, int32_t *stack) {
    int32_t placed = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        int32_t height = 0;
        if (place[n] < 0) {
            stack[height++] = n;
        }
        while (height > 0) {
            const int32_t maker = waits_for(graph, stack[height - 1], place);
            if (maker != MP_NO_NODE) {
                stack[height++] = maker;
            } else {
                place[stack[--height]] = placed++;
            }
        }
    }
}

mp_status mp_graph_sort(mp_graph *graph) {
    const size_t count = (size_t)graph->node_count + 1;
    mp_vertex *sorted = malloc(count * sizeof *sorted);
    int32_t *place = malloc(2 * count * sizeof *place);
    if (sorted == NULL || place == NULL) {
        free(sorted);
        free(place);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to sort a graph");
    }
    memset(place, 0xff, count * sizeof *place);
    place_nodes(graph, place, place + count);
    for (int32_t n = 0; n < graph->node_count; n++) {
        sorted[place[n]] = graph->nodes[n];
    }
    memcpy(graph->nodes, sorted, (size_t)graph->node_count * sizeof *sorted);
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (!graph->nodes[n].is_gone) {
            set_producer(graph, &graph->nodes[n], n);
        }
    }
    free(sorted);
    free(place);
    return MP_OK;
}
