/* weights.h - the constants of a session's islands on the device: brought there once, in the form
 * in which operators want them, and kept for as long as the session lives.
 *
 * They lie where ONNX Runtime puts initializers: past the arena, in memory of the session's pool.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_WEIGHTS_H
#define MP_EP_WEIGHTS_H

#include "ep/session/plugin.h"
#include "graph/graph.h"

/* Sets `device` of the constants of these graphs that are read on the device, and forgets the host
 * memory of all but small ones. What is there already, for an island of the session that was made
 * before, is not brought again. Blocks: until all is there. Threads: one at a time for a session.
 * Fails: OUT_OF_MEMORY, DEVICE; what was brought stays until the session ends. */
mp_status mp__weights_bring(mp_provider *provider, mp_graph *const *graphs, size_t count);
/* Who computes what follows from constants alone, for the passes of the session's islands. */
mp_computer mp__weights_computer(mp_provider *provider);
/* The session ends. Blocks: until what is queued on its streams has ended. */
void mp__weights_release(mp_provider *provider);

#endif
