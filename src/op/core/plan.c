/* plan.c - builds a plan: what an operator's functions call to declare outputs and list steps.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/plan.h"

#include "op/core/kernel_cache.h"
#include "op/core/op.h"
#include "op/core/peer_sum_steps.h"
#include "op/core/plan_record.h"
#include "op/core/table_cache.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRID_BLOCKS_MAX = 65535 * 16 };

const mp_tensor *mp_plan_in(const mp_planner *p, int i) {
    return i < p->in_count && p->in[i].type != MP_NONE ? &p->in[i] : NULL;
}

bool mp_plan_wants(const mp_planner *p, int i) {
    return i < p->out_count && (i > 31 || (p->node->out_absent >> i & 1) == 0);
}

bool mp_plan_is_constant(const mp_planner *p, mp_ref ref) {
    return ref.place == MP_PLACE_NONE ||
           (ref.place == MP_PLACE_IN && mp_node_constant(p->node, (int)ref.index));
}

void mp_tensor_strides(const mp_tensor *x, int64_t stride[MP_RANK_MAX]) {
    const int last = x->shape.rank - 1;
    mp_shape_strides(&x->shape, stride);
    if (x->pitch > 0 && last > 0) {
        stride[last - 1] = x->pitch;
        for (int d = last - 2; d >= 0; d--) {
            stride[d] = stride[d + 1] * x->shape.dim[d + 1];
        }
    }
}

void mp_tensor_broadcast_strides(const mp_tensor *x, const mp_shape *out,
                                 int64_t stride[MP_RANK_MAX]) {
    const int skip = out->rank - x->shape.rank;
    int64_t own[MP_RANK_MAX] = {0};
    mp_tensor_strides(x, own);
    mp_shape_broadcast_strides(&x->shape, out, stride);
    for (int d = skip; d < out->rank; d++) {
        stride[d] = stride[d] != 0 ? own[d - skip] : 0;
    }
}

mp_status mp_plan_output(mp_planner *p, int i, mp_dtype dtype, const mp_shape *shape) {
    if (i >= p->out_count) {
        return MP_OK;
    }
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(shape, dtype, &bytes));
    p->plan->out[i] = (mp_tensor){.type = dtype, .shape = *shape, .pitch = mp_plan_out_pitch(p, i)};
    return MP_OK;
}

mp_status mp_plan_scratch(mp_planner *p, size_t size, mp_ref *out) {
    size_t end = 0;
    if (__builtin_add_overflow(p->plan->scratch, size, &end) || end > SIZE_MAX - MP_ALIGNMENT) {
        return MP_FAIL(INVALID_ARGUMENT, "%zu bytes of scratch memory are too many", size);
    }
    *out = size > 0 ? (mp_ref){MP_PLACE_SCRATCH, 0, p->plan->scratch} : MP_NOWHERE;
    p->plan->scratch = MP_ALIGN_UP(end, MP_ALIGNMENT);
    return MP_OK;
}

mp_status mp_plan_scratch_of(mp_planner *p, int64_t count, mp_dtype dtype, mp_ref *out) {
    size_t bytes = 0;
    MP_TRY(mp_plan_bytes(count, dtype, &bytes));
    return mp_plan_scratch(p, bytes, out);
}

mp_status mp_plan_scratch_shape(mp_planner *p, const mp_shape *shape, mp_dtype dtype, mp_ref *out) {
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(shape, dtype, &bytes));
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
static mp_status add_step(mp_planner *p, plan_step_kind kind, size_t extra, plan_step **out) {
    mp_plan *plan = p->plan;
    const size_t size = plan_padded(sizeof(plan_step)) + plan_padded(extra);
    if (size > UINT32_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "a step with %zu bytes of arguments is too large", extra);
    }
    if (plan->capacity - plan->used < size) {
        const size_t capacity = plan->capacity + MP_MAX(plan->capacity, size);
        unsigned char *grown = realloc(plan->steps, capacity);
        if (grown == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a plan of %zu bytes",
                           capacity);
        }
        plan->steps = grown;
        plan->capacity = capacity;
    }
    plan_step *fresh = (plan_step *)(void *)(plan->steps + plan->used);
    memset(fresh, 0, size);
    fresh->kind = kind;
    fresh->size = (uint32_t)size;
    plan->used += size;
    plan->step_count++;
    *out = fresh;
    return MP_OK;
}

mp_status mp__plan_launch(mp_planner *p, const mp_kernel *kernel, mp_grid grid, const void *args,
                          size_t args_size, const mp_bind *binds, size_t bind_count) {
    if (args_size > PLAN_ARGS_MAX) {
        return MP_FAIL(INTERNAL, "%zu bytes of kernel arguments exceed %d", args_size,
                       PLAN_ARGS_MAX);
    }
    const size_t binds_size = bind_count * sizeof *binds;
    plan_step *fresh = NULL;
    MP_TRY(add_step(p, STEP_LAUNCH, plan_padded(args_size) + binds_size, &fresh));
    fresh->launch.kernel = kernel;
    fresh->launch.grid = grid;
    fresh->launch.args_size = (uint32_t)args_size;
    fresh->launch.bind_count = (uint32_t)bind_count;
    memcpy(step_tail(fresh), args, args_size);
    memcpy((char *)step_tail(fresh) + plan_padded(args_size), binds, binds_size);
    return MP_OK;
}

enum { LANES = 256 }; /* of a block of a kernel without barriers */

mp_grid mp_plan_grid(const mp_planner *p, int64_t count, int per_lane) {
    const int64_t each = (int64_t)LANES * per_lane;
    const int64_t wanted = MP_CEIL_DIV(count, each);
    /* Enough blocks to fill the device several times over; the loop in the kernel does the rest. */
    const int64_t most = (int64_t)p->device->info.multiprocessors * 32;
    const int64_t blocks = MP_MIN(wanted, most);
    return (mp_grid){.blocks = blocks > 0 ? (uint32_t)blocks : 1, .lanes = LANES};
}

