/* store_read.c - a graph from bytes, see store.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/host_value.h"
#include "graph/store_private.h"
#include "op/core/signature.h"

#include <stdlib.h>

/* Of one node: more than any operator has, and few enough for a list of them. */
enum { ENDS_MAX = 1 << 16, ATTRS_MAX = 256, WORD_MAX = 256, VERSION_BITS = 20 };

typedef struct reader {
    const unsigned char *at, *end;
    const mp_store_port *ports;
    size_t port_count;
    const mp_op_options *options;
    mp_graph *graph;
    bool *made;      /* owned; by value: an input, a constant, or the output of a node before */
    mp_tensor *work; /* owned; ends of a node */
} reader;

static mp_status damaged(const char *what) {
    return MP_FAIL(INVALID_ARGUMENT, "it is damaged: %s", what);
}

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a part of a compiled model");
}

/* ---- pieces ---- */

static size_t left(const reader *r) {
    return (size_t)(r->end - r->at);
}

static mp_status take(reader *r, void *out, size_t size) {
    if (size > left(r)) {
        return damaged("it ends too early");
    }
    if (size > 0) {
        memcpy(out, r->at, size);
    }
    r->at += size;
    return MP_OK;
}

/* A count of things that have `width` bytes each at least. */
static mp_status take_count(reader *r, size_t width, size_t *out) {
    uint32_t number = 0;
    MP_TRY(take(r, &number, sizeof number));
    *out = number;
    return number <= left(r) / width ? MP_OK : damaged("a count is larger than the rest");
}

/* A list that lives as long as the graph, with a zeroed element behind it. */
static mp_status take_list(reader *r, size_t width, void **out, size_t *count) {
    MP_TRY(take_count(r, width, count));
    MP_TRY(mp_graph_keep(r->graph, (*count + 1) * width, out));
    return take(r, *out, *count * width);
}

static mp_status take_text(reader *r, const char **out) {
    void *text = NULL;
    size_t count = 0;
    MP_TRY(take_list(r, 1, &text, &count));
    *out = text;
    return memchr(text, '\0', count) == NULL ? MP_OK : damaged("a text ends early");
}

static mp_status take_tensor(reader *r, mp_tensor *out) {
    uint32_t type = 0;
    *out = (mp_tensor){.type = MP_NONE};
    MP_TRY(take(r, &type, sizeof type));
    MP_TRY(take(r, &out->shape.rank, sizeof out->shape.rank));
    if (mp_dtype_bits((mp_dtype)type) == 0 || out->shape.rank < MP_DIM_UNKNOWN ||
        out->shape.rank > MP_RANK_MAX) {
        return damaged("a value has no such type or shape");
    }
    out->type = (mp_dtype)type;
    const int32_t rank = MP_MAX(out->shape.rank, 0);
    MP_TRY(take(r, out->shape.dim, (size_t)rank * sizeof *out->shape.dim));
    for (int d = 0; d < rank; d++) {
        if (out->shape.dim[d] < INT32_MIN || out->shape.dim[d] > INT64_MAX / 2) {
            return damaged("a dimension is out of bounds");
        }
    }
    return MP_OK;
}

/* ---- attributes ---- */

static mp_status take_texts(reader *r, mp_attr *attr) {
    void *texts = NULL;
    size_t bytes = 0;
    MP_TRY(take_list(r, 1, &texts, &bytes));
    attr->s = texts;
    for (size_t i = 0; i < bytes; i++) {
        attr->count += attr->s[i] == '\0';
    }
    return bytes == 0 || attr->s[bytes - 1] == '\0' ? MP_OK : damaged("a text has no end");
}

static mp_status take_constant(reader *r, mp_attr *attr) {
    size_t bytes = 0;
    void *data = NULL;
    MP_TRY(take_tensor(r, &attr->tensor));
    MP_TRY(mp_shape_bytes(&attr->tensor.shape, attr->tensor.type, &bytes));
    if (attr->tensor.shape.rank < 0 || bytes > left(r)) {
        return damaged("an attribute is larger than the rest");
    }
    MP_TRY(mp_graph_keep(r->graph, bytes + 1, &data));
    attr->tensor.data = (mp_addr)data;
    return take(r, data, bytes);
}

