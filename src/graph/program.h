/* program.h - a graph planned for given shapes of its inputs: plans of its nodes in order, and a
 * place in memory for each value.
 *
 * What can be known without data is computed while planning (host_value.h): shapes, and values
 * that follow from shapes and constants. Every other value between two nodes lies in one block of
 * memory, those that do not live at the same time in the same place; a view lies where what it is
 * of lies, a result where the input was that nobody else reads, and an output of the graph where
 * its caller wants it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PROGRAM_H
#define MP_GRAPH_PROGRAM_H

#include "graph/graph.h"

typedef struct mp_program mp_program;

/* Plans the graph for these inputs, in the graph's order: types and shapes; where `data` is set,
 * their values in host memory are known, too. `align`: bytes that the addresses of all inputs and
 * outputs will be multiples of, as for mp_plan_make. Constants that are read on the device must be
 * there (mp_value.device). Gives: `*out` with one reference. Threads: any, if nobody changes the
 * graph. Blocks: while kernels compile.
 * Fails: as mp_plan_make; UNSUPPORTED where a node needs a value on the host that is not known. */
mp_status mp_program_make(mp_device *device, const mp_graph *graph, const mp_tensor *in,
                          int32_t align, mp_program **out);
void mp_program_retain(mp_program *program);
void mp_program_release(mp_program *program); /* NULL is ignored */

/* Output `i` of the graph: type and shape. */
const mp_tensor *mp_program_output_at(const mp_program *program, int i);
/* Bytes of the block of a run. */
size_t mp_program_block_bytes(const mp_program *program);
/* Bytes that were known while planning and are read on the device. The caller puts them there, at
 * a multiple of MP_ALIGNMENT, where they stay for as long as the program runs; NULL for none. */
const void *mp_program_literals(const mp_program *program, size_t *size);
int mp_program_step_count(const mp_program *program);
/* Whether two runs may differ though their inputs are the same. */
bool mp_program_draws(const mp_program *program);

typedef struct mp_program_call {
    const mp_addr *in, *out; /* in the graph's order; outputs of 0 bytes may have none */
    mp_addr block, literals;
} mp_program_call;

/* Queues the whole program on `stream`. Threads: any, at the same time too, each with a block of
 * its own. Blocks: no. */
mp_status mp_program_run(const mp_program *program, mp_stream *stream, const mp_program_call *call);

#endif
