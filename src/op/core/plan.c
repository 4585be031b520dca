/* plan.c - builds plans and runs them.
 *
 * A plan is one growing byte buffer of records, each a `step` followed by its arguments and
 * bindings, so that running it is one walk over memory in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/plan.h"

#include "op/core/kernel_cache.h"
#include "op/core/op.h"
#include "op/core/table_cache.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGS_MAX = 4096, GRID_BLOCKS_MAX = 65535 * 16 };

typedef enum step_kind { STEP_LAUNCH, STEP_COPY, STEP_FILL, STEP_HOST, STEP_MATH } step_kind;

typedef struct step {
    step_kind kind;
    uint32_t size; /* of the whole record, a multiple of 16 */
    union {
        struct {
            const mp_kernel *kernel;
            mp_grid grid;
            uint32_t args_size;
            uint32_t bind_count;
        } launch; /* then: the arguments, padded to 16; the bindings */
        struct {
            mp_ref target, source;
            size_t size;
        } copy;
        struct {
            mp_ref target;
            uint32_t value;
            size_t width, count;
        } fill;
        struct {
            uint32_t index;
            size_t size;
        } host; /* then: the bytes */
        struct {
            mp_math *math; /* owned by the plan */
            mp_ref operands[MP_MATH_OPERANDS_MAX];
            mp_ref workspace;
        } math;
    };
} step;

struct mp_plan {
    atomic_int references;
    atomic_ullong runs; /* started so far */
    mp_device *device;  /* borrowed */
    int out_count;
    int step_count;
    mp_tensor *out; /* owned; type MP_NONE until declared */
    size_t scratch;
    mp_ref found; /* what is read back after a run */
    int found_count;
    size_t used, capacity;
    unsigned char *steps; /* owned */
};

static size_t padded(size_t size) {
    return (size + 15) & ~(size_t)15;
}

/* ---- building ---- */

const mp_tensor *mp_plan_in(const mp_planner *p, int i) {
    return i < p->in_count && p->in[i].type != MP_NONE ? &p->in[i] : NULL;
}

bool mp_plan_wants(const mp_planner *p, int i) {
    return i < p->out_count && (i > 31 || (p->node->out_absent >> i & 1) == 0);
}

mp_status mp_plan_output(mp_planner *p, int i, mp_dtype dtype, const mp_shape *shape) {
    if (i >= p->out_count) {
        return MP_OK;
    }
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(shape, dtype, &bytes));
    p->plan->out[i] = (mp_tensor){.type = dtype, .shape = *shape};
    return MP_OK;
}

mp_status mp_plan_scratch(mp_planner *p, size_t size, mp_ref *out) {
    size_t end = 0;
    if (__builtin_add_overflow(p->plan->scratch, size, &end) || end > SIZE_MAX - MP_ALIGNMENT) {
        return MP_FAIL(INVALID_ARGUMENT, "%zu bytes of scratch memory are too many", size);
    }
    *out = size > 0 ? (mp_ref){MP_PLACE_SCRATCH, 0, p->plan->scratch} : MP_NOWHERE;
    p->plan->scratch = (end + MP_ALIGNMENT - 1) & ~(size_t)(MP_ALIGNMENT - 1);
    return MP_OK;
}

mp_status mp_plan_scratch_of(mp_planner *p, int64_t count, mp_dtype dtype, mp_ref *out) {
    size_t bytes = 0;
    MP_TRY(mp_plan_bytes(count, dtype, &bytes));
    return mp_plan_scratch(p, bytes, out);
}

mp_status mp_plan_table(mp_planner *p, const mp_table *table, mp_ref *out) {
    mp_addr addr = 0;
    MP_TRY(mp_table_cache_get(p->device, table, &addr));
    *out = addr != 0 ? (mp_ref){MP_PLACE_TABLE, 0, addr} : MP_NOWHERE;
    return MP_OK;
}

mp_status mp_plan_read_back(mp_planner *p, mp_ref source, int count) {
    if (p->node->op->finish == NULL || count < 1 || count > MP_FOUND_MAX ||
        source.place != MP_PLACE_SCRATCH) {
        return MP_FAIL(INTERNAL, "a plan cannot read %d values back", count);
    }
    p->plan->found = source;
    p->plan->found_count = count;
    return MP_OK;
}

