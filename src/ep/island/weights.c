/* weights.c - see weights.h.
 *
 * A compilation brings all constants of its islands into one block, since a driver rounds every
 * allocation up to its pages:
 *
 *     | constant | constant | constant in another form | ...
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/weights.h"

#include "base/growing.h"
#include "ep/island/weight_table.h"
#include "ep/run/prepared.h"
#include "ep/stream/run_stream.h"
#include "graph/host_value.h"
#include "pool/pool_handle.h"

#include <stdlib.h>

enum { PREPARED_INPUTS = 32 };

struct mp_weights {
    mp_addr *blocks; /* owned, and what they name */
    mp_addr *parts;  /* owned; of the blocks: those that have labels of their own */
    size_t block_count, block_capacity, part_count, part_capacity;
    mp_weight_table table;
};

/* What a compilation brings: a constant in one form. */
typedef struct piece {
    mp_graph *graph;
    int32_t value;  /* that gets the address */
    int32_t from;   /* whose bytes it has, or is made of */
    mp_plan *plan;  /* owned; makes it. NULL: it is the bytes as they are */
    int32_t vertex; /* what reads the other form, as its input */
    int input;
    size_t weight; /* of the table, for bytes as they are */
    bool is_there; /* it is nothing new */
    size_t bytes, offset;
} piece;

typedef struct work {
    mp_provider *provider;
    struct mp_weights *weights;
    piece *pieces; /* owned */
    size_t count, capacity;
    size_t total; /* bytes of the block */
    mp_addr block;
    mp_addr aside; /* for a constant that is only wanted in another form */
    size_t aside_bytes;
} work;

/* ---- lists ---- */

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a list of constants");
}

static mp_status add_addr(mp_addr **list, size_t *count, size_t *capacity, mp_addr addr) {
    if (!mp_grow(list, *count + 1, capacity, sizeof **list)) {
        return no_memory();
    }
    (*list)[(*count)++] = addr;
    return MP_OK;
}

static mp_status add_piece(work *w, const piece *p) {
    if (!mp_grow(&w->pieces, w->count + 1, &w->capacity, sizeof(piece))) {
        return no_memory();
    }
    w->pieces[w->count] = *p;
    if (!p->is_there) {
        w->pieces[w->count].offset = w->total;
        w->total += MP_ALIGN_UP(p->bytes, (size_t)MP_ALIGNMENT);
    }
    w->count++;
    return MP_OK;
}

/* ---- constants that are wanted in another form ---- */

static bool may_prepare(const mp_graph *graph, const mp_vertex *v, int i) {
    const int32_t value = v->in[i];
    return value != MP_NO_VALUE && graph->values[value].is_constant &&
           graph->values[value].tensor.data != 0 && !mp_op_host_in(v->node.op, (size_t)i) &&
           !mp_node_prepared(&v->node, i) && mp_shape_count(&graph->values[value].tensor.shape) > 0;
}

/* The node reads a value of its own from now on. */
static mp_status add_prepared(work *w, mp_graph *graph, int32_t n, int i, mp_plan *plan) {
    mp_vertex *v = &graph->nodes[n];
    mp_tensor given = graph->values[v->in[i]].tensor;
    piece p = {.graph = graph, .from = v->in[i], .plan = plan, .vertex = n, .input = i};
    given.data = 0;
    MP_TRY(mp_graph_bytes(graph, p.from, &p.bytes));
    MP_TRY(mp_graph_add_value(graph, graph->values[p.from].name, &given, &p.value));
    graph->values[p.value].is_constant = true;
    MP_TRY(add_piece(w, &p));
    v->in[i] = p.value;
    v->node.prepared |= 1u << i;
    w->aside_bytes = MP_MAX(p.bytes, w->aside_bytes);
    return MP_OK;
}

/* `readers`: of each value. */
static mp_status prepare(work *w, mp_graph *graph, int32_t n, int i, const int32_t *readers) {
    const mp_vertex *v = &graph->nodes[n];
    mp_tensor in[PREPARED_INPUTS] = {0};
    mp_plan *plan = NULL;
    if (!may_prepare(graph, v, i) || (v->node.op->prepares_own && readers[v->in[i]] > 1)) {
        return MP_OK;
    }
    in[i] = graph->values[v->in[i]].tensor;
    in[i].data = 0;
    MP_TRY(mp_plan_prepare(w->provider->unit->device, &v->node, in, i, MP_ALIGNMENT, &plan));
    if (plan == NULL) {
        return MP_OK;
    }
    const mp_status status = add_prepared(w, graph, n, i, plan);
    if (status != MP_OK) {
        mp_plan_release(plan);
    }
    return status;
}

static void count_readers(const mp_graph *graph, int32_t *readers) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count; i++) {
            if (v->in[i] != MP_NO_VALUE) {
                readers[v->in[i]]++;
            }
        }
    }
}

