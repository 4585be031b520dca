/* compute.c - see compute.h. All it needs of the device is one piece of memory:
 *
 *     | inputs | outputs | block of the program | literals |
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/compute.h"

#include "graph/host_value.h"
#include "graph/program.h"

#include <stdlib.h>

enum { ALIGNED = 16, MEMORY_MAX = 1 << 30 };

typedef struct computation {
    const mp_graph *graph;
    mp_device *device;
    mp_program *program;
    mp_addr *in, *out; /* owned; offsets in the memory, then addresses */
    size_t block, literals, total;
} computation;

/* ---- planning ---- */

/* What is small is known while planning, as a shape may be. */
static mp_status plan_for(computation *c, mp_tensor *in) {
    const mp_graph *graph = c->graph;
    for (int32_t i = 0; i < graph->input_count; i++) {
        size_t bytes = 0;
        MP_TRY(mp_graph_bytes(graph, graph->inputs[i], &bytes));
        in[i] = graph->values[graph->inputs[i]].tensor;
        in[i].data = bytes <= MP_HOST_VALUE_BYTES ? in[i].data : 0;
    }
    return mp_program_make(c->device, graph, in, ALIGNED, NULL, &c->program);
}

static mp_status plan(computation *c) {
    mp_tensor *in = calloc((size_t)c->graph->input_count + 1, sizeof *in);
    if (in == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to compute constants");
    }
    const mp_status status = plan_for(c, in);
    free(in);
    return status;
}

static mp_status check_plan(const computation *c, size_t most) {
    size_t total = 0;
    if (!mp_program_is_last(c->program) || mp_program_draws(c->program)) {
        return MP_FAIL(UNSUPPORTED, "constants depend on more than constants");
    }
    for (int32_t i = 0; i < c->graph->output_count; i++) {
        if (__builtin_add_overflow(total, mp_program_output_bytes(c->program, i), &total) ||
            total > most) {
            return MP_FAIL(UNSUPPORTED, "what follows from constants is larger than they are");
        }
    }
    return MP_OK;
}

/* ---- memory ---- */

static mp_status take(computation *c, size_t bytes, size_t *offset) {
    *offset = c->total;
    if (bytes > MEMORY_MAX || c->total > MEMORY_MAX) {
        return MP_FAIL(UNSUPPORTED, "what follows from constants takes more than a GiB");
    }
    c->total += MP_ALIGN_UP(bytes, (size_t)MP_ALIGNMENT);
    return MP_OK;
}

static mp_status lay_out(computation *c) {
    const mp_graph *graph = c->graph;
    size_t bytes = 0;
    c->in = calloc((size_t)graph->input_count + 1, sizeof *c->in);
    c->out = calloc((size_t)graph->output_count + 1, sizeof *c->out);
    if (c->in == NULL || c->out == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to compute constants");
    }
    for (int32_t i = 0; i < graph->input_count; i++) {
        MP_TRY(mp_graph_bytes(graph, graph->inputs[i], &bytes));
        MP_TRY(take(c, bytes, &c->in[i]));
    }
    for (int32_t i = 0; i < graph->output_count; i++) {
        MP_TRY(take(c, mp_program_output_bytes(c->program, i), &c->out[i]));
    }
    MP_TRY(take(c, mp_program_block_bytes(c->program), &c->block));
    (void)mp_program_literals(c->program, &bytes);
    return take(c, bytes, &c->literals);
}

/* ---- running ---- */

static mp_status copy(const computation *c, mp_addr to, mp_addr from, size_t bytes) {
    return bytes > 0 ? c->device->ops->copy(c->device, NULL, to, from, bytes) : MP_OK;
}

static mp_status bring_inputs(const computation *c, mp_addr base) {
    const mp_graph *graph = c->graph;
    size_t bytes = 0;
    for (int32_t i = 0; i < graph->input_count; i++) {
        MP_TRY(mp_graph_bytes(graph, graph->inputs[i], &bytes));
        c->in[i] += base;
        MP_TRY(copy(c, c->in[i], graph->values[graph->inputs[i]].tensor.data, bytes));
    }
    for (int32_t i = 0; i < graph->output_count; i++) {
        c->out[i] += base;
    }
    const void *literals = mp_program_literals(c->program, &bytes);
    return copy(c, base + c->literals, (mp_addr)literals, bytes);
}

static mp_status run(const computation *c, mp_addr base) {
    const mp_program_call call = {
        .in = c->in, .out = c->out, .block = base + c->block, .literals = base + c->literals};
    mp_stream *stream = NULL;
    MP_TRY(c->device->ops->stream_create(c->device, &stream));
    const mp_status queued = mp_program_run(c->program, stream, &call);
    const mp_status waited = c->device->ops->stream_synchronize(c->device, stream);
    c->device->ops->stream_destroy(c->device, stream);
    return queued != MP_OK ? queued : waited;
}

static mp_status fetch(const computation *c, int32_t i, mp_tensor *out) {
    const size_t bytes = mp_program_output_bytes(c->program, i);
    void *room = malloc(bytes + 1);
    if (room == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory for a constant",
                       bytes);
    }
    *out = *mp_program_output_at(c->program, i);
    out->data = (mp_addr)room;
    return copy(c, out->data, c->out[i], bytes);
}

static mp_status compute_at(const computation *c, mp_addr base, mp_tensor *out) {
    MP_TRY(bring_inputs(c, base));
    MP_TRY(run(c, base));
    for (int32_t i = 0; i < c->graph->output_count; i++) {
        MP_TRY(fetch(c, i, &out[i]));
    }
    return MP_OK;
}

static mp_status compute(const mp_computer *computer, computation *c, size_t most, mp_tensor *out) {
    mp_addr base = 0;
    MP_TRY(plan(c));
    MP_TRY(check_plan(c, most));
    MP_TRY(lay_out(c));
    if (c->total > 0) {
        MP_TRY(computer->lend(computer->context, c->total, &base));
    }
    const mp_status status = compute_at(c, base, out);
    if (c->total > 0) {
        computer->give_back(computer->context, base);
    }
    return status;
}

mp_status mp_graph_compute(const mp_computer *computer, const mp_graph *graph, size_t most,
                           mp_tensor *out) {
    computation c = {.graph = graph, .device = computer->device};
    for (int32_t i = 0; i < graph->output_count; i++) {
        out[i].data = 0;
    }
    const mp_status status = compute(computer, &c, most, out);
    for (int32_t i = 0; status != MP_OK && i < graph->output_count; i++) {
        free((void *)out[i].data);
        out[i].data = 0;
    }
    mp_program_release(c.program);
    free(c.in);
    free(c.out);
    return status;
}
