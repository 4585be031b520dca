/* island_run.c - one run of an island.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/nvtx.h"
#include "base/shortage.h"
#include "ep/abi/bridge.h"
#include "ep/capture/session_graph.h"
#include "ep/island/island.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 16, FEW = 16 };

/* What one run works with; on the stack, unless an island has very many inputs. */
typedef struct call {
    mp_tensor *in;
    mp_addr *in_addr, *out_addr;
    mp_tensor few_in[FEW];
    mp_addr few_in_addr[FEW], few_out_addr[FEW];
    void *many;          /* owned */
    mp_addr apart;       /* where outputs lie for now that share memory with inputs; else 0 */
    mp_addr *given_addr; /* owned; where they are wanted */
} call;

static mp_status call_open(call *c, const mp_graph *graph) {
    const size_t in = (size_t)graph->input_count;
    const size_t out = (size_t)graph->output_count;
    c->in = c->few_in;
    c->in_addr = c->few_in_addr;
    c->out_addr = c->few_out_addr;
    c->many = c->given_addr = NULL;
    c->apart = 0;
    memset(c->few_in_addr, 0, sizeof c->few_in_addr);
    memset(c->few_out_addr, 0, sizeof c->few_out_addr);
    if (in <= FEW && out <= FEW) {
        return MP_OK;
    }
    c->many = calloc(1, in * sizeof(mp_tensor) + (in + out) * sizeof(mp_addr));
    if (c->many == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a call with %zu inputs", in);
    }
    c->in = c->many;
    c->in_addr = (mp_addr *)(void *)(c->in + in);
    c->out_addr = c->in_addr + in;
    return MP_OK;
}

static void call_close(const call *c) {
    free(c->many);
    free(c->given_addr);
}

/* ---- inputs ---- */

static mp_status check_memory(const mp_tensor *tensor, const void *data, const char *what,
                              const char *name) {
    if (data != NULL || mp_shape_count(&tensor->shape) == 0) {
        return MP_OK;
    }
    char text[MP_SHAPE_TEXT];
    const char *why = mp_shortage_here();
    return MP_FAIL(OUT_OF_MEMORY,
                   "no memory could be allocated for %s '%s', a %s tensor of shape %s%s%s", what,
                   name, mp_dtype_name(tensor->type), mp_shape_text(&tensor->shape, text),
                   why[0] != '\0' ? ": " : "", why);
}

static mp_status read_input(const mp_graph *graph, const OrtKernelContext *context, int i,
                            call *c) {
    const char *name = graph->values[graph->inputs[i]].name;
    const OrtValue *value = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    const int64_t *dims = NULL;
    size_t rank = 0;
    const void *data = NULL;
    mp_tensor *tensor = &c->in[i];
    MP_TRY(mp__from_ort(ORT->KernelContext_GetInput(context, (size_t)i, &value)));
    if (value == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "the input '%s' of an island is missing", name);
    }
    MP_TRY(
        mp__from_ort(ORT->GetTensorElementTypeAndShapeDataReference(value, &type, &dims, &rank)));
    if (rank > MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED, "input '%s' has rank %zu; ranks up to %d are supported", name,
                       rank, MP_RANK_MAX);
    }
    *tensor = (mp_tensor){.type = (mp_dtype)type, .shape = {.rank = (int32_t)rank}};
    for (size_t d = 0; d < rank; d++) {
        tensor->shape.dim[d] = dims[d];
    }
    MP_TRY(mp__from_ort(ORT->GetTensorData(value, &data)));
    MP_TRY(check_memory(tensor, data, "input", name));
    c->in_addr[i] = (mp_addr)data;
    return MP_OK;
}

/* ---- outputs ---- */

static mp_status make_output(const mp_island *island, OrtKernelContext *context,
                             const mp_program *program, int i, call *c) {
    const mp_tensor *out = mp_program_output_at(program, i);
    OrtValue *value = NULL;
    void *data = NULL;
    MP_TRY(mp__from_ort(ORT->KernelContext_GetOutput(context, (size_t)i, out->shape.dim,
                                                     (size_t)out->shape.rank, &value)));
    if (value != NULL) {
        MP_TRY(mp__from_ort(ORT->GetTensorMutableData(value, &data)));
        MP_TRY(check_memory(out, data, "output",
                            island->graph->values[island->graph->outputs[i]].name));
    }
    c->out_addr[i] = (mp_addr)data;
    return MP_OK;
}

static mp_status make_outputs(const mp_island *island, OrtKernelContext *context,
                              const mp_program *program, call *c) {
    for (int32_t i = 0; i < island->graph->output_count; i++) {
        MP_TRY(make_output(island, context, program, i, c));
    }
    return MP_OK;
}

static size_t bytes_of(const mp_tensor *tensor) {
    size_t bytes = 0;
    return mp_shape_bytes(&tensor->shape, tensor->type, &bytes) == MP_OK ? bytes : 0;
}

/* Whether a caller has bound an output where an input lies: an output may be written before the
 * last read of an input. */
static bool is_shared(const mp_graph *graph, const mp_program *program, const call *c) {
    for (int32_t i = 0; i < graph->output_count; i++) {
        const mp_addr begin = c->out_addr[i];
        const mp_addr end = begin + bytes_of(mp_program_output_at(program, i));
        for (int32_t k = 0; k < graph->input_count; k++) {
            if (begin < c->in_addr[k] + bytes_of(&c->in[k]) && c->in_addr[k] < end) {
                return true;
            }
        }
    }
    return false;
}

