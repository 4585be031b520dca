/* island_run.c - one run of an island.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/nvtx.h"
#include "ep/abi/bridge.h"
#include "ep/capture/session_graph.h"
#include "ep/island/island.h"
#include "ep/run/call.h"

#include <stdio.h>
#include <stdlib.h>

/* An output that cannot be written where it is wanted: it shares memory with an input that may be
 * read later, or lies at an odd address. */
typedef struct aside {
    mp_addr wanted, lent; /* lent: owned */
    size_t bytes;
} aside;

/* What one run works with. */
typedef struct run {
    mp_walk walk; /* first */
    mp_call call;
    OrtKernelContext *context;
    const size_t *in_bytes; /* of the first program */
    bool is_aligned;        /* what the programs are planned for */
    aside *asides;          /* owned; by output */
} run;

/* ---- inputs ---- */

static mp_port input_at(const mp_graph *graph, int i) {
    return (mp_port){"input", i, graph->values[graph->inputs[i]].name};
}

static mp_port output_at(const mp_graph *graph, int i) {
    return (mp_port){"output", i, graph->values[graph->outputs[i]].name};
}

/* ONNX Runtime's own sentence names no node of the model. */
static mp_status say_where(const mp_island *island, mp_status status) {
    char why[512];
    (void)snprintf(why, sizeof why, "%s", mp_error_message());
    return mp__fail(status, "%s: %s", island->name, why);
}

static mp_status read_input(const mp_island *island, const OrtKernelContext *context, int i,
                            mp_call *c) {
    const mp_graph *graph = island->graph;
    const OrtValue *value = NULL;
    const size_t source = (size_t)(island->sources != NULL ? island->sources[i] : i);
    MP_TRY(mp__from_ort(ORT->KernelContext_GetInput(context, source, &value)));
    if (value == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "the input '%s' of an island is missing",
                       input_at(graph, i).name);
    }
    const mp_status status = mp__call_read(value, input_at(graph, i), &c->in[i], &c->in_addr[i]);
    return status == MP_OK ? MP_OK : say_where(island, status);
}

/* ---- outputs ---- */

/* Whether inputs lie there that the output must not be written over. */
static bool meets_inputs(const run *r, const mp_program *program, int output, size_t size) {
    const mp_addr *in = r->call.in_addr;
    const mp_addr begin = r->walk.out[output];
    const int over = mp_program_over(program, output);
    for (int32_t i = 0; i < r->walk.island->graph->input_count; i++) {
        const bool meets = in[i] < begin + size && begin < in[i] + r->in_bytes[i];
        if (meets && (i != over || in[i] != begin || r->in_bytes[i] != size)) {
            return true;
        }
    }
    return false;
}

static mp_status set_aside(run *r, int i, size_t bytes) {
    mp_walk *walk = &r->walk;
    if (r->asides == NULL) {
        r->asides = calloc((size_t)walk->island->graph->output_count + 1, sizeof *r->asides);
    }
    if (r->asides == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a call");
    }
    aside *a = &r->asides[i];
    MP_TRY(mp__lend(walk->island->provider->pool, bytes, walk->native, &a->lent));
    a->wanted = walk->out[i];
    a->bytes = bytes;
    walk->out[i] = a->lent;
    return MP_OK;
}

static mp_status take_output(mp_walk *walk, const mp_program *program, int i) {
    run *r = (run *)walk;
    const mp_graph *graph = walk->island->graph;
    const mp_tensor *out = mp_program_output_at(program, i);
    OrtValue *value = NULL;
    void *data = NULL;
    MP_TRY(mp__from_ort(ORT->KernelContext_GetOutput(r->context, (size_t)i, out->shape.dim,
                                                     (size_t)out->shape.rank, &value)));
    if (value != NULL) {
        MP_TRY(mp__from_ort(ORT->GetTensorMutableData(value, &data)));
        MP_TRY(mp__call_check_memory(out, data, output_at(graph, i)));
    }
    walk->out[i] = (mp_addr)data;
    return MP_OK;
}

static mp_status ask_output(mp_walk *walk, const mp_program *program, int i) {
    run *r = (run *)walk;
    const size_t bytes = mp_program_output_bytes(program, i);
    const mp_label before = mp_label_set(walk->island->out_labels[i]);
    const mp_status status = take_output(walk, program, i);
    (void)mp_label_set(before);
    MP_TRY(status);
    const bool is_odd = r->is_aligned && !mp__all_aligned(&walk->out[i], 1);
    return bytes > 0 && (is_odd || meets_inputs(r, program, i, bytes)) ? set_aside(r, i, bytes)
                                                                       : MP_OK;
}

