/* cuda_collective.c - work of all ranks, by NCCL on the run's stream, or by a kernel of the
 * caller's that reaches the other GPUs' memory.
 *
 * NCCL does not compare what ranks do: of sizes that differ it hangs. So the first run of work of
 * some size asks the other ranks first, and later ones do not; what differs then, the time ends.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_ranks.h"
#include "device/rank/rank_peers.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct cuda_collective {
    cuda_math base; /* first */
    mp_collective what;
    int ranks;
    int type; /* NCCL's */
    atomic_bool agreed;
} cuda_collective;

/* What is only moved has no type but its size. */
static int type_of(mp_dtype type, size_t *elements) {
    *elements = 1;
    switch (type) {
    case MP_F16:
        return NCCL_FLOAT16;
    case MP_BF16:
        return NCCL_BFLOAT16;
    case MP_F32:
        return NCCL_FLOAT32;
    case MP_F64:
        return NCCL_FLOAT64;
    default:
        *elements = mp_dtype_size(type);
        return NCCL_UINT8;
    }
}

static int exchange(const cuda_collective *c, const char *source, char *target, size_t count,
                    nccl_comm *comm, CUstream stream) {
    const size_t part = count / (size_t)c->ranks;
    const size_t bytes = (size_t)c->what.count / (size_t)c->ranks * mp_dtype_size(c->what.type);
    int result = mp__nccl.group_start();
    if (result != NCCL_SUCCESS) {
        return result;
    }
    for (int r = 0; r < c->ranks && result == NCCL_SUCCESS; r++) {
        const size_t at = (size_t)r * bytes;
        result = mp__nccl.send(source + at, part, c->type, r, comm, stream);
        if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) {
            result = mp__nccl.receive(target + at, part, c->type, r, comm, stream);
        }
        result = result == NCCL_IN_PROGRESS ? NCCL_SUCCESS : result;
    }
    const int ended = mp__nccl.group_end();
    return result == NCCL_SUCCESS ? ended : result;
}

static int queue(const cuda_collective *c, const mp_addr *operands, nccl_comm *comm,
                 CUstream stream) {
    const void *source = (const void *)operands[MP_COLLECTIVE_SOURCE];
    void *target = (void *)operands[MP_COLLECTIVE_TARGET];
    size_t elements = 1;
    (void)type_of(c->what.type, &elements);
    const size_t count = (size_t)c->what.count * elements;
    switch (c->what.kind) {
    case MP_ALL_REDUCE:
        return mp__nccl.all_reduce(source, target, count, c->type, NCCL_SUM, comm, stream);
    case MP_ALL_GATHER:
        return mp__nccl.all_gather(source, target, count, c->type, comm, stream);
    case MP_ALL_TO_ALL:
        break;
    }
    return exchange(c, source, target, count, comm, stream);
}

static mp_status run_alone(cuda_device *device, mp_stream *stream, const cuda_collective *c,
                           const mp_addr *operands) {
    return mp__cuda_copy(&device->base, stream, operands[MP_COLLECTIVE_TARGET],
                         operands[MP_COLLECTIVE_SOURCE],
                         (size_t)c->what.count * mp_dtype_size(c->what.type));
}

static mp_status agree_once(cuda_ranks *ranks, cuda_collective *c) {
    mp_group *group = mp__cuda_ranks_group(ranks);
    if (atomic_load_explicit(&group->broken, memory_order_acquire)) {
        return mp__group_health(group);
    }
    if (atomic_load_explicit(&c->agreed, memory_order_acquire)) {
        return MP_OK;
    }
    MP_TRY(mp__group_agree_once(group, &c->what));
    atomic_store_explicit(&c->agreed, true, memory_order_release);
    return MP_OK;
}

