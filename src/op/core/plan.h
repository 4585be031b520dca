/* plan.h - an operator's work for given shapes: outputs, scratch memory, steps.
 *
 * Built by an operator's `plan` function through the mp_plan_* calls, in the order in which the
 * steps run. Addresses are not known yet: steps name tensors by mp_ref.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PLAN_H
#define MP_OP_PLAN_H

#include "device/collective.h"
#include "device/math.h"
#include "op/core/shape.h"

struct mp_node;
struct mp_table;

typedef struct mp_tensor {
    mp_dtype type; /* MP_NONE: an optional input that is absent */
    mp_shape shape;
    mp_addr data;  /* while planning: only of host inputs, borrowed for the call; otherwise 0 */
    int64_t pitch; /* elements from one row, of the last dimension, to the next where rows lie
                    * within longer ones, as mp_op.apart_in allows; 0: one lies behind the other */
    bool is_there; /* of an input of a Concat: its rows lie in the output, where they belong */
} mp_tensor;

/* Elements from one place to the next along each dimension. */
void mp_tensor_strides(const mp_tensor *x, int64_t stride[MP_RANK_MAX]);
/* The same along those of `out`, to which it broadcasts: 0 where it is repeated. */
void mp_tensor_broadcast_strides(const mp_tensor *x, const mp_shape *out,
                                 int64_t stride[MP_RANK_MAX]);

/* ---- naming memory before it exists ---- */

typedef enum mp_place {
    MP_PLACE_NONE,
    MP_PLACE_IN,
    MP_PLACE_OUT,
    MP_PLACE_SCRATCH,
    MP_PLACE_KEPT,  /* while finishing: the scratch memory of the plan that counted */
    MP_PLACE_RUN,   /* no memory: how many runs this plan has had, for random numbers */
    MP_PLACE_TABLE, /* `offset` is an address in the device's tables */
} mp_place;

typedef struct mp_ref {
    mp_place place;
    uint32_t index;  /* of the input or output */
    uint64_t offset; /* in bytes */
} mp_ref;

#define MP_IN(i)   ((mp_ref){MP_PLACE_IN, (uint32_t)(i), 0})
#define MP_OUT(i)  ((mp_ref){MP_PLACE_OUT, (uint32_t)(i), 0})
#define MP_NOWHERE ((mp_ref){MP_PLACE_NONE, 0, 0})
#define MP_KEPT    ((mp_ref){MP_PLACE_KEPT, 0, 0})
#define MP_RUN     ((mp_ref){MP_PLACE_RUN, 0, 0}) /* bound to a uint64_t */

static inline mp_ref mp_ref_at(mp_ref ref, uint64_t offset) {
    ref.offset += offset;
    return ref;
}

/* Which pointer of an argument struct is which tensor. */
typedef struct mp_bind {
    size_t field; /* offsetof the pointer */
    mp_ref ref;
} mp_bind;

#define MP_BIND(args_type, member, ref) ((mp_bind){offsetof(args_type, member), (ref)})

/* ---- the builder ---- */

typedef struct mp_plan mp_plan;

typedef struct mp_planner {
    mp_device *device;
    const struct mp_node *node;
    const mp_tensor *in; /* in_count of them */
    int in_count;
    int out_count; /* outputs the model names, trailing absent ones left out */
    int32_t align; /* bytes that every address will be a multiple of: 16, or 1 if not known */
    const int64_t *out_pitch; /* mp_tensor.pitch that each output has to get; NULL: 0 for all */
    mp_plan *plan;            /* being built */
} mp_planner;

/* The tensor of input i, or NULL where it is absent or beyond the end. */
const mp_tensor *mp_plan_in(const mp_planner *p, int i);

/* Whether the model has output i. */
bool mp_plan_wants(const mp_planner *p, int i);
/* Whether kernels may read what `ref` names before the steps before them have ended: a constant
 * input, or nothing. */
bool mp_plan_is_constant(const mp_planner *p, mp_ref ref);

/* Elements from one row of output `i` to the next, where they lie apart; 0 where they do not. */
static inline int64_t mp_plan_out_pitch(const mp_planner *p, int i) {
    return p->out_pitch != NULL ? p->out_pitch[i] : 0;
}

