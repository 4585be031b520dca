/* program.h - a graph planned for given shapes of its inputs: plans of its nodes in order, and a
 * place in memory for each value.
 *
 * What can be known without data is computed while planning (host_value.h): shapes, and values
 * that follow from shapes and constants. Every other value between two nodes lies in one block of
 * memory, those that do not live at the same time in the same place; a view and a part lie where
 * what they are of lies, a result where the input was that nobody else reads, and an output of the
 * graph where its caller wants it.
 *
 * Where data must be known to plan on (sizes that depend on it, a shape or a condition that was
 * computed on the device), the program ends: it is a segment. What it says is read back, which is
 * that, or fewer numbers from which it follows (program_ask.c), and the next segment is made for
 * it.
 *
 *     make -> run -> fetch -> wait -> continue -> run -> ... -> the last one
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PROGRAM_H
#define MP_GRAPH_PROGRAM_H

#include "graph/graph.h"

typedef struct mp_program mp_program;

/* Plans the graph for these inputs, in the graph's order: types and shapes; where `data` is set,
 * their values in host memory are known, too. `align`: bytes that the addresses of all inputs and
 * outputs will be multiples of, as for mp_plan_make. Constants that are read on the device must be
 * there (mp_value.device). `like`: a program of the graph for other inputs, or NULL; plans of nodes
 * for which nothing changed are taken over from it. Gives: `*out`, the first segment, with one
 * reference. Threads: any, if nobody changes the graph, which must outlive the program. Blocks:
 * while kernels compile. Fails: as mp_plan_make. */
mp_status mp_program_make(mp_device *device, const mp_graph *graph, const mp_tensor *in,
                          int32_t align, const mp_program *like, mp_program **out);
/* The same as one program with both branches of each If whose condition is not known, as steps that
 * run or are left out (device.h: branches). Where one branch cannot be planned for these shapes,
 * the other one is assumed to be taken. `*out` is NULL where all that cannot be: where branches
 * give other types or shapes, something else has to be read back, or values are drawn. Fails with
 * UNSUPPORTED where the device's graphs can have no branches, and there are some. */
mp_status mp_program_join(mp_device *device, const mp_graph *graph, const mp_tensor *in,
                          int32_t align, mp_program **out);
void mp_program_retain(mp_program *program);
void mp_program_release(mp_program *program); /* NULL is ignored */

/* Output `i` of the graph: type and shape; of type MP_NONE where a later segment makes it. */
const mp_tensor *mp_program_output_at(const mp_program *program, int i);
size_t mp_program_output_bytes(const mp_program *program, int i);
/* The input of the graph whose memory may be the output's, from its first byte to its last, as
 * caches of past and present keys often are; -1: it must share memory with none. */
int mp_program_over(const mp_program *program, int i);
/* Whether it is this segment that writes it. */
bool mp_program_writes(const mp_program *program, int i);
/* The bytes of output `i`, where they are known without running; else NULL. */
const void *mp_program_output_known(const mp_program *program, int i);
/* Bytes of the block of a run. */
size_t mp_program_block_bytes(const mp_program *program);
/* Bytes that were known while planning and are read on the device. The caller puts them there, at
 * a multiple of MP_ALIGNMENT, where they stay for as long as the program runs; NULL for none. */
const void *mp_program_literals(const mp_program *program, size_t *size);
int mp_program_step_count(const mp_program *program);
/* Nodes of a graph that it makes when it is captured, about. */
int64_t mp_program_launch_count(const mp_program *program);
/* Whether two runs may differ though their inputs are the same. */
bool mp_program_draws(const mp_program *program);
/* Whether steps of it run or are left out by conditions on the device. */
bool mp_program_has_branches(const mp_program *program);
/* How many conditions it assumes. Where one of them is not as assumed, a run's results mean
 * nothing, and the graph has to be run by segments. */
int mp_program_assumption_count(const mp_program *program);
/* Whether a condition of the graph, or what it follows from, is read back behind it. */
bool mp_program_waits_for_condition(const mp_program *program);

typedef struct mp_program_call {
    const mp_addr *in, *out; /* in the graph's order; outputs of 0 bytes may have none */
    mp_addr block, literals;
    const mp_addr
        *bases; /* memory that stays from one segment to the next; NULL where there is none */
    /* Of a program with branches, where its stream is not being captured: one byte of pinned memory
     * that no other run uses, and what is known of inputs on the host; entries may be NULL. */
    mp_addr pinned;
    const void *const *known;
} mp_program_call;

/* Queues the whole program on `stream`. To a profiler each step is a part of the thread's mark,
 * with its number and the nodes of the model that it is for: "7 [{"op_type":"MatMul",...}]".
 * Threads: any, at the same time too, each with a block of its own. Blocks: for each condition of a
 * program with branches, unless `stream` is being captured. */
mp_status mp_program_run(const mp_program *program, mp_stream *stream, const mp_program_call *call);

/* Queues copies of what it assumes, a byte each, to pinned memory, before the call's block is given
 * back. */
mp_status mp_program_fetch_assumptions(const mp_program *program, mp_stream *stream,
                                       const mp_program_call *call, mp_addr pinned);
/* Once these are there: whether all are as assumed. */
bool mp_program_assumed_right(const mp_program *program, const unsigned char *fetched);

/* ---- segments ---- */

bool mp_program_is_last(const mp_program *program);
/* How many bases there are once the program has run. The segment's own, of mp_program_kept_bytes,
 * is set by the caller before that. They stay until the last segment is queued. */
int mp_program_base_count(const mp_program *program);
int mp_program_base_own(const mp_program *program);
size_t mp_program_kept_bytes(const mp_program *program);

/* What the next segment is planned with: so many bytes in host memory, of which each read is a
 * part, and each result of a repeat one mp_tensor. */
size_t mp_program_found_bytes(const mp_program *program);
int mp_program_read_count(const mp_program *program);
typedef struct mp_program_span {
    size_t offset, bytes;
    int32_t input; /* of the graph, which is what is read; or -1 */
    mp_addr from;
} mp_program_span;
mp_program_span mp_program_read_at(const mp_program *program, int i, const mp_program_call *call);

/* Loops that are run between this segment and the next. */
typedef struct mp_program_round {
    const mp_loop *loop;
    const char *name; /* of the node */
    int32_t in_count, out_count;
    int32_t base;  /* of result 0; the others' follow */
    size_t offset; /* of result 0's tensor within what is found; the others' follow */
} mp_program_round;
int mp_program_repeat_count(const mp_program *program);
mp_program_round mp_program_repeat_at(const mp_program *program, int i);
/* Input `k` of repeat `i`: what is known of it, and where it lies; 0 where it is left out. */
const mp_tensor *mp_program_repeat_in(const mp_program *program, int i, int k);
mp_addr mp_program_repeat_addr(const mp_program *program, int i, int k,
                               const mp_program_call *call);

/* Plans on, with what has been found behind `before`. Otherwise as mp_program_make. */
mp_status mp_program_continue(mp_program *before, const void *found, const mp_program *like,
                              mp_program **out);

#endif