static mp_status take_content(reader *r, mp_attr *attr) {
    void *list = NULL;
    switch (attr->kind) {
    case MP_ATTR_INT:
        return take(r, &attr->i, sizeof attr->i);
    case MP_ATTR_FLOAT:
        return take(r, &attr->f, sizeof attr->f);
    case MP_ATTR_STRING:
        return take_text(r, &attr->s);
    case MP_ATTR_INTS:
        MP_TRY(take_list(r, sizeof *attr->ints, &list, &attr->count));
        attr->ints = list;
        return MP_OK;
    case MP_ATTR_FLOATS:
        MP_TRY(take_list(r, sizeof *attr->floats, &list, &attr->count));
        attr->floats = list;
        return MP_OK;
    case MP_ATTR_STRINGS:
        return take_texts(r, attr);
    case MP_ATTR_TENSOR:
        return take_constant(r, attr);
    }
    return damaged("an attribute is of no kind");
}

/* Attributes are those of the operator's row, of its kinds. */
static mp_status take_attr(reader *r, const mp_op *op, mp_attr *out) {
    const char *name = NULL;
    uint32_t kind = 0;
    MP_TRY(take_text(r, &name));
    MP_TRY(take(r, &kind, sizeof kind));
    for (const mp_attr_def *def = op->attrs; def != NULL && def->name != NULL; def++) {
        if (strcmp(def->name, name) == 0 && def->kind == (mp_attr_kind)kind) {
            *out = (mp_attr){.name = def->name, .kind = def->kind};
            return take_content(r, out);
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "the operator %s has no attribute '%s' of that kind", op->name,
                   name);
}

/* ---- values ---- */

static mp_status add_constant(const reader *r, const mp_store_port *port, const char *name) {
    size_t bytes = 0;
    int32_t value = MP_NO_VALUE;
    MP_TRY(mp_shape_bytes(&port->tensor.shape, port->tensor.type, &bytes));
    if (bytes <= MP_HOST_VALUE_BYTES) {
        return mp_graph_add_constant(r->graph, name, &port->tensor, &value);
    }
    MP_TRY(mp_graph_add_value(r->graph, name, &port->tensor, &value));
    r->graph->values[value].is_constant = true;
    return MP_OK;
}

static mp_status take_value(reader *r, const mp_store_port *port) {
    const char *name = NULL;
    mp_tensor tensor;
    int32_t value = MP_NO_VALUE;
    MP_TRY(take_text(r, &name));
    MP_TRY(take_tensor(r, &tensor));
    if (port != NULL && port->tensor.type != tensor.type) {
        return MP_FAIL(INVALID_ARGUMENT, "'%s' is of another type than in the model", port->name);
    }
    return port != NULL && port->is_constant ? add_constant(r, port, name)
                                             : mp_graph_add_value(r->graph, name, &tensor, &value);
}

static mp_status add_inputs(reader *r, const int32_t *ports) {
    for (size_t i = 0; i < r->port_count; i++) {
        r->made[ports[i]] = true;
        if (!r->ports[i].is_constant) {
            MP_TRY(mp_graph_add_input(r->graph, ports[i]));
        }
    }
    return MP_OK;
}

/* `of`: the port of each value, or NULL. */
static mp_status map_ports(const reader *r, const int32_t *ports, size_t values,
                           const mp_store_port **of) {
    for (size_t i = 0; i < r->port_count; i++) {
        if (ports[i] < 0 || (size_t)ports[i] >= values || of[ports[i]] != NULL) {
            return damaged("a port is no value");
        }
        of[ports[i]] = &r->ports[i];
    }
    return MP_OK;
}

static mp_status take_values(reader *r) {
    enum { LEAST = 3 * sizeof(uint32_t) };
    void *ports = NULL;
    size_t ports_there = 0;
    size_t count = 0;
    MP_TRY(take_list(r, sizeof(int32_t), &ports, &ports_there));
    if (ports_there != r->port_count) {
        return MP_FAIL(INVALID_ARGUMENT, "it is of a node with %zu inputs, and this has %zu",
                       ports_there, r->port_count);
    }
    MP_TRY(take_count(r, LEAST, &count));
    const mp_store_port **of = calloc(count + 1, sizeof *of);
    r->made = calloc(count + 1, sizeof *r->made);
    mp_status status = of != NULL && r->made != NULL ? MP_OK : no_memory();
    if (status == MP_OK) {
        status = map_ports(r, ports, count, of);
    }
    for (size_t i = 0; status == MP_OK && i < count; i++) {
        status = take_value(r, of[i]);
    }
    free(of);
    return status == MP_OK ? add_inputs(r, ports) : status;
}

/* ---- nodes ---- */

static mp_status take_row(reader *r, mp_node *node) {
    const char *domain = NULL;
    const char *name = NULL;
    uint32_t version = 0;
    MP_TRY(take_text(r, &domain));
    MP_TRY(take_text(r, &name));
    MP_TRY(take(r, &version, sizeof version));
    MP_TRY(take_text(r, &node->name));
    node->op = version < 1u << VERSION_BITS ? mp_op_find(domain, name, (int)version) : NULL;
    node->version = (int)version;
    if (node->op == NULL || mp_op_is_own(node->op) || strlen(name) >= WORD_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "there is no operator '%.80s' of version %u", name,
                       version);
    }
    return MP_OK;
}

