/* plan_run.c - runs a plan: the addresses of this run are put into its steps, which are queued.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/peer_sum_steps.h"
#include "op/core/plan.h"
#include "op/core/plan_record.h"

#include <string.h>

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

static mp_status run_launch(mp_device *device, mp_stream *stream, const plan_step *s,
                            const addresses *where) {
    _Alignas(16) unsigned char args[PLAN_ARGS_MAX];
    const size_t size = s->launch.args_size;
    const unsigned char *stored = step_tail(s);
    const mp_bind *binds = (const mp_bind *)(const void *)(stored + plan_padded(size));
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

static mp_status run_copy(mp_device *device, mp_stream *stream, const plan_step *s,
                          const addresses *where) {
    const mp_addr target = resolve(where, s->copy.target);
    const mp_addr source = resolve(where, s->copy.source);
    return target == source || target == 0
               ? MP_OK
               : device->ops->copy(device, stream, target, source, s->copy.size);
}

static mp_status run_fill(mp_device *device, mp_stream *stream, const plan_step *s,
                          const addresses *where) {
    const mp_addr target = resolve(where, s->fill.target);
    return target == 0 ? MP_OK
                       : device->ops->fill(device, stream, target, s->fill.value, s->fill.width,
                                           s->fill.count);
}

static mp_status run_math(mp_device *device, mp_stream *stream, const plan_step *s,
                          const addresses *where) {
    mp_addr operands[MP_MATH_OPERANDS_MAX];
    for (int i = 0; i < MP_MATH_OPERANDS_MAX; i++) {
        operands[i] = resolve(where, s->math.operands[i]);
    }
    return device->ops->math_run(device, stream, s->math.math, operands,
                                 resolve(where, s->math.workspace));
}

static mp_status run_collective(mp_device *device, mp_stream *stream, const plan_step *s,
                                const addresses *where) {
    mp_addr operands[MP_MATH_OPERANDS_MAX] = {0};
    bool done = false;
    for (int i = 0; i < MP_COLLECTIVE_OPERANDS; i++) {
        operands[i] = resolve(where, s->collective.operands[i]);
    }
    if (s->collective.kernel != NULL) {
        MP_TRY(mp__plan_run_peer_sum(device, stream, s, operands, &done));
    }
    return done ? MP_OK : device->ops->math_run(device, stream, s->collective.math, operands, 0);
}

static mp_status run_step(mp_device *device, mp_stream *stream, const plan_step *s,
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
            memcpy((void *)where->out[s->host.index], step_tail(s), s->host.size);
        }
        return MP_OK;
    case STEP_MATH:
        return run_math(device, stream, s, where);
    case STEP_COLLECTIVE:
        return run_collective(device, stream, s, where);
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
