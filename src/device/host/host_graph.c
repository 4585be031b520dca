/* host_graph.c - captures: queued work written down, and replayed.
 *
 * A capture is a list of nodes, each with the nodes it comes after. Each captured stream has a
 * frontier (`after`): what its next node will come after. Recording an event copies the frontier,
 * waiting for it adds the copy to the waiting stream's frontier, and a stream outside joins the
 * capture that way. Nodes are in an order they may run in, since each comes after earlier ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_work.h"

#include <stdlib.h>
#include <string.h>

struct host_capture {
    host_capture *next;
    uint64_t id;
    pthread_t thread;
    host_queue *origin;
    mp_graph_exec *graph; /* owned; what has been written down */
    uint32_t capacity;
    bool broken; /* under lock: a forbidden call was made, and it cannot become a graph */
};

/* ---- sets of nodes ---- */

void mp__host_nodes_free(host_nodes *nodes) {
    free(nodes->items);
    *nodes = (host_nodes){0};
}

static mp_status add_node(host_nodes *nodes, uint32_t node) {
    for (uint32_t i = 0; i < nodes->count; i++) {
        if (nodes->items[i] == node) {
            return MP_OK;
        }
    }
    if (nodes->count == nodes->capacity) {
        const uint32_t capacity = nodes->capacity == 0 ? 4 : nodes->capacity * 2;
        uint32_t *items = realloc(nodes->items, capacity * sizeof *items);
        if (items == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for %u nodes of a capture",
                           capacity);
        }
        nodes->items = items;
        nodes->capacity = capacity;
    }
    nodes->items[nodes->count++] = node;
    return MP_OK;
}

static mp_status add_nodes(host_nodes *nodes, const host_nodes *more) {
    for (uint32_t i = 0; i < more->count; i++) {
        MP_TRY(add_node(nodes, more->items[i]));
    }
    return MP_OK;
}

static mp_status copy_nodes(host_nodes *nodes, const host_nodes *source) {
    nodes->count = 0;
    return add_nodes(nodes, source);
}

/* ---- graphs ---- */

static void clear_graph(host_object *self) {
    mp_graph_exec *graph = (mp_graph_exec *)(void *)self;
    for (uint32_t i = 0; i < graph->count; i++) {
        mp__host_item_free(graph->nodes[i]);
        mp__host_nodes_free(&graph->after[i]);
    }
    free(graph->nodes);
    free(graph->after);
}

static mp_status grow_graph(host_capture *capture) {
    mp_graph_exec *graph = capture->graph;
    if (graph->count < capture->capacity) {
        return MP_OK;
    }
    const uint32_t capacity = capture->capacity == 0 ? 64 : capture->capacity * 2;
    host_item **nodes = realloc(graph->nodes, capacity * sizeof(host_item *));
    if (nodes != NULL) {
        graph->nodes = nodes;
    }
    host_nodes *after = realloc(graph->after, capacity * sizeof *after);
    if (after != NULL) {
        graph->after = after;
    }
    if (nodes == NULL || after == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for a capture of %u nodes", capacity);
    }
    capture->capacity = capacity;
    return MP_OK;
}

static mp_status add_item(host_capture *capture, host_queue *queue, const host_item *item) {
    MP_TRY(grow_graph(capture));
    mp_graph_exec *graph = capture->graph;
    host_nodes after = {0};
    mp_status status = copy_nodes(&after, &queue->after);
    host_item *node = status == MP_OK ? mp__host_item_clone(item) : NULL;
    if (status == MP_OK && node == NULL) {
        status = MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for a captured item");
    }
    if (status == MP_OK) {
        queue->after.count = 0;
        status = add_node(&queue->after, graph->count);
    }
    if (status != MP_OK) {
        if (node != NULL) {
            mp__host_item_free(node);
        }
        mp__host_nodes_free(&after);
        return status;
    }
    graph->nodes[graph->count] = node;
    graph->after[graph->count] = after;
    graph->count++;
    graph->calls |= item->calls;
    return MP_OK;
}

static mp_status fail_broken(void) {
    return MP_FAIL(DEVICE, "a call that is forbidden during capture has broken the capture; do the "
                           "waiting and asking before it or after it");
}

mp_status mp__host_capture_add(host_device *host, host_queue *queue, const host_item *item) {
    if (item->kind->not_captured != NULL) {
        return MP_FAIL(UNSUPPORTED, "%s cannot be captured; do it outside of the capture",
                       item->kind->not_captured);
    }
    (void)pthread_mutex_lock(&host->lock);
    const mp_status status =
        queue->capture->broken ? fail_broken() : add_item(queue->capture, queue, item);
    (void)pthread_mutex_unlock(&host->lock);
    return status;
}

/* ---- captures ---- */

