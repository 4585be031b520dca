/* cuda_profile.c - what a GPU did, from CUPTI's activity records.
 *
 * A record names the driver call that queued it by a number. A callback at the entry of those
 * calls, on the calling thread, writes the thread's mark beside that number into a ring, so a
 * record finds its mark without a lock and without a record for every call (which CUPTI's own
 * external correlation would need). Work in a replay has the number of the launch of the graph, and
 * beside it the node of the graph; callbacks at the making and cloning of nodes keep each node's
 * mark.
 *
 * CUPTI serves one client in a process. It is taken while somebody listens and given back after.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_profile.h"
#include "device/cuda/cuda_marks.h"
#include "device/cuda/cuda_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "device/profile.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BUFFER_BYTES = 64 << 10, /* some 300 kernels */
    FLUSH_PERIOD_MS = 100,
    FLUSH_TRIES = 20, /* a millisecond apart */
};

/* ---- callbacks: on the thread that calls the driver ---- */

/* Driver calls that queue kernels, copies and fills, by CUPTI's numbers: cuMemcpy*, cuMemset*,
 * cuLaunch*, cuGraphLaunch, each with its variants. */
static const uint32_t calls[] = {
    276, 277, 278, 279, 280, 281, 305, 306, 318, 319, 397, 398,
    399, 408, 409, 418, 421, 422, 423, 426, 776, 777, 796, 797, /* copies */
    216, 218, 220, 249, 250, 251, 411, 412, 413, 428, 429, 430, /* fills */
    115, 116, 117, 307, 442, 477, 478, 480, 652, 653,           /* launches */
    514, 515,                                                   /* replays */
};
static const uint32_t node_events[] = {PTI_NODE_CREATED, PTI_NODE_DESTROYED, PTI_NODE_CLONED};
static const int kinds[] = {PTI_KIND_KERNEL, PTI_KIND_COPY, PTI_KIND_FILL, PTI_KIND_PEER_COPY};

static void on_call(const pti_call *call) {
    const uint64_t tag = call->site == PTI_SITE_ENTER ? mp__profile_tag() : 0;
    if (tag != 0) {
        mp__profile_expect(tag, 1);
        mp__cuda_call_mark(call->correlation, tag);
    }
}

static uint64_t node_id(CUgraphNode node) {
    uint64_t id = 0;
    return mp__pti.graph_node_id(node, &id) == PTI_SUCCESS ? id : 0;
}

static void on_node(uint32_t event, const pti_graph *graph) {
    if (event == PTI_NODE_DESTROYED) {
        mp__cuda_node_mark(node_id(graph->node), 0);
        return;
    }
    const uint64_t tag = event == PTI_NODE_CREATED
                             ? mp__profile_tag()
                             : mp__cuda_node_tag(node_id(graph->original_node));
    if (tag != 0) {
        mp__cuda_node_mark(node_id(graph->node), tag);
    }
    if (tag != 0 && event == PTI_NODE_CREATED) {
        mp__profile_expect(tag, -1); /* the call around it is captured and has no record */
    }
}

void mp__cuda_profile_callback(void *context, int domain, uint32_t id, const void *data) {
    (void)context;
    if (domain == PTI_DOMAIN_DRIVER) {
        on_call(data);
    } else if (domain == PTI_DOMAIN_RESOURCE) {
        on_node(id, ((const pti_resource *)data)->descriptor);
    }
}

/* ---- records: on a thread of CUPTI's, or of the caller of flush ---- */

typedef char *demangler(const char *name, char *buffer, size_t *size, int *status);

/* Found where the C++ library is loaded anyway. */
static demangler *find_demangler(void) {
    demangler *found = NULL;
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *address = library != NULL ? dlsym(library, "__cxa_demangle") : NULL;
    memcpy(&found, &address, sizeof found);
    return found; /* which stays loaded: the handle is not closed */
}

static void add_named(mp_profile_record *record, const char *name) {
    static _Atomic(demangler *) demangle;
    char *plain = NULL;
    int status = 0;
    if (strncmp(name, "_Z", 2) == 0) {
        demangler *by = atomic_load(&demangle);
        if (by == NULL) {
            by = find_demangler();
            atomic_store(&demangle, by);
        }
        plain = by != NULL ? by(name, NULL, NULL, &status) : NULL;
    }
    record->name = plain != NULL ? plain : name;
    mp__profile_add(record);
    free(plain);
}