mp_status mp_plan_bytes(int64_t count, mp_dtype dtype, size_t *out) {
    const mp_shape shape = {.rank = 1, .dim = {count}};
    return mp_shape_bytes(&shape, dtype, out);
}

mp_status mp_plan_kernel(mp_planner *p, const mp_kernel **out, const char *format, ...) {
    char name[128];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof name) {
        return MP_FAIL(INTERNAL, "the kernel name '%s...' is too long", name);
    }
    return mp_kernel_cache_get(p->device, name, out);
}

/* A fresh record with `extra` bytes behind it. The pointer holds until the next record. */
static mp_status add_step(mp_planner *p, step_kind kind, size_t extra, step **out) {
    mp_plan *plan = p->plan;
    const size_t size = padded(sizeof(step)) + padded(extra);
    if (size > UINT32_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "a step with %zu bytes of arguments is too large", extra);
    }
    if (plan->capacity - plan->used < size) {
        const size_t capacity = plan->capacity + (plan->capacity > size ? plan->capacity : size);
        unsigned char *grown = realloc(plan->steps, capacity);
        if (grown == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a plan of %zu bytes",
                           capacity);
        }
        plan->steps = grown;
        plan->capacity = capacity;
    }
    step *fresh = (step *)(void *)(plan->steps + plan->used);
    memset(fresh, 0, size);
    fresh->kind = kind;
    fresh->size = (uint32_t)size;
    plan->used += size;
    plan->step_count++;
    *out = fresh;
    return MP_OK;
}

static void *behind(const step *at) {
    return (char *)(uintptr_t)at + padded(sizeof *at);
}

mp_status mp__plan_launch(mp_planner *p, const mp_kernel *kernel, mp_grid grid, const void *args,
                          size_t args_size, const mp_bind *binds, size_t bind_count) {
    if (args_size > ARGS_MAX) {
        return MP_FAIL(INTERNAL, "%zu bytes of kernel arguments exceed %d", args_size, ARGS_MAX);
    }
    const size_t binds_size = bind_count * sizeof *binds;
    step *fresh = NULL;
    MP_TRY(add_step(p, STEP_LAUNCH, padded(args_size) + binds_size, &fresh));
    fresh->launch.kernel = kernel;
    fresh->launch.grid = grid;
    fresh->launch.args_size = (uint32_t)args_size;
    fresh->launch.bind_count = (uint32_t)bind_count;
    memcpy(behind(fresh), args, args_size);
    memcpy((char *)behind(fresh) + padded(args_size), binds, binds_size);
    return MP_OK;
}

mp_grid mp_plan_grid(const mp_planner *p, int64_t count, int per_lane) {
    enum { LANES = 256 };
    const int64_t each = (int64_t)LANES * per_lane;
    const int64_t wanted = count / each + (count % each != 0);
    /* Enough blocks to fill the device several times over; the loop in the kernel does the rest. */
    const int64_t most = (int64_t)p->device->info.multiprocessors * 32;
    const int64_t blocks = wanted < most ? wanted : most;
    return (mp_grid){.blocks = blocks > 0 ? (uint32_t)blocks : 1, .lanes = LANES};
}

mp_grid mp_plan_grid_rows(const mp_planner *p, int64_t rows, uint32_t lanes) {
    (void)p;
    const int64_t blocks = rows < GRID_BLOCKS_MAX ? rows : GRID_BLOCKS_MAX;
    return (mp_grid){.blocks = blocks > 0 ? (uint32_t)blocks : 1, .lanes = lanes};
}

mp_status mp_plan_copy(mp_planner *p, mp_ref target, mp_ref source, size_t size) {
    if (size == 0) {
        return MP_OK;
    }
    step *fresh = NULL;
    MP_TRY(add_step(p, STEP_COPY, 0, &fresh));
    fresh->copy.target = target;
    fresh->copy.source = source;
    fresh->copy.size = size;
    return MP_OK;
}

mp_status mp_plan_fill(mp_planner *p, mp_ref target, uint32_t value, size_t width, size_t count) {
    if (count == 0) {
        return MP_OK;
    }
    step *fresh = NULL;
    MP_TRY(add_step(p, STEP_FILL, 0, &fresh));
    fresh->fill.target = target;
    fresh->fill.value = value;
    fresh->fill.width = width;
    fresh->fill.count = count;
    return MP_OK;
}

