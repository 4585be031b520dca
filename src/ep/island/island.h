/* island.h - a group of nodes that ONNX Runtime runs as one.
 *
 *     claim.c    which nodes                       while the session is made
 *     import.c   OrtGraph -> mp_graph
 *     weights.c  constants on the device
 *     island.c   what ONNX Runtime sees: compiled, and let go
 *     island_run.c   one run: a program for its shapes, its block, its outputs
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ISLAND_H
#define MP_EP_ISLAND_H

#include "ep/island/weights.h"
#include "graph/program.h"

enum { MP_ISLAND_INSTANCES_MAX = 8 };

/* The program as a captured graph, with the addresses of one run. See island_instance.c. */
typedef struct mp_island_instance {
    mp_graph_exec *exec; /* owned; NULL: seen, but not captured */
    mp_addr *addresses;  /* owned; inputs, outputs, block */
    unsigned runs;       /* with these addresses */
    uint64_t last;       /* when it was last used, in runs of the program */
    bool busy;           /* a thread launches it */
} mp_island_instance;

/* A program for one set of shapes. */
typedef struct mp_island_program {
    mp_program *program; /* one reference */
    mp_addr literals;    /* owned; 0 for none */
    int64_t *key;        /* owned; see island_program.c */
    size_t key_words;
    int users;           /* runs that queue it now */
    bool is_out;         /* of the list; the last user frees it */
    bool never_captured; /* it cannot be, or is not worth it */
    uint64_t runs;
    mp_island_instance instances[MP_ISLAND_INSTANCES_MAX];
    int instance_count;
} mp_island_program;

enum { MP_ISLAND_PROGRAMS_MAX = 32 };

typedef struct mp_island {
    OrtNodeComputeInfo base; /* first */
    mp_provider *provider;
    mp_graph *graph;    /* owned */
    mp_weights weights; /* owned */
    char *name;         /* owned; on a profiler's timeline */
    mp_label label;     /* of its memory, for the pool's trace */
    pthread_mutex_t lock;
    mp_island_program *programs[MP_ISLAND_PROGRAMS_MAX]; /* owned; the last used first */
    int program_count;
} mp_island;

/* Sets Compile and what belongs to it. */
void mp__islands_install(mp_provider *provider);

/* island_program.c: the program for these inputs, made where there is none. `align` as for
 * mp_program_make. Gives: `*out`, to be dropped. Threads: any. Blocks: while it is made. */
mp_status mp__island_program_get(mp_island *island, const mp_tensor *in, int32_t align,
                                 mp_island_program **out);
void mp__island_program_drop(mp_island *island, mp_island_program *program);
/* Whether get would find one. */
bool mp__island_program_has(mp_island *island, const mp_tensor *in, int32_t align);
void mp__island_programs_close(mp_island *island);

/* island_instance.c: queues the program as one launch, where it has been run with these addresses
 * before; captures it where that is due. `*done` is false, with nothing queued, where it has to be
 * walked through. */
mp_status mp__island_launch(mp_island *island, mp_island_program *p, mp_stream *stream,
                            const mp_program_call *call, bool *done);
/* Blocks: until what is queued on the session's streams has ended, if there are any. */
void mp__island_instances_close(const mp_island *island, mp_island_program *p);

/* island_run.c */
OrtStatus *mp__island_compute(OrtNodeComputeInfo *self, void *state, OrtKernelContext *context);

#endif