static size_t outputs_bytes(const mp_graph *graph, const mp_program *program) {
    size_t total = 0;
    for (int32_t i = 0; i < graph->output_count; i++) {
        total += MP_ALIGN_UP(bytes_of(mp_program_output_at(program, i)), (size_t)MP_ALIGNMENT);
    }
    return total;
}

static mp_status lay_apart(const mp_island *island, const mp_program *program, void *native,
                           call *c) {
    const mp_graph *graph = island->graph;
    size_t offset = 0;
    c->given_addr = calloc((size_t)graph->output_count + 1, sizeof *c->given_addr);
    if (c->given_addr == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a call");
    }
    MP_TRY(mp__lend(island->provider->pool, outputs_bytes(graph, program), native, &c->apart));
    for (int32_t i = 0; i < graph->output_count; i++) {
        c->given_addr[i] = c->out_addr[i];
        c->out_addr[i] = c->apart + offset;
        offset += MP_ALIGN_UP(bytes_of(mp_program_output_at(program, i)), (size_t)MP_ALIGNMENT);
    }
    return MP_OK;
}

static mp_status bring_back(const mp_island *island, const mp_program *program, mp_stream *stream,
                            const call *c) {
    mp_device *device = island->provider->unit->device;
    for (int32_t i = 0; i < island->graph->output_count && c->apart != 0; i++) {
        const size_t bytes = bytes_of(mp_program_output_at(program, i));
        if (bytes > 0) {
            MP_TRY(device->ops->copy(device, stream, c->given_addr[i], c->out_addr[i], bytes));
        }
    }
    return MP_OK;
}

/* ---- running ---- */

static bool all_aligned(const mp_addr *addresses, int count) {
    mp_addr low_bits = 0;
    for (int i = 0; i < count; i++) {
        low_bits |= addresses[i];
    }
    return low_bits % ALIGNED == 0;
}

static mp_status launch_or_walk(mp_island *island, mp_island_program *p, mp_stream *stream,
                                const mp_program_call *with) {
    bool done = false;
    if (mp__run_now == NULL) { /* a run that may be captured for the user is walked through */
        MP_TRY(mp__island_launch(island, p, stream, with, &done));
    }
    return done ? MP_OK : mp_program_run(p->program, stream, with);
}

static mp_status queue(mp_island *island, mp_island_program *p, mp_stream *stream, call *c) {
    mp_device *device = island->provider->unit->device;
    void *native = device->ops->stream_native(device, stream);
    mp_program_call with = {.in = c->in_addr, .out = c->out_addr, .literals = p->literals};
    const size_t size = mp_program_block_bytes(p->program);
    mp_status status = MP_OK;
    if (size > 0) {
        status = mp__lend(island->provider->pool, size, native, &with.block);
    }
    if (status == MP_OK && is_shared(island->graph, p->program, c)) {
        status = lay_apart(island, p->program, native, c);
    }
    if (status == MP_OK) {
        status = launch_or_walk(island, p, stream, &with);
    }
    if (status == MP_OK) {
        status = bring_back(island, p->program, stream, c);
    }
    /* The stream's order keeps users apart. */
    const mp_status freed = mp__give_back(island->provider->pool, with.block);
    const mp_status freed_apart = mp__give_back(island->provider->pool, c->apart);
    return status != MP_OK ? status : freed != MP_OK ? freed : freed_apart;
}

static mp_status run(mp_island *island, const OrtKernelContext *context, mp_island_program *p,
                     call *c) {
    mp_stream *stream = NULL;
    bool own = false;
    MP_TRY(mp__run_saw(c->in_addr, island->graph->input_count, c->out_addr,
                       island->graph->output_count));
    MP_TRY(mp__run_saw(&p->literals, 1, NULL, 0));
    MP_TRY(mp__stream_of_context(island->provider, context, &stream, &own));
    MP_TRY(queue(island, p, stream, c));
    return mp__stream_done(island->provider, stream, own);
}

static mp_status find_program(mp_island *island, const call *c, int32_t align,
                              mp_island_program **out) {
    if (mp__recorded_run() != NULL && !mp__island_program_has(island, c->in, align)) {
        MP_TRY(mp__run_stop_recording("an island has new shapes, for which kernels may be loaded"));
    }
    return mp__island_program_get(island, c->in, align, out);
}

static mp_status compute_with(mp_island *island, OrtKernelContext *context, call *c) {
    const mp_graph *graph = island->graph;
    mp_island_program *p = NULL;
    for (int32_t i = 0; i < graph->input_count; i++) {
        MP_TRY(read_input(graph, context, i, c));
    }
    const bool in_aligned = all_aligned(c->in_addr, graph->input_count);
    MP_TRY(find_program(island, c, in_aligned ? ALIGNED : 1, &p));
    mp_status status = make_outputs(island, context, p->program, c);
    if (status == MP_OK && in_aligned && !all_aligned(c->out_addr, graph->output_count)) {
        mp__island_program_drop(island, p); /* the caller bound an output at an odd address */
        p = NULL;
        status = find_program(island, c, 1, &p);
    }
    if (status == MP_OK) {
        status = run(island, context, p, c);
    }
    mp__island_program_drop(island, p);
    return status;
}

OrtStatus *mp__island_compute(OrtNodeComputeInfo *self, void *state, OrtKernelContext *context) {
    mp_island *island = (mp_island *)self;
    call c;
    (void)state;
    MP_TRY_ORT(call_open(&c, island->graph));
    mp__nvtx_push(island->name);
    const mp_label before = mp_label_set(island->label);
    const mp_status status = compute_with(island, context, &c);
    (void)mp_label_set(before);
    mp__nvtx_pop();
    call_close(&c);
    mp__run_node_ended(island->provider, status);
    return mp__to_ort(status);
}
