/* store_write.c - a graph as bytes, see store.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/store_private.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct writer {
    const mp_graph *top;
    const int32_t *ports; /* of the top graph */
    size_t port_count;
    FILE *out; /* what fails shows when it is closed */
} writer;

/* ---- pieces ---- */

static void put(const writer *w, const void *bytes, size_t size) {
    if (size > 0) { /* else there may be no bytes */
        (void)fwrite(bytes, 1, size, w->out);
    }
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

/* ---- values ---- */

/* The port that a value is, or, of a body, one with the same bytes; port_count for none. */
static size_t port_of(const writer *w, const mp_graph *graph, int32_t value) {
    const mp_value *v = &graph->values[value];
    for (size_t i = 0; i < w->port_count; i++) {
        const mp_value *port = &w->top->values[w->ports[i]];
        const bool same = v->is_constant && port->is_constant &&
                          port->tensor.data == v->tensor.data &&
                          port->tensor.type == v->tensor.type &&
                          mp_shape_equal(&port->tensor.shape, &v->tensor.shape);
        if (graph == w->top ? w->ports[i] == value : same) {
            return i;
        }
    }
    return w->port_count;
}

static mp_status put_bytes(const writer *w, const mp_value *v) {
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&v->tensor.shape, v->tensor.type, &bytes));
    if (v->tensor.data == 0 && bytes > 0) {
        return MP_FAIL(INTERNAL, "the bytes of the constant '%s' are not known", v->name);
    }
    put(w, (const void *)v->tensor.data, bytes);
    return MP_OK;
}

static uint32_t kind_of(const mp_value *v, bool is_port) {
    if (v->is_constant) {
        return is_port ? MP_STORE_PORT : MP_STORE_OWN;
    }
    return v->producer == MP_NO_NODE ? MP_STORE_INPUT : MP_STORE_MADE;
}

static mp_status put_value_of(const writer *w, const mp_graph *graph, int32_t i) {
    const mp_value *v = &graph->values[i];
    const size_t port = port_of(w, graph, i);
    const uint32_t kind = kind_of(v, port < w->port_count);
    if (v->tensor.type == MP_NONE) {
        return MP_FAIL(UNSUPPORTED, "the type of '%s' is not known, so its graph cannot be kept",
                       v->name);
    }
    put_text(w, v->name);
    put_number(w, kind);
    put_number(w, port < w->port_count ? port : 0);
    put_tensor(w, &v->tensor);
    return kind == MP_STORE_OWN ? put_bytes(w, v) : MP_OK;
}

/* ---- nodes ---- */

static mp_status put_graph(const writer *w, const mp_graph *graph);

static mp_status put_loop(const writer *w, const mp_loop *loop) {
    put_number(w, loop->is_scan);
    put_value(w, loop->carried);
    put_value(w, loop->sliced);
    put_value(w, loop->stacked);
    put(w, loop->backwards, ((size_t)loop->sliced + (size_t)loop->stacked) * sizeof(bool));
    return put_graph(w, loop->body);
}

static mp_status put_node(const writer *w, const mp_vertex *v) {
    if (v->is_gone) {
        return MP_FAIL(UNSUPPORTED, "a graph that passes have changed cannot be kept");
    }
    put_text(w, v->node.op->domain);
    put_text(w, v->node.op->name);
    put_number(w, (size_t)v->node.version);
    put_text(w, v->node.name);
    put_value(w, v->guard);
    put_number(w, (size_t)v->in_count);
    put(w, v->in, (size_t)v->in_count * sizeof *v->in);
    put_number(w, (size_t)v->out_count);
    put(w, v->out, (size_t)v->out_count * sizeof *v->out);
    if (v->loop != NULL) {
        return put_loop(w, v->loop);
    }
    put_number(w, v->node.attr_count);
    for (size_t i = 0; i < v->node.attr_count; i++) {
        MP_TRY(put_attr(w, &v->node.attrs[i]));
    }
    return MP_OK;
}

/* ---- all ---- */

static void put_guards(const writer *w, const mp_graph *graph) {
    put_number(w, (size_t)graph->guard_count);
    for (int32_t i = 0; i < graph->guard_count; i++) {
        put_value(w, graph->guards[i].condition);
        put_value(w, graph->guards[i].wanted);
        put_value(w, graph->guards[i].outer);
    }
}

static mp_status put_graph(const writer *w, const mp_graph *graph) {
    put_number(w, (size_t)graph->value_count);
    for (int32_t i = 0; i < graph->value_count; i++) {
        MP_TRY(put_value_of(w, graph, i));
    }
    put_number(w, (size_t)graph->input_count);
    put(w, graph->inputs, (size_t)graph->input_count * sizeof *graph->inputs);
    put_guards(w, graph);
    put_number(w, (size_t)graph->node_count);
    for (int32_t n = 0; n < graph->node_count; n++) {
        MP_TRY(put_node(w, &graph->nodes[n]));
    }
    put_number(w, (size_t)graph->output_count);
    put(w, graph->outputs, (size_t)graph->output_count * sizeof *graph->outputs);
    return MP_OK;
}

/* The head stands in front of what it sums up. */
static mp_status seal(const char *maker, unsigned char *bytes, size_t size) {
    mp_store_head head = {.format = MP_STORE_FORMAT, .size = size - sizeof head};
    if (size - sizeof head > MP_STORE_BYTES_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "a part of a model that takes %zu bytes is too large to be kept; %d are the "
                       "most",
                       size, MP_STORE_BYTES_MAX);
    }
    memcpy(head.mark, MP_STORE_MARK, sizeof head.mark);
    (void)snprintf(head.maker, sizeof head.maker, "%s", maker);
    mp_sha256_of(bytes + sizeof head, (size_t)head.size, head.sum);
    memcpy(bytes, &head, sizeof head);
    return MP_OK;
}

/* Whether it lies within others as deep as a reader goes. */
static bool is_shallow(const mp_graph *graph, int depth) {
    bool fits = depth <= MP_STORE_DEPTH;
    for (int32_t g = 1; g <= graph->guard_count && fits; g++) {
        fits = mp__store_is_shallow(graph, g);
    }
    for (int32_t i = 0; i < graph->body_count && fits; i++) {
        fits = is_shallow(graph->bodies[i], depth + 1);
    }
    return fits;
}

mp_status mp_graph_store(const mp_graph *graph, const int32_t *ports, size_t port_count,
                         const char *maker, unsigned char **out, size_t *size) {
    const mp_store_head nothing = {.format = 0};
    char *bytes = NULL;
    if (!is_shallow(graph, 0)) {
        return MP_FAIL(UNSUPPORTED,
                       "branches or bodies of loops lie more than %d deep in each other, which is "
                       "too deep to be kept",
                       MP_STORE_DEPTH);
    }
    const writer w = {.top = graph,
                      .ports = ports,
                      .port_count = port_count,
                      .out = open_memstream(&bytes, size)};
    mp_status status = w.out != NULL ? MP_OK : MP_OUT_OF_MEMORY;
    if (status == MP_OK) {
        put(&w, &nothing, sizeof nothing);
        put_number(&w, port_count);
        status = put_graph(&w, graph);
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
