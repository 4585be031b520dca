/* profiler.c - adds kernels, copies and fills to the profile of a session, each with the node that
 * it is for.
 *
 * ONNX Runtime says on the thread that works when an event of its own begins and ends; in between,
 * the thread's mark (device/profile.h) is that event. At its end the event's node is noted under
 * the mark's tag, if work was queued under it. At the end of the profile each record of the device
 * finds its node by its tag: in a replay of a graph the node that was captured. Records of an
 * island bring the nodes of the model with them, as parts of the island's event.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/session/profiler.h"

#include "base/clock.h"
#include "base/growing.h"
#include "base/json.h"
#include "base/log.h"
#include "device/profile.h"
#include "ep/abi/bridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVENTS_AT_ONCE = 64, /* handed to ONNX Runtime in one call */
    ARGS_MAX = 20,
    NUMBER_MAX = 24,
    NOTES_MAX = 1 << 20, /* as many events as ONNX Runtime keeps */
};

typedef struct note { /* an event of ONNX Runtime's under which work was queued */
    uint64_t tag;     /* first */
    uint64_t id;
    char *text;  /* owned; event, operator and index, each ended by a zero; NULL: no node's event */
    char *nodes; /* owned; the same node as parts of islands name theirs; NULL: not known */
} note;

typedef struct profiler {
    OrtEpProfilerImpl base; /* first */
    mp_factory *factory;    /* kept */
    mp_device *device;
    mp_profile *profile;  /* owned; NULL while nothing is recorded */
    int64_t ort_start_ns; /* ONNX Runtime's zero, on our clock */
    pthread_mutex_t lock; /* guards what follows */
    note *notes;          /* owned */
    size_t count, capacity;
} profiler;

static profiler *from(OrtEpProfilerImpl *self) {
    return (profiler *)(void *)self;
}

/* ---- while it records ---- */

static OrtStatus *start_profiling(OrtEpProfilerImpl *self, int64_t since_start_ns) {
    profiler *p = from(self);
    if (p->profile != NULL) {
        return NULL;
    }
    p->ort_start_ns = mp_clock_ns() - since_start_ns;
    if (mp_profile_open(p->device, &p->profile) != MP_OK) {
        MP_LOG(WARNING, "the profile will have no kernels and copies of device %d: %s",
               p->device->ordinal, mp_error_message());
    }
    return NULL; /* ONNX Runtime's own events are worth having without ours */
}

static OrtStatus *start_event(OrtEpProfilerImpl *self, uint64_t id) {
    profiler *p = from(self);
    if (p->profile != NULL) {
        mp_profile_push(p->profile, id);
    }
    return NULL;
}

static void discard(OrtStatus *status) {
    if (status != NULL) {
        ORT->ReleaseStatus(status);
    }
}

/* The event's name, its operator and its node's index; NULL for an event of no node. */
static char *describe(const OrtProfilingEvent *event) {
    OrtProfilingEventCategory category = OrtProfilingEventCategory_SESSION;
    const char *words[3] = {NULL, NULL, NULL};
    OrtStatus *status = ORT_EP->ProfilingEvent_GetCategory(event, &category);
    if (status == NULL && category == OrtProfilingEventCategory_NODE) {
        status = ORT_EP->ProfilingEvent_GetName(event, &words[0]);
        discard(ORT_EP->ProfilingEvent_GetArgValue(event, "op_name", &words[1]));
        discard(ORT_EP->ProfilingEvent_GetArgValue(event, "node_index", &words[2]));
    }
    discard(status);
    if (words[0] == NULL) {
        return NULL;
    }
    size_t size = 0;
    for (int i = 0; i < 3; i++) {
        words[i] = words[i] != NULL ? words[i] : "";
        size += strlen(words[i]) + 1;
    }
    char *text = malloc(size);
    char *at = text;
    for (int i = 0; i < 3 && text != NULL; i++) {
        at = stpcpy(at, words[i]) + 1;
    }
    return text;
}

#define EVENT_END "_kernel_time" /* behind the node's name */

/* Whether the event is an island's, after which ONNX Runtime calls the operator. */
static bool is_island(const profiler *p, const char *text) {
    const char *provider = p->factory->name->provider;
    const char *op = text + strlen(text) + 1;
    const size_t length = strlen(provider);
    return strncmp(op, provider, length) == 0 && op[length] == '_';
}