mp_status mp_plan_host_output(mp_planner *p, int i, const void *bytes, size_t size) {
    if (i >= p->out_count || size == 0) {
        return MP_OK;
    }
    step *fresh = NULL;
    MP_TRY(add_step(p, STEP_HOST, size, &fresh));
    fresh->host.index = (uint32_t)i;
    fresh->host.size = size;
    memcpy(behind(fresh), bytes, size);
    return MP_OK;
}

/* Takes: `math`, also on failure. */
static mp_status add_math(mp_planner *p, mp_math *math, const mp_ref *operands, int count) {
    mp_ref workspace = MP_NOWHERE;
    const size_t bytes = p->device->ops->math_workspace(p->device, math);
    mp_status status = bytes > 0 ? mp_plan_scratch(p, bytes, &workspace) : MP_OK;
    step *fresh = NULL;
    if (status == MP_OK) {
        status = add_step(p, STEP_MATH, 0, &fresh);
    }
    if (status != MP_OK) {
        p->device->ops->math_release(p->device, math);
        return status;
    }
    fresh->math.math = math;
    fresh->math.workspace = workspace;
    memcpy(fresh->math.operands, operands, (size_t)count * sizeof *operands);
    return MP_OK;
}

mp_status mp_plan_gemm(mp_planner *p, const mp_gemm *gemm,
                       const mp_ref operands[MP_GEMM_OPERANDS]) {
    mp_math *math = NULL;
    mp_gemm tuned = *gemm;
    tuned.tune = p->node->options.tune;
    tuned.tune_ms = p->node->options.tune_ms;
    MP_TRY(p->device->ops->gemm_prepare(p->device, &tuned, &math));
    return add_math(p, math, operands, MP_GEMM_OPERANDS);
}

mp_status mp_plan_conv(mp_planner *p, const mp_conv *conv,
                       const mp_ref operands[MP_CONV_OPERANDS]) {
    mp_math *math = NULL;
    MP_TRY(mp_plan_conv_prepare(p, conv, &math));
    return mp_plan_conv_step(p, math, operands);
}

mp_status mp_plan_conv_prepare(mp_planner *p, const mp_conv *conv, mp_math **out) {
    return p->device->ops->conv_prepare(p->device, conv, out);
}

mp_status mp_plan_conv_step(mp_planner *p, mp_math *math, const mp_ref operands[MP_CONV_OPERANDS]) {
    return add_math(p, math, operands, MP_CONV_OPERANDS);
}

void mp_plan_conv_drop(mp_planner *p, mp_math *math) {
    p->device->ops->math_release(p->device, math);
}

/* ---- life of a plan ---- */

/* After this, products of the dimensions of one input do not overflow. */
static mp_status check_inputs(const mp_op *op, const mp_tensor *in, int in_count) {
    for (int i = 0; i < in_count; i++) {
        size_t bytes = 0;
        if (in[i].type == MP_NONE && op->variadic) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "input %d of %d is left out; this operator needs each of its inputs", i,
                           in_count);
        }
        if (in[i].type != MP_NONE) {
            MP_TRY(mp_shape_bytes(&in[i].shape, in[i].type, &bytes));
        }
    }
    return MP_OK;
}

static mp_status check_outputs(const mp_plan *plan) {
    for (int i = 0; i < plan->out_count; i++) {
        if (plan->out[i].type == MP_NONE) {
            return MP_FAIL(UNSUPPORTED, "output %d is not one that this operator computes", i);
        }
    }
    return MP_OK;
}

/* Which of an operator's functions lists the steps, and what for. */
typedef struct purpose {
    const int64_t *found; /* what is to be finished with; NULL otherwise */
    int prepared;         /* the input that is to be prepared; -1 otherwise */
} purpose;

static mp_status list_steps(mp_planner *planner, purpose why) {
    const mp_op *op = planner->node->op;
    if (why.prepared >= 0) {
        return op->prepare(planner, why.prepared);
    }
    if (why.found == NULL) {
        MP_TRY(op->plan(planner));
        if (op->finish == NULL) {
            return check_outputs(planner->plan);
        }
        return planner->plan->found_count > 0
                   ? MP_OK
                   : MP_FAIL(INTERNAL, "%s finds nothing to finish with", op->name);
    }
    if (op->finish == NULL) {
        return MP_FAIL(INTERNAL, "%s has nothing to finish", op->name);
    }
    MP_TRY(op->finish(planner, why.found));
    return check_outputs(planner->plan);
}

