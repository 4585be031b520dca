/* pass_run.c - see pass_run.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_run.h"

#include "graph/device_bytes.h"
#include "graph/pass.h"
#include "graph/program.h"
#include "graph/test_computer.h"
#include "graph/text.h"
#include "op/core/kernel_cache.h"
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES_MAX = 64 };

static size_t bytes_of(const mp_tensor *tensor) {
    size_t bytes = 0;
    CHECK_OK(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
    return bytes;
}

/* Numbers of eighths up to 2, truths of which two thirds hold. */
static void *numbers(const mp_tensor *tensor, uint64_t seed) {
    const int64_t count = mp_shape_count(&tensor->shape);
    void *data = op_memory(tensor->type, count);
    uint64_t state = seed * 2654435761u + 12345;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const int64_t drawn = (int64_t)(state >> 33) % 33 - 16;
        op_store_real(tensor->type, data, i,
                      tensor->type == MP_BOOL ? drawn % 3 != 0 : (double)drawn / 8);
    }
    return data;
}

/* Constants without values get some. */
static void fill_constants(mp_graph *graph) {
    for (int32_t i = 0; i < graph->value_count; i++) {
        mp_value *value = &graph->values[i];
        void *kept = NULL;
        if (!value->is_constant || value->tensor.data != 0) {
            continue;
        }
        void *data = numbers(&value->tensor, (uint64_t)i);
        const size_t bytes = bytes_of(&value->tensor);
        CHECK_OK(mp_graph_keep(graph, bytes + 1, &kept));
        memcpy(kept, data, bytes);
        value->tensor.data = (mp_addr)kept;
        free(data);
    }
}

static int place_constants(mp_device *device, mp_graph *graph, memory *taken) {
    int count = 0;
    for (int32_t i = 0; i < graph->value_count; i++) {
        mp_value *value = &graph->values[i];
        if (value->is_constant && value->tensor.data != 0 && mp_graph_uses(graph, i) > 0) {
            CHECK(count < VALUES_MAX);
            taken[count] =
                memory_take(device, (const void *)value->tensor.data, bytes_of(&value->tensor));
            value->device = taken[count++].addr;
        }
    }
    return count;
}

/* The outputs of the graph, one behind the other, as doubles. */
static double *run(mp_device *device, mp_graph *graph, const mp_shape *shapes, int64_t *count) {
    mp_tensor in[VALUES_MAX];
    memory ins[VALUES_MAX], outs[VALUES_MAX], constants[VALUES_MAX];
    mp_addr in_addr[VALUES_MAX], out_addr[VALUES_MAX];
    mp_program *program = NULL;
    mp_stream *stream = NULL;
    size_t literal_bytes = 0;
    double *all = NULL;
    const int constant_count = place_constants(device, graph, constants);
    *count = 0;
    for (int32_t i = 0; i < graph->input_count; i++) {
        in[i] =
            (mp_tensor){.type = graph->values[graph->inputs[i]].tensor.type, .shape = shapes[i]};
        void *data = numbers(&in[i], 100 + (uint64_t)i);
        ins[i] = memory_take(device, data, bytes_of(&in[i]));
        in_addr[i] = ins[i].addr;
        free(data);
    }
    CHECK_OK(mp_program_make(device, graph, in, 16, NULL, &program));
    const void *literals = mp_program_literals(program, &literal_bytes);
    const memory block = memory_take(device, NULL, mp_program_block_bytes(program));
    const memory fixed = memory_take(device, literals, literal_bytes);
    for (int32_t i = 0; i < graph->output_count; i++) {
        outs[i] = memory_take(device, NULL, mp_program_output_bytes(program, i));
        out_addr[i] = outs[i].addr;
        *count += mp_shape_count(&mp_program_output_at(program, i)->shape);
    }
    const mp_program_call call = {
        .in = in_addr, .out = out_addr, .block = block.addr, .literals = fixed.addr};
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(mp_program_run(program, stream, &call));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    all = calloc((size_t)*count + 1, sizeof *all);
    CHECK(all != NULL);
    int64_t at = 0;
    for (int32_t i = 0; i < graph->output_count; i++) {
        const mp_tensor *out = mp_program_output_at(program, i);
        const int64_t elements = mp_shape_count(&out->shape);
        void *got = op_memory(out->type, elements);
        CHECK_OK(device->ops->copy(device, NULL, (mp_addr)got, outs[i].addr, bytes_of(out)));
        for (int64_t e = 0; e < elements; e++) {
            all[at++] = op_real(out->type, got, e);
        }
        free(got);
        memory_drop(device, outs[i]);
    }
    for (int32_t i = 0; i < graph->input_count; i++) {
        memory_drop(device, ins[i]);
    }
    for (int i = 0; i < constant_count; i++) {
        memory_drop(device, constants[i]);
    }
    memory_drop(device, block);
    memory_drop(device, fixed);
    device->ops->stream_destroy(device, stream);
    mp_program_release(program);
    return all;
}

static double *run_with(mp_device *device, const char *text, const char *words,
                        const mp_shape *shapes, int64_t *count, int64_t *done) {
    mp_graph *graph = NULL;
    test_computer computer;
    CHECK_OK(mp_graph_read(text, &graph));
    fill_constants(graph);
    test_computer_open(&computer, device);
    graph->computer = &computer.base;
    CHECK_OK(mp_passes_run(graph, words, done));
    double *all = run(device, graph, shapes, count);
    mp_graph_destroy(graph);
    return all;
}

/* What is infinite or no number has to be so. */
static bool is_near(double got, double wanted, double far) {
    const double size = fabs(wanted) > 1 ? fabs(wanted) : 1;
    return isfinite(wanted) ? fabs(got - wanted) <= far * size
           : isnan(wanted)  ? isnan(got)
                            : got == wanted;
}

void pass_check_run(mp_device *device, const char *text, const mp_shape *in, double far,
                    int64_t rewrites) {
    pass_check_run_by(device, "-dead", text, in, far, rewrites);
}

void pass_check_run_by(mp_device *device, const char *words, const char *text, const mp_shape *in,
                       double far, int64_t rewrites) {
    int64_t count = 0, fused_count = 0, done = 0;
    double *apart = run_with(device, text, "=0", in, &count, &done);
    double *fused = run_with(device, text, words, in, &fused_count, &done);
    CHECK(done >= rewrites);
    CHECK_EQ_INT(fused_count, count);
    for (int64_t i = 0; i < count; i++) {
        if (!is_near(fused[i], apart[i], far)) {
            test_fail(__FILE__, __LINE__, "element %lld is %g and was %g before", (long long)i,
                      fused[i], apart[i]);
        }
    }
    free(apart);
    free(fused);
    mp_kernel_cache_drop(device);
}
