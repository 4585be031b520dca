/* segment_run.h - runs a graph segment by segment, as an island does, and counts what it takes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TEST_SEGMENT_RUN_H
#define MP_TEST_SEGMENT_RUN_H

#include "graph/device_bytes.h"
#include "graph/program.h"

enum { SEGMENT_OUTPUTS = 8, SEGMENT_BLOCKS = 256 };

typedef struct segment_bench {
    mp_device *device;
    mp_stream *stream;
    memory blocks[SEGMENT_BLOCKS];
    int count;
} segment_bench;

void segments_open(segment_bench *b, mp_device *device);
void segments_close(segment_bench *b);
/* As memory_take, until segments_close. */
mp_addr segments_take(segment_bench *b, const void *bytes, size_t size);

typedef struct segment_outcome {
    int segments, steps; /* of all segments */
    int waits;           /* values that were read back */
    size_t read_bytes;   /* of these */
    bool asks_condition; /* behind one of them */
    mp_tensor out[SEGMENT_OUTPUTS];
    mp_addr addr[SEGMENT_OUTPUTS];
} segment_outcome;

/* Inputs lie in `in`, one behind the other in `tensors`. */
void segments_run(segment_bench *b, const mp_graph *graph, const mp_tensor *tensors,
                  const mp_addr *in, segment_outcome *result);
size_t segments_bytes(const mp_tensor *tensor);
/* All bytes of output `i`. */
void segments_fetch(const segment_bench *b, const segment_outcome *result, int i, void *to);

#endif
