/* program_write.h - a program for people: its steps, and where its values lie.
 *
 * `graph` is the one that it was made of, as it is still; `in` are types and shapes of its inputs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PROGRAM_WRITE_H
#define MP_GRAPH_PROGRAM_WRITE_H

#include "graph/program.h"

#include <stdio.h>

/* Writes the members of a JSON object, without its braces, of this segment:
 *
 *     "first_step": its number, among those of all segments up to here
 *     "block_bytes", "literal_bytes"
 *     "sum_bytes": what the values in the block would take one by one, views among them
 *     "steps": {"op", "nodes" (origin.h), "in", "out", "scratch_bytes", "scratch_offset",
 *               "kernels" (plan_write.h)} of each
 *     "copies": {"value", "bytes"} of each output that is copied to where it is wanted
 *     "read_back": the names of values that the next segment is planned with, and of nodes whose
 *                  sizes it is
 *     "loops": the names of nodes that run behind it, before the next segment
 *
 * A step that is a loop has no kernels, but "trips" and "body", an object with these members.
 *
 * A value in "in" and "out" is {"name", "type", "shape", "bytes", "place"}: the place is
 * "constant", "known" (while planning), "input" or "output", of which "index" says which, or
 * "block", in which it is at "offset", or "kept" for later segments; type and shape of what is
 * known are left out. Fails: OUT_OF_MEMORY (host), with a part of it written. */
mp_status mp_program_write(const mp_program *program, const mp_graph *graph, const mp_tensor *in,
                           FILE *out);

/* Writes a line for each value in the block, by offset and time:
 *
 *     offset        bytes  value       made by           last read by
 *          0        24576  product     MatMul 'fc1'      Softmax 'probabilities' */
mp_status mp_program_write_layout(const mp_program *program, const mp_graph *graph, FILE *out);

#endif
