/* cluster.h - which nodes of a graph, once shapes are known, one kernel computes.
 *
 * Element-wise nodes of the same shape that follow from one another are a cluster. So are, with
 * them, reductions along the last dimensions of that shape, its rows, and element-wise nodes of
 * rows: what has an element for each of them. It is made for
 * shapes, since only they say what is repeated along what; its kernel's text does not depend on
 * sizes, so a new shape seldom needs a new one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_CLUSTER_H
#define MP_GRAPH_CLUSTER_H

#include "graph/graph.h"
#include "op/fused/expression.h"

/* What is to be done for a node. */
typedef enum mp_node_fate {
    MP_FATE_NOTHING, /* its outputs are known, or it is done in another segment */
    MP_FATE_STEP,
    MP_FATE_CLUSTER, /* a step of its own, or part of one */
} mp_node_fate;

/* Whether the node may be part of a cluster; `*out` is then what its output will be. `in`: its
 * inputs, with `data` where their values are known. `rows`: whether it may be a reduction. One that
 * has no neighbours in the end is a step as any other, as is one whose rows are for more than a
 * block each: so long that the kernels for them cut them into pieces, and so few that this pays. */
bool mp_cluster_takes(const mp_vertex *v, const mp_tensor *in, bool rows, mp_tensor *out);

/* A step: one node, or the nodes of a cluster. */
typedef struct mp_unit {
    int32_t node;  /* the first */
    int32_t count; /* of nodes; their numbers are in mp_units.nodes from `first` on */
    int32_t first;
    char *expression;                         /* owned; NULL for one node */
    int32_t in[K_FUSED_IN], out[K_FUSED_OUT]; /* values, of a cluster */
    int in_count, out_count;
    int64_t elements; /* that the expression is computed for */
} mp_unit;

typedef struct mp_units {
    mp_unit *units; /* in an order in which they can run; owned */
    int32_t *nodes; /* owned */
    int32_t count;
} mp_units;

/* `tensors`: of the values that are known or made; `fates`: of the nodes; `is_kept`: of the values,
 * whether somebody beside these nodes reads them (NULL: nobody). Nodes that do nothing, are of
 * another segment, or make nothing that is read, are in no unit; nodes of different guards are
 * never in one. Gives:
 * `*out`, until mp_units_close. Fails: OUT_OF_MEMORY (host). */
mp_status mp_units_make(const mp_graph *graph, const mp_tensor *tensors, const mp_node_fate *fates,
                        const bool *is_kept, mp_units *out);
void mp_units_close(mp_units *units);

#endif