static mp_status make(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                      int in_count, int out_count, int32_t align, purpose why, mp_plan **out) {
    mp_plan *plan = calloc(1, sizeof *plan);
    mp_tensor *outputs = calloc(out_count > 0 ? (size_t)out_count : 1, sizeof *outputs);
    if (plan == NULL || outputs == NULL) {
        free(plan);
        free(outputs);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a plan of %s",
                       node->op->name);
    }
    plan->references = 1;
    plan->device = device;
    plan->out_count = out_count;
    plan->out = outputs;
    mp_planner planner = {.device = device,
                          .node = node,
                          .in = in,
                          .in_count = in_count,
                          .out_count = out_count,
                          .align = align,
                          .plan = plan};
    mp_status status = check_inputs(node->op, in, in_count);
    if (status == MP_OK) {
        status = list_steps(&planner, why);
    }
    if (status != MP_OK) {
        (void)mp__fail(status, "%s%s%s%s: %s", node->op->name, node->name[0] != '\0' ? " '" : "",
                       node->name, node->name[0] != '\0' ? "'" : "", mp_error_message());
        mp_plan_release(plan);
        return status;
    }
    *out = plan;
    return MP_OK;
}

mp_status mp_plan_make(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                       int in_count, int out_count, int32_t align, mp_plan **out) {
    const purpose run = {.prepared = -1};
    return make(device, node, in, in_count, out_count, align, run, out);
}

mp_status mp_plan_prepare(mp_device *device, const struct mp_node *node, const mp_tensor *in, int i,
                          int32_t align, mp_plan **out) {
    const purpose prepare = {.prepared = i};
    *out = NULL;
    if (node->op->prepare == NULL) {
        return MP_OK;
    }
    MP_TRY(make(device, node, in, i + 1, 1, align, prepare, out));
    if ((*out)->out[0].type == MP_NONE) {
        mp_plan_release(*out);
        *out = NULL;
    }
    return MP_OK;
}

mp_status mp_plan_finish(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                         int in_count, int out_count, int32_t align,
                         const int64_t found[MP_FOUND_MAX], mp_plan **out) {
    const purpose end = {.found = found, .prepared = -1};
    return make(device, node, in, in_count, out_count, align, end, out);
}

void mp_plan_retain(mp_plan *plan) {
    atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
}

static step *step_at(const mp_plan *plan, size_t offset) {
    return (step *)(void *)(plan->steps + offset);
}

