/* host_value.h - values of a graph that are known while it is planned.
 *
 * They are computed by the operators themselves, on the built-in host device, in memory that is
 * opened for one planning.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_HOST_VALUE_H
#define MP_GRAPH_HOST_VALUE_H

#include "graph/graph.h"

enum { MP_HOST_VALUE_BYTES = 1 << 14 }; /* of one value at most, if nothing else is said */

typedef struct mp_host_values {
    size_t most; /* bytes of one value that is computed */
    mp_device *host;
    mp_stream *stream;          /* owned */
    struct mp_host_page *pages; /* owned */
} mp_host_values;

/* Nothing is opened before it is needed. */
void mp_host_values_open(mp_host_values *values);
/* Lets go what computes, and keeps the values, until close. */
void mp_host_values_rest(mp_host_values *values);
void mp_host_values_close(mp_host_values *values);

/* Whether the node's outputs follow from what `in` says: `data` of each input that is there, or of
 * none where the operator leaves its outputs in host memory. */
bool mp_host_value_is_known(const mp_node *node, const mp_tensor *in, int in_count);

/* Computes the node. `out`: type, shape and `data` of each of its `out_count` outputs, memory that
 * lives until close. `*done` is false, with nothing computed, where a value would be too large.
 * Fails: as mp_plan_make. */
mp_status mp_host_value_compute(mp_host_values *values, const mp_node *node, const mp_tensor *in,
                                int in_count, mp_tensor *out, int out_count, bool *done);

#endif