/* Values that a node reads or makes, as tensors. */
static mp_status describe(const reader *r, const int32_t *list, size_t count, bool reads,
                          mp_tensor *out) {
    for (size_t i = 0; i < count; i++) {
        out[i] = (mp_tensor){.type = MP_NONE};
        if (list[i] == MP_NO_VALUE) {
            continue;
        }
        if (list[i] < 0 || list[i] >= r->graph->value_count || r->made[list[i]] != reads) {
            return damaged("a node reads or makes what it cannot");
        }
        out[i] = r->graph->values[list[i]].tensor;
        out[i].data = 0;
        r->made[list[i]] = true;
    }
    return MP_OK;
}

/* Whether one value is wanted both on the host and on the device, see ep/placement/row.c. */
static bool is_torn(const mp_op *op, const int32_t *in, size_t count) {
    for (size_t i = 0; i < count && op->host_in != 0; i++) {
        for (size_t j = 0; j < count && mp_op_host_in(op, i); j++) {
            if (in[i] == in[j] && in[i] != MP_NO_VALUE && !mp_op_host_in(op, j)) {
                return true;
            }
        }
    }
    return false;
}

static mp_status add_node(reader *r, mp_node *node, const int32_t *in, size_t in_count,
                          const int32_t *out, size_t out_count) {
    mp_tensor *made = r->work + in_count;
    MP_TRY(describe(r, in, in_count, true, r->work));
    MP_TRY(describe(r, out, out_count, false, made));
    for (size_t i = 0; i < out_count && i < 32; i++) {
        node->out_absent |= out[i] == MP_NO_VALUE ? 1u << i : 0;
    }
    if (is_torn(node->op, in, in_count)) {
        return damaged("a node reads a value in two places");
    }
    MP_TRY(mp_signature_check(node, r->work, (int)in_count, made, (int)out_count));
    return mp_graph_add_node(r->graph, node, in, (int)in_count, out, (int)out_count);
}