mp_status mp__host_not_capturing(host_device *host, const char *call) {
    (void)pthread_mutex_lock(&host->lock);
    const host_capture *capture = host->captures;
    while (capture != NULL && !pthread_equal(capture->thread, pthread_self())) {
        capture = capture->next;
    }
    (void)pthread_mutex_unlock(&host->lock);
    if (capture != NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "%s while this thread captures a stream", call);
    }
    return MP_OK;
}

bool mp__host_capture_break(host_device *host, uint64_t id) {
    bool found = false;
    (void)pthread_mutex_lock(&host->lock);
    for (host_capture *capture = host->captures; capture != NULL; capture = capture->next) {
        if (id == 0 || capture->id == id) {
            capture->broken = true;
            found = true;
        }
    }
    (void)pthread_mutex_unlock(&host->lock);
    return found;
}

uint64_t mp__host_capture_id(const host_capture *capture) {
    return capture->id;
}

mp_status mp__host_capture_begin(mp_device *self, mp_stream *stream) {
    host_device *host = mp__host_from(self);
    host_queue *queue = stream->queue;
    MP_TRY(mp__host_call(host, "capture_begin"));
    if (queue->capture != NULL || queue == &host->default_queue) {
        return MP_FAIL(INVALID_ARGUMENT, "capture_begin on stream %u, which %s", queue->number,
                       queue->capture != NULL ? "is being captured already"
                                              : "is the default stream");
    }
    host_capture *capture = calloc(1, sizeof *capture);
    mp_graph_exec *graph = calloc(1, sizeof *graph);
    if (capture == NULL || graph == NULL) {
        free(capture);
        free(graph);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for the record of a capture");
    }
    graph->object.kind = HOST_GRAPH;
    graph->object.clear = clear_graph;
    atomic_init(&graph->object.references, 1);
    capture->graph = graph;
    capture->thread = pthread_self();
    capture->origin = queue;
    (void)pthread_mutex_lock(&host->lock);
    capture->id = ++host->capture_count;
    capture->next = host->captures;
    host->captures = capture;
    queue->capture = capture;
    queue->after.count = 0;
    (void)pthread_mutex_unlock(&host->lock);
    return MP_OK;
}

/* Takes every stream out of the capture, and the capture off the device. Under lock. */
static void detach(host_device *host, const host_capture *capture) {
    for (host_queue *queue = host->queues; queue != NULL; queue = queue->next) {
        if (queue->capture == capture) {
            queue->capture = NULL;
            queue->after.count = 0;
        }
    }
    host_capture **link = &host->captures;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
}

static void free_capture(host_capture *capture) {
    if (capture->graph != NULL) {
        mp__host_object_drop(&capture->graph->object);
    }
    free(capture);
}

void mp__host_capture_abandon(host_queue *queue) {
    host_capture *capture = queue->capture;
    if (capture != NULL) {
        detach(queue->host, capture);
        free_capture(capture);
    }
}

/* Whether the origin's frontier comes after every node. A forked stream that did not join back
 * leaves a node that nothing comes after. */
static mp_status check_joined(const host_capture *capture) {
    const mp_graph_exec *graph = capture->graph;
    uint8_t *seen = calloc(graph->count + (size_t)1, 1);
    if (seen == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory to check a capture of %u nodes",
                       graph->count);
    }
    const host_nodes *frontier = &capture->origin->after;
    for (uint32_t i = 0; i < frontier->count; i++) {
        seen[frontier->items[i]] = 1;
    }
    uint32_t missed = 0;
    for (uint32_t node = graph->count; node-- > 0;) {
        missed += seen[node] == 0;
        for (uint32_t i = 0; seen[node] != 0 && i < graph->after[node].count; i++) {
            seen[graph->after[node].items[i]] = 1;
        }
    }
    free(seen);
    if (missed > 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "capture_end with %u of %u nodes on streams that have not joined the first "
                       "one again; record an event there and wait for it here",
                       missed, graph->count);
    }
    return MP_OK;
}

/* Moves the graph into the list of objects that users have. */
static mp_status publish(host_device *host, host_capture *capture, mp_graph_exec **out) {
    mp_graph_exec *graph = NULL;
    MP_TRY(mp__host_object_create(host, HOST_GRAPH, sizeof *graph, &graph));
    mp_graph_exec *written = capture->graph;
    graph->object.clear = clear_graph;
    graph->count = written->count;
    graph->nodes = written->nodes;
    graph->after = written->after;
    graph->calls = written->calls;
    written->count = 0;
    written->nodes = NULL;
    written->after = NULL;
    *out = graph;
    return MP_OK;
}