mp_grid mp_plan_grid_stream(const mp_planner *p, int64_t count, int per_lane, int ahead) {
    enum { TURNS = 16 }; /* blocks of a multiprocessor: twice as many as are there at once */
    if (p->device->info.kind == MP_DEVICE_HOST) {
        return mp_plan_grid(p, count, per_lane);
    }
    const int64_t single = MP_CEIL_DIV(count, (int64_t)LANES * per_lane);
    const bool plenty = single > (int64_t)p->device->info.multiprocessors * TURNS;
    return mp_plan_grid_rows(p, plenty ? MP_CEIL_DIV(single, ahead) : single, LANES);
}

mp_grid mp_plan_grid_rows(const mp_planner *p, int64_t rows, uint32_t lanes) {
    (void)p;
    const int64_t blocks = MP_MIN(rows, GRID_BLOCKS_MAX);
    return (mp_grid){.blocks = blocks > 0 ? (uint32_t)blocks : 1, .lanes = lanes};
}

mp_status mp_plan_copy(mp_planner *p, mp_ref target, mp_ref source, size_t size) {
    if (size == 0) {
        return MP_OK;
    }
    plan_step *fresh = NULL;
    MP_TRY(add_step(p, STEP_COPY, 0, &fresh));
    fresh->copy.target = target;
    fresh->copy.source = source;
    fresh->copy.size = size;
    return MP_OK;
}

mp_status mp_plan_aligned(mp_planner *p, int i, mp_ref *out) {
    enum { ALIGN = 16 };
    size_t bytes = 0;
    *out = mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
    if (p->align >= ALIGN || out->place == MP_PLACE_NONE) {
        return MP_OK;
    }
    MP_TRY(mp_shape_bytes(&p->in[i].shape, p->in[i].type, &bytes));
    MP_TRY(mp_plan_scratch(p, bytes, out));
    return mp_plan_copy(p, *out, MP_IN(i), bytes);
}

mp_status mp_plan_fill(mp_planner *p, mp_ref target, uint32_t value, size_t width, size_t count) {
    if (count == 0) {
        return MP_OK;
    }
    plan_step *fresh = NULL;
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
    plan_step *fresh = NULL;
    MP_TRY(add_step(p, STEP_HOST, size, &fresh));
    fresh->host.index = (uint32_t)i;
    fresh->host.size = size;
    memcpy(step_tail(fresh), bytes, size);
    return MP_OK;
}

/* Takes: `math`, also on failure. Gives: `*out`, until the next record. */
static mp_status add_math(mp_planner *p, mp_math *math, const mp_ref *operands, int count,
                          plan_step **out) {
    mp_ref workspace = MP_NOWHERE;
    const size_t bytes = p->device->ops->math_workspace(p->device, math);
    mp_status status = bytes > 0 ? mp_plan_scratch(p, bytes, &workspace) : MP_OK;
    plan_step *fresh = NULL;
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
    *out = fresh;
    return MP_OK;
}

mp_status mp_plan_gemm(mp_planner *p, const mp_gemm *gemm,
                       const mp_ref operands[MP_GEMM_OPERANDS]) {
    mp_math *math = NULL;
    plan_step *fresh = NULL;
    mp_gemm tuned = *gemm;
    tuned.tune = p->node->options.tune;
    tuned.tune_ms = p->node->options.tune_ms;
    MP_TRY(p->device->ops->gemm_prepare(p->device, &tuned, &math));
    MP_TRY(add_math(p, math, operands, MP_GEMM_OPERANDS, &fresh));
    fresh->math.m = gemm->m;
    fresh->math.n = gemm->n;
    fresh->math.k = gemm->k;
    fresh->math.batch = gemm->batch;
    return MP_OK;
}

/* Takes: `math`, also on failure. Gives: `*out`, until the next record. */
static mp_status add_collective(mp_planner *p, mp_math *math, const mp_collective *what,
                                plan_step **out) {
    const mp_status status = add_step(p, STEP_COLLECTIVE, 0, out);
    if (status != MP_OK) {
        p->device->ops->math_release(p->device, math);
        return status;
    }
    (*out)->collective.math = math;
    (*out)->collective.kind = what->kind;
    (*out)->collective.count = what->count;
    (*out)->collective.bytes = (size_t)what->count * mp_dtype_size(what->type);
    return MP_OK;
}

mp_status mp_plan_collective(mp_planner *p, const mp_collective *what, mp_ref source,
                             mp_ref target) {
    mp_math *math = NULL;
    plan_step *fresh = NULL;
    MP_TRY(p->device->ops->collective_prepare(p->device, what, &math));
    MP_TRY(add_collective(p, math, what, &fresh));
    fresh->collective.operands[MP_COLLECTIVE_SOURCE] = source;
    fresh->collective.operands[MP_COLLECTIVE_TARGET] = target;
    return mp__plan_peer_sum(p, what, fresh);
}

mp_status mp_plan_conv_prepare(mp_planner *p, const mp_conv *conv, mp_math **out, bool *whole) {
    return p->device->ops->conv_prepare(p->device, conv, out, whole);
}

mp_status mp_plan_conv_step(mp_planner *p, mp_math *math, const mp_ref operands[MP_CONV_OPERANDS]) {
    plan_step *fresh = NULL;
    return add_math(p, math, operands, MP_CONV_OPERANDS, &fresh);
}

void mp_plan_conv_drop(mp_planner *p, mp_math *math) {
    p->device->ops->math_release(p->device, math);
}
