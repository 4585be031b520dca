/* rounds.h - a loop that is one step of a program: its trip count is known while planning, its
 * condition always holds, and no carried value changes its shape. The body is one program, which is
 * run over and over without waiting, so that it can be captured.
 *
 * Carried values alternate between two places, the last ones lie where the loop's results do, if
 * somebody reads these. Slices are read and written where they are. A slice whose size is no
 * multiple of the alignment goes by a copy, so that the body's kernels need not care.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_ROUNDS_H
#define MP_GRAPH_ROUNDS_H

#include "graph/program.h"

enum {
    MP_NUMBER_BYTES = 16, /* of an iteration's number, and of a condition, among the literals */
    /* Inputs and outputs of a Loop's body before those that are carried. */
    MP_LOOP_HEAD_IN = 2,
    MP_LOOP_HEAD_OUT = 1,
};

typedef struct mp_round_slice {
    size_t bytes;
    size_t aside; /* offset in the scratch memory; where `goes_aside`, or nobody reads it */
    bool goes_aside, backwards;
} mp_round_slice;

typedef struct mp_rounds {
    mp_program *body; /* one reference */
    bool is_scan;
    int64_t trips;
    int32_t carried, sliced, stacked, captured;
    mp_round_slice *slices; /* owned; sliced, then stacked */
    size_t *carried_bytes;  /* owned */
    size_t *places[2];      /* offsets in the scratch memory, by carried value; owned */
    size_t condition;       /* the same, of the body's condition */
    size_t block, scratch;
    size_t literal_at; /* within the program's */
    size_t body_literals;
} mp_rounds;

/* Input `i` of a Loop's body as that says it is: the number of the iteration (0) or the condition
 * (1), a scalar or a list of one element. */
mp_tensor mp_loop_head(const mp_loop *loop, int i);

/* Whether the body of a Loop gives the condition that it gets. */
bool mp_loop_hands_condition_on(const mp_loop *loop);

void mp_rounds_destroy(mp_rounds *rounds); /* NULL is ignored */
size_t mp_rounds_scratch(const mp_rounds *rounds);
/* Its part of the literals, at `at` of them; `to`: where to write it, or NULL. Returns the bytes.
 */
size_t mp_rounds_literals(mp_rounds *rounds, size_t at, unsigned char *to);
mp_status mp_rounds_run(const mp_rounds *rounds, mp_device *device, mp_stream *stream,
                        const mp_addr *in, const mp_addr *out, mp_addr scratch, mp_addr literals);

#endif
