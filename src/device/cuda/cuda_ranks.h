/* cuda_ranks.h - the communicator of this process, and who watches it.
 *
 * A rank that dies leaves kernels of NCCL on the other GPUs that wait for ever. So a thread looks
 * after what was queued: where another rank is gone, NCCL reports a fault or the time is up, the
 * communicator is aborted, which ends those kernels, and every wait of the device fails from then
 * on with one sentence.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_RANKS_H
#define MP_DEVICE_CUDA_RANKS_H

#include "device/cuda/cuda_private.h"
#include "device/rank/rank_group.h"

typedef struct cuda_ranks cuda_ranks;

/* The communicator, made on first need: all ranks meet, then NCCL. In the device's context.
 * Blocks: until all are there, or the time is up. Fails: DEVICE, INVALID_ARGUMENT. */
mp_status mp__cuda_ranks_get(cuda_device *device, cuda_ranks **out);
mp_group *mp__cuda_ranks_group(cuda_ranks *ranks);

/* Between these two the communicator is the caller's. Fails: DEVICE where it has been aborted. */
mp_status mp__cuda_ranks_enter(cuda_ranks *ranks, nccl_comm **comm);
/* `result` of the last call, which NCCL may still be at: waits for that. Gives the communicator
 * back. Fails: DEVICE with the sentence, the communicator aborted. */
mp_status mp__cuda_ranks_leave(cuda_ranks *ranks, int result, const char *call);

/* The work queued on `stream` so far ends in time, or is aborted. Nothing without a communicator,
 * and for a stream that is being captured. In the device's context. */
void mp__cuda_ranks_watch(CUstream stream);

/* Around queueing a kernel that meets those of other ranks (`meets`), or a graph, which may hold
 * such ones: two of them must not run at once, and on every rank they come in the order of these
 * calls. So the work waits for the last such work, where that is on another stream. Gives: whose
 * turn it is, for the end; NULL where nothing is to be kept in order. What was `queued` is watched.
 * In the device's context. */
cuda_ranks *mp__cuda_ranks_begin(CUstream stream, bool meets);
void mp__cuda_ranks_end(cuda_ranks *turn, CUstream stream, bool queued);

/* This rank cannot do what the others are about to: with the thread's sentence, nobody waits for
 * anybody any more. Returns what mp__cuda_ranks_health says then. In the device's context. */
mp_status mp__cuda_ranks_abort(const cuda_device *device);

/* Whether work was aborted, which makes what `device` has computed worthless. */
mp_status mp__cuda_ranks_health(const cuda_device *device);

#endif