/* What all records have; false for one that is nobody's or that has not ended. */
static bool set_common(mp_profile_record *record, uint32_t correlation, uint64_t begin,
                       uint64_t end, uint64_t graph_node) {
    record->tag = begin != 0 && end != 0 ? mp__cuda_call_tag(correlation) : 0;
    record->node_tag = graph_node != 0 ? mp__cuda_node_tag(graph_node) : record->tag;
    record->correlation = correlation;
    record->begin_ns = (int64_t)begin;
    record->end_ns = (int64_t)end;
    record->in_graph = graph_node != 0;
    return record->tag != 0;
}

static void tell_kernel(const pti_kernel *kernel) {
    mp_profile_record record = {
        .stream = kernel->stream,
        .device = (int32_t)kernel->device,
    };
    if (!set_common(&record, kernel->correlation, kernel->start, kernel->end, kernel->graph_node)) {
        return;
    }
    for (int i = 0; i < 3; i++) {
        record.grid[i] = (uint32_t)kernel->grid[i];
        record.block[i] = (uint32_t)kernel->block[i];
    }
    add_named(&record, kernel->name != NULL ? kernel->name : "kernel");
}

static void tell_copy(const pti_copy *copy) {
    const bool is_fill = copy->kind == PTI_KIND_FILL;
    const int kind = copy->copy_kind;
    const bool from_host = kind == PTI_COPY_HOST_TO_DEVICE || kind == PTI_COPY_HOST_TO_ARRAY ||
                           kind == PTI_COPY_HOST_TO_HOST;
    const bool to_host = kind == PTI_COPY_DEVICE_TO_HOST || kind == PTI_COPY_ARRAY_TO_HOST ||
                         kind == PTI_COPY_HOST_TO_HOST;
    mp_profile_record record = {
        .kind = is_fill ? MP_PROFILE_FILL : MP_PROFILE_COPY,
        .stream = copy->stream,
        .device = (int32_t)copy->device,
        .bytes = copy->bytes,
    };
    if (set_common(&record, copy->correlation, copy->start, copy->end, copy->graph_node)) {
        add_named(&record,
                  is_fill ? MP_PROFILE_FILL_NAME : mp__profile_copy_name(!from_host, !to_host));
    }
}

static void tell_peer_copy(const pti_peer_copy *copy) {
    mp_profile_record record = {
        .kind = MP_PROFILE_COPY,
        .stream = copy->stream,
        .device = (int32_t)copy->device,
        .bytes = copy->bytes,
    };
    if (set_common(&record, copy->correlation, copy->start, copy->end, copy->graph_node)) {
        add_named(&record, "MemcpyPeerToPeer");
    }
}

static void tell(const pti_record *record) {
    switch (record->kind) {
    case PTI_KIND_KERNEL:
        tell_kernel((const pti_kernel *)(const void *)record);
        break;
    case PTI_KIND_COPY:
    case PTI_KIND_FILL:
        tell_copy((const pti_copy *)(const void *)record);
        break;
    case PTI_KIND_PEER_COPY:
        tell_peer_copy((const pti_peer_copy *)(const void *)record);
        break;
    default:
        break;
    }
}

void mp__cuda_profile_give(uint8_t **buffer, size_t *size, size_t *records_max) {
    *buffer = malloc(BUFFER_BYTES); /* NULL: the records are dropped */
    *size = *buffer != NULL ? BUFFER_BYTES : 0;
    *records_max = 0;
}

void mp__cuda_profile_take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                           size_t used) {
    (void)context;
    (void)stream;
    (void)size;
    pti_record *record = NULL;
    while (used > 0 && mp__pti.next(buffer, used, &record) == PTI_SUCCESS) {
        tell(record);
    }
    free(buffer);
}

/* ---- on and off ---- */

static struct {
    pthread_mutex_t lock;
    int users;
    void *subscriber;
} client = {.lock = PTHREAD_MUTEX_INITIALIZER};

