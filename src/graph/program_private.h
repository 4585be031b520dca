/* program_private.h - what the files of a program share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PROGRAM_PRIVATE_H
#define MP_GRAPH_PROGRAM_PRIVATE_H

#include "graph/program.h"

#include <stdatomic.h>

typedef enum mp_spot_kind {
    MP_SPOT_NONE,    /* nobody reads it on the device */
    MP_SPOT_IN,      /* input `index` of the graph */
    MP_SPOT_OUT,     /* output `index` of the graph */
    MP_SPOT_FIXED,   /* a constant, at the address `offset` */
    MP_SPOT_LITERAL, /* known while planning; `offset` in the literals */
    MP_SPOT_BLOCK,   /* `offset` in the block */
} mp_spot_kind;

typedef struct mp_spot {
    mp_spot_kind kind;
    int32_t index;
    uint64_t offset;
} mp_spot;

typedef struct mp_program_step {
    mp_plan *plan;     /* one reference */
    int32_t *in, *out; /* values, or MP_NO_VALUE; the program's */
    int32_t in_count, out_count;
    int32_t node;   /* of the graph */
    size_t scratch; /* offset in the block */
} mp_program_step;

typedef struct mp_program_copy { /* an output that could not be written where it is wanted */
    int32_t value, output;
    size_t bytes;
} mp_program_copy;

struct mp_program {
    atomic_int references;
    mp_device *device; /* borrowed */
    int32_t value_count, step_count, copy_count, output_count;
    int32_t width;  /* the most inputs and outputs of a step */
    mp_spot *spots; /* by value; owned, as all below */
    mp_program_step *steps;
    mp_program_copy *copies;
    mp_tensor *outputs;
    int32_t *lists; /* of all steps */
    unsigned char *literals;
    size_t literal_bytes, block_bytes;
    bool draws;
};

/* What is known while a program is made. */
typedef struct mp_draft {
    const mp_graph *graph;
    mp_program *program;
    mp_tensor *tensors; /* by value; `data`: bytes in host memory, if they are known */
    mp_tensor *work;    /* for the inputs and outputs of one node */
    int32_t *last;      /* by value: the last node that reads it; node_count for outputs */
    int32_t *first;     /* by value: the node that makes it; -1 */
    bool *is_made;      /* by value: by a step */
    bool *is_wanted;    /* by value: on the device */
} mp_draft;

/* program_place.c: decides the spots, the block and the copies of outputs. */
mp_status mp_program_place(mp_draft *draft);

#endif
