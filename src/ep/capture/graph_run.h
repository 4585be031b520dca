/* graph_run.h - the graphs of one thread and session, between the files that make them up.
 *
 *     session_graph.c  ONNX Runtime's callbacks: when to warm up, record, launch
 *     graph_run.c    a run that is recorded: its begin, its end, and what it must leave out
 *     graph_memory.c the memory
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_GRAPH_RUN_H
#define MP_EP_GRAPH_RUN_H

#include "ep/capture/graph_memory.h"
#include "ep/capture/session_graph.h"

typedef struct mp_graph_entry {
    struct mp_graph_entry *next;
    int id;               /* gpu_graph_id */
    mp_graph_exec *graph; /* owned; NULL until captured */
    mp_holds holds;       /* what the graph uses beside memory set apart */
    int64_t warm_ups;
    int64_t nodes; /* computed by the last run */
    int attempts;  /* recordings that came to nothing */
    bool is_told;  /* the log says why runs are not recorded */
} mp_graph_entry;

enum { MP_GRAPH_ATTEMPTS = 3 };

typedef struct mp_graphs {
    mp_thread_record *record; /* borrowed; whose they are */
    pthread_mutex_t lock;     /* guards the entries: graphs may be released by other threads */
    mp_graph_entry *entries;  /* owned */
    mp_graph_memory memory;
    mp_run_stream *side;   /* recorded where the thread's stream cannot be; NULL until needed */
    mp_run run;            /* under way where `depth` > 0 */
    mp_graph_entry *entry; /* of that run; NULL for one that is not to be captured */
    int depth;
    int chain;         /* runs without a graph that one Run of the user's has had so far */
    bool stops_chain;  /* the next IsGraphCaptured ends them */
    bool was_launched; /* by ReplayGraph, just now */
} mp_graphs;

/* Begins to record the run on the thread's stream; where that fails the run goes on without. */
void mp__recording_begin(mp_graphs *graphs);

/* Ends it. Gives: `*graph`, NULL where it failed. */
mp_status mp__recording_end(mp_graphs *graphs, mp_graph_exec **graph);

/* Queues a graph on the thread's stream. */
mp_status mp__graph_queue(const mp_graphs *graphs, mp_graph_exec *graph);

#endif
