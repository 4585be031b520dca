/* graph.c - see graph.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct mp_graph_memory_block {
    struct mp_graph_memory_block *next;
    _Alignas(16) unsigned char bytes[];
};

/* ---- memory ---- */

mp_status mp_graph_create(mp_graph **out) {
    *out = calloc(1, sizeof **out);
    return *out != NULL ? MP_OK : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a graph");
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
    const void *copy = NULL;
    mp_tensor kept = *tensor;
    MP_TRY(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
    MP_TRY(keep_copy(graph, bytes > 0 ? (const void *)tensor->data : "", bytes > 0 ? bytes : 1,
                     &copy));
    kept.data = (mp_addr)copy;
    MP_TRY(mp_graph_add_value(graph, name, &kept, out));
    graph->values[*out].is_constant = true;
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

static size_t text_list_bytes(const char *texts, size_t count) {
    const char *at = texts;
    for (size_t i = 0; i < count; i++) {
        at += strlen(at) + 1;
    }
    return (size_t)(at - texts);
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
        return keep_copy(graph, from->s, text_list_bytes(from->s, from->count),
                         (const void **)&to->s);
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

mp_status mp_graph_add_node(mp_graph *graph, const mp_node *node, const int32_t *in, int in_count,
                            const int32_t *out, int out_count) {
    mp_vertex fresh;
    MP_TRY(make_vertex(graph, node, in, in_count, out, out_count, &fresh));
    MP_TRY(grow((void **)&graph->nodes, graph->node_count, &graph->node_capacity, sizeof fresh));
    set_producer(graph, &fresh, graph->node_count);
    graph->nodes[graph->node_count++] = fresh;
    return MP_OK;
}

mp_status mp_graph_change_node(mp_graph *graph, int32_t n, const mp_node *node, const int32_t *in,
                               int in_count, const int32_t *out, int out_count) {
    mp_vertex fresh;
    const mp_vertex old = graph->nodes[n];
    set_producer(graph, &old, MP_NO_NODE);
    const mp_status status = make_vertex(graph, node, in, in_count, out, out_count, &fresh);
    if (status != MP_OK) {
        set_producer(graph, &old, n);
        return status;
    }
    set_producer(graph, &fresh, n);
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
    return uses;
}

bool mp_graph_is_output(const mp_graph *graph, int32_t value) {
    for (int32_t i = 0; i < graph->output_count; i++) {
        if (graph->outputs[i] == value) {
            return true;
        }
    }
    return false;
}

void mp_graph_replace(mp_graph *graph, int32_t from, int32_t to, bool outputs) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count; i++) {
            v->in[i] = v->in[i] == from ? to : v->in[i];
        }
    }
    for (int32_t i = 0; i < graph->output_count && outputs; i++) {
        graph->outputs[i] = graph->outputs[i] == from ? to : graph->outputs[i];
    }
}

void mp_graph_remove_node(mp_graph *graph, int32_t node) {
    graph->nodes[node].is_gone = true;
    set_producer(graph, &graph->nodes[node], MP_NO_NODE);
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

int mp_graph_nodes_left(const mp_graph *graph) {
    int left = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        left += !graph->nodes[n].is_gone;
    }
    return left;
}
