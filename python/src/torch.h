/* torch.h - what the C functions for PyTorch share.
 *
 * PyTorch calls these functions from any thread, with the GIL or not, so none of them takes it but
 * those that begin and release a graph. Nothing of PyTorch is linked: a wheel works with every
 * version.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_PYTHON_TORCH_H
#define MP_PYTHON_TORCH_H

#include "adapter.h"

#include <stdbool.h>
#include <stdint.h>

extern adapter torch_pools;

/* ---- torch_throw.c ---- */

/* What a failure can be thrown as, the best last. */
typedef enum torch_thrower {
    TORCH_NOTHING,       /* PyTorch is not in the process: functions return NULL */
    TORCH_BAD_ALLOC,     /* std::bad_alloc, without our sentence */
    TORCH_ERROR,         /* c10::Error: RuntimeError in Python */
    TORCH_OUT_OF_MEMORY, /* c10::OutOfMemoryError: torch.OutOfMemoryError in Python */
} torch_thrower;

/* Throws the C++ exception for `status` with the sentence of the last failure on this thread.
 * Returns only where PyTorch is not in the process. */
void torch_throw(mp_status status);

/* ---- torch_graph.c ---- */

/* To be called before a block is allocated on `stream`: where that stream has joined a capture that
 * PyTorch has begun, the block is to come from the memory of that graph. Costs one load while no
 * graph is captured. */
MP_MUST_CHECK mp_status torch_graph_join(const adapter_pool *from, int device, void *stream);

/* Whether `stream` is being captured, by whomever. True where that cannot be told. */
bool torch_is_captured(const adapter_pool *from, void *stream);

#endif
