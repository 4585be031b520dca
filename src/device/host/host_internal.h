/* host_internal.h - what the files of the emulated device share.
 *
 * Work is an item. An eager device runs it where it is queued; otherwise a copy of it waits in its
 * stream's queue until that stream's thread (threaded) or the scheduler (adversarial) runs it.
 *
 * Locks, in the order they may be taken: `lock` guards queues, events, captures, objects and the
 * random numbers; `memory_lock` guards the tables of ranges. No item runs under either.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_INTERNAL_H
#define MP_DEVICE_HOST_INTERNAL_H

#include "base/later.h"
#include "device/collective.h"
#include "device/host/host_device.h"
#include "device/host/host_range.h"
#include "device/math.h"
#include "device/profile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
    HOST_SHARED_BYTES_MAX = 48 << 10,
    HOST_LANES_MAX = 1024,
    HOST_GRANULE = 2 << 20, /* as on a GPU, so that both take the same paths */
};

typedef struct host_device host_device;
typedef struct host_queue host_queue;
typedef struct host_capture host_capture;
typedef struct host_item host_item;

/* ---- objects: counted, because queued items keep what they use ---- */

typedef enum host_kind {
    HOST_STREAM,
    HOST_EVENT,
    HOST_GRAPH,
    HOST_KERNEL,
    HOST_MATH,
    HOST_MEMPOOL,
    HOST_SEMAPHORE,
} host_kind;

typedef struct host_object {         /* first member of every object the device gives out */
    struct host_object *next, *prev; /* among the device's objects, while its user has it */
    host_kind kind;
    atomic_uint references;
    void (*clear)(struct host_object *self); /* frees what it owns; NULL: nothing */
} host_object;

/* Gives: a zeroed object of `size` bytes, in the device's list, with one reference. */
mp_status mp__host_object_create(host_device *host, host_kind kind, size_t size, void *out);
/* The user has given it back: takes it off the list and drops the user's reference. */
void mp__host_object_destroy(host_device *host, host_object *object);
void mp__host_object_keep(host_object *object);
void mp__host_object_drop(host_object *object);

typedef struct host_nodes { /* items of a capture, by index */
    uint32_t *items;        /* owned */
    uint32_t count, capacity;
} host_nodes;

struct mp_event {
    host_object object;
    bool timed;
    uint64_t recorded, reached; /* under lock: records queued, and the last one that has run */
    host_queue *source;         /* borrowed: where it was recorded last */
    struct timespec at;         /* under lock */
    uint64_t capture;           /* id of the capture that recorded it last; 0 outside */
    host_nodes after;           /* what that record comes after */
};

struct mp_stream {
    host_object object;
    host_queue *queue;
    bool owned;        /* false: wraps a queue of someone else */
    mp_addr condition; /* of a branch: see branch_begin */
    bool wanted;
};

struct mp_semaphore {
    host_object object;
    _Atomic(uint64_t) *count; /* owned; of memory that other processes may share */
};

struct mp_mempool { /* all under memory_lock */
    host_object object;
    mp_mempool *next; /* among the device's */
    size_t threshold;
    size_t cached; /* part of reserved: freed, and kept for later */
    mp_mempool_usage usage;
    bool closed; /* its user has given it back */
};

struct mp_kernel {
    host_object object;
    const mp_kernel_image *image; /* borrowed, static */
    atomic_bool ready;            /* as on a GPU, none is launched before it is */
    mp_later later;               /* makes it ready, where compiling takes a while */
    host_device *device;
    const struct mp_kernel *stand_in; /* launched until it is ready */
    atomic_bool unwanted;             /* it need not become ready any more */
};

typedef enum host_math_kind { HOST_GEMM, HOST_CONV, HOST_COLLECTIVE } host_math_kind;

struct mp_math {
    host_object object;
    char name[32]; /* for profiles */
    host_math_kind kind;
    union {
        mp_gemm gemm;
        mp_conv conv;
        mp_collective collective;
    };
};

/* ---- items and queues ---- */

typedef struct host_reference { /* memory that an item refers to */
    mp_addr addr;
    size_t size; /* 1 where only the address is known */
} host_reference;

/* Returns whether the walk ends. */
typedef bool host_reference_fn(void *context, const host_item *item, host_reference ref);

/* What can be queued. Each kind is a constant beside the call that queues it; entries may be NULL
 * unless said otherwise. */
typedef struct host_item_kind {
    /* What it does; returns whether all of it is done. Never NULL. */
    bool (*run)(host_device *host, host_queue *queue, host_item *item);
    /* Whether nothing in other queues, or elsewhere, keeps it waiting. Under `lock`. NULL: never.
     */
    bool (*is_ready)(const host_item *item);
    /* The object that it keeps while it is queued. */
    host_object *(*object)(const host_item *item);
    /* Calls `fn` for all memory that it refers to, until `fn` returns true; returns whether it did.
     */
    bool (*references)(const host_item *item, host_reference_fn *fn, void *context);
    /* What messages call it; needed where there are references. Static storage. */
    const char *(*name)(const host_item *item);
    /* Fills in kind, name (the item's own) and figures for a profiler; NULL: it is not told. */
    void (*describe)(host_device *host, const host_item *item, mp_profile_record *record);
    const char *not_captured; /* the call that a capture refuses; NULL: it can be captured */
    bool is_foreign;          /* what it waits for is not in a queue of this device */
    bool has_nodes;           /* it is a graph, whose nodes run one by one */
} host_item_kind;