static mp_status take_attrs(reader *r, mp_node *node) {
    enum { LEAST = 2 * sizeof(uint32_t) };
    size_t count = 0;
    void *attrs = NULL;
    MP_TRY(take_count(r, LEAST, &count));
    if (count > ATTRS_MAX) {
        return damaged("a node has too many attributes");
    }
    MP_TRY(mp_graph_keep(r->graph, (count + 1) * sizeof(mp_attr), &attrs));
    mp_attr *list = attrs;
    for (; node->attr_count < count; node->attr_count++) {
        MP_TRY(take_attr(r, node->op, &list[node->attr_count]));
    }
    node->attrs = list;
    return MP_OK;
}

static mp_status take_node(reader *r) {
    mp_node node = {.options = *r->options};
    void *in = NULL;
    void *out = NULL;
    size_t in_count = 0;
    size_t out_count = 0;
    MP_TRY(take_row(r, &node));
    MP_TRY(take_list(r, sizeof(int32_t), &in, &in_count));
    MP_TRY(take_list(r, sizeof(int32_t), &out, &out_count));
    MP_TRY(take_attrs(r, &node));
    if (in_count > ENDS_MAX || out_count > ENDS_MAX) {
        return damaged("a node has too many inputs or outputs");
    }
    free(r->work);
    r->work = calloc(in_count + out_count + 1, sizeof *r->work);
    return r->work != NULL ? add_node(r, &node, in, in_count, out, out_count) : no_memory();
}

static mp_status take_graph(reader *r) {
    enum { LEAST_NODE = 7 * sizeof(uint32_t) };
    void *outputs = NULL;
    size_t count = 0;
    MP_TRY(take_values(r));
    MP_TRY(take_count(r, LEAST_NODE, &count));
    for (size_t i = 0; i < count; i++) {
        MP_TRY(take_node(r));
    }
    MP_TRY(take_list(r, sizeof(int32_t), &outputs, &count));
    const int32_t *list = outputs;
    for (size_t i = 0; i < count; i++) {
        if (list[i] < 0 || list[i] >= r->graph->value_count || !r->made[list[i]]) {
            return damaged("an output is made by no node");
        }
        MP_TRY(mp_graph_add_output(r->graph, list[i]));
    }
    return left(r) == 0 ? MP_OK : damaged("there is more behind its end");
}

/* ---- all ---- */

static mp_status check_head(reader *r, const char *maker) {
    mp_store_head head;
    uint8_t sum[MP_SHA256_SIZE];
    if (left(r) < sizeof head) {
        return damaged("it is too short");
    }
    MP_TRY(take(r, &head, sizeof head));
    head.maker[sizeof head.maker - 1] = '\0';
    if (memcmp(head.mark, MP_STORE_MARK, sizeof head.mark) != 0) {
        return damaged("it does not begin as Millpond writes it");
    }
    if (head.format != MP_STORE_FORMAT || strcmp(head.maker, maker) != 0) {
        return MP_FAIL(UNSUPPORTED,
                       "it was made by Millpond %s (format %u), and this is Millpond %s (format "
                       "%d): compile the model again",
                       head.maker, head.format, maker, MP_STORE_FORMAT);
    }
    if (head.size != left(r) || head.size > MP_STORE_BYTES_MAX) {
        return damaged("its size is not what it says");
    }
    mp_sha256_of(r->at, left(r), sum);
    return memcmp(sum, head.sum, sizeof sum) == 0 ? MP_OK : damaged("its check sum is wrong");
}

mp_status mp_graph_load(const unsigned char *bytes, size_t size, const char *maker,
                        const mp_op_options *options, const mp_store_port *ports, size_t port_count,
                        mp_graph **out) {
    reader r = {.at = bytes,
                .end = bytes + size,
                .ports = ports,
                .port_count = port_count,
                .options = options};
    MP_TRY(check_head(&r, maker));
    MP_TRY(mp_graph_create(&r.graph));
    r.graph->has_claimed_types = true;
    const mp_status status = take_graph(&r);
    free(r.made);
    free(r.work);
    if (status != MP_OK) {
        mp_graph_destroy(r.graph);
        return status;
    }
    *out = r.graph;
    return MP_OK;
}
