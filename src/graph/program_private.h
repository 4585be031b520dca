/* program_private.h - what the files of a program share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PROGRAM_PRIVATE_H
#define MP_GRAPH_PROGRAM_PRIVATE_H

#include "graph/cluster.h"
#include "graph/host_value.h"
#include "graph/program.h"
#include "graph/rounds.h"

#include <stdatomic.h>

typedef enum mp_spot_kind {
    MP_SPOT_NONE,    /* nobody reads it on the device */
    MP_SPOT_IN,      /* input `index` of the graph */
    MP_SPOT_OUT,     /* output `index` of the graph */
    MP_SPOT_FIXED,   /* a constant, at the address `offset` */
    MP_SPOT_LITERAL, /* known while planning; in the literals */
    MP_SPOT_BLOCK,   /* in the block */
    MP_SPOT_BASE,    /* in base `index`: what a segment keeps for later ones, a result of a loop */
} mp_spot_kind;

typedef struct mp_spot {
    mp_spot_kind kind;
    int32_t index;
    uint64_t offset;
} mp_spot;

/* All that the plan of a node depends on beside the node: bytes `first` to `first + size` of the
 * program's recipes. */
typedef struct mp_recipe {
    size_t first, size;
} mp_recipe;

typedef enum mp_step_kind {
    MP_STEP_PLAN,
    MP_STEP_COUNT,  /* of a node whose sizes depend on data; its scratch memory is kept */
    MP_STEP_FINISH, /* of such a node, once they are known */
    MP_STEP_LOOP,   /* a body, over and over */
} mp_step_kind;

/* What a step is called, in all programs of a graph that have it in common. */
typedef struct mp_step_name {
    atomic_int references;
    char *title; /* owned: what errors and ranges call it */
    char *nodes; /* owned: the nodes of the model that it is for, as JSON (origin.h) */
} mp_step_name;

typedef struct mp_program_step {
    mp_step_kind kind;
    mp_plan *plan;      /* one reference; NULL of a loop */
    mp_rounds *rounds;  /* owned; of a loop */
    mp_step_name *name; /* one reference */
    mp_recipe recipe;   /* of the plan; empty of one that only this program can have */
    const mp_op *op;    /* of a cluster the one that runs expressions */
    int32_t *in, *out;  /* values, or MP_NO_VALUE; the program's */
    int32_t in_count, out_count;
    int32_t node;                      /* of the graph; of a cluster the first */
    int32_t branch;                    /* 1 + the innermost one that it is in; 0 for none */
    bool is_choice;                    /* brings the result of its branch to where a Choose's is */
    int32_t at;                        /* its place among all steps that were planned */
    mp_alias in_place[MP_ALIASES_MAX]; /* outputs that may lie where an input did */
    int in_place_count;
    int view_of;     /* 1 + the input whose memory output 0 may be; 0 for none */
    size_t scratch;  /* offset in the block; of MP_STEP_COUNT in what is kept */
    mp_spot counted; /* of MP_STEP_FINISH: the scratch memory of the step that counted */
} mp_program_step;

typedef struct mp_program_copy { /* an output that could not be written where it is wanted */
    int32_t value, output;
    int32_t step; /* that made the value; -1: none */
    size_t bytes;
} mp_program_copy;

typedef struct mp_program_read { /* what the next segment is planned with */
    int32_t value;               /* MP_NO_VALUE: what step `step` has counted */
    int32_t node, step;
    size_t bytes, offset; /* within what is found */
} mp_program_read;

/* Steps that run where a condition holds as wanted, which is not known while planning. */
typedef struct mp_program_branch {
    int32_t condition; /* a value */
    bool wanted;
    int32_t outer; /* as mp_program_step.branch */
    int32_t same;  /* the first branch of this condition, itself for that */
} mp_program_branch;

/* A condition that a program was planned for, since the other branch cannot be for these shapes. */
typedef struct mp_assumption {
    int32_t condition; /* a value */
    bool holds;
} mp_assumption;

enum { MP_ASSUMPTIONS_MOST = 8 };