static mp_status bring_back(const run *r) {
    const mp_walk *walk = &r->walk;
    mp_device *device = walk->island->provider->unit->device;
    for (int32_t i = 0; r->asides != NULL && i < walk->island->graph->output_count; i++) {
        const aside *a = &r->asides[i];
        if (a->lent != 0) {
            MP_TRY(device->ops->copy(device, walk->stream, a->wanted, a->lent, a->bytes));
        }
    }
    return MP_OK;
}

/* The stream's order keeps users apart. */
static mp_status close_asides(run *r) {
    mp_status status = MP_OK;
    for (int32_t i = 0; r->asides != NULL && i < r->walk.island->graph->output_count; i++) {
        const mp_status freed = mp__give_back(r->walk.island->provider->pool, r->asides[i].lent);
        status = status == MP_OK ? freed : status;
    }
    free(r->asides);
    return status;
}

/* ---- running ---- */

static mp_status walk_all(run *r, mp_island_program *p) {
    mp_status status = mp__walk(&r->walk, p);
    if (status == MP_OK) {
        status = bring_back(r);
    }
    return status;
}

static mp_status set_stream(run *r, bool *own) {
    mp_walk *walk = &r->walk;
    mp_device *device = walk->island->provider->unit->device;
    MP_TRY(mp__stream_of_context(walk->island->provider, r->context, &walk->stream, own));
    walk->native = device->ops->stream_native(device, walk->stream);
    return MP_OK;
}

static mp_status run_program(run *r, mp_island_program *p) {
    mp_island *island = r->walk.island;
    const mp_run *recorded = mp__recorded_run();
    bool own = false;
    MP_TRY(set_stream(r, &own));
    MP_TRY(mp__walk_outputs(&r->walk, p->program));
    MP_TRY(mp__run_saw(r->call.in_addr, island->graph->input_count, r->call.out_addr,
                       island->graph->output_count));
    MP_TRY(mp__run_saw(&p->literals, 1, NULL, 0));
    if (recorded != mp__recorded_run()) { /* the recording ended meanwhile */
        MP_TRY(set_stream(r, &own));
    }
    mp_status status = walk_all(r, p);
    const mp_status closed = mp__walk_close(&r->walk);
    status = status == MP_OK ? closed : status;
    return status == MP_OK ? mp__stream_done(island->provider, r->walk.stream, own) : status;
}

static mp_status find_program(mp_island *island, const mp_call *c, int32_t align,
                              mp_island_program **out) {
    if (mp__recorded_run() != NULL && !mp__island_program_has(island, c->in, align)) {
        MP_TRY(mp__run_stop_recording("an island has new shapes, for which kernels may be loaded"));
    }
    return mp__island_program_get(island, c->in, align, out);
}

static mp_status compute_with(run *r) {
    mp_island *island = r->walk.island;
    mp_call *c = &r->call;
    mp_island_program *p = NULL;
    for (int32_t i = 0; i < island->graph->input_count; i++) {
        MP_TRY(read_input(island, r->context, i, c));
    }
    r->is_aligned = mp__all_aligned(c->in_addr, island->graph->input_count);
    MP_TRY(find_program(island, c, r->is_aligned ? MP_CALL_ALIGNED : 1, &p));
    r->in_bytes = p->in_bytes;
    const bool waits =
        !mp_program_is_last(p->program) || mp_program_assumption_count(p->program) > 0;
    mp_status status =
        !waits ? MP_OK : mp__run_unfit("what an island does depends on values on the device");
    if (status == MP_OK) {
        status = run_program(r, p);
    }
    mp__islands_bound(island->provider);
    mp__island_program_drop(island, p);
    return status;
}

OrtStatus *mp__island_compute(OrtNodeComputeInfo *self, void *state, OrtKernelContext *context) {
    mp_island *island = (mp_island *)self;
    run r;
    (void)state;
    MP_TRY_ORT(mp__call_open(&r.call, island->graph->input_count, island->graph->output_count));
    r.walk = (mp_walk){
        .island = island, .in = r.call.in_addr, .out = r.call.out_addr, .output = ask_output};
    r.context = context;
    r.asides = NULL;
    mp__nvtx_push(island->name);
    const mp_label before = mp_label_set(island->label);
    mp_status status = compute_with(&r);
    const mp_status closed = close_asides(&r);
    status = status == MP_OK ? closed : status;
    (void)mp_label_set(before);
    mp__nvtx_pop();
    mp__call_close(&r.call);
    mp__run_nodes_ended(island->provider, island->node_count, status);
    return mp__to_ort(status);
}