static mp_status run_together(cuda_device *device, CUstream stream, cuda_collective *c,
                              const mp_addr *operands) {
    cuda_ranks *ranks = NULL;
    nccl_comm *comm = NULL;
    MP_TRY(mp__cuda_ranks_get(device, &ranks));
    MP_TRY(mp__cuda_ranks_health(device));
    MP_TRY(agree_once(ranks, c));
    MP_TRY(mp__cuda_ranks_enter(ranks, &comm));
    const int result = queue(c, operands, comm, stream);
    MP_TRY(mp__cuda_ranks_leave(ranks, result, mp_collective_name(c->what.kind)));
    mp__cuda_ranks_watch(stream);
    return MP_OK;
}

/* The thread may be capturing a stream, and to meet others for the first time allocates memory. */
static mp_status run(cuda_device *device, mp_stream *stream, cuda_math *math,
                     const mp_addr *operands, mp_addr workspace) {
    cuda_collective *c = (cuda_collective *)(void *)math;
    cuda_scope scope;
    (void)workspace;
    if (c->ranks == 1) {
        return run_alone(device, stream, c, operands);
    }
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const mp_status status = run_together(device, cuda_stream_of(stream), c, operands);
    mp__cuda_exit(&scope);
    return status;
}

/* ---- by a kernel of the caller's ---- */

static mp_status find_peers(cuda_device *device, cuda_collective *c, const mp_peers **out) {
    cuda_ranks *ranks = NULL;
    MP_TRY(mp__cuda_ranks_get(device, &ranks));
    MP_TRY(mp__cuda_ranks_health(device));
    MP_TRY(agree_once(ranks, c));
    *out = mp__group_peers(mp__cuda_ranks_group(ranks), &c->what);
    return MP_OK;
}

mp_status mp__cuda_collective_peers(mp_device *self, mp_math *math, const mp_peers **out) {
    cuda_device *device = cuda_device_of(self);
    cuda_collective *c = (cuda_collective *)(void *)math;
    cuda_scope scope;
    *out = NULL;
    if (c->ranks == 1) {
        return MP_OK;
    }
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const mp_status status = find_peers(device, c, out);
    mp__cuda_exit(&scope);
    return status;
}

mp_status mp__cuda_collective_launch(mp_device *self, mp_stream *stream, mp_math *math,
                                     const mp_kernel *kernel, mp_grid grid, const void *args,
                                     size_t args_size) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    (void)math;
    MP_TRY(mp__cuda_enter(device, &scope));
    cuda_ranks *turn = mp__cuda_ranks_begin(cuda_stream_of(stream), true);
    mp_status status = mp__cuda_launch(self, stream, kernel, grid, args, args_size);
    mp__cuda_ranks_end(turn, cuda_stream_of(stream), status == MP_OK);
    if (status != MP_OK) { /* the others' kernels wait for this one */
        const mp_status aborted = mp__cuda_ranks_abort(device);
        status = aborted != MP_OK ? aborted : status;
    }
    mp__cuda_exit(&scope);
    return status;
}

static void release(cuda_device *device, cuda_math *math) {
    (void)device;
    free(math);
}

static const cuda_math_ops collective_ops = {.run = run, .release = release};

mp_status mp__cuda_collective_prepare(mp_device *self, const mp_collective *what, mp_math **out) {
    mp_rank rank;
    size_t elements = 1;
    size_t bytes = 0;
    (void)self;
    MP_TRY(mp__group_check_work(what));
    MP_TRY(mp__rank_read(&rank));
    if (__builtin_mul_overflow((size_t)what->count, mp_dtype_size(what->type), &bytes)) {
        return MP_FAIL(INVALID_ARGUMENT, "%s of %" PRId64 " elements",
                       mp_collective_name(what->kind), what->count);
    }
    if (rank.size > 1) {
        MP_TRY(mp__cuda_need(CUDA_LIB_NCCL));
    }
    cuda_collective *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %s",
                       mp_collective_name(what->kind));
    }
    fresh->base.ops = &collective_ops;
    fresh->what = *what;
    fresh->ranks = rank.size;
    fresh->type = type_of(what->type, &elements);
    *out = (mp_math *)(void *)fresh;
    return MP_OK;
}