struct host_item {
    host_item *next;
    const host_item_kind *kind;
    bool calls; /* a function of the host */
    union {
        struct {
            const mp_kernel_image *image;
            mp_grid grid;
            mp_math *math; /* kept; what all ranks do by it, NULL for other kernels */
        } launch;
        struct {
            mp_addr target, source;
            size_t size;
        } copy;
        struct {
            mp_addr target;
            uint32_t value;
            size_t width, count;
        } fill;
        struct {
            mp_host_call *fn;
            void *context;
        } call;
        struct {
            mp_event *event; /* kept */
            uint64_t generation;
            host_queue *source;
        } mark; /* record and wait */
        struct {
            mp_addr addr;
            size_t size;
        } memory;
        struct {
            mp_math *math; /* kept */
            mp_addr operands[MP_MATH_OPERANDS_MAX];
            mp_addr workspace;
        } math;
        struct {
            mp_graph_exec *graph; /* kept */
        } graph;
        struct {
            mp_graph_exec *graph; /* kept; what it is made of */
            mp_addr condition;
            bool wanted;
        } branch;
        struct {
            mp_semaphore *semaphore; /* kept */
            uint64_t value;
        } count;
    };
    const void *bytes; /* arguments of a launch or the snapshot of a copy's source; may be NULL */
    size_t bytes_size;
    uint64_t loans;            /* of the device when it was queued, on an adversarial one */
    uint8_t *done;             /* owned; of a graph: one a node, NULL until the first step */
    uint64_t tag, correlation; /* for whom it was queued, see profile.h; 0 while nobody profiles */
};

struct mp_graph_exec { /* nodes in the order they were captured, which is an order they may run in
                        */
    host_object object;
    uint32_t count;
    host_item **nodes; /* owned */
    host_nodes *after; /* owned; what each node comes after */
    bool calls;        /* has a host call */
};

struct host_queue {
    host_queue *next; /* among the device's queues */
    uint32_t number;  /* for messages; 0 is the default stream */
    uint64_t id;      /* no other queue of the process has it */
    void *native;     /* what users pass around */
    uint64_t user;    /* of a thread's default stream: whose it is */
    host_item *head, *tail;
    bool busy;             /* its head is running */
    uint32_t refusals;     /* "not yet" answers since it last was idle */
    host_capture *capture; /* NULL outside of captures */
    host_nodes after;      /* during capture: what the next node comes after */
    pthread_t thread;      /* threaded mode */
    pthread_cond_t wake;
    bool has_thread, stopping;
    host_device *host; /* borrowed */
};

struct host_device {
    mp_device base; /* first, so that mp__host_from is a cast */
    mp_host_config config;
    host_device *next_device; /* among all emulated devices */

    pthread_mutex_t lock;
    pthread_cond_t progress; /* an item has run */
    host_queue *queues;
    host_queue default_queue;
    uint32_t queue_count;
    host_object objects; /* head of the list of what users have */
    host_capture *captures;
    uint64_t capture_count;
    uint64_t random;
    uint32_t laziness; /* of 8 chances, how many leave unneeded work where it is */
    size_t queued;     /* items in all queues */
    size_t awaiting;   /* of them, those that wait for a semaphore, which others may signal */

    pthread_mutex_t memory_lock;
    mp_mempool *mempools;
    int file;             /* of the memory that other processes may open; -1 before the first */
    uint64_t file_size;   /* no place in the file is used twice */
    host_ranges ranges;   /* memory that is the device's or was until lately */
    host_ranges reserved; /* addresses from reserve */
    host_ranges dead;     /* parts that an allocator above has taken back */
    host_ranges lent;     /* parts that it has given out; `serial` is the number of the loan */
    uint64_t loans;       /* that it has told of */
    size_t memory_used;
    size_t quarantine_size, quarantine_max;
    uint64_t free_count;
    size_t check_next; /* where the next look for writes into freed memory begins */

    atomic_uint profiles; /* who listens to its work */

    atomic_uint_fast64_t fault_in; /* calls until the injected fault; 0: none */
    atomic_int fault_status;
    pthread_mutex_t breach_lock; /* the innermost */
    atomic_bool broken;          /* `breach` has been written */
    char breach[512];
};

static inline host_device *mp__host_from(mp_device *device) {
    return (host_device *)(void *)device;
}

static inline bool mp__host_adversarial(const host_device *host) {
    return host->config.mode == MP_HOST_ADVERSARIAL;
}

/* ---- host_core.c ---- */

/* Counts a call that may fail; fails when an injected fault is due. */
mp_status mp__host_call(host_device *host, const char *call);
/* Fails when the device has seen a breach or queued work has failed. */
mp_status mp__host_health(host_device *host);
/* Keeps and logs the first breach. Threads: any, no lock but `lock` held. */
void mp__host_breach(host_device *host, const char *format, ...) MP_PRINTF(2, 3);
/* The next random number below `bound`. Under `lock`. */
uint32_t mp__host_random(host_device *host, uint32_t bound);
/* The emulated device after `after`, or the first for NULL; NULL at the end. */
host_device *mp__host_each(host_device *after);
/* Adds a device to that list, or takes it off. */
void mp__host_link(host_device *host);
void mp__host_unlink(host_device *host);

#endif
