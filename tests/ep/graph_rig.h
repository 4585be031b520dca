/* graph_rig.h - sessions with graphs on a runtime that the test plays.
 *
 * It calls the provider in the order that ONNX Runtime was seen to. A "model" is a chain of copies
 * from x to y through memory of the run, of which the runtime says no stream.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_EP_GRAPH_RIG_H
#define MP_TESTS_EP_GRAPH_RIG_H

#include "ep/abi/bridge.h"
#include "ep/capture/session_graph.h"
#include "ep/stream/stream_options.h"
#include "pool/pool_kit.h"

enum { RIG_COUNT = 3000, RIG_BYTES = RIG_COUNT * 4, RIG_NODES = 5, RIG_RUNS_MAX = 8 };

typedef struct rig_session {
    mp_factory factory;
    mp_unit unit;
    mp_provider provider;
} rig_session;

/* Graphs, with two runs that warm up. */
extern const mp_options rig_wishes;

mp_status rig_open(rig_session *s, mp_device *device, const char *const *options,
                   const mp_options *wishes);
void rig_close(rig_session *s);
void rig_release_graph(rig_session *s, int id);

/* Bound values, and what happens in the runs. */
typedef struct rig_binding {
    rig_session *s;
    mp_addr x, y;
    int runs;         /* that computed nodes */
    int fail_node;    /* 1 + the node that fails in the next run; 0 for none */
    int foreign_node; /* the same for a node of another provider before it */
    bool is_unfit;
    bool is_stopped; /* each recording ends before the last node */
    bool is_unsynced;
} rig_binding;

mp_status rig_bind(rig_binding *b, rig_session *s);
void rig_unbind(rig_binding *b);

/* Numbers from `value` on. */
mp_status rig_set(const rig_session *s, mp_addr addr, uint32_t value);
/* Fails: INTERNAL where something else is there. */
mp_status rig_is(const rig_session *s, mp_addr addr, uint32_t value);

/* One Run of the user's. */
mp_status rig_run(rig_binding *b, const char *id);
/* Whether the run needed no nodes, with the right result both ways. */
bool rig_run_is_launch(rig_binding *b, const char *id, uint32_t value);

#endif
