/* session_graph.h - captured graphs of a session: recorded in a run, launched instead of later
 * runs.
 *
 *     OnRunStart -> mp_run of this thread -> its work is recorded or queued -> OnRunEnd
 *                                                                         -> ReplayGraph ...
 *
 * Each thread has graphs of its own, by the run option gpu_graph_id. While a run is recorded, all
 * that the thread asks of the provider goes into the graph: launches, and memory. What cannot be
 * recorded ends the recording early: what is recorded so far is launched, and the run goes on
 * without a graph, so a run gives the same results with graphs and without.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_SESSION_GRAPH_H
#define MP_EP_SESSION_GRAPH_H

#include "ep/run/per_thread.h"

/* Sets the callbacks of `provider->base` where the session's options turn graphs on. */
void mp__graph_install(mp_provider *provider);

/* ---- in a run, for kernels, copies and allocators ---- */

typedef struct mp_run {
    mp_provider *provider;
    struct mp_run *outer; /* of another session, on this thread */
    bool is_recorded;
    bool failed;         /* one of its nodes did */
    const char *unfit;   /* why it cannot be recorded, or NULL; static storage */
    int64_t nodes;       /* that it has computed so far */
    mp_run_stream *into; /* where it is recorded; borrowed */
    mp_addr *seen;       /* owned; addresses that the graph uses */
    size_t seen_count, seen_capacity;
} mp_run;

/* The calling thread's run of a session with graphs; NULL in other runs and outside of runs. */
extern _Thread_local mp_run *mp__run_now;

/* The run that the thread records, or NULL. */
static inline mp_run *mp__recorded_run(void) {
    mp_run *run = mp__run_now;
    return run != NULL && run->is_recorded ? run : NULL;
}

/* The stream that the session's work is recorded into now, instead of any other; or NULL. */
static inline mp_run_stream *mp__recorded_into(const mp_provider *provider) {
    const mp_run *run = mp__recorded_run();
    return run != NULL && run->provider == provider ? run->into : NULL;
}

/* What comes now cannot be recorded, as `why` says in a clause: ends the recording, if there is
 * one, and has this run not counted as one that warms up. */
mp_status mp__run_unfit(const char *why);

/* Ends the recording, if there is one. What can be recorded another time, such as a kernel's first
 * launch, is tried again a few times. */
mp_status mp__run_stop_recording(const char *why);

/* Nodes, those of an island at once, have been computed with these tensors, or have failed. */
mp_status mp__run_saw(const mp_addr *in, int in_count, const mp_addr *out, int out_count);
void mp__run_nodes_ended(const mp_provider *provider, int count, mp_status status);

/* ---- memory; instead of mp_pool_alloc and mp_pool_free ---- */

/* While the thread records, the memory is the graph's, whatever `native` is. */
mp_status mp__lend(mp_pool *pool, size_t size, void *native, mp_addr *out);
/* A block that a captured graph uses is freed with the graph. `native`: as for mp_pool_free_on, or
 * MP_NO_STREAM for the order that the block was allocated in. */
mp_status mp__give_back(mp_pool *pool, mp_addr addr);
mp_status mp__give_back_on(mp_pool *pool, mp_addr addr, void *native);

#endif