/* As mp_origins_json writes it; NULL without memory, or for an event of no single node. */
static char *describe_node(const profiler *p, const char *text) {
    char *out = NULL;
    size_t size = 0;
    const size_t length = text != NULL ? strlen(text) : 0;
    const size_t end = sizeof EVENT_END - 1;
    FILE *file = text != NULL && !is_island(p, text) ? open_memstream(&out, &size) : NULL;
    if (file == NULL) {
        return NULL;
    }
    const bool named = length >= end && strcmp(text + length - end, EVENT_END) == 0;
    char *name = strndup(text, named ? length - end : length);
    (void)fputs("[{\"op_type\":", file);
    mp_json_text(file, text + length + 1);
    (void)fputs(",\"name\":", file);
    mp_json_text(file, name != NULL ? name : "");
    (void)fputs("}]", file);
    free(name);
    if (fclose(file) != 0) {
        free(out);
        return NULL;
    }
    return out;
}

static void free_note(const note *n) {
    free(n->text);
    free(n->nodes);
}

static OrtStatus *stop_event(OrtEpProfilerImpl *self, uint64_t id, const OrtProfilingEvent *event) {
    profiler *p = from(self);
    const uint64_t tag = p->profile != NULL ? mp_profile_pop(p->profile, id) : 0;
    if (tag == 0) {
        return NULL;
    }
    note fresh = {.tag = tag, .id = id, .text = describe(event)};
    fresh.nodes = describe_node(p, fresh.text);
    (void)pthread_mutex_lock(&p->lock);
    const bool room =
        p->count < NOTES_MAX && mp_grow(&p->notes, p->count + 1, &p->capacity, sizeof(note));
    if (room) {
        p->notes[p->count++] = fresh;
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (!room) {
        free_note(&fresh);
    }
    return NULL;
}

/* ---- events for ONNX Runtime ---- */

typedef struct event_args {
    const char *keys[ARGS_MAX], *values[ARGS_MAX];
    char numbers[ARGS_MAX][NUMBER_MAX];
    size_t count;
} event_args;

static void add_text(event_args *args, const char *key, const char *value) {
    args->keys[args->count] = key;
    args->values[args->count++] = value;
}

static void add_number(event_args *args, const char *key, uint64_t value) {
    char *text = args->numbers[args->count];
    (void)snprintf(text, NUMBER_MAX, "%llu", (unsigned long long)value);
    add_text(args, key, text);
}

/* Of a copy -1, as ONNX Runtime's own code for CUPTI has it: readers find the keys in every event.
 */
static void add_extent(event_args *args, const char *key, bool kernel, uint64_t value) {
    if (kernel) {
        add_number(args, key, value);
    } else {
        add_text(args, key, "-1");
    }
}

static const note *find_note(const profiler *p, uint64_t tag) {
    return mp_profile_find(tag, p->notes, p->count, sizeof(note));
}

/* Names of nodes may hold any bytes, so they are written as JSON, which ONNX Runtime passes on. */
static void add_node(event_args *args, const note *node, const char *part) {
    const char *nodes = part != NULL ? strchr(part, ' ') : NULL;
    if (nodes != NULL) {
        add_number(args, "island_step", strtoull(part, NULL, 10));
        add_text(args, "onnx_nodes", nodes + 1);
    } else if (node != NULL && node->nodes != NULL) {
        add_text(args, "onnx_nodes", node->nodes);
    }
    if (node == NULL || node->text == NULL) {
        return;
    }
    const char *op = node->text + strlen(node->text) + 1;
    const char *index = op + strlen(op) + 1;
    add_text(args, "ort_event_name", node->text);
    add_text(args, "ort_op_name", op);
    add_text(args, "ort_node_index", index);
}

static void fill_args(const profiler *p, const mp_profile_record *record, event_args *args) {
    static const char *const grid[] = {"grid_x", "grid_y", "grid_z"};
    static const char *const block[] = {"block_x", "block_y", "block_z"};
    const bool kernel = record->kind == MP_PROFILE_KERNEL;
    const note *event = find_note(p, record->tag);
    args->count = 0;
    add_number(args, "device", (uint64_t)record->device);
    add_number(args, "stream", record->stream);
    add_number(args, "correlation_id", record->correlation);
    for (int i = 0; i < 3; i++) {
        add_extent(args, grid[i], kernel, record->grid[i]);
    }
    for (int i = 0; i < 3; i++) {
        add_extent(args, block[i], kernel, record->block[i]);
    }
    if (!kernel) {
        add_number(args, "bytes", record->bytes);
    }
    add_number(args, "duration_ns", (uint64_t)(record->end_ns - record->begin_ns));
    if (record->in_graph) {
        add_text(args, "in_graph", "1");
    }
    if (event != NULL) {
        add_number(args, "ort_correlation_id", event->id);
    }
    add_node(args, find_note(p, record->node_tag), record->part);
}

typedef struct writer {
    const profiler *owner;
    OrtProfilingEventsContainer *container;
    OrtProfilingEvent *events[EVENTS_AT_ONCE]; /* owned */
    size_t count;
    OrtStatus *failed; /* the first failure */
} writer;

static void write_out(writer *w) {
    if (w->count > 0 && w->failed == NULL) {
        w->failed = ORT_EP->ProfilingEventsContainer_AddEvents(
            w->container, (const OrtProfilingEvent *const *)w->events, w->count);
    }
    while (w->count > 0) {
        ORT_EP->ReleaseProfilingEvent(w->events[--w->count]);
    }
}

/* A track for each stream: viewers make one of each pair of a process and a thread. */
static void write_record(void *context, const mp_profile_record *record) {
    writer *w = context;
    event_args args;
    fill_args(w->owner, record, &args);
    if (w->failed == NULL) {
        w->failed = ORT_EP->CreateProfilingEvent(
            OrtProfilingEventCategory_KERNEL, -1 - record->device, (int32_t)record->stream,
            record->name, (record->begin_ns - w->owner->ort_start_ns) / 1000,
            (record->end_ns - record->begin_ns) / 1000, args.keys, args.values, args.count,
            &w->events[w->count]);
        w->count += w->failed == NULL;
    }
    if (w->count == EVENTS_AT_ONCE) {
        write_out(w);
    }
}

static void forget(profiler *p) {
    for (size_t i = 0; i < p->count; i++) {
        free_note(&p->notes[i]);
    }
    p->count = 0;
}

static OrtStatus *end_profiling(OrtEpProfilerImpl *self, OrtProfilingEventsContainer *container) {
    profiler *p = from(self);
    writer w = {.owner = p, .container = container};
    if (p->profile == NULL) {
        return NULL;
    }
    if (p->count > 0) {
        qsort(p->notes, p->count, sizeof p->notes[0], mp_profile_by_tag);
    }
    const size_t dropped = mp_profile_close(p->profile, write_record, &w);
    p->profile = NULL;
    write_out(&w);
    forget(p);
    if (dropped > 0) {
        MP_LOG(WARNING,
               "the profile lacks %zu of the device's kernels and copies; it holds the first",
               dropped);
    }
    return w.failed;
}

/* ---- life ---- */

static void ignore_record(void *context, const mp_profile_record *record) {
    (void)context;
    (void)record;
}

static void release(OrtEpProfilerImpl *self) {
    profiler *p = from(self);
    if (p->profile != NULL) {
        (void)mp_profile_close(p->profile, ignore_record, NULL);
    }
    forget(p);
    free(p->notes);
    pthread_mutex_destroy(&p->lock);
    mp__factory_drop(p->factory);
    free(p);
}

OrtStatus *mp__profiler_create(OrtEp *self, OrtEpProfilerImpl **out) {
    const mp_provider *provider = (const mp_provider *)self;
    *out = NULL;
    profiler *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a profiler"));
    }
    pthread_mutex_init(&p->lock, NULL);
    mp__factory_keep(provider->factory);
    p->factory = provider->factory;
    p->device = provider->unit->device;
    p->base = (OrtEpProfilerImpl){
        .ort_version_supported = mp_the_plugin.version,
        .Release = release,
        .StartProfiling = start_profiling,
        .StartEvent = start_event,
        .StopEvent = stop_event,
        .EndProfiling = end_profiling,
    };
    *out = &p->base;
    return NULL;
}
