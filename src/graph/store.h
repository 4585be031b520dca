/* store.h - a graph as bytes for a file, and back.
 *
 *     "MPISLAND" | format | maker | size | SHA-256 of what follows | ports | values | nodes |
 * outputs
 *
 * What is kept is a graph as it was imported: operators of the model, before passes, with no
 * constants' bytes. So it fits every device and all options of a session. A port is a value that
 * comes from outside, an input or a constant, in an order that the caller knows.
 *
 * Bytes are not trusted: lengths, numbers and types are checked, and every node against what its
 * operator may look like (op/core/signature.h).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_STORE_H
#define MP_GRAPH_STORE_H

#include "graph/graph.h"

enum {
    MP_STORE_FORMAT = 1,
    MP_STORE_MAKER = 32,                /* bytes of the maker's version, with its end */
    MP_STORE_BYTES_MAX = 256 * 1 << 20, /* of a graph; the largest that are known have 2 MiB */
};

typedef struct mp_store_port {
    const char *name;
    mp_tensor tensor; /* of a constant with its data, which is borrowed as by mp_graph_add_value */
    bool is_constant;
} mp_store_port;

/* Whether a graph can be kept: it has no branches and no loops. */
bool mp_graph_can_store(const mp_graph *graph);

/* `ports` are values of the graph, all its inputs and constants among them. Gives: `*out`, until
 * free. Fails: UNSUPPORTED for a graph that cannot be kept, OUT_OF_MEMORY. */
mp_status mp_graph_store(const mp_graph *graph, const int32_t *ports, size_t port_count,
                         const char *maker, unsigned char **out, size_t *size);

/* Inputs are the ports that are no constants, in their order. Gives: `*out`, until
 * mp_graph_destroy. Fails: INVALID_ARGUMENT with what is wrong with the bytes; UNSUPPORTED where
 * they are of another maker or format, which the sentence names. */
mp_status mp_graph_load(const unsigned char *bytes, size_t size, const char *maker,
                        const mp_op_options *options, const mp_store_port *ports, size_t port_count,
                        mp_graph **out);

#endif