static mp_status prepare_all(work *w, mp_graph *graph) {
    int32_t *readers = calloc((size_t)graph->value_count + 1, sizeof *readers);
    mp_status status = readers != NULL ? MP_OK : no_memory();
    if (status == MP_OK) {
        count_readers(graph, readers);
    }
    for (int32_t n = 0; status == MP_OK && n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const bool prepares = v->node.op->prepare != NULL;
        for (int i = 0; status == MP_OK && prepares && i < v->in_count && i < PREPARED_INPUTS;
             i++) {
            status = prepare(w, graph, n, i, readers);
        }
    }
    free(readers);
    return status;
}

/* Nodes read the constants as they are, and prepare them in each run. */
static void prepare_none(const work *w) {
    for (size_t i = 0; i < w->count; i++) {
        const piece *p = &w->pieces[i];
        if (p->plan != NULL) {
            mp_vertex *v = &p->graph->nodes[p->vertex];
            v->in[p->input] = p->from;
            v->node.prepared &= ~(1u << p->input);
        }
    }
}

/* ---- constants as they are ---- */

/* Notes which values are read on the device: by nodes, or as outputs. */
static void note_wanted(const mp_graph *graph, bool *wanted) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count; i++) {
            if (v->in[i] != MP_NO_VALUE && !mp_op_host_in(v->node.op, (size_t)i)) {
                wanted[v->in[i]] = true;
            }
        }
    }
    for (int32_t i = 0; i < graph->output_count; i++) {
        wanted[graph->outputs[i]] = true;
    }
}

static mp_status add_value(work *w, mp_graph *graph, int32_t i) {
    piece p = {.graph = graph, .value = i, .from = i};
    mp_device *device = w->provider->unit->device;
    MP_TRY(mp_graph_bytes(graph, i, &p.bytes));
    if (p.bytes == 0) {
        return MP_OK;
    }
    MP_TRY(mp__weight_find(&w->weights->table, device, &graph->values[i], p.bytes, &p.weight,
                           &p.is_there));
    return add_piece(w, &p);
}

static mp_status add_values(work *w, mp_graph *graph) {
    bool *wanted = calloc((size_t)graph->value_count + 1, sizeof *wanted);
    if (wanted == NULL) {
        return no_memory();
    }
    mp_status status = MP_OK;
    note_wanted(graph, wanted);
    for (int32_t i = 0; status == MP_OK && i < graph->value_count; i++) {
        const mp_value *value = &graph->values[i];
        if (wanted[i] && value->is_constant && value->tensor.data != 0 && value->device == 0) {
            status = add_value(w, graph, i);
        }
    }
    free(wanted);
    return status;
}

/* ---- memory ---- */

/* Past the arena, which would keep it. */
static mp_status reserve(const mp_provider *provider, const char *name, size_t size, mp_addr *out) {
    const mp_label before = mp_label_set(mp_label_make(MP_LABEL_WEIGHTS, NULL, name));
    const mp_status status = mp_pool_reserve(provider->pool, size, out);
    (void)mp_label_set(before);
    return status;
}

static mp_status take_memory(work *w) {
    struct mp_weights *weights = w->weights;
    if (w->aside_bytes > 0) {
        MP_TRY(reserve(w->provider, "initializers", w->aside_bytes, &w->aside));
    }
    if (w->total == 0) {
        return MP_OK;
    }
    MP_TRY(reserve(w->provider, "initializers", w->total, &w->block));
    const mp_status status =
        add_addr(&weights->blocks, &weights->block_count, &weights->block_capacity, w->block);
    if (status != MP_OK) {
        (void)mp_pool_free(w->provider->pool, w->block);
    }
    return status;
}

/* ---- bytes ---- */

/* Names are only for people: where there is no room for one, it is left out. */
static void label_piece(const work *w, const piece *p) {
    struct mp_weights *weights = w->weights;
    const mp_addr addr = w->block + p->offset;
    const char *node = p->plan != NULL ? p->graph->nodes[p->vertex].node.name : NULL;
    const mp_label label = mp_label_make(MP_LABEL_WEIGHTS, node, p->graph->values[p->value].name);
    if (mp__pool_part_set(w->provider->pool, addr, p->bytes, label) == MP_OK &&
        add_addr(&weights->parts, &weights->part_count, &weights->part_capacity, addr) != MP_OK) {
        mp__pool_part_drop(w->provider->pool, addr);
    }
}

static mp_status copy_up(const work *w, const piece *p, mp_addr to) {
    mp_device *device = w->provider->unit->device;
    return device->ops->copy(device, NULL, to, p->graph->values[p->from].tensor.data, p->bytes);
}

static mp_status bring_value(const work *w, const piece *p) {
    mp_weight *weight = &w->weights->table.list[p->weight];
    if (!p->is_there) {
        MP_TRY(copy_up(w, p, w->block + p->offset));
        weight->addr = w->block + p->offset;
        label_piece(w, p);
    }
    p->graph->values[p->value].device = weight->addr;
    return MP_OK;
}