typedef struct mp_assumptions {
    mp_assumption list[MP_ASSUMPTIONS_MOST];
    int count;
    bool is_new; /* there is one more since planning began: it begins again */
} mp_assumptions;

/* More than this is not joined to one program: a launch looks at each. */
enum { MP_BRANCHES_MOST = 128, MP_BRANCH_DEPTH_MOST = 8 };

typedef struct mp_program_repeat { /* a loop that runs behind the segment */
    int32_t node;
    int32_t base;  /* of its first result */
    size_t offset; /* of its results' tensors within what is found */
} mp_program_repeat;

struct mp_program {
    atomic_int references;
    mp_device *device;     /* borrowed */
    const mp_graph *graph; /* borrowed */
    mp_program *before;    /* one reference; the segment before this one, or NULL */
    int32_t align;
    int32_t value_count, step_count, copy_count, output_count;
    int32_t branch_count;
    mp_assumptions assumed;
    int32_t first_step; /* number of its first step, among those of all segments up to here */
    int32_t width;      /* the most inputs and outputs of a step */
    mp_spot *spots;     /* by value; owned, as all below */
    mp_program_step *steps;
    mp_program_branch *branches; /* NULL where none is possible */
    mp_program_copy *copies;
    mp_tensor *outputs; /* type MP_NONE: not known yet */
    bool *is_new;       /* by output: known since this segment */
    int32_t *over;      /* by output: 1 + the input in whose memory it may lie; 0 for none */
    size_t *output_bytes;
    int32_t *lists;   /* of all steps */
    int32_t *step_of; /* by node: the step that begins with it; -1 */
    unsigned char *recipes;
    size_t recipe_bytes, recipe_capacity;
    unsigned char *literals;
    size_t literal_bytes, block_bytes, kept_bytes;
    int32_t base_count; /* bases that are there when it has run; its own is the first of them */
    int32_t base_first;
    int64_t launches;
    bool draws;
    bool waits_for_condition;

    /* What the next segment begins with. */
    bool is_last;
    mp_tensor *tensors; /* by value; `data`: bytes in host memory, if they are known */
    bool *is_done;      /* by node */
    bool *is_dead;      /* by value: of a branch that is not taken */
    mp_host_values values;
    unsigned char *found; /* what was found when this segment was planned */
    mp_program_read *reads;
    mp_program_repeat *repeats;
    int32_t read_count, read_capacity, repeat_count;
    size_t found_bytes; /* that the next one is planned with */
};

/* What is known while a program is made. */
typedef struct mp_draft {
    const mp_graph *graph;
    mp_program *program;
    const mp_program *like; /* borrowed; of the same graph: what did not change is taken over; or
                               NULL */
    mp_tensor *tensors;     /* the program's */
    mp_tensor *work;        /* for the inputs and outputs of one node */
    int32_t *last;       /* by value: the last step that reads it; mp_draft_end for outputs; -1 */
    int32_t *first;      /* by value: the step that makes it; -1 */
    mp_node_fate *fates; /* by node: in this segment */
    bool *is_made;       /* by value: by a step of this segment */
    bool *is_wanted;     /* by value: on the device */
    bool *is_asked;      /* by value: on the host, by a node that waits for it */
    bool *is_again;      /* by value: the next segment computes it from what is read back */
    bool *outlives;      /* by value: its segment */
    size_t listed;       /* of the program's lists */
    int32_t *made_in;    /* by value: the branch that it is made in, where branches are joined */
    mp_assumptions *assumed; /* borrowed; NULL where branches are not joined */
    bool *strays;     /* by value: it lies within no other, whatever the graph says; borrowed;
                       * NULL: none does */
    int64_t *pitches; /* for the outputs of one node, or one cluster */
    bool asks;        /* for a value at least */
    bool joins;       /* both branches of conditions that are not known */
    bool gives_up;    /* they cannot be joined */
    bool has_strayed; /* there are more strays: it has to be planned again */
} mp_draft;

/* Behind all steps: there are no more than nodes, or, where branches are joined, twice as many. */
static inline int32_t mp_draft_end(const mp_draft *draft) {
    return (draft->joins ? 2 : 1) * draft->graph->node_count;
}

