/* island.h - a group of nodes that ONNX Runtime runs as one.
 *
 *     claim.c    which nodes                       while the session is made
 *     import.c   OrtGraph -> mp_graph
 *     weights.c  constants on the device, for all islands of the session
 *     island.c   what ONNX Runtime sees: compiled, and let go
 *     island_ahead.c   programs for shapes that will come next
 *     island_run.c   one run: inputs, outputs, errors
 *     island_walk.c  its segments, one behind the other
 *     island_loop.c  loops between segments
 *     island_keep.c  what stays on the device between runs, and goes where memory is short
 *     island_name.c, island_note.c   what it is called, and what it does, for people
 *
 * A loop's body is an island of its own, which ONNX Runtime does not see.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ISLAND_H
#define MP_EP_ISLAND_H

#include "ep/session/plugin.h"
#include "graph/program.h"

enum { MP_ISLAND_INSTANCES_MAX = 8 };

/* The program as a captured graph, with the addresses of one run. See island_instance.c. */
typedef struct mp_island_instance {
    mp_graph_exec *exec; /* owned; NULL: seen, but not captured */
    mp_addr *addresses;  /* owned; inputs, outputs, block, bases */
    unsigned runs;       /* with these addresses */
    uint64_t listener;   /* for whom it was captured: see mp_profile_listener */
    uint64_t last;       /* when it was last used, in runs of the program */
    bool busy;           /* a thread launches it */
} mp_island_instance;

/* A list of programs, the last used first. */
typedef struct mp_shelf {
    struct mp_island_program **list; /* owned, both */
    int count;
    size_t capacity;
    int most; /* are kept */
} mp_shelf;

/* A program for one set of shapes, or one that goes on for what was found. What is below `users` is
 * guarded by the island's lock, but for what is atomic and `literals`, which stay while there are
 * users. */
typedef struct mp_island_program {
    mp_program *program; /* one reference */
    mp_addr literals;    /* owned; 0 for none, and where they were given back */
    void *key;           /* owned; see island_program.c */
    size_t key_bytes;
    uint64_t hash;
    size_t *in_bytes; /* owned; of the graph's inputs; NULL of one that goes on */
    mp_shelf next;    /* what goes on behind it; guarded as the list that it is on */
    struct mp_island_program
        *joined;                     /* owned; the same with both branches of Ifs; NULL: none yet */
    struct mp_island_program *owner; /* of a joined one: borrowed, and used where that is */
    atomic_uint waits;               /* runs that waited for a condition behind it */
    atomic_uint misses;              /* runs of a joined one that assumed what was not so */
    atomic_bool never_joined;        /* it cannot be */
    int users;                       /* runs that queue it now */
    size_t kept_bytes;               /* of literals and graphs on the device */
    uint64_t last;                   /* when it was last used, in runs of the session's islands */
    bool is_out;                     /* of the list; the last user frees it */
    atomic_bool never_captured;      /* it cannot be */
    uint64_t runs;
    mp_island_instance instances[MP_ISLAND_INSTANCES_MAX];
    int instance_count;
} mp_island_program;

typedef struct mp_island_ahead mp_island_ahead;

typedef struct mp_island_body {
    const mp_loop *loop;
    struct mp_island *island; /* owned */
} mp_island_body;

typedef struct mp_island {
    OrtNodeComputeInfo base; /* first; unused in that of a loop's body */
    mp_provider *provider;
    mp_graph *graph;        /* owned, but that of a loop's body */
    mp_island_body *bodies; /* owned */
    int32_t body_count;
    bool is_body;
    int32_t *sources; /* owned; of the graph's inputs: which of ONNX Runtime's; NULL: the same */
    int node_count;   /* of its graph as imported */
    char *name;       /* owned: "island 0 (17 nodes: first .. last)" */
    char *event;      /* owned; what ONNX Runtime calls it */
    mp_label label;   /* of its memory, for the pool's trace */
    mp_label *out_labels; /* owned; of its outputs' */
    int number;           /* in the session; a body has that of its island */
    int64_t rewrites;     /* of its passes */
    char *nodes;   /* owned; JSON (origin.h) of all, before the passes; NULL: nobody will ask */
    char *before;  /* owned; text of the graph before the passes; NULL: nobody will ask */
    mp_note *note; /* owned; the layout of its block, by its label; NULL for none */
    struct mp_island *next; /* of the session's, see island_note.h; guarded by their lock */
    pthread_mutex_t lock;
    mp_shelf programs;
    mp_island_ahead *ahead; /* owned; NULL before the first run, see island_ahead.c */
    bool never_ahead;       /* nothing is planned before it is needed */
} mp_island;

/* Sets Compile and what belongs to it. */
void mp__islands_install(mp_provider *provider);

/* island_program.c: the program for these inputs, made where there is none. `align` as for
 * mp_program_make. Once some runs have waited for a condition, it is one with both branches, where
 * that can be; at once in sessions with graphs of the user's. Gives: `*out`, to be dropped.
 * Threads: any. Blocks: while it is made. */