mp_status mp__host_capture_end(mp_device *self, mp_stream *stream, mp_graph_exec **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "capture_end"));
    host_capture *capture = stream->queue->capture;
    if (capture == NULL || capture->origin != stream->queue) {
        return MP_FAIL(INVALID_ARGUMENT, "capture_end on stream %u, where no capture was begun",
                       stream->queue->number);
    }
    if (!pthread_equal(capture->thread, pthread_self())) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "capture_end on another thread than the one that began the capture");
    }
    (void)pthread_mutex_lock(&host->lock);
    mp_status status = capture->broken ? fail_broken() : check_joined(capture);
    detach(host, capture);
    (void)pthread_mutex_unlock(&host->lock);
    if (status == MP_OK) {
        status = publish(host, capture, out);
    }
    free_capture(capture);
    return status;
}

mp_status mp__host_capture_active(mp_device *self, mp_stream *stream, bool *active) {
    MP_TRY(mp__host_call(mp__host_from(self), "capture_active"));
    *active = stream->queue->capture != NULL;
    return MP_OK;
}

mp_status mp__host_capture_record(host_device *host, host_queue *queue, mp_event *event) {
    (void)pthread_mutex_lock(&host->lock);
    const mp_status status = copy_nodes(&event->after, &queue->after);
    event->capture = queue->capture->id;
    (void)pthread_mutex_unlock(&host->lock);
    return status;
}

static mp_status wait_locked(host_device *host, host_queue *queue, const mp_event *event) {
    if (event->capture == 0) {
        return event->recorded == 0 ? MP_OK
                                    : MP_FAIL(INVALID_ARGUMENT,
                                              "stream %u is being captured and cannot wait for an "
                                              "event that was recorded outside of the capture",
                                              queue->number);
    }
    host_capture *capture = host->captures;
    while (capture != NULL && capture->id != event->capture) {
        capture = capture->next;
    }
    if (capture == NULL || (queue->capture != NULL && queue->capture != capture)) {
        return MP_FAIL(INVALID_ARGUMENT, "the event was last recorded in a capture that %s",
                       capture == NULL ? "has ended" : "this stream has no part in");
    }
    if (queue->capture == NULL && queue->head != NULL) {
        queue->after.count = 0; /* what is queued already stays outside */
    }
    queue->capture = capture;
    return add_nodes(&queue->after, &event->after);
}

mp_status mp__host_capture_wait(host_device *host, host_queue *queue, mp_event *event) {
    (void)pthread_mutex_lock(&host->lock);
    const mp_status status = wait_locked(host, queue, event);
    (void)pthread_mutex_unlock(&host->lock);
    return status;
}

/* ---- replay ---- */

void mp__host_graph_destroy(mp_device *self, mp_graph_exec *graph) {
    mp__host_object_destroy(mp__host_from(self), &graph->object);
}

static const host_item_kind branch_kind;

static void run_branch(host_device *host, host_queue *queue, const host_item *branch,
                       const host_item *replay);

static void run_node(host_device *host, host_queue *queue, host_item *node,
                     const host_item *replay) {
    if (mp__host_adversarial(host)) {
        mp__host_check_running(host, queue, node, replay->loans);
    }
    if (node->kind == &branch_kind) {
        run_branch(host, queue, node, replay);
    } else {
        (void)mp__host_item_run(host, queue, node, replay);
    }
}

static bool may_run(const mp_graph_exec *graph, const uint8_t *done, uint32_t node) {
    if (done[node]) {
        return false;
    }
    for (uint32_t i = 0; i < graph->after[node].count; i++) {
        if (!done[graph->after[node].items[i]]) {
            return false;
        }
    }
    return true;
}

/* The node to run next: the first one that may, or one a random few further on. */
static uint32_t choose_node(const mp_graph_exec *graph, const uint8_t *done, uint32_t skip) {
    uint32_t chosen = graph->count;
    for (uint32_t node = 0; node < graph->count; node++) {
        if (may_run(graph, done, node)) {
            chosen = node;
            if (skip-- == 0) {
                break;
            }
        }
    }
    return chosen;
}

/* Which nodes have run; NULL where they run in their order. */
static uint8_t *marks_of(host_device *host, host_item *item) {
    if (mp__host_adversarial(host) && item->done == NULL) {
        uint8_t *fresh = calloc(item->graph.graph->count + (size_t)1, 1);
        (void)pthread_mutex_lock(&host->lock);
        item->done = fresh;
        (void)pthread_mutex_unlock(&host->lock);
    }
    return item->done;
}

static void run_in_order(host_device *host, host_queue *queue, const mp_graph_exec *graph,
                         const host_item *replay) {
    for (uint32_t i = 0; i < graph->count; i++) {
        run_node(host, queue, graph->nodes[i], replay);
    }
}