/* Declares output i. Call for each i < out_count; for an output the model leaves out it is allowed
 * and ignored. Fails: INVALID_ARGUMENT for a shape too large. */
mp_status mp_plan_output(mp_planner *p, int i, mp_dtype dtype, const mp_shape *shape);

/* Scratch memory of this run, aligned to MP_ALIGNMENT; its content is undefined. MP_NOWHERE for a
 * `size` of 0, so that what is written there fails and spoils nothing. */
mp_status mp_plan_scratch(mp_planner *p, size_t size, mp_ref *out);

/* The same for `count` elements, and for a tensor of `shape`. Fails on overflow. */
mp_status mp_plan_scratch_of(mp_planner *p, int64_t count, mp_dtype dtype, mp_ref *out);
mp_status mp_plan_scratch_shape(mp_planner *p, const mp_shape *shape, mp_dtype dtype, mp_ref *out);

/* What follows from attributes and lengths alone (table_cache.h), made here and now. `*out` is
 * MP_NOWHERE where the device keeps no more tables: the plan then makes it in scratch memory. */
mp_status mp_plan_table(mp_planner *p, const struct mp_table *table, mp_ref *out);

/* Bytes of `count` elements; fails on overflow. */
mp_status mp_plan_bytes(int64_t count, mp_dtype dtype, size_t *out);

/* A kernel instance by name, printf-style, without "mp_k_": mp_plan_kernel(p, &k, "cast_%s_%s",
 * mp_dtype_word(from), mp_dtype_word(to)). Fails: INTERNAL for a name that kernels.txt lacks. */
mp_status mp_plan_kernel(mp_planner *p, const mp_kernel **out, const char *format, ...)
    MP_PRINTF(3, 4);

/* A launch: `args` is copied, its bound pointers are filled in when the plan runs. */
mp_status mp__plan_launch(mp_planner *p, const mp_kernel *kernel, mp_grid grid, const void *args,
                          size_t args_size, const mp_bind *binds, size_t bind_count);
#define MP_LAUNCH(p, kernel, grid, args, ...)                                                     \
    mp__plan_launch((p), (kernel), (grid), &(args), sizeof(args), (const mp_bind[]){__VA_ARGS__}, \
                    sizeof((const mp_bind[]){__VA_ARGS__}) / sizeof(mp_bind))

/* The same with a table of bindings made by the caller, and with fewer argument bytes. */
#define MP_LAUNCH_BOUND(p, kernel, grid, args, size, binds, count) \
    mp__plan_launch((p), (kernel), (grid), (args), (size), (binds), (count))

/* A grid for a kernel without barriers over `count` elements of which a lane takes `per_lane`. */
mp_grid mp_plan_grid(const mp_planner *p, int64_t count, int per_lane);

/* The same for one that walks through memory from its beginning to its end, with as many blocks as
 * that takes: they come in turn, so that what is read at a time lies close together. Where there is
 * plenty a lane takes `ahead` times as much, which its kernel has on its way at once. */
mp_grid mp_plan_grid_stream(const mp_planner *p, int64_t count, int per_lane, int ahead);

/* A grid for a block kernel that deals `rows` to blocks of `lanes` (a power of two). */
mp_grid mp_plan_grid_rows(const mp_planner *p, int64_t rows, uint32_t lanes);

/* Copies bytes between places on the device; nothing happens where both turn out to be one. */
mp_status mp_plan_copy(mp_planner *p, mp_ref target, mp_ref source, size_t size);

/* Input `i` where it begins at a multiple of 16 bytes: a copy where it may not, and nowhere where
 * it is left out. */
mp_status mp_plan_aligned(mp_planner *p, int i, mp_ref *out);

/* `count` elements of `width` bytes (1, 2, 4) set to `value`. */
mp_status mp_plan_fill(mp_planner *p, mp_ref target, uint32_t value, size_t width, size_t count);

/* Bytes known while planning, for output i in host memory. */
mp_status mp_plan_host_output(mp_planner *p, int i, const void *bytes, size_t size);

/* Library math; workspace is arranged for. Unused operands are MP_NOWHERE. */
mp_status mp_plan_gemm(mp_planner *p, const mp_gemm *gemm, const mp_ref operands[MP_GEMM_OPERANDS]);