static mp_status refusal(int result, const char *call) {
    const char *text = NULL;
    (void)mp__pti.error_text(result, &text);
    const char *advice = "";
    if (result == PTI_MULTIPLE_SUBSCRIBERS || result == PTI_MAX_LIMIT_REACHED) {
        advice =
            "; another profiler (Nsight, or that of another library) is at work in this process "
            "and shows the kernels itself";
    } else if (result == PTI_INSUFFICIENT_PRIVILEGES) {
        advice = "; the driver lets administrators profile only";
    }
    return MP_FAIL(UNSUPPORTED, "%s of CUPTI failed: %s (%d)%s", call,
                   text != NULL ? text : "unknown error", result, advice);
}

static int enable_callbacks(void) {
    int result = PTI_SUCCESS;
    for (size_t i = 0; i < MP_COUNT_OF(calls); i++) {
        /* A library that does not know a newer call is not a reason to stop. */
        (void)mp__pti.callback_enable(1, client.subscriber, PTI_DOMAIN_DRIVER, calls[i]);
    }
    for (size_t i = 0; i < MP_COUNT_OF(node_events) && result == PTI_SUCCESS; i++) {
        result = mp__pti.callback_enable(1, client.subscriber, PTI_DOMAIN_RESOURCE, node_events[i]);
    }
    return result;
}

static void stop(void) {
    for (size_t i = 0; i < MP_COUNT_OF(kinds); i++) {
        (void)mp__pti.disable(kinds[i]);
    }
    (void)mp__pti.flush_period(0);
    (void)mp__pti.unsubscribe(client.subscriber);
    client.subscriber = NULL;
    mp__cuda_marks_clear();
}

static mp_status start(void) {
    MP_TRY(mp__cuda_need(CUDA_LIB_PTI));
    MP_TRY(mp__cuda_marks_open());
    const char *call = "cuptiSubscribe";
    int result = mp__pti.subscribe(&client.subscriber, mp__cuda_profile_callback, NULL);
    if (result != PTI_SUCCESS) {
        return refusal(result, call);
    }
    call = "cuptiEnableCallback";
    result = enable_callbacks();
    if (result == PTI_SUCCESS) {
        call = "cuptiActivityRegisterCallbacks";
        result = mp__pti.buffers(mp__cuda_profile_give, mp__cuda_profile_take);
    }
    for (size_t i = 0; i < MP_COUNT_OF(kinds) && result == PTI_SUCCESS; i++) {
        call = "cuptiActivityEnable";
        result = mp__pti.enable(kinds[i]);
    }
    if (result != PTI_SUCCESS) {
        const mp_status status = refusal(result, call);
        stop();
        return status;
    }
    (void)mp__pti.flush_period(FLUSH_PERIOD_MS);
    return MP_OK;
}

mp_status mp__cuda_profile_begin(mp_device *self) {
    (void)self; /* CUPTI tells of all devices; the marks say whose work it is */
    (void)pthread_mutex_lock(&client.lock);
    const mp_status status = client.users > 0 ? MP_OK : start();
    client.users += status == MP_OK;
    (void)pthread_mutex_unlock(&client.lock);
    return status;
}

void mp__cuda_profile_end(mp_device *self) {
    (void)self;
    (void)pthread_mutex_lock(&client.lock);
    if (--client.users == 0) {
        stop();
    }
    (void)pthread_mutex_unlock(&client.lock);
}

/* CUPTI keeps a buffer back in which a kernel has not ended, be it of another session. The forced
 * flush gives those out too, and then nobody hears of the kernels in them that have not ended. */
void mp__cuda_profile_flush(mp_device *self, const mp_profile *listener) {
    (void)self;
    int result = mp__pti.flush(0);
    for (int i = 0; i < FLUSH_TRIES && result == PTI_SUCCESS && mp__profile_pending(listener) > 0;
         i++) {
        (void)nanosleep(&(const struct timespec){.tv_nsec = 1000000}, NULL);
        result = mp__pti.flush(0);
    }
    if (mp__profile_pending(listener) > 0) {
        result = mp__pti.flush(PTI_FLUSH_FORCED);
    }
    if (result != PTI_SUCCESS) {
        (void)refusal(result, "cuptiActivityFlushAll");
        MP_LOG(WARNING, "a profile may lack kernels: %s", mp_error_message());
    }
}

int64_t mp__cuda_profile_clock(mp_device *self) {
    (void)self;
    uint64_t now = 0;
    return mp__pti.timestamp(&now) == PTI_SUCCESS ? (int64_t)now : mp_clock_ns();
}