static bool run_graph(host_device *host, host_queue *queue, host_item *item) {
    mp_graph_exec *graph = item->graph.graph;
    uint8_t *done = marks_of(host, item);
    if (done == NULL) { /* also without memory: the captured order is always right */
        run_in_order(host, queue, graph, item);
        return true;
    }
    (void)pthread_mutex_lock(&host->lock);
    const uint32_t skip = mp__host_random(host, 4);
    (void)pthread_mutex_unlock(&host->lock);
    const uint32_t node = choose_node(graph, done, skip);
    if (node < graph->count) {
        run_node(host, queue, graph->nodes[node], item);
        (void)pthread_mutex_lock(&host->lock); /* others look at what is still to come */
        done[node] = 1;
        (void)pthread_mutex_unlock(&host->lock);
    }
    return choose_node(graph, done, 0) == graph->count;
}

static host_object *launched_graph(const host_item *item) {
    return &item->graph.graph->object;
}

/* Those of the nodes that are still to run. */
static bool graph_references(const host_item *item, host_reference_fn *fn, void *context) {
    const mp_graph_exec *graph = item->graph.graph;
    for (uint32_t i = 0; i < graph->count; i++) {
        const host_item *node = graph->nodes[i];
        if ((item->done == NULL || !item->done[i]) && node->kind->references != NULL &&
            node->kind->references(node, fn, context)) {
            return true;
        }
    }
    return false;
}

static const char *graph_word(const host_item *item) {
    (void)item;
    return "a graph";
}

static const host_item_kind graph_kind = {
    .run = run_graph,
    .object = launched_graph,
    .references = graph_references,
    .name = graph_word,
    .not_captured = "graph_launch",
    .has_nodes = true,
};

mp_status mp__host_graph_launch(mp_device *self, mp_graph_exec *graph, mp_stream *stream) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "graph_launch"));
    host_item item = {.kind = &graph_kind, .calls = graph->calls, .graph = {.graph = graph}};
    return mp__host_enqueue(host, stream->queue, &item);
}

/* ---- branches: a node that is a graph of its own ---- */

/* All of it at once: other streams get no turn within a branch. */
static void run_shuffled(host_device *host, host_queue *queue, const mp_graph_exec *graph,
                         uint8_t *done, const host_item *replay) {
    for (uint32_t i = 0; i < graph->count; i++) {
        (void)pthread_mutex_lock(&host->lock);
        const uint32_t skip = mp__host_random(host, 4);
        (void)pthread_mutex_unlock(&host->lock);
        const uint32_t node = choose_node(graph, done, skip);
        run_node(host, queue, graph->nodes[node], replay);
        done[node] = 1;
    }
}

static void run_branch(host_device *host, host_queue *queue, const host_item *branch,
                       const host_item *replay) {
    const mp_graph_exec *graph = branch->branch.graph;
    const bool holds = *(const uint8_t *)branch->branch.condition != 0;
    if (holds != branch->branch.wanted) {
        return;
    }
    uint8_t *done = mp__host_adversarial(host) ? calloc(graph->count + (size_t)1, 1) : NULL;
    if (done != NULL) {
        run_shuffled(host, queue, graph, done, replay);
    } else {
        run_in_order(host, queue, graph, replay);
    }
    free(done);
}

static host_object *branch_graph(const host_item *item) {
    return &item->branch.graph->object;
}

/* What it is made of counts, whether it will run or not: nobody knows that before. */
static bool branch_references(const host_item *item, host_reference_fn *fn, void *context) {
    const mp_graph_exec *graph = item->branch.graph;
    if (fn(context, item, (host_reference){.addr = item->branch.condition, .size = 1})) {
        return true;
    }
    for (uint32_t i = 0; i < graph->count; i++) {
        const host_item *node = graph->nodes[i];
        if (node->kind->references != NULL && node->kind->references(node, fn, context)) {
            return true;
        }
    }
    return false;
}

static const char *branch_word(const host_item *item) {
    (void)item;
    return "a branch";
}

/* Never run by its kind: it needs to know who launched its graph (run_node). */
static const host_item_kind branch_kind = {
    .object = branch_graph,
    .references = branch_references,
    .name = branch_word,
    .has_nodes = true,
};

mp_status mp__host_capture_add_branch(host_device *host, mp_stream *stream, mp_graph_exec *graph,
                                      mp_addr condition, bool wanted) {
    if (graph->calls) {
        return MP_FAIL(UNSUPPORTED, "a branch of a capture has a call of the host, and cannot");
    }
    if (stream->queue->capture == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "branch_end on stream %u, whose capture has ended",
                       stream->queue->number);
    }
    const host_item item = {.kind = &branch_kind,
                            .branch = {.graph = graph, .condition = condition, .wanted = wanted}};
    return mp__host_capture_add(host, stream->queue, &item);
}
