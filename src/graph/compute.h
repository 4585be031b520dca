/* compute.h - a graph run once, from memory of the host to memory of the host.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_COMPUTE_H
#define MP_GRAPH_COMPUTE_H

#include "graph/graph.h"

/* Runs a graph without constants. Its inputs' values have their bytes, in host memory. Gives:
 * `out`, the graph's outputs, each with `data` in memory of the host, until free. Blocks: until
 * they are there. Fails, and gives nothing: UNSUPPORTED where it cannot be planned without looking
 * at what is computed, where the outputs are more than `most` bytes together, or where it takes
 * more than a GiB; as lend, mp_program_make and mp_program_run. */
mp_status mp_graph_compute(const mp_computer *computer, const mp_graph *graph, size_t most,
                           mp_tensor *out);

#endif
