/* graph.h - a part of a model as the compiler sees it: values and nodes in arrays, by index.
 *
 *     model --> mp_graph --passes--> mp_graph --shapes of the inputs--> mp_program
 *
 * A value has one producer (a node, the graph's inputs, or nobody: a constant), any number of
 * users, and what is known of its type and shape. Nodes are in an order in which they can run.
 * Threads: one at a time while it is changed; any once it is not.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_GRAPH_H
#define MP_GRAPH_GRAPH_H

#include "op/core/op.h"

enum {
    MP_NO_VALUE = -1, /* an optional input or output that is left out */
    MP_NO_NODE = -1,
    MP_DIM_UNKNOWN = -1, /* of a dimension; as a rank: of the whole shape */
};

typedef struct mp_value {
    const char *name; /* "" for none; the graph's */
    mp_tensor tensor; /* type MP_NONE, rank and dimensions MP_DIM_UNKNOWN where not known; of a
                       * constant all known, and `data` its bytes in host memory or 0 */
    int32_t producer; /* MP_NO_NODE: an input or a constant */
    bool is_constant;
    mp_addr device; /* of a constant: where its bytes are on the device; 0: nowhere yet. Borrowed:
                     * memory is the business of who runs the graph */
} mp_value;

typedef struct mp_vertex {
    mp_node node;      /* its name and attributes are the graph's */
    int32_t *in, *out; /* values, or MP_NO_VALUE; the graph's */
    int32_t in_count, out_count;
    bool is_gone; /* a pass has taken it out */
} mp_vertex;

typedef struct mp_graph {
    mp_value *values;
    mp_vertex *nodes;
    int32_t *inputs, *outputs; /* values */
    int32_t value_count, node_count, input_count, output_count;
    struct mp_graph_memory_block *memory; /* what belongs to the graph and goes with it */
    int32_t value_capacity, node_capacity, input_capacity, output_capacity;
} mp_graph;

/* Gives: `*out`, until mp_graph_destroy. Fails, as all functions here: OUT_OF_MEMORY (host). */
mp_status mp_graph_create(mp_graph **out);
void mp_graph_destroy(mp_graph *graph); /* NULL is ignored */

/* `size` zeroed bytes that live as long as the graph. */
mp_status mp_graph_keep(mp_graph *graph, size_t size, void **out);
mp_status mp_graph_keep_text(mp_graph *graph, const char *text, const char **out);

/* ---- building ---- */

/* A value that nobody produces yet. Copies `name`. `tensor->data` is not copied: it must live as
 * long as the graph. */
mp_status mp_graph_add_value(mp_graph *graph, const char *name, const mp_tensor *tensor,
                             int32_t *out);
/* A constant; `tensor` says all of it. Copies the bytes. */
mp_status mp_graph_add_constant(mp_graph *graph, const char *name, const mp_tensor *tensor,
                                int32_t *out);
mp_status mp_graph_add_input(mp_graph *graph, int32_t value);
mp_status mp_graph_add_output(mp_graph *graph, int32_t value);
/* A node behind all others. Copies name, attributes and lists. Of `in` and `out` entries may be
 * MP_NO_VALUE. Fails: INVALID_ARGUMENT for a value that has a producer already, or is none. */
mp_status mp_graph_add_node(mp_graph *graph, const mp_node *node, const int32_t *in, int in_count,
                            const int32_t *out, int out_count);

/* The value of this name, or MP_NO_VALUE. Looks at all of them. */
int32_t mp_graph_find_value(const mp_graph *graph, const char *name);

/* ---- for passes ---- */

/* How many inputs of nodes, and outputs of the graph, are this value. */
int mp_graph_uses(const mp_graph *graph, int32_t value);
bool mp_graph_is_output(const mp_graph *graph, int32_t value);
/* Whoever reads `from` reads `to`: nodes, and the graph's outputs where `outputs`. */
void mp_graph_replace(mp_graph *graph, int32_t from, int32_t to, bool outputs);
/* Puts another node in the place of node `n`: as mp_graph_add_node, but for the values that the old
 * one made, which it may make, too. Others of those have no producer any more. */
mp_status mp_graph_change_node(mp_graph *graph, int32_t n, const mp_node *node, const int32_t *in,
                               int in_count, const int32_t *out, int out_count);
/* Takes the node out; its outputs have no producer any more, and no users. */
void mp_graph_remove_node(mp_graph *graph, int32_t node);
/* Closes the gaps that removed nodes left. Indexes of nodes change. */
void mp_graph_compact(mp_graph *graph);
int mp_graph_nodes_left(const mp_graph *graph);

#endif
