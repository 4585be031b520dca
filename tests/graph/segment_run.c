/* segment_run.c - see segment_run.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/segment_run.h"

#include "op/core/kernel_cache.h"

#include <stdlib.h>
#include <string.h>

enum { BASES = 32 };

void segments_open(segment_bench *b, mp_device *device) {
    *b = (segment_bench){.device = device};
    CHECK_OK(device->ops->stream_create(device, &b->stream));
}

void segments_close(segment_bench *b) {
    CHECK_OK(b->device->ops->stream_synchronize(b->device, b->stream));
    b->device->ops->stream_destroy(b->device, b->stream);
    for (int i = 0; i < b->count; i++) {
        memory_drop(b->device, b->blocks[i]);
    }
    mp_kernel_cache_drop(b->device);
}

mp_addr segments_take(segment_bench *b, const void *bytes, size_t size) {
    CHECK(b->count < SEGMENT_BLOCKS);
    b->blocks[b->count] = memory_take(b->device, bytes, size);
    return b->blocks[b->count++].addr;
}

size_t segments_bytes(const mp_tensor *tensor) {
    size_t bytes = 0;
    CHECK_OK(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
    return bytes;
}

static void run_one(segment_bench *b, const mp_program *p, const mp_addr *in, mp_addr *bases,
                    segment_outcome *result, int outputs) {
    size_t size = 0;
    const void *literals = mp_program_literals(p, &size);
    mp_program_call call = {.in = in,
                            .out = result->addr,
                            .literals = segments_take(b, literals, size),
                            .bases = bases,
                            .block = segments_take(b, NULL, mp_program_block_bytes(p))};
    for (int i = 0; i < outputs; i++) {
        if (mp_program_writes(p, i)) {
            result->out[i] = *mp_program_output_at(p, i);
            result->addr[i] = segments_take(b, NULL, segments_bytes(&result->out[i]));
        }
    }
    if (!mp_program_is_last(p)) {
        bases[mp_program_base_own(p)] = segments_take(b, NULL, mp_program_kept_bytes(p));
    }
    CHECK_OK(mp_program_run(p, b->stream, &call));
    result->segments++;
    result->steps += mp_program_step_count(p);
    result->asks_condition = result->asks_condition || mp_program_waits_for_condition(p);
}

static mp_program *next_of(segment_bench *b, mp_program *p, const mp_addr *in, const mp_addr *bases,
                           segment_outcome *result) {
    unsigned char *found = calloc(1, mp_program_found_bytes(p) + 1);
    const mp_program_call call = {.in = in, .out = result->addr, .bases = bases};
    mp_program *next = NULL;
    CHECK(found != NULL);
    CHECK_EQ_INT(mp_program_repeat_count(p), 0);
    CHECK(mp_program_base_count(p) <= BASES);
    for (int i = 0; i < mp_program_read_count(p); i++) {
        const mp_program_span span = mp_program_read_at(p, i, &call);
        CHECK_OK(b->device->ops->copy(b->device, b->stream, (mp_addr)(found + span.offset),
                                      span.from, span.bytes));
        result->waits++;
        result->read_bytes += span.bytes;
    }
    CHECK_OK(b->device->ops->stream_synchronize(b->device, b->stream));
    CHECK_OK(mp_program_continue(p, found, NULL, &next));
    free(found);
    mp_program_release(p);
    return next;
}

void segments_run(segment_bench *b, const mp_graph *graph, const mp_tensor *tensors,
                  const mp_addr *in, segment_outcome *result) {
    mp_addr bases[BASES] = {0};
    mp_program *p = NULL;
    memset(result, 0, sizeof *result);
    CHECK_OK(mp_program_make(b->device, graph, tensors, 16, NULL, &p));
    run_one(b, p, in, bases, result, graph->output_count);
    while (!mp_program_is_last(p)) {
        p = next_of(b, p, in, bases, result);
        run_one(b, p, in, bases, result, graph->output_count);
    }
    CHECK_OK(b->device->ops->stream_synchronize(b->device, b->stream));
    mp_program_release(p);
}

void segments_fetch(const segment_bench *b, const segment_outcome *result, int i, void *to) {
    CHECK_OK(b->device->ops->copy(b->device, NULL, (mp_addr)to, result->addr[i],
                                  segments_bytes(&result->out[i])));
}
