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

#include "graph/origin.h"
#include "op/core/op.h"

enum {
    MP_NO_VALUE = -1, /* an optional input or output that is left out */
    MP_NO_NODE = -1,
    MP_DIM_UNKNOWN = -1, /* of a dimension; as a rank: of the whole shape */
    MP_TITLE_MAX = 256,  /* bytes of a vertex's title */
};

typedef struct mp_value {
    const char *name;     /* "" for none; the graph's */
    mp_tensor tensor;     /* type MP_NONE, rank and dimensions MP_DIM_UNKNOWN where not known; of a
                           * constant all known, and `data` its bytes in host memory or 0. Dimensions
                           * below MP_DIM_UNKNOWN are not known, but those of one number are equal */
    int32_t producer;     /* MP_NO_NODE: an input or a constant */
    int32_t within;       /* 0: it lies nowhere else; else 1 + the value in whose rows its own lie
                           * wherever one segment of a program makes both */
    int64_t within_first; /* at which element of those its own begin */
    int64_t within_row;   /* elements that they have */
    bool is_constant;
    bool owns_data; /* of a constant: its bytes are the graph's */
    mp_addr device; /* of a constant: where its bytes are on the device; 0: nowhere yet. Borrowed:
                     * memory is the business of who runs the graph */
} mp_value;

/* Nodes of a branch are computed only where its condition has one of two values. The branches of an
 * If stand in the graph with all other nodes; a Choose (op/move/branch.c) reads both results. */
typedef struct mp_guard {
    int32_t condition; /* a value: one boolean */
    bool wanted;       /* what it has to be */
    int32_t outer;     /* what must hold, too; as mp_vertex.guard */
} mp_guard;

/* What a Loop or Scan is, beside its inputs and outputs:
 *     Loop: in trip count, condition, carried, captured; body: in number, condition, carried,
 *           captured, out condition, carried, stacked
 *     Scan: in carried, sliced, captured; body: in the same, out carried, stacked
 * Slices are taken along the first axis, and stacked along it. */
typedef struct mp_loop {
    struct mp_graph *body; /* the graph's, as all of it */
    bool is_scan;
    int32_t carried, sliced, stacked;
    bool *backwards; /* of what is sliced, then of what is stacked: the last slice first */
} mp_loop;

typedef struct mp_vertex {
    mp_node node;      /* its name and attributes are the graph's */
    int32_t *in, *out; /* values, or MP_NO_VALUE; the graph's */
    int32_t in_count, out_count;
    int32_t guard;       /* 0: none; else 1 + its index. Nodes of different guards are never the
                          * same, unless one guard is within the other */
    const mp_loop *loop; /* NULL for other nodes */
    mp_origins origins;  /* the nodes of the model that it stands for; the graph's */
    int32_t *former; /* values that it read before a pass changed it, until that pass has ended */
    int32_t former_count;
    int32_t next;     /* while unread nodes are taken out: the one to be looked at behind it */
    bool is_gone;     /* a pass has taken it out */
    bool is_absorbed; /* another node says that it does its work */
} mp_vertex;

/* Who computes what follows from constants alone, and is too much for the host. */
typedef struct mp_computer {
    mp_device *device;
    mp_status (*lend)(void *context, size_t size, mp_addr *out); /* memory of the device */
    void (*give_back)(void *context, mp_addr addr);
    void *context;
} mp_computer;

typedef struct mp_graph {
    mp_value *values;
    mp_vertex *nodes;
    int32_t *inputs, *outputs; /* values */
    mp_guard *guards;
    struct mp_graph **bodies; /* owned */
    int32_t value_count, node_count, input_count, output_count;
    bool prefers_last;           /* the device is faster at convolutions whose channels come last */
    bool has_clusters;           /* element-wise nodes may be joined to one kernel; true at first */
    bool has_row_clusters;       /* with reductions among them; the same */
    bool lays_within;            /* values lie within others (mp_value.within) where they can */
    bool has_claimed_types;      /* nobody has checked what is said of the types of its values */
    int32_t origin_count;        /* numbers of origins that were given out */
    const char *last_pass;       /* that changed it; static storage, NULL for none */
    const mp_computer *computer; /* borrowed while passes run; NULL: such nodes are left */
    struct mp_graph_memory_block *memory; /* what belongs to the graph and goes with it */
    int32_t value_capacity, node_capacity, input_capacity, output_capacity;
    int32_t guard_count, guard_capacity, body_count, body_capacity;
    int32_t guard; /* of nodes that are added */
} mp_graph;

/* Gives: `*out`, until mp_graph_destroy. Fails, as all functions here: OUT_OF_MEMORY (host). */
mp_status mp_graph_create(mp_graph **out);
void mp_graph_destroy(mp_graph *graph); /* NULL is ignored */
/* Says for which device passes change it, none in particular at first, and who computes for them.
 * Borrows: `computer`, until passes have run. */
void mp_graph_suit(mp_graph *graph, const mp_computer *computer);

/* `size` zeroed bytes that live as long as the graph. */
mp_status mp_graph_keep(mp_graph *graph, size_t size, void **out);
mp_status mp_graph_keep_text(mp_graph *graph, const char *text, const char **out);

/* ---- building ---- */

/* A value that nobody produces yet. Copies `name`. `tensor->data` is not copied: it must live as
 * long as the graph. */
