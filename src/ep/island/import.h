/* import.h - a group of nodes, as ONNX Runtime hands it over, made a graph of ours.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_IMPORT_H
#define MP_EP_IMPORT_H

#include "ep/session/plugin.h"
#include "graph/graph.h"

/* The values that ONNX Runtime gives the fused node, in its order. */
typedef struct mp_island_ports {
    int32_t *values; /* owned; those of the graph */
    size_t count;
} mp_island_ports;

/* `fused` is the node that stands for the group: the graph's inputs and outputs are its own, in its
 * order, but for constants, which it has where a compiled model is asked for. Constants are not
 * copied but for small ones: the others' data is ONNX Runtime's, until the compilation is over.
 * Gives: `*out`, until mp_graph_destroy, and `*ports`, until its values are freed. */
mp_status mp__island_import(const mp_provider *provider, const OrtGraph *group,
                            const OrtNode *fused, mp_graph **out, mp_island_ports *ports);

#endif
