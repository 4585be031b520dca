/* per_thread.h - what a session keeps for each thread that runs it: a stream, captured graphs.
 *
 * A record goes with its thread or with its session, whichever ends first.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_PER_THREAD_H
#define MP_EP_PER_THREAD_H

#include "ep/stream/run_stream.h"

struct mp_graphs;

typedef struct mp_thread_record {
    mp_provider *provider; /* borrowed; goes after its records */
    mp_run_stream *stream; /* a reference; see mp__thread_stream. NULL until needed */
    struct mp_graphs
        *_Atomic graphs; /* owned, see session_graph.c; NULL where the session has none */
    void (*destroy_graphs)(struct mp_graphs *graphs); /* set with the first of them */
    struct mp_thread_record *next;                    /* of the same thread */
    struct mp_thread_owner *thread;                   /* whose record it is */
    struct mp_thread_record *beside;                  /* of another thread, for the same session */
} mp_thread_record;

/* The calling thread's record for the session; made where there is none.
 * Borrowed: until the thread or the session ends. */
mp_status mp__thread_record_get(mp_provider *provider, mp_thread_record **out);
/* The same, or NULL where there is none yet. */
mp_thread_record *mp__thread_record_find(const mp_provider *provider);

/* The stream that runs of the session on this thread are queued on: the session's only stream if it
 * has one, else one of the thread's own, made on first use. Borrowed from the record. */
mp_status mp__thread_stream(mp_thread_record *record, mp_run_stream **out);

/* Calls `visit` for the records of all threads. They cannot end meanwhile, nor can new ones be
 * made: `visit` must not ask for a record. */
void mp__thread_records_each(mp_provider *provider, void (*visit)(mp_thread_record *, void *),
                             void *context);

/* The session ends: its records on all threads go. No run of it is under way. */
void mp__thread_records_close(mp_provider *provider);

#endif