mp_status mp__island_program_get(mp_island *island, const mp_tensor *in, int32_t align,
                                 mp_island_program **out);
/* The one behind `before`, for what has been found. The program before it must be held meanwhile.
 */
mp_status mp__island_program_next(mp_island *island, mp_island_program *before, const void *found,
                                  mp_island_program **out);
void mp__island_program_drop(mp_island *island, mp_island_program *program);
/* Whether get would find one. */
bool mp__island_program_has(mp_island *island, const mp_tensor *in, int32_t align);
/* Makes it where there is none, for a run to come, which makes it where this fails. Threads: any.
 */
void mp__island_program_prepare(mp_island *island, const mp_tensor *in, int32_t align);
void mp__island_programs_close(mp_island *island);

/* island_ahead.c: a run has these inputs. Where they go on growing as they did, the program for the
 * next ones is prepared in the background. */
void mp__island_ahead_saw(mp_island *island, const mp_tensor *in, int32_t align);
/* Returns when nothing is prepared any more. */
void mp__island_ahead_close(mp_island *island);

/* island_instance.c: queues the program as one launch, where it has been run with these addresses
 * before; captures it where that is due. Returns false, with nothing queued, where it has to be
 * walked through. */
bool mp__island_launch(mp_island *island, mp_island_program *p, mp_stream *stream,
                       const mp_program_call *call);

/* ---- island_keep.c: what stays between runs ---- */

/* What was a program's, and is to be given back. */
typedef struct mp_island_rest {
    mp_graph_exec *graphs[MP_ISLAND_INSTANCES_MAX];
    int graph_count;
    mp_addr literals;
} mp_island_rest;

/* The session has islands, or more of them: memory that they keep can be had back by the pool. */
mp_status mp__island_keep_open(mp_provider *provider);
/* The session ends, and has no islands any more. */
void mp__island_keep_close(mp_provider *provider);

/* The program keeps so many bytes more, or less, from now on. With the island's lock held. */
void mp__island_keeps(const mp_island *island, mp_island_program *p, size_t more, size_t less);
/* The next run of the session's islands: its number. */
uint64_t mp__island_tick(const mp_island *island);
/* Takes all that a program keeps. With the island's lock held, unless nobody else knows it. */
void mp__island_take(const mp_island *island, mp_island_program *p, mp_island_rest *rest);
/* Gives it back. Blocks: until what is queued on the session's streams has ended, if there is
 * anything. */
void mp__island_rest_drop(const mp_provider *provider, const mp_island_rest *rest);

/* Takes from programs that no run queues now until no more is kept than the session's options say;
 * those first that were used longest ago. */
void mp__islands_bound(mp_provider *provider);
/* Takes from all of them. Returns whether there was anything. */
bool mp__islands_shed(mp_provider *provider);

/* island_name.c: names the island and its memory; its graph is as imported. Fails: OUT_OF_MEMORY.
 */
mp_status mp__island_name(mp_island *island, const OrtNode *fused);
/* The same of the body of `loop`, a node of the island `around`. */
mp_status mp__island_name_body(mp_island *body, const mp_island *around, const mp_vertex *loop);

/* ---- island_walk.c: one run, segment by segment ---- */

typedef struct mp_walk {
    mp_island *island;
    mp_stream *stream;
    void *native;      /* of the stream */
    const mp_addr *in; /* in the graph's order, as all here */
    const void *
        *known;   /* what is known of inputs on the host: entries may be NULL, and so may it */
    mp_addr *out; /* begin as 0 */
    /* Gives memory for output `i`, which will be written next. Sets out[i]. */
    mp_status (*output)(struct mp_walk *walk, const mp_program *program, int i);
    mp_addr *bases; /* owned; memory that stays until the end */
    int base_count;
    size_t base_capacity;
    mp_island_program **programs; /* owned; held, but for the first one */
    int depth;
    size_t depth_capacity;
    bool has_waited; /* for values on the device */
    bool is_again;   /* all outputs have been asked for */
} mp_walk;

/* Asks for the outputs that the program writes, unless the walk has them. */
mp_status mp__walk_outputs(mp_walk *walk, const mp_program *program);
/* Queues the program, for which outputs have been asked, and whatever comes behind it. Blocks:
 * where what comes behind it depends on data. */
mp_status mp__walk(mp_walk *walk, mp_island_program *first);
/* The last program of the walk. */
const mp_program *mp__walk_end(const mp_walk *walk, const mp_island_program *first);
/* Frees what the walk holds, in the order of its stream; also where it has failed. */
mp_status mp__walk_close(mp_walk *walk);

/* ---- island_loop.c ---- */

/* Runs loop `i` of those behind `program`: sets its bases, which the walk owns, and writes its
 * results' tensors to `found`. Blocks: where its condition, or a size, depends on data. */
mp_status mp__walk_loop(mp_walk *walk, const mp_program *program, int i,
                        const mp_program_call *call, unsigned char *found);

/* island_run.c */
OrtStatus *mp__island_compute(OrtNodeComputeInfo *self, void *state, OrtKernelContext *context);

#endif
