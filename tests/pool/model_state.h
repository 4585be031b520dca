/* model_state.h - what the model knows, shared by its files.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_POOL_MODEL_STATE_H
#define MP_TESTS_POOL_MODEL_STATE_H

#include "device/host/host_device.h"
#include "model.h"
#include "pool/pool_handle.h"

enum {
    MODEL_CLIENTS = 3,
    MODEL_STREAMS = 6, /* 0: none, the host; the last: the default stream; others come and go */
    MODEL_DEFAULT_STREAM = MODEL_STREAMS - 1,
    MODEL_READS = 4096,
    MODEL_GRAPHS = 4,
    MODEL_GRAPH_BLOCKS = 4,
    MODEL_FREED = 16,
};

typedef struct model_block {
    mp_addr addr;
    size_t size; /* that may be used; see model_chunk_size */
    size_t requested;
    uint32_t tag;    /* what is written there */
    uint32_t middle; /* offset of a word in it that is written and read, beside both ends */
    uint8_t stream;  /* it was allocated on */
    uint8_t uses;    /* a bit for each further stream */
    uint8_t client;
} model_block;

typedef struct model_range {
    mp_addr addr;
    size_t size;
} model_range;

/* A captured graph: it writes a number into each of its blocks, and what it reads back into its
 * words of pinned memory. */
typedef struct model_graph {
    mp_graph_exec *graph; /* owned; NULL: none */
    mp_capture *capture;  /* may be another graph's too */
    uint8_t stream;
    bool launched; /* since its words were looked at */
    uint32_t count;
    uint32_t tags[MODEL_GRAPH_BLOCKS];
    model_range ranges[MODEL_GRAPH_BLOCKS];
} model_graph;

typedef struct model_stream {
    mp_stream *queue; /* owned; NULL for none */
    void *native;
} model_stream;

typedef struct model {
    mp_device *device; /* borrowed */
    const model_plan *plan;
    model_result *result;
    mp_pool *pools[MODEL_CLIENTS]; /* one handle a client; all of one pool */
    bool reopened[MODEL_CLIENTS];
    model_stream streams[MODEL_STREAMS];

    model_block **live; /* owned; by address */
    size_t live_count;
    mp_addr freed[MODEL_FREED]; /* lately; some may be allocated again */

    mp_addr words; /* owned; pinned: reads first, then those of graphs */
    uint32_t wanted[MODEL_READS];
    uint32_t read_count;
    uint32_t tag;
    model_graph graphs[MODEL_GRAPHS];

    uint64_t in_use, in_use_max, requested, allocs, frees, reserves, failures, alloc_size_max;
    uint64_t client_allocs[MODEL_CLIENTS];
    bool limited; /* mp_limit_set is in force */
} model;

/* Keeps the sentence and returns false. */
bool model_fail(model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether the status is MP_OK; anything else is a failure. */
bool model_ok(model *m, mp_status status, const char *what);
/* Whether a call may have failed with `status`: it is the fault that was asked for. */
bool model_excused(const model *m, mp_status status);

/* The same call again where it failed by the fault, which happens but once. */
#define MODEL_RETRY(m, status, call)                         \
    do {                                                     \
        (status) = (call);                                   \
        if ((status) != MP_OK && model_excused(m, status)) { \
            (status) = (call);                               \
        }                                                    \
    } while (0)

/* ---- model_work.c: what is queued on streams ---- */

bool model_work_open(model *m);
void model_work_close(model *m);
bool model_stream_open(model *m, int index);
/* Waits for its work, tells the pool, destroys it. */
bool model_stream_close(model *m, int index);
bool model_write(model *m, model_block *block);
/* Reads the block's words on a stream, which has been ordered after the write. */
bool model_read(model *m, const model_block *block, int stream);
bool model_order(model *m, int before, int after);
/* Waits for everything and compares what was read. */
bool model_verify(model *m);

/* ---- model_graph.c ---- */

bool model_capture(model *m, const model_op *op);
bool model_replay(model *m, const model_op *op);
bool model_release(model *m, model_graph *graph);
/* Releases the graphs that run on the stream. */
bool model_release_on(model *m, int stream);
/* Whether a graph's memory overlaps the range. */
const model_graph *model_graph_in(const model *m, mp_addr addr, size_t size);
bool model_graphs_verify(model *m);

/* ---- model_check.c ---- */

/* With its borders, as the pool counts it. */
static inline size_t model_chunk_size(const model *m, size_t size) {
    return size + 2 * m->plan->config->border;
}

/* The first live block that ends behind `addr`. */
size_t model_live_after(const model *m, mp_addr addr);
/* Compares statistics and shares with the model's. */
bool model_check_sums(model *m);
/* Looks at all regions and blocks. */
bool model_check_layout(model *m);
/* A request was refused: whether the pool had nothing that would do. */
bool model_check_refusal(model *m, size_t size);

#endif