void mp_plan_release(mp_plan *plan) {
    if (plan == NULL || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    for (size_t at = 0; at < plan->used; at += step_at(plan, at)->size) {
        const step *s = step_at(plan, at);
        if (s->kind == STEP_MATH) {
            plan->device->ops->math_release(plan->device, s->math.math);
        }
    }
    free(plan->steps);
    free(plan->out);
    free(plan);
}

int mp_plan_output_count(const mp_plan *plan) {
    return plan->out_count;
}

const mp_tensor *mp_plan_output_at(const mp_plan *plan, int i) {
    return &plan->out[i];
}

size_t mp_plan_scratch_bytes(const mp_plan *plan) {
    return plan->scratch;
}

int mp_plan_step_count(const mp_plan *plan) {
    return plan->step_count;
}

/* ---- running ---- */

typedef struct addresses {
    const mp_addr *in, *out;
    mp_addr scratch, kept;
    uint64_t run;
} addresses;

/* 0 for an output that the model leaves out, or that a plan which counts does not have. */
static mp_addr resolve(const addresses *where, mp_ref ref) {
    switch (ref.place) {
    case MP_PLACE_IN:
        return where->in[ref.index] + ref.offset;
    case MP_PLACE_OUT:
        return where->out != NULL && where->out[ref.index] != 0 ? where->out[ref.index] + ref.offset
                                                                : 0;
    case MP_PLACE_SCRATCH:
        return where->scratch + ref.offset;
    case MP_PLACE_KEPT:
        return where->kept + ref.offset;
    case MP_PLACE_RUN:
        return where->run;
    case MP_PLACE_TABLE:
        return ref.offset;
    case MP_PLACE_NONE:
        break;
    }
    return 0;
}

static mp_status run_launch(mp_device *device, mp_stream *stream, const step *s,
                            const addresses *where) {
    _Alignas(16) unsigned char args[ARGS_MAX];
    const size_t size = s->launch.args_size;
    const unsigned char *stored = behind(s);
    const mp_bind *binds = (const mp_bind *)(const void *)(stored + padded(size));
    bool has_target = s->launch.bind_count == 0;
    memcpy(args, stored, size);
    for (uint32_t i = 0; i < s->launch.bind_count; i++) {
        const mp_addr address = resolve(where, binds[i].ref);
        memcpy(args + binds[i].field, &address, sizeof address);
        has_target = has_target || binds[i].ref.place == MP_PLACE_SCRATCH ||
                     (binds[i].ref.place == MP_PLACE_OUT && address != 0);
    }
    return !has_target
               ? MP_OK
               : device->ops->launch(device, stream, s->launch.kernel, s->launch.grid, args, size);
}

static mp_status run_copy(mp_device *device, mp_stream *stream, const step *s,
                          const addresses *where) {
    const mp_addr target = resolve(where, s->copy.target);
    const mp_addr source = resolve(where, s->copy.source);
    return target == source || target == 0
               ? MP_OK
               : device->ops->copy(device, stream, target, source, s->copy.size);
}

static mp_status run_fill(mp_device *device, mp_stream *stream, const step *s,
                          const addresses *where) {
    const mp_addr target = resolve(where, s->fill.target);
    return target == 0 ? MP_OK
                       : device->ops->fill(device, stream, target, s->fill.value, s->fill.width,
                                           s->fill.count);
}

static mp_status run_math(mp_device *device, mp_stream *stream, const step *s,
                          const addresses *where) {
    mp_addr operands[MP_MATH_OPERANDS_MAX];
    for (int i = 0; i < MP_MATH_OPERANDS_MAX; i++) {
        operands[i] = resolve(where, s->math.operands[i]);
    }
    return device->ops->math_run(device, stream, s->math.math, operands,
                                 resolve(where, s->math.workspace));
}

static mp_status run_step(mp_device *device, mp_stream *stream, const step *s,
                          const addresses *where) {
    switch (s->kind) {
    case STEP_LAUNCH:
        return run_launch(device, stream, s, where);
    case STEP_COPY:
        return run_copy(device, stream, s, where);
    case STEP_FILL:
        return run_fill(device, stream, s, where);
    case STEP_HOST:
        if (where->out != NULL && where->out[s->host.index] != 0) {
            memcpy((void *)where->out[s->host.index], behind(s), s->host.size);
        }
        return MP_OK;
    case STEP_MATH:
        return run_math(device, stream, s, where);
    }
    return MP_FAIL(INTERNAL, "a plan has a step of unknown kind %d", (int)s->kind);
}

static mp_status run_steps(const mp_plan *plan, mp_stream *stream, addresses *where) {
    atomic_ullong *runs = (atomic_ullong *)(uintptr_t)&plan->runs; /* all else stays as it is */
    where->run = atomic_fetch_add_explicit(runs, 1, memory_order_relaxed);
    for (size_t at = 0; at < plan->used; at += step_at(plan, at)->size) {
        MP_TRY(run_step(plan->device, stream, step_at(plan, at), where));
    }
    return MP_OK;
}

mp_status mp_plan_run(const mp_plan *plan, mp_stream *stream, const mp_addr *in, const mp_addr *out,
                      mp_addr scratch) {
    return run_steps(plan, stream, &(addresses){in, out, scratch, 0, 0});
}

mp_status mp_plan_run_finish(const mp_plan *plan, mp_stream *stream, const mp_addr *in,
                             const mp_addr *out, mp_addr scratch, mp_addr kept) {
    return run_steps(plan, stream, &(addresses){in, out, scratch, kept, 0});
}

mp_status mp_plan_run_count(const mp_plan *plan, mp_stream *stream, const mp_addr *in,
                            mp_addr scratch, int64_t found[MP_FOUND_MAX]) {
    mp_device *device = plan->device;
    addresses where = {in, NULL, scratch, 0, 0};
    bool captured = false;
    MP_TRY(device->ops->capture_active(device, stream, &captured));
    if (captured) {
        return MP_FAIL(UNSUPPORTED,
                       "the sizes of its outputs depend on data, which a captured graph cannot "
                       "wait for; leave enable_cuda_graph off for this model");
    }
    MP_TRY(run_steps(plan, stream, &where));
    /* To memory that is not pinned, so that it is there when the call returns. */
    return device->ops->copy(device, stream, (mp_addr)found, resolve(&where, plan->found),
                             (size_t)plan->found_count * sizeof *found);
}