/* ---- program_draft.c ---- */

/* `assumed`: to join branches; NULL for segments. `like`: as for mp_program_make. */
mp_status mp_draft_open(mp_device *device, const mp_graph *graph, int32_t align,
                        mp_assumptions *assumed, const mp_program *like, mp_draft *draft);
void mp_draft_close(mp_draft *draft); /* the program stays */
/* Plans all that can be planned, and places it. */
mp_status mp_draft_plan(mp_draft *draft);

/* ---- program_node.c ---- */

/* Plans the node, if what it waits for is there; else asks for it. Of nodes that may be part of a
 * cluster only the result is settled. */
mp_status mp_draft_node(mp_draft *draft, int32_t node);

/* ---- program_ask.c ---- */

/* Something more is read back behind the segment; sets where it is within what is found. */
mp_status mp_draft_read(mp_draft *draft, mp_program_read read);

/* Once all nodes have been planned that can be: decides what is read back, if any value is asked
 * for, and takes nodes back that the next segment computes on the host. Not where the draft joins.
 */
mp_status mp_draft_ask(mp_draft *draft);

/* ---- program_step.c: adds a step ---- */

/* What a step reads and makes; `node`: the first of its nodes. */
typedef struct mp_step_ends {
    int32_t node;
    const int32_t *in, *out;
    int in_count, out_count;
} mp_step_ends;
/* Its lists are set; its plan is to come. */
mp_program_step *mp_draft_step_of(mp_draft *draft, const mp_step_ends *ends);
/* The same of a node alone. */
mp_program_step *mp_draft_step(mp_draft *draft, int32_t node, bool has_outputs);
/* Takes over what the step's plan says of its outputs. */
void mp_draft_set_planned(mp_draft *draft, const mp_program_step *step);
/* A step of one node with its plan, for these inputs. */
mp_status mp_draft_plan_step(mp_draft *draft, int32_t node, mp_tensor *in);
/* Names a step after the node of the graph that it is, or after all nodes of the model that it
 * stands for. Fails: OUT_OF_MEMORY (host). */
mp_status mp_program_name_node(mp_program_step *step, const mp_vertex *v);
mp_status mp_program_name_origins(mp_program_step *step, mp_origins origins, const char *title);
/* The name that a step of another program of the graph has. */
void mp_program_name_same(mp_program_step *step, const mp_program_step *same);
/* Frees what it owns. */
void mp_program_step_close(mp_program_step *step);

/* ---- program_within.c ---- */

bool mp_draft_lies_within(const mp_draft *draft, int32_t value);
/* mp_planner.out_pitch of a step that makes these values, until the next one is asked for. */
const int64_t *mp_draft_pitches(mp_draft *draft, const int32_t *out, int out_count);
/* Says of each input of a Concat, in `in`, whether it is there. */
void mp_draft_set_there(const mp_draft *draft, const mp_vertex *v, mp_tensor *in);
/* Whether all that a step reads and makes lies as its operator takes it. What does not is a stray.
 */
bool mp_draft_suits(mp_draft *draft, const mp_op *op, const mp_step_ends *ends);
/* What the step reads and makes lies nowhere else from now on; false where nothing does anyway. */
bool mp_draft_stray(mp_draft *draft, const mp_step_ends *ends);
/* Looks for strays in what is planned. */
void mp_draft_find_strays(mp_draft *draft);

/* ---- program_like.c: plans that a program has in common with one made before ---- */

/* The plan of a step, and where it comes from. */
typedef struct mp_step_plan {
    mp_plan *plan; /* one reference */
    mp_recipe recipe;
    const mp_program_step *same; /* of the program before, which has this plan; NULL: it is new */
} mp_step_plan;

/* What it depends on, too. */
typedef struct mp_step_form {
    const char *expression;   /* of a cluster; else NULL */
    const int64_t *out_pitch; /* as mp_planner.out_pitch */
} mp_step_form;

/* Takes the plan of `node` over from the program before, where that made it from the same inputs,
 * or else makes it. Fails: as mp_plan_make. */
