/* store_read.c - a graph from bytes, see store.h: its head, its values, what belongs to no node.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/host_value.h"
#include "graph/store_private.h"

#include <stdlib.h>

mp_status mp__store_damaged(const char *what) {
    return MP_FAIL(INVALID_ARGUMENT, "it is damaged: %s", what);
}

mp_status mp__store_no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a part of a compiled model");
}

/* ---- pieces ---- */

static size_t left(const mp_store_reader *r) {
    return (size_t)(r->end - r->at);
}

mp_status mp__store_take(mp_store_reader *r, void *out, size_t size) {
    if (size > left(r)) {
        return mp__store_damaged("it ends too early");
    }
    if (size > 0) {
        memcpy(out, r->at, size);
    }
    r->at += size;
    return MP_OK;
}

mp_status mp__store_take_number(mp_store_reader *r, uint32_t *out) {
    return mp__store_take(r, out, sizeof *out);
}

mp_status mp__store_take_count(mp_store_reader *r, size_t width, size_t *out) {
    uint32_t number = 0;
    MP_TRY(mp__store_take_number(r, &number));
    *out = number;
    return number <= left(r) / width ? MP_OK : mp__store_damaged("a count is larger than the rest");
}

mp_status mp__store_take_list(mp_store_reader *r, size_t width, void **out, size_t *count) {
    MP_TRY(mp__store_take_count(r, width, count));
    MP_TRY(mp_graph_keep(r->graph, (*count + 1) * width, out));
    return mp__store_take(r, *out, *count * width);
}

mp_status mp__store_take_text(mp_store_reader *r, const char **out) {
    void *text = NULL;
    size_t count = 0;
    MP_TRY(mp__store_take_list(r, 1, &text, &count));
    *out = text;
    return memchr(text, '\0', count) == NULL ? MP_OK : mp__store_damaged("a text ends early");
}

/* ---- values ---- */

/* Bytes of the model, which are not copied but for few. */
static mp_status add_port(const mp_store_reader *r, const mp_store_port *port, const char *name) {
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

static mp_status add_own(mp_store_reader *r, const char *name, mp_tensor *tensor) {
    int32_t value = MP_NO_VALUE;
    MP_TRY(mp__store_take_bytes(r, tensor));
    MP_TRY(mp_graph_add_value(r->graph, name, tensor, &value));
    r->graph->values[value].is_constant = true;
    r->graph->values[value].owns_data = true;
    return MP_OK;
}

/* The model's value must be what was there when it was compiled. */
static mp_status check_port(const mp_store_reader *r, uint32_t kind, uint32_t port,
                            const mp_tensor *tensor) {
    if (port >= r->port_count) {
        return mp__store_damaged("a value is no input of the node");
    }
    const mp_store_port *p = &r->ports[port];
    if (p->tensor.type != tensor->type) {
        return MP_FAIL(INVALID_ARGUMENT, "'%s' is of another type than in the model", p->name);
    }
    return p->is_constant == (kind == MP_STORE_PORT)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "'%s' was %s when the model was compiled", p->name,
                         p->is_constant ? "no constant" : "a constant");
}

static mp_status take_value(mp_store_reader *r, size_t i) {
    const char *name = NULL;
    uint32_t kind = 0;
    int32_t value = MP_NO_VALUE;
    mp_tensor tensor;
    MP_TRY(mp__store_take_text(r, &name));
    MP_TRY(mp__store_take_number(r, &kind));
    MP_TRY(mp__store_take_number(r, &r->port_of[i]));
    MP_TRY(mp__store_take_tensor(r, &tensor));
    if (kind >= MP_STORE_KINDS) {
        return mp__store_damaged("a value is of no kind");
    }
    if (kind == MP_STORE_PORT || (kind == MP_STORE_INPUT && r->depth == 0)) {
        MP_TRY(check_port(r, kind, r->port_of[i], &tensor));
    }
    r->kinds[i] = (unsigned char)kind;
    r->made[i] = kind == MP_STORE_PORT || kind == MP_STORE_OWN;
    return kind == MP_STORE_PORT  ? add_port(r, &r->ports[r->port_of[i]], name)
           : kind == MP_STORE_OWN ? add_own(r, name, &tensor)
                                  : mp_graph_add_value(r->graph, name, &tensor, &value);
}

static mp_status take_values(mp_store_reader *r) {
    enum { LEAST = 5 * sizeof(uint32_t) };
    size_t count = 0;
    MP_TRY(mp__store_take_count(r, LEAST, &count));
    r->made = calloc(count + 1, sizeof *r->made);
    r->guards = calloc(count + 1, sizeof *r->guards);
    r->kinds = calloc(count + 1, sizeof *r->kinds);
    r->port_of = calloc(count + 1, sizeof *r->port_of);
    if (r->made == NULL || r->guards == NULL || r->kinds == NULL || r->port_of == NULL) {
        return mp__store_no_memory();
    }
    for (size_t i = 0; i < count; i++) {
        MP_TRY(take_value(r, i));
    }
    return MP_OK;
}

static bool is_value(const mp_store_reader *r, int32_t value) {
    return value >= 0 && value < r->graph->value_count;
}

static mp_status take_inputs(mp_store_reader *r) {
    void *list = NULL;
    size_t count = 0;
    MP_TRY(mp__store_take_list(r, sizeof(int32_t), &list, &count));
    const int32_t *inputs = list;
    for (size_t i = 0; i < count; i++) {
        if (!is_value(r, inputs[i]) || r->kinds[inputs[i]] != MP_STORE_INPUT ||
            r->made[inputs[i]]) {
            return mp__store_damaged("an input is none");
        }
        r->made[inputs[i]] = true;
        MP_TRY(mp_graph_add_input(r->graph, inputs[i]));
    }
    return MP_OK;
}