static mp_status bring_prepared(const work *w, const piece *p) {
    const mp_addr to = w->block + p->offset;
    mp_addr from = p->graph->values[p->from].device;
    if (from == 0) {
        MP_TRY(copy_up(w, p, w->aside));
        from = w->aside;
    }
    MP_TRY(mp__prepare_run(w->provider, p->plan, p->input, from, to));
    p->graph->values[p->value].device = to;
    label_piece(w, p);
    return MP_OK;
}

/* Those as they are first: the other forms may be made of them. */
static mp_status bring_all(const work *w) {
    for (size_t i = 0; i < w->count; i++) {
        MP_TRY(w->pieces[i].plan == NULL ? bring_value(w, &w->pieces[i]) : MP_OK);
    }
    for (size_t i = 0; i < w->count; i++) {
        MP_TRY(w->pieces[i].plan != NULL ? bring_prepared(w, &w->pieces[i]) : MP_OK);
    }
    return MP_OK;
}

/* ---- one compilation ---- */

static void close_work(const work *w) {
    for (size_t i = 0; i < w->count; i++) {
        mp_plan_release(w->pieces[i].plan);
    }
    if (w->aside != 0) {
        (void)mp_pool_free(w->provider->pool, w->aside);
    }
    free(w->pieces);
    mp__weight_table_cut(&w->weights->table);
}

static mp_status collect(work *w, mp_graph *const *graphs, size_t count, bool prepares) {
    for (size_t i = 0; prepares && i < count; i++) {
        MP_TRY(prepare_all(w, graphs[i]));
    }
    for (size_t i = 0; i < count; i++) {
        MP_TRY(add_values(w, graphs[i]));
    }
    return MP_OK;
}

/* `*short_of_memory`: nothing was done, and there may be enough without other forms. */
static mp_status bring(mp_provider *provider, mp_graph *const *graphs, size_t count, bool prepares,
                       bool *short_of_memory) {
    work w = {.provider = provider, .weights = provider->weights};
    mp_status status = collect(&w, graphs, count, prepares);
    if (status == MP_OK) {
        status = take_memory(&w);
        *short_of_memory = status == MP_OUT_OF_MEMORY && w.aside_bytes > 0;
    }
    if (status == MP_OK) {
        status = bring_all(&w);
    }
    if (*short_of_memory) {
        prepare_none(&w);
    }
    close_work(&w);
    return status;
}

/* ONNX Runtime may free what it has of them. */
static mp_status forget_host_memory(mp_graph *graph) {
    for (int32_t i = 0; i < graph->value_count; i++) {
        const mp_value *value = &graph->values[i];
        size_t bytes = 0;
        if (value->is_constant && value->tensor.data != 0) {
            MP_TRY(mp_graph_bytes(graph, i, &bytes));
            if (bytes > MP_HOST_VALUE_BYTES) {
                mp_graph_forget_data(graph, i);
            }
        }
    }
    return MP_OK;
}

mp_status mp__weights_bring(mp_provider *provider, mp_graph *const *graphs, size_t count) {
    bool short_of_memory = false;
    bool still_short = false;
    if (provider->weights == NULL) {
        provider->weights = calloc(1, sizeof *provider->weights);
        if (provider->weights == NULL) {
            return no_memory();
        }
    }
    mp_status status = bring(provider, graphs, count, true, &short_of_memory);
    if (short_of_memory) {
        status = bring(provider, graphs, count, false, &still_short);
    }
    for (size_t i = 0; status == MP_OK && i < count; i++) {
        status = forget_host_memory(graphs[i]);
    }
    return status;
}

void mp__weights_release(mp_provider *provider) {
    struct mp_weights *weights = provider->weights;
    if (weights == NULL) {
        return;
    }
    if (weights->block_count > 0) {
        (void)mp__run_streams_finish(provider); /* for runs that nobody waited for */
    }
    for (size_t i = 0; i < weights->part_count; i++) {
        mp__pool_part_drop(provider->pool, weights->parts[i]);
    }
    for (size_t i = 0; i < weights->block_count; i++) {
        (void)mp_pool_free(provider->pool, weights->blocks[i]);
    }
    mp__weight_table_clear(&weights->table);
    free(weights->blocks);
    free(weights->parts);
    free(weights);
    provider->weights = NULL;
}

/* ---- what follows from them ---- */

static mp_status lend(void *provider, size_t size, mp_addr *out) {
    return reserve(provider, "while computed", size, out);
}

static void give_back(void *provider, mp_addr addr) {
    (void)mp_pool_free(((mp_provider *)provider)->pool, addr);
}

mp_computer mp__weights_computer(mp_provider *provider) {
    return (mp_computer){.device = provider->unit->device,
                         .lend = lend,
                         .give_back = give_back,
                         .context = provider};
}