mp_status mp_graph_add_value(mp_graph *graph, const char *name, const mp_tensor *tensor,
                             int32_t *out);
/* A constant; `tensor` says all of it. Copies the bytes; without data they are 0, and may be
 * written while nobody else knows of it. */
mp_status mp_graph_add_constant(mp_graph *graph, const char *name, const mp_tensor *tensor,
                                int32_t *out);
/* The bytes of a constant are not needed on the host any more. */
void mp_graph_forget_data(mp_graph *graph, int32_t value);
mp_status mp_graph_add_input(mp_graph *graph, int32_t value);
mp_status mp_graph_add_output(mp_graph *graph, int32_t value);
/* A node of the model, behind all others; one of MP_OWN_DOMAIN stands for none yet. Copies name,
 * attributes and lists. Of `in` and `out` entries may be MP_NO_VALUE. Fails: INVALID_ARGUMENT for a
 * value that has a producer already, or is none. */
mp_status mp_graph_add_node(mp_graph *graph, const mp_node *node, const int32_t *in, int in_count,
                            const int32_t *out, int out_count);

/* From now on node `n` stands for these nodes of the model, whose texts are the graph's. */
mp_status mp_graph_set_origins(mp_graph *graph, int32_t n, mp_origins origins);
/* A guard within the one that is set, for nodes to come, which are added with it until
 * mp_graph_close_guard. */
mp_status mp_graph_open_guard(mp_graph *graph, int32_t condition, bool wanted);
void mp_graph_close_guard(mp_graph *graph);
/* A node behind all others that runs a body over and over. Copies `loop`, and takes its body, also
 * where it fails. None of its outputs is left out. */
mp_status mp_graph_add_loop(mp_graph *graph, const mp_node *node, const mp_loop *loop,
                            const int32_t *in, int in_count, const int32_t *out, int out_count);

/* Of an attribute of several texts, which lie one behind the other. */
size_t mp_attr_texts_bytes(const mp_attr *attr);

/* How many bytes a value has whose type and shape are known. Fails: INVALID_ARGUMENT. */
static inline mp_status mp_graph_bytes(const mp_graph *graph, int32_t value, size_t *out) {
    const mp_tensor *tensor = &graph->values[value].tensor;
    return mp_shape_bytes(&tensor->shape, tensor->type, out);
}

/* The value of this name, or MP_NO_VALUE. Looks at all of them. */
int32_t mp_graph_find_value(const mp_graph *graph, const char *name);

/* ---- for passes ---- */

/* Whether the node is there, and is this operator of ONNX's own. */
bool mp_vertex_is(const mp_vertex *v, const char *name);
/* For a sentence: "MatMul 'fc1' and Add 'fc1/bias'". */
void mp_vertex_title(const mp_vertex *v, char *text, size_t size);
/* How many inputs of nodes, and outputs of the graph, are this value; a condition of guards counts
 * once. */
int mp_graph_uses(const mp_graph *graph, int32_t value);
bool mp_graph_is_output(const mp_graph *graph, int32_t value);
bool mp_graph_is_condition(const mp_graph *graph, int32_t value);
/* Whether whatever guard `inner` allows is allowed by `outer`, too. */
bool mp_graph_guard_within(const mp_graph *graph, int32_t inner, int32_t outer);
/* Whoever reads `from` reads `to`: nodes, guards, and the graph's outputs where `outputs`. */
void mp_graph_replace(mp_graph *graph, int32_t from, int32_t to, bool outputs);
/* Puts another node in the place of node `n`, with its guard: as mp_graph_add_node, but for the
 * values that the old one made, which it may make, too. Others of those have no producer any more.
 * It stands for what the old one stood for. */
mp_status mp_graph_change_node(mp_graph *graph, int32_t n, const mp_node *node, const int32_t *in,
                               int in_count, const int32_t *out, int out_count);
/* Node `n` does the work of `other`, too, which may have been taken out: from now on it stands for
 * the nodes of the model that `other` stands for. */
mp_status mp_graph_absorb(mp_graph *graph, int32_t n, int32_t other);
/* At the end of a pass: a node that was changed absorbs those that were taken out and made what it
 * makes now, or what it read before; and in turn those that made what these read. Those that a pass
 * has had absorbed are left to the node that did. */
mp_status mp_graph_settle(mp_graph *graph);
/* Takes the node out; its outputs have no producer any more, and no users. */
void mp_graph_remove_node(mp_graph *graph, int32_t node);
/* Takes node `gone` out and changes node `n`, which may make what both made. Where it fails, both
 * are as they were. */
mp_status mp_graph_merge_node(mp_graph *graph, int32_t n, int32_t gone, const mp_node *node,
                              const int32_t *in, int in_count, const int32_t *out, int out_count);
/* Brings nodes into an order in which they can run, after a pass has added some; those that can
 * stay in their order do. Indexes of nodes change. */
mp_status mp_graph_sort(mp_graph *graph);
/* If nobody reads what the maker of `value` makes: takes it out, and in turn the makers of what it
 * read. */
void mp_graph_drop_unread(mp_graph *graph, int32_t value);
/* The same of all that a node read before it was changed or taken out. */
void mp_graph_drop_inputs(mp_graph *graph, const mp_vertex *was);
/* Closes the gaps that removed nodes left. Indexes of nodes change. */
void mp_graph_compact(mp_graph *graph);

#endif