mp_status mp_draft_step_plan(mp_draft *draft, const mp_step_ends *ends, const mp_node *node,
                             const mp_tensor *in, const mp_step_form *form, mp_step_plan *out);
/* The step of the program before that begins with `node`; NULL for none. */
const mp_program_step *mp_draft_like(const mp_draft *draft, int32_t node);
/* Numbers the steps, once they are all there, in their order. */
void mp_program_number(mp_program *program);

/* ---- program_cluster.c ---- */

/* Joins nodes to clusters, plans these, and brings all steps into the order in which they run. */
mp_status mp_draft_clusters(mp_draft *draft);

/* ---- program_branch.c: both branches in one program; only where the draft joins ---- */

/* Whether the value is a condition that is not known, so that both of its branches are planned. */
bool mp_draft_is_open(const mp_draft *draft, int32_t condition);
/* Sets what is assumed of the condition, if anything is; else it stays as it is. */
void mp_draft_take_assumption(const mp_draft *draft, int32_t condition);
/* A node of the guard cannot be planned: begins again, with its branch left out, if that can be. */
bool mp_draft_assume(mp_draft *draft, int32_t guard);
/* Plans a Choose of an open condition, both of whose results are there and alike. */
mp_status mp_draft_choice(mp_draft *draft, int32_t node);
/* Conditions are kept until steps are in branches: nobody else may read them. */
void mp_draft_keep_conditions(mp_draft *draft, bool kept);
/* Puts the steps into their branches, those of one branch side by side where they can be. */
mp_status mp_draft_branches(mp_draft *draft);
/* Whether branch `inner` is `outer`, or within it; as mp_program_step.branch. */
static inline bool mp_branch_is_within(const mp_program *program, int32_t inner, int32_t outer) {
    while (inner != outer && inner != 0) {
        inner = program->branches[inner - 1].outer;
    }
    return inner == outer;
}

/* ---- program_place.c: decides the spots, the block and the copies of outputs ---- */

mp_status mp_program_place(mp_draft *draft);

/* ---- program_part.c: values that lie within others ---- */

/* Whether output `o` of the step is a piece of what input 0 is, and where. */
bool mp_part_of_input(const mp_draft *draft, const mp_program_step *step, int o, size_t *offset);
/* Whether the inputs of the step lie in its output one behind the other. */
bool mp_joins_inputs(const mp_draft *draft, const mp_program_step *step);

/* ---- program_loop.c: loops that are known while planning ---- */

/* Plans a loop whose trip count and shapes are known before it runs. `*done` is false, with nothing
 * changed, where they are not. */
mp_status mp_rounds_plan(mp_draft *draft, int32_t node, const mp_tensor *in, bool *done);
/* What result `i` of the loop is. */
mp_tensor mp_rounds_output(const mp_rounds *rounds, int i);

/* ---- program_walk.c: in which branches a run is, and where its values are ---- */

mp_addr mp_spot_address(const mp_spot *spot, const mp_program_call *call);

/* One run of a program with branches, on its way through the steps. */
typedef struct mp_branch_walk {
    const mp_program *program;
    const mp_program_call *call;
    bool is_captured;
    int32_t open[MP_BRANCH_DEPTH_MOST];
    mp_stream *streams[MP_BRANCH_DEPTH_MOST + 1]; /* of no branch, and of each open one */
    int depth;
    int32_t skipped;                       /* the branch that is left out just now; 0: none */
    unsigned char found[MP_BRANCHES_MOST]; /* by branch `same`: 0 not read yet, else 1 + the byte */
} mp_branch_walk;

mp_status mp_branch_walk_open(mp_branch_walk *walk, const mp_program *program, mp_stream *stream,
                              const mp_program_call *call);
/* Where the step is queued; NULL: it is left out. Blocks: for a condition that it comes to, unless
 * the stream is being captured. */
mp_status mp_branch_walk_to(mp_branch_walk *walk, const mp_program_step *step, mp_stream **out);
/* Ends all branches that are open. */
mp_status mp_branch_walk_close(mp_branch_walk *walk);

#endif
