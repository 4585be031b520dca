/* claim.h - which nodes of a graph become islands: groups that run as one.
 *
 * A group is convex: no path leaves it and comes back. Its nodes read on the host only what is
 * known while it is planned (constants, and what follows from shapes within the group), and what
 * nodes of islands compute, which is read back.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_CLAIM_H
#define MP_EP_CLAIM_H

#include "ep/session/plugin.h"

typedef struct mp_candidate {
    const OrtNode *node;
    const mp_op *op; /* NULL: not ours, or nothing for an island */
    bool can_join;   /* its operator may be in an island */
    bool is_held;    /* it must be: its bodies are nobody else's */
    bool of_shapes;  /* outside of an island it works in host memory, and makes values there */
    bool of_body;    /* it reads what the node around the body has in host memory */
    const char *why; /* it is in none; static storage, NULL for one that is */
    int island;      /* set by mp__islands_find: number of its group; -1 for none */
} mp_candidate;

/* Whether a session has islands at all. */
bool mp__islands_wanted(const mp_provider *provider);

/* Finds the groups of a graph whose nodes are listed in an order in which they can run. */
mp_status mp__islands_find(const mp_provider *provider, mp_candidate *nodes, size_t count);

/* Tells ONNX Runtime of one group after the other. */
mp_status mp__islands_add(const mp_provider *provider, OrtEpGraphSupportInfo *support,
                          const mp_candidate *nodes, size_t count);

#endif
