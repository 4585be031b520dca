/* weights.h - the constants of an island on the device: brought there once, in the form in which
 * its operators want them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_WEIGHTS_H
#define MP_EP_WEIGHTS_H

#include "ep/session/plugin.h"
#include "graph/graph.h"

typedef struct mp_weights {
    mp_addr *blocks; /* owned, and what they name */
    size_t count, capacity;
} mp_weights;

/* Sets `device` of the graph's constants but for small ones, which programs carry with them, and
 * forgets their data in host memory. Gives: memory, until release, also when it fails. Blocks:
 * until all is there. Fails: OUT_OF_MEMORY, DEVICE. */
mp_status mp__weights_make(const mp_provider *provider, mp_graph *graph, mp_weights *out);
/* Blocks: until what is queued on the session's streams has ended. */
void mp__weights_release(const mp_provider *provider, mp_weights *weights);

#endif
