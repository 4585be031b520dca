/* store_write.c - a graph as bytes, see store.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/store_private.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct writer {
    const mp_graph *graph;
    FILE *out; /* what fails shows when it is closed */
} writer;

/* ---- pieces ---- */

static void put(const writer *w, const void *bytes, size_t size) {
    (void)fwrite(bytes, 1, size, w->out);
}

static void put_number(const writer *w, size_t number) {
    const uint32_t narrow = (uint32_t)number;
    put(w, &narrow, sizeof narrow);
}

static void put_value(const writer *w, int32_t value) {
    put(w, &value, sizeof value);
}

static void put_text(const writer *w, const char *text) {
    put_number(w, strlen(text));
    put(w, text, strlen(text));
}

static void put_tensor(const writer *w, const mp_tensor *tensor) {
    put_number(w, tensor->type);
    put_value(w, tensor->shape.rank);
    if (tensor->shape.rank > 0) {
        put(w, tensor->shape.dim, (size_t)tensor->shape.rank * sizeof *tensor->shape.dim);
    }
}

/* ---- attributes ---- */

static mp_status put_attr(const writer *w, const mp_attr *attr) {
    size_t bytes = 0;
    put_text(w, attr->name);
    put_number(w, attr->kind);
    switch (attr->kind) {
    case MP_ATTR_INT:
        put(w, &attr->i, sizeof attr->i);
        return MP_OK;
    case MP_ATTR_FLOAT:
        put(w, &attr->f, sizeof attr->f);
        return MP_OK;
    case MP_ATTR_STRING:
        put_text(w, attr->s);
        return MP_OK;
    case MP_ATTR_INTS:
        put_number(w, attr->count);
        put(w, attr->ints, attr->count * sizeof *attr->ints);
        return MP_OK;
    case MP_ATTR_FLOATS:
        put_number(w, attr->count);
        put(w, attr->floats, attr->count * sizeof *attr->floats);
        return MP_OK;
    case MP_ATTR_STRINGS:
        bytes = mp_attr_texts_bytes(attr);
        put_number(w, bytes);
        put(w, attr->s, bytes);
        return MP_OK;
    case MP_ATTR_TENSOR:
        MP_TRY(mp_shape_bytes(&attr->tensor.shape, attr->tensor.type, &bytes));
        put_tensor(w, &attr->tensor);
        put(w, (const void *)attr->tensor.data, bytes);
        return MP_OK;
    }
    return MP_FAIL(INTERNAL, "attribute '%s' is of an unknown kind", attr->name);
}

/* ---- all ---- */

static mp_status put_node(const writer *w, const mp_vertex *v) {
    put_text(w, v->node.op->domain);
    put_text(w, v->node.op->name);
    put_number(w, (size_t)v->node.version);
    put_text(w, v->node.name);
    put_number(w, (size_t)v->in_count);
    put(w, v->in, (size_t)v->in_count * sizeof *v->in);
    put_number(w, (size_t)v->out_count);
    put(w, v->out, (size_t)v->out_count * sizeof *v->out);
    put_number(w, v->node.attr_count);
    for (size_t i = 0; i < v->node.attr_count; i++) {
        MP_TRY(put_attr(w, &v->node.attrs[i]));
    }
    return MP_OK;
}

static mp_status put_graph(const writer *w, const int32_t *ports, size_t port_count) {
    const mp_graph *graph = w->graph;
    put_number(w, port_count);
    put(w, ports, port_count * sizeof *ports);
    put_number(w, (size_t)graph->value_count);
    for (int32_t i = 0; i < graph->value_count; i++) {
        put_text(w, graph->values[i].name);
        put_tensor(w, &graph->values[i].tensor);
    }
    put_number(w, (size_t)graph->node_count);
    for (int32_t n = 0; n < graph->node_count; n++) {
        MP_TRY(put_node(w, &graph->nodes[n]));
    }
    put_number(w, (size_t)graph->output_count);
    put(w, graph->outputs, (size_t)graph->output_count * sizeof *graph->outputs);
    return MP_OK;
}

bool mp_graph_can_store(const mp_graph *graph) {
    bool can = graph->guard_count == 0 && graph->body_count == 0;
    for (int32_t n = 0; can && n < graph->node_count; n++) {
        can = !graph->nodes[n].is_gone && !mp_op_is_own(graph->nodes[n].node.op);
    }
    return can;
}

/* The head stands in front of what it sums up. */
static mp_status seal(const char *maker, unsigned char *bytes, size_t size) {
    mp_store_head head = {.format = MP_STORE_FORMAT, .size = size - sizeof head};
    if (size - sizeof head > MP_STORE_BYTES_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "a part of a model of %zu bytes without its constants is too "
                       "large to be kept",
                       size);
    }
    memcpy(head.mark, MP_STORE_MARK, sizeof head.mark);
    (void)snprintf(head.maker, sizeof head.maker, "%s", maker);
    mp_sha256_of(bytes + sizeof head, (size_t)head.size, head.sum);
    memcpy(bytes, &head, sizeof head);
    return MP_OK;
}

mp_status mp_graph_store(const mp_graph *graph, const int32_t *ports, size_t port_count,
                         const char *maker, unsigned char **out, size_t *size) {
    const mp_store_head nothing = {.format = 0};
    char *bytes = NULL;
    if (!mp_graph_can_store(graph)) {
        return MP_FAIL(UNSUPPORTED, "a graph with branches or loops cannot be kept");
    }
    const writer w = {.graph = graph, .out = open_memstream(&bytes, size)};
    mp_status status = w.out != NULL ? MP_OK : MP_OUT_OF_MEMORY;
    if (status == MP_OK) {
        put(&w, &nothing, sizeof nothing);
        status = put_graph(&w, ports, port_count);
    }
    if (w.out == NULL || fclose(w.out) != 0) {
        status = MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to keep a graph");
    }
    if (status == MP_OK) {
        status = seal(maker, (unsigned char *)bytes, *size);
    }
    if (status != MP_OK) {
        free(bytes);
        return status;
    }
    *out = (unsigned char *)bytes;
    return MP_OK;
}
