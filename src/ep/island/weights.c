/* weights.c - see weights.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/weights.h"

#include "ep/stream/run_stream.h"
#include "graph/host_value.h"

#include <stdlib.h>

static mp_status keep_block(mp_weights *weights, mp_addr block) {
    if (weights->count == weights->capacity) {
        const size_t capacity = weights->capacity * 2 + 16;
        mp_addr *grown = realloc(weights->blocks, capacity * sizeof *grown);
        if (grown == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a list of constants");
        }
        weights->blocks = grown;
        weights->capacity = capacity;
    }
    weights->blocks[weights->count++] = block;
    return MP_OK;
}

/* Memory that stays, as an initializer's. */
static mp_status take(const mp_provider *provider, const char *node, const char *name, size_t size,
                      mp_weights *weights, mp_addr *out) {
    const mp_label before = mp_label_set(mp_label_make(MP_LABEL_WEIGHTS, node, name));
    mp_status status = mp_pool_alloc(provider->pool, size, MP_NO_STREAM, out);
    (void)mp_label_set(before);
    MP_TRY(status);
    status = keep_block(weights, *out);
    if (status != MP_OK) {
        (void)mp_pool_free(provider->pool, *out);
    }
    return status;
}

static void drop(const mp_provider *provider, mp_weights *weights, mp_addr block) {
    for (size_t i = weights->count; i-- > 0;) {
        if (weights->blocks[i] == block) {
            weights->blocks[i] = weights->blocks[--weights->count];
            (void)mp_pool_free(provider->pool, block);
            return;
        }
    }
}

void mp__weights_release(const mp_provider *provider, mp_weights *weights) {
    if (weights->count > 0) {
        (void)mp__run_streams_wait(provider); /* for runs that nobody waited for */
    }
    for (size_t i = 0; i < weights->count; i++) {
        (void)mp_pool_free(provider->pool, weights->blocks[i]);
    }
    free(weights->blocks);
    *weights = (mp_weights){.blocks = NULL};
}

/* ---- one constant ---- */

static mp_status bring(const mp_provider *provider, mp_value *value, mp_weights *weights) {
    mp_device *device = provider->unit->device;
    size_t bytes = 0;
    if (value->device != 0) {
        return MP_OK;
    }
    MP_TRY(mp_shape_bytes(&value->tensor.shape, value->tensor.type, &bytes));
    MP_TRY(take(provider, "", value->name, bytes, weights, &value->device));
    return device->ops->copy(device, NULL, value->device, value->tensor.data, bytes);
}

/* Runs what makes the other form, on a stream of its own that is waited for. */
static mp_status run_now(const mp_provider *provider, const mp_plan *plan, int i, mp_addr from,
                         mp_addr to) {
    mp_device *device = provider->unit->device;
    mp_addr in[32] = {0};
    mp_addr scratch = 0;
    mp_stream *stream = NULL;
    const size_t size = mp_plan_scratch_bytes(plan);
    in[i] = from;
    if (size > 0) {
        MP_TRY(mp_pool_alloc(provider->pool, size, MP_NO_STREAM, &scratch));
    }
    mp_status status = device->ops->stream_create(device, &stream);
    if (status == MP_OK) {
        status = mp_plan_run(plan, stream, in, &to, scratch);
        const mp_status waited = device->ops->stream_synchronize(device, stream);
        device->ops->stream_destroy(device, stream);
        status = status != MP_OK ? status : waited;
    }
    const mp_status freed = scratch != 0 ? mp_pool_free(provider->pool, scratch) : MP_OK;
    return status != MP_OK ? status : freed;
}

/* ---- constants in another form ---- */

/* The value of the constant in the form that input `i` of the node wants; it takes its place. */
static mp_status prepare_with(const mp_provider *provider, mp_graph *graph, mp_vertex *v, int i,
                              const mp_plan *plan, mp_weights *weights) {
    const int32_t from = v->in[i];
    size_t bytes = 0;
    int32_t fresh = MP_NO_VALUE;
    mp_addr addr = 0;
    MP_TRY(bring(provider, &graph->values[from], weights));
    const mp_tensor given = graph->values[from].tensor;
    MP_TRY(mp_shape_bytes(&given.shape, given.type, &bytes));
    MP_TRY(take(provider, v->node.name, graph->values[from].name, bytes, weights, &addr));
    const mp_status status = run_now(provider, plan, i, graph->values[from].device, addr);
    if (status != MP_OK) {
        drop(provider, weights, addr);
        return status;
    }
    MP_TRY(mp_graph_add_value(graph, graph->values[from].name, &given, &fresh));
    graph->values[fresh].is_constant = true;
    graph->values[fresh].device = addr;
    graph->values[fresh].tensor.data = 0;
    v->in[i] = fresh;
    v->node.prepared |= 1u << i;
    if (mp_graph_uses(graph, from) == 0) {
        drop(provider, weights, graph->values[from].device);
        graph->values[from].device = 0;
    }
    return MP_OK;
}

static bool may_prepare(const mp_graph *graph, const mp_vertex *v, int i) {
    const int32_t value = v->in[i];
    return value != MP_NO_VALUE && graph->values[value].is_constant &&
           !mp_op_host_in(v->node.op, (size_t)i) && !mp_node_prepared(&v->node, i) &&
           mp_shape_count(&graph->values[value].tensor.shape) > 0;
}

static mp_status prepare(const mp_provider *provider, mp_graph *graph, mp_vertex *v, int i,
                         mp_weights *weights) {
    mp_tensor in[32] = {0};
    mp_plan *plan = NULL;
    if (!may_prepare(graph, v, i)) {
        return MP_OK;
    }
    in[i] = graph->values[v->in[i]].tensor;
    MP_TRY(mp_plan_prepare(provider->unit->device, &v->node, in, i, 16, &plan));
    if (plan == NULL) {
        return MP_OK;
    }
    const mp_status status = prepare_with(provider, graph, v, i, plan, weights);
    mp_plan_release(plan);
    return status == MP_OUT_OF_MEMORY ? MP_OK : status; /* it is prepared in each run instead */
}

static mp_status prepare_all(const mp_provider *provider, mp_graph *graph, mp_weights *weights) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        mp_vertex *v = &graph->nodes[n];
        for (int i = 0; v->node.op->prepare != NULL && i < v->in_count && i < 32; i++) {
            MP_TRY(prepare(provider, graph, v, i, weights));
        }
    }
    return MP_OK;
}

mp_status mp__weights_make(const mp_provider *provider, mp_graph *graph, mp_weights *out) {
    *out = (mp_weights){.blocks = NULL};
    MP_TRY(prepare_all(provider, graph, out));
    for (int32_t i = 0; i < graph->value_count; i++) {
        mp_value *value = &graph->values[i];
        size_t bytes = 0;
        if (!value->is_constant || value->tensor.data == 0) {
            continue;
        }
        MP_TRY(mp_shape_bytes(&value->tensor.shape, value->tensor.type, &bytes));
        if (bytes <= MP_HOST_VALUE_BYTES) {
            continue;
        }
        if (mp_graph_uses(graph, i) > 0) {
            MP_TRY(bring(provider, value, out));
        }
        value->tensor.data = 0; /* ONNX Runtime may free it */
    }
    return MP_OK;
}
