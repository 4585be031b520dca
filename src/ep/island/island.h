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

/* A program for one set of shapes. */
typedef struct mp_island_program {
    mp_program *program; /* one reference */
    mp_addr literals;    /* owned; 0 for none */
    int64_t *key;        /* owned; see island_program.c */
    size_t key_words;
    int users;   /* runs that queue it now */
    bool is_out; /* of the list; the last user frees it */
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

/* island_run.c */
OrtStatus *mp__island_compute(OrtNodeComputeInfo *self, void *state, OrtKernelContext *context);

#endif