/* ---- the rest of a graph ---- */

bool mp__store_is_shallow(const mp_graph *graph, int32_t guard) {
    int depth = 0;
    for (; guard != 0 && depth <= MP_STORE_DEPTH; depth++) {
        guard = graph->guards[guard - 1].outer;
    }
    return depth <= MP_STORE_DEPTH;
}

static mp_status take_guards(mp_store_reader *r) {
    enum { CONDITION, WANTED, OUTER, WORDS };
    size_t count = 0;
    MP_TRY(mp__store_take_count(r, WORDS * sizeof(int32_t), &count));
    for (size_t i = 0; i < count; i++) {
        int32_t words[WORDS];
        MP_TRY(mp__store_take(r, words, sizeof words));
        if (!is_value(r, words[CONDITION]) ||
            r->graph->values[words[CONDITION]].tensor.type != MP_BOOL || words[OUTER] < 0 ||
            (size_t)words[OUTER] > i) {
            return mp__store_damaged("a branch has no such condition");
        }
        r->graph->guard = words[OUTER];
        MP_TRY(mp_graph_open_guard(r->graph, words[CONDITION], words[WANTED] != 0));
        if (!mp__store_is_shallow(r->graph, r->graph->guard)) {
            return mp__store_damaged("branches lie too deep in each other");
        }
    }
    r->graph->guard = 0;
    return MP_OK;
}

static mp_status take_outputs(mp_store_reader *r) {
    void *list = NULL;
    size_t count = 0;
    MP_TRY(mp__store_take_list(r, sizeof(int32_t), &list, &count));
    const int32_t *outputs = list;
    for (size_t i = 0; i < count; i++) {
        if (!is_value(r, outputs[i]) || !r->made[outputs[i]] || r->guards[outputs[i]] != 0) {
            return mp__store_damaged("an output is made by no node");
        }
        MP_TRY(mp_graph_add_output(r->graph, outputs[i]));
    }
    return MP_OK;
}

mp_status mp__store_take_graph(mp_store_reader *r) {
    enum { LEAST_NODE = 7 * sizeof(uint32_t) };
    size_t count = 0;
    MP_TRY(take_values(r));
    MP_TRY(take_inputs(r));
    MP_TRY(take_guards(r));
    MP_TRY(mp__store_take_count(r, LEAST_NODE, &count));
    for (size_t i = 0; i < count; i++) {
        MP_TRY(mp__store_take_node(r));
    }
    r->graph->guard = 0;
    return take_outputs(r);
}

void mp__store_reader_close(mp_store_reader *r) {
    free(r->made);
    free(r->guards);
    free(r->kinds);
    free(r->port_of);
    free(r->work);
}

/* ---- all ---- */

/* Inputs are the ports that are no constants, in their order. */
static mp_status check_ports(const mp_store_reader *r) {
    const mp_graph *graph = r->graph;
    int32_t next = 0;
    for (size_t i = 0; i < r->port_count; i++) {
        if (r->ports[i].is_constant) {
            continue;
        }
        if (next >= graph->input_count || r->port_of[graph->inputs[next]] != i) {
            return mp__store_damaged("its inputs are not those of the node");
        }
        next++;
    }
    return next == graph->input_count ? MP_OK
                                      : mp__store_damaged("it has more inputs than the node");
}

static mp_status take_all(mp_store_reader *r) {
    uint32_t ports = 0;
    MP_TRY(mp__store_take_number(r, &ports));
    if (ports != r->port_count) {
        return MP_FAIL(INVALID_ARGUMENT, "it is of a node with %u inputs, and this has %zu", ports,
                       r->port_count);
    }
    MP_TRY(mp__store_take_graph(r));
    MP_TRY(check_ports(r));
    return left(r) == 0 ? MP_OK : mp__store_damaged("there is more behind its end");
}

static mp_status check_head(mp_store_reader *r, const char *maker) {
    mp_store_head head;
    uint8_t sum[MP_SHA256_SIZE];
    if (left(r) < sizeof head) {
        return mp__store_damaged("it is too short");
    }
    MP_TRY(mp__store_take(r, &head, sizeof head));
    head.maker[sizeof head.maker - 1] = '\0';
    if (memcmp(head.mark, MP_STORE_MARK, sizeof head.mark) != 0) {
        return mp__store_damaged("it does not begin as Millpond writes it");
    }
    if (head.format != MP_STORE_FORMAT || strcmp(head.maker, maker) != 0) {
        return MP_FAIL(UNSUPPORTED,
                       "it was made by Millpond %s (format %u), and this is Millpond %s (format "
                       "%d): compile the model again",
                       head.maker, head.format, maker, MP_STORE_FORMAT);
    }
    if (head.size != left(r) || head.size > MP_STORE_BYTES_MAX) {
        return mp__store_damaged("its size is not what it says");
    }
    mp_sha256_of(r->at, left(r), sum);
    return memcmp(sum, head.sum, sizeof sum) == 0 ? MP_OK
                                                  : mp__store_damaged("its check sum is wrong");
}

mp_status mp_graph_load(const unsigned char *bytes, size_t size, const char *maker,
                        const mp_op_options *options, const mp_store_port *ports, size_t port_count,
                        mp_graph **out) {
    mp_store_reader r = {.at = bytes,
                         .end = bytes + size,
                         .ports = ports,
                         .port_count = port_count,
                         .options = options};
    MP_TRY(check_head(&r, maker));
    MP_TRY(mp_graph_create(&r.graph));
    r.graph->has_claimed_types = true;
    const mp_status status = take_all(&r);
    mp__store_reader_close(&r);
    if (status != MP_OK) {
        mp_graph_destroy(r.graph);
        return status;
    }
    *out = r.graph;
    return MP_OK;
}