/* A convolution that steps of its own precede, which depend on whether the device can do it.
 * `*whole`: as conv_prepare of the device. mp_plan_conv_step takes `math`, also on failure. */
mp_status mp_plan_conv_prepare(mp_planner *p, const mp_conv *conv, mp_math **out, bool *whole);
mp_status mp_plan_conv_step(mp_planner *p, mp_math *math, const mp_ref operands[MP_CONV_OPERANDS]);
void mp_plan_conv_drop(mp_planner *p, mp_math *math);

/* Work of all ranks; source and target do not overlap. Small sums of ranks on one machine are made
 * by a kernel where that is possible when the plan runs (peer_sum_steps.h). */
mp_status mp_plan_collective(mp_planner *p, const mp_collective *what, mp_ref source,
                             mp_ref target);

/* For an operator with `finish`: that many int64_t at `source`, in scratch memory, are the values
 * that it is given. */
enum { MP_FOUND_MAX = 4 };
mp_status mp_plan_read_back(mp_planner *p, mp_ref source, int count);

/* ---- a finished plan ---- */

/* Plans `node` for these inputs. Gives: `*out` with one reference. Threads: any. Blocks: while
 * kernels compile. Fails: INVALID_ARGUMENT with a sentence that names the node. */
mp_status mp_plan_make(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                       int in_count, int out_count, int32_t align, mp_plan **out);
/* The same for outputs whose rows lie within longer ones, as mp_planner.out_pitch says. */
mp_status mp_plan_make_apart(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                             int in_count, int out_count, const int64_t *out_pitch, int32_t align,
                             mp_plan **out);
void mp_plan_retain(mp_plan *plan);
void mp_plan_release(mp_plan *plan);

/* Declared outputs. */
int mp_plan_output_count(const mp_plan *plan);
const mp_tensor *mp_plan_output_at(const mp_plan *plan, int i);
size_t mp_plan_scratch_bytes(const mp_plan *plan);
int mp_plan_step_count(const mp_plan *plan);
/* Whether all it does is to copy bytes of input 0, which begin at `*offset`, to output 0, its only
 * one. */
bool mp_plan_is_copy(const mp_plan *plan, size_t *offset);

/* Queues every step on `stream`; host outputs are written before it returns. `in` and `out` are
 * addresses in the order of the node, 0 for what the model leaves out: a step that would write
 * nothing else is left out too. `scratch` has mp_plan_scratch_bytes. Threads: any, at the same time
 * too. Blocks: no. */
mp_status mp_plan_run(const mp_plan *plan, mp_stream *stream, const mp_addr *in, const mp_addr *out,
                      mp_addr scratch);

/* What makes a constant input into the form that the operator wants it in: `in` has that input
 * alone, at place `i` of i + 1. Gives: `*out`, NULL where it is wanted as it is; run it with the
 * input's address at place `i`. Otherwise as mp_plan_make. */
mp_status mp_plan_prepare(mp_device *device, const struct mp_node *node, const mp_tensor *in, int i,
                          int32_t align, mp_plan **out);

/* ---- the two plans of an operator with `finish` ----
 * The first has no outputs and is run with its scratch memory, whose content then stays for the
 * second, which is made again for the values found. */

/* Runs the first plan and reads the values back, MP_FOUND_MAX of them at most. Blocks: until
 * `stream` gets there. Fails: UNSUPPORTED, with nothing queued, while `stream` is captured. */
mp_status mp_plan_run_count(const mp_plan *plan, mp_stream *stream, const mp_addr *in,
                            mp_addr scratch, int64_t found[MP_FOUND_MAX]);

/* What mp_plan_run_count reads back, for who does so himself: `*count` of int64_t, at this offset
 * of the scratch memory. */
uint64_t mp_plan_found_at(const mp_plan *plan, int *count);

/* As mp_plan_make, by `finish`. */
mp_status mp_plan_finish(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                         int in_count, int out_count, int32_t align,
                         const int64_t found[MP_FOUND_MAX], mp_plan **out);

/* As mp_plan_run, for the second plan; `kept` is the first one's scratch memory. */
mp_status mp_plan_run_finish(const mp_plan *plan, mp_stream *stream, const mp_addr *in,
                             const mp_addr *out, mp_addr scratch, mp_addr kept);

#endif
