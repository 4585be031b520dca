/* graph.c - see graph.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph_private.h"

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
    (*out)->has_row_clusters = true;
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

mp_status mp__graph_keep_copy(mp_graph *graph, const void *bytes, size_t size, const void **out) {
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
    MP_TRY(mp__graph_keep_copy(graph, text, strlen(text) + 1, &copy));
    *out = copy;
    return MP_OK;
}

#ifdef __SANITIZE_ADDRESS__
enum { MOVES_ALWAYS = true }; /* a list that grows, so that who still points into it is seen */
#else
enum { MOVES_ALWAYS = false };
#endif

/* Makes room for one more of `width` bytes. */
mp_status mp__graph_grow(void **list, int32_t count, int32_t *capacity, size_t width) {
    if (count < *capacity && !MOVES_ALWAYS) {
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
    MP_TRY(mp__graph_grow((void **)&graph->values, graph->value_count, &graph->value_capacity,
                          sizeof fresh));
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
    MP_TRY(mp__graph_grow((void **)&graph->inputs, graph->input_count, &graph->input_capacity,
                          sizeof *graph->inputs));
    graph->inputs[graph->input_count++] = value;
    return MP_OK;
}

mp_status mp_graph_add_output(mp_graph *graph, int32_t value) {
    MP_TRY(mp__graph_grow((void **)&graph->outputs, graph->output_count, &graph->output_capacity,
                          sizeof *graph->outputs));
    graph->outputs[graph->output_count++] = value;
    return MP_OK;
}

/* ---- questions ---- */

int32_t mp_graph_find_value(const mp_graph *graph, const char *name) {
    for (int32_t i = 0; i < graph->value_count; i++) {
        if (strcmp(graph->values[i].name, name) == 0) {
            return i;
        }
    }
    return MP_NO_VALUE;
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
