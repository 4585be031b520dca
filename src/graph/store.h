/* store.h - a graph as bytes for a file, and back.
 *
 *     "MPISLAND" | format | maker | size | SHA-256 of what follows | count of ports | graph
 *     graph: values | inputs | guards | nodes | outputs; a loop's body is a graph in its node
 *
 * What is kept is a graph as it was imported: operators of the model, before passes. So it fits
 * every device and all options of a session. A port is a value that comes from outside, an input or
 * a constant, in an order that the caller knows. Constants that are no ports, such as those of
 * bodies, are kept with their bytes.
 *
 * Bytes are not trusted: lengths, numbers and types are checked, and every node against what its
 * operator may look like (op/core/signature.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_STORE_H
#define MP_GRAPH_STORE_H

#include "graph/graph.h"

enum {
    MP_STORE_FORMAT = 1,
    MP_STORE_MAKER = 32,          /* bytes of the maker's version, with its end */
    MP_STORE_BYTES_MAX = 1 << 30, /* of a graph */
    MP_STORE_DEPTH = 32,          /* of bodies within bodies, and of branches within branches */
};

typedef struct mp_store_port {
    const char *name;
    mp_tensor tensor; /* of a constant with its data, which is borrowed as by mp_graph_add_value */
    bool is_constant;
} mp_store_port;

/* `ports` are values of the graph, all its inputs among them. Gives: `*out`, until free. Fails:
 * UNSUPPORTED for a graph that passes have changed, or that is too large; OUT_OF_MEMORY. */
mp_status mp_graph_store(const mp_graph *graph, const int32_t *ports, size_t port_count,
                         const char *maker, unsigned char **out, size_t *size);

/* Inputs are the ports that are no constants, in their order. Gives: `*out`, until
 * mp_graph_destroy. Fails: INVALID_ARGUMENT with what is wrong with the bytes; UNSUPPORTED where
 * they are of another maker or format, which the sentence names. */
mp_status mp_graph_load(const unsigned char *bytes, size_t size, const char *maker,
                        const mp_op_options *options, const mp_store_port *ports, size_t port_count,
                        mp_graph **out);

#endif
