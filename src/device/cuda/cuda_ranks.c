/* cuda_ranks.c - see cuda_ranks.h.
 *
 * Locks, in the order they may be taken: `turn_lock`, `lock`, the group's own, `watch_lock`. The
 * watcher does without `turn_lock`, under which a launch may wait for room until it has aborted
 * what keeps it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_ranks.h"

#include "base/clock.h"
#include "base/log.h"
#include "device/rank/rank_link.h"
#include "device/rank/rank_peers.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WATCHED_MAX = 64,
    LOOK_MS = 50,    /* between two looks of the watcher */
    GRACE_MS = 5000, /* in which work ends that a rank which has gone was not needed for */
    AT_ONCE_MS = 1,  /* between two looks at what NCCL has begun */
};

typedef struct watched {
    CUevent event; /* owned; made once */
    int64_t until; /* 0: nothing is waited for */
} watched;

struct cuda_ranks {
    cuda_device *device; /* borrowed; the one that this rank has */
    mp_group *group;     /* borrowed from the process */
    pthread_mutex_t lock;
    nccl_comm *comm;      /* under lock; NULL once aborted */
    atomic_bool unwanted; /* whoever holds the lock gives it back soon */
    atomic_bool aborted;  /* `fault` has been written */
    char fault[MP_GROUP_FAULT_MAX];
    pthread_mutex_t turn_lock;
    atomic_bool meets; /* a kernel that meets those of other ranks has been queued, or captured */
    uint64_t last;     /* under turn_lock: the stream of the last work that may be one; 0: none */
    CUevent last_end;  /* owned, under turn_lock: behind that work */
    pthread_mutex_t watch_lock;
    watched watched[WATCHED_MAX];
    int newest;
    int64_t gone_since; /* of the watcher; 0: no rank is known to be gone */
    pthread_t watcher;
    pthread_cond_t wake;
    bool stopping; /* under watch_lock */
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(cuda_ranks *) the; /* written under open_lock */

/* ---- results ---- */

static mp_status fail(const nccl_comm *comm, int result, const char *call) {
    const char *detail = mp__nccl.last_error((nccl_comm *)(uintptr_t)comm);
    return MP_FAIL(DEVICE, "%s failed: %s%s%s%s; NCCL_DEBUG=INFO makes NCCL say more", call,
                   mp__nccl.error_text(result), detail != NULL && detail[0] != '\0' ? " (" : "",
                   detail != NULL ? detail : "", detail != NULL && detail[0] != '\0' ? ")" : "");
}

/* Until NCCL has done what `result` says it is at. Under lock. */
static mp_status finish(cuda_ranks *ranks, nccl_comm *comm, int result, const char *call) {
    const int64_t until = mp_clock_ms() + ranks->group->rank.timeout_ms;
    while (result == NCCL_IN_PROGRESS) {
        if (atomic_load(&ranks->unwanted)) {
            return MP_FAIL(DEVICE, "%s was given up", call);
        }
        if (mp_clock_ms() > until) {
            return MP_FAIL(DEVICE, "%s did not end within %g s (MILLPOND_RANK_TIMEOUT)", call,
                           (double)ranks->group->rank.timeout_ms / 1000);
        }
        MP_TRY(mp__group_health(ranks->group));
        (void)poll(NULL, 0, AT_ONCE_MS);
        const int asked = mp__nccl.async_error(comm, &result);
        result = asked == NCCL_SUCCESS ? result : asked;
    }
    return result == NCCL_SUCCESS ? MP_OK : fail(comm, result, call);
}

/* ---- aborting ---- */

/* With the thread's sentence, unless the group has one already. Under lock. */
static void abort_locked(cuda_ranks *ranks) {
    if (ranks->comm == NULL) {
        return;
    }
    mp__group_break(ranks->group);
    (void)snprintf(ranks->fault, sizeof ranks->fault, "%s", ranks->group->fault);
    atomic_store(&ranks->aborted, true);
    mp__group_peers_stop(ranks->group);
    (void)mp__nccl.abort(ranks->comm);
    ranks->comm = NULL;
    MP_LOG(ERROR, "work between ranks was aborted: %s", ranks->fault);
}

/* The group's sentence is written first: whoever then gives the communicator back finds another. */
static void abort_now(cuda_ranks *ranks) {
    mp__group_break(ranks->group);
    atomic_store(&ranks->unwanted, true);
    (void)pthread_mutex_lock(&ranks->lock);
    abort_locked(ranks);
    (void)pthread_mutex_unlock(&ranks->lock);
}

mp_status mp__cuda_ranks_abort(const cuda_device *device) {
    cuda_ranks *ranks = atomic_load_explicit(&the, memory_order_acquire);
    if (ranks != NULL) {
        abort_now(ranks);
    }
    return mp__cuda_ranks_health(device);
}

mp_status mp__cuda_ranks_health(const cuda_device *device) {
    const cuda_ranks *ranks = atomic_load_explicit(&the, memory_order_acquire);
    if (__builtin_expect(ranks == NULL || !atomic_load(&ranks->aborted), 1) ||
        ranks->device != device) {
        return MP_OK;
    }
    return MP_FAIL(DEVICE, "%s", ranks->fault);
}

/* ---- calls ---- */

mp_group *mp__cuda_ranks_group(cuda_ranks *ranks) {
    return ranks->group;
}

mp_status mp__cuda_ranks_enter(cuda_ranks *ranks, nccl_comm **comm) {
    (void)pthread_mutex_lock(&ranks->lock);
    *comm = ranks->comm;
    if (ranks->comm != NULL) {
        return MP_OK;
    }
    (void)pthread_mutex_unlock(&ranks->lock);
    return mp__cuda_ranks_health(ranks->device);
}

mp_status mp__cuda_ranks_leave(cuda_ranks *ranks, int result, const char *call) {
    const mp_status status = finish(ranks, ranks->comm, result, call);
    if (status != MP_OK) {
        abort_locked(ranks);
    }
    (void)pthread_mutex_unlock(&ranks->lock);
    return status;
}

/* ---- watching ---- */

/* The next record that waits for nothing; the newest one where all do: it then waits longer. Under
 * watch_lock. */
static watched *pick(cuda_ranks *ranks) {
    for (int i = 1; i <= WATCHED_MAX; i++) {
        const int at = (ranks->newest + i) % WATCHED_MAX;
        if (ranks->watched[at].until == 0) {
            ranks->newest = at;
            break;
        }
    }
    return &ranks->watched[ranks->newest];
}

static void watch_locked(cuda_ranks *ranks, CUstream stream) {
    watched *w = pick(ranks);
    CUresult result = CUDA_SUCCESS;
    if (w->event == NULL) {
        result = mp__cu.event_create(&w->event, CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS) {
        result = mp__cu.event_record(w->event, stream);
    }
    if (result == CUDA_SUCCESS) {
        w->until = mp_clock_ms() + ranks->group->rank.timeout_ms;
    } else {
        mp__cuda_warn(ranks->device, result, "cuEventRecord");
    }
}

static bool is_captured(CUstream stream) {
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    return mp__cu.capture_active(stream, &state) != CUDA_SUCCESS ||
           state != CU_STREAM_CAPTURE_STATUS_NONE;
}

void mp__cuda_ranks_watch(CUstream stream) {
    cuda_ranks *ranks = atomic_load_explicit(&the, memory_order_acquire);
    if (ranks == NULL || is_captured(stream)) {
        return;
    }
    (void)pthread_mutex_lock(&ranks->watch_lock);
    watch_locked(ranks, stream);
    (void)pthread_mutex_unlock(&ranks->watch_lock);
}

/* ---- turns ---- */

/* Streams are told apart by their numbers: a handle may be that of one which is gone. Under
 * turn_lock. */
static void wait_for_last(cuda_ranks *ranks, CUstream stream) {
    unsigned long long id = 0;
    CUresult result = mp__cu.stream_id(stream, &id);
    if (result == CUDA_SUCCESS && ranks->last != 0 && ranks->last != id + 1) {
        result = mp__cu.stream_wait(stream, ranks->last_end, CU_EVENT_WAIT_DEFAULT);
    }
    ranks->last = id + 1;
    mp__cuda_warn(ranks->device, result, "cuStreamWaitEvent");
}

cuda_ranks *mp__cuda_ranks_begin(CUstream stream, bool meets) {
    cuda_ranks *ranks = atomic_load_explicit(&the, memory_order_acquire);
    if (ranks == NULL) {
        return NULL;
    }
    if (meets) { /* also where it is captured: nobody knows which graph that will be */
        atomic_store(&ranks->meets, true);
    }
    if (!atomic_load(&ranks->meets) || is_captured(stream)) {
        return NULL;
    }
    (void)pthread_mutex_lock(&ranks->turn_lock);
    wait_for_last(ranks, stream);
    return ranks;
}

void mp__cuda_ranks_end(cuda_ranks *turn, CUstream stream, bool queued) {
    if (turn != NULL) {
        mp__cuda_warn(turn->device, mp__cu.event_record(turn->last_end, stream), "cuEventRecord");
        (void)pthread_mutex_unlock(&turn->turn_lock);
    }
    if (queued) {
        mp__cuda_ranks_watch(stream);
    }
}

/* How many pieces of work have not ended; `*late` where one should have. */
static int look_at_work(cuda_ranks *ranks, bool *late) {
    int count = 0;
    *late = false;
    (void)pthread_mutex_lock(&ranks->watch_lock);
    for (int i = 0; i < WATCHED_MAX; i++) {
        watched *w = &ranks->watched[i];
        if (w->until == 0) {
            continue;
        }
        if (mp__cu.event_query(w->event) == CUDA_ERROR_NOT_READY) {
            count++;
            *late = *late || mp_clock_ms() > w->until;
        } else {
            w->until = 0;
        }
    }
    (void)pthread_mutex_unlock(&ranks->watch_lock);
    return count;
}

/* NCCL's own opinion; not asked while somebody else holds the communicator. */
static mp_status look_at_comm(cuda_ranks *ranks) {
    int result = NCCL_SUCCESS;
    if (pthread_mutex_trylock(&ranks->lock) != 0) {
        return MP_OK;
    }
    mp_status status = MP_OK;
    if (ranks->comm != NULL) {
        const int asked = mp__nccl.async_error(ranks->comm, &result);
        result = asked == NCCL_SUCCESS ? result : asked;
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
            status = fail(ranks->comm, result, "work between ranks");
        }
    }
    (void)pthread_mutex_unlock(&ranks->lock);
    return status;
}

/* Whether there is nothing more to watch. */
static bool look(cuda_ranks *ranks) {
    bool late = false;
    const int left = look_at_work(ranks, &late);
    if (late) {
        (void)MP_FAIL(DEVICE,
                      "rank %d waited for work between ranks for %g s (MILLPOND_RANK_TIMEOUT); all "
                      "ranks must run the same model with inputs of the same shapes",
                      ranks->group->rank.rank, (double)ranks->group->rank.timeout_ms / 1000);
        abort_now(ranks);
        return true;
    }
    if (look_at_comm(ranks) != MP_OK) {
        abort_now(ranks);
        return true;
    }
    if (mp__group_health(ranks->group) == MP_OK) {
        return false;
    }
    const int64_t now = mp_clock_ms();
    ranks->gone_since = ranks->gone_since == 0 ? now : ranks->gone_since;
    if (left > 0 && now - ranks->gone_since > GRACE_MS) {
        abort_now(ranks);
        return true;
    }
    return false;
}

static bool sleep_a_while(cuda_ranks *ranks) {
    (void)pthread_mutex_lock(&ranks->watch_lock);
    if (!ranks->stopping) {
        mp_clock_wait(&ranks->wake, &ranks->watch_lock, LOOK_MS * INT64_C(1000000));
    }
    const bool stopping = ranks->stopping;
    (void)pthread_mutex_unlock(&ranks->watch_lock);
    return !stopping;
}

static void *watcher_main(void *context) {
    cuda_ranks *ranks = context;
    cuda_scope scope;
    if (mp__cuda_enter_aside(ranks->device, &scope) == MP_OK) {
        while (sleep_a_while(ranks) && !look(ranks)) {
        }
        mp__cuda_exit(&scope);
    }
    return NULL;
}

/* Before the driver goes. */
static void stop_watcher(void) {
    cuda_ranks *ranks = atomic_load(&the);
    if (ranks == NULL || ranks->group->process != getpid()) {
        return;
    }
    (void)pthread_mutex_lock(&ranks->watch_lock);
    ranks->stopping = true;
    mp__group_peers_stop(ranks->group);
    (void)pthread_cond_signal(&ranks->wake);
    (void)pthread_mutex_unlock(&ranks->watch_lock);
    (void)pthread_join(ranks->watcher, NULL);
}

/* ---- opening ---- */

static mp_status comm_open(cuda_ranks *ranks) {
    const mp_rank *rank = &ranks->group->rank;
    nccl_id id;
    nccl_config config = {.size = sizeof config,
                          .mark = NCCL_CONFIG_MARK,
                          .version = NCCL_CONFIG_VERSION,
                          .blocking = 0};
    memset(&id, 0, sizeof id);
    if (rank->rank == 0) {
        const int made = mp__nccl.id(&id);
        if (made != NCCL_SUCCESS) {
            (void)fail(NULL, made, "ncclGetUniqueId");
            mp__group_break(ranks->group);
            return MP_FAIL(DEVICE, "%s", ranks->group->fault);
        }
    }
    MP_TRY(mp__group_share(ranks->group, &id, sizeof id));
    const int result = mp__nccl.init(&ranks->comm, rank->size, id, rank->rank, &config);
    const mp_status status = finish(ranks, ranks->comm, result, "ncclCommInitRankConfig");
    if (status != MP_OK) {
        mp__group_break(ranks->group); /* the others wait for this rank */
        abort_locked(ranks);
        return MP_FAIL(DEVICE, "%s", ranks->group->fault);
    }
    return MP_OK;
}

static mp_status turns_open(cuda_ranks *ranks) {
    (void)pthread_mutex_init(&ranks->turn_lock, NULL);
    const CUresult result = mp__cu.event_create(&ranks->last_end, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        (void)mp__cuda_fail(ranks->device, result, "cuEventCreate");
        mp__group_break(ranks->group); /* the others wait for this rank */
        return MP_FAIL(DEVICE, "%s", ranks->group->fault);
    }
    return MP_OK;
}

static mp_status fill(cuda_ranks *ranks, cuda_device *device) {
    char host[48] = "";
    char place[MP_GROUP_PLACE_MAX];
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(place, sizeof place, "GPU %s of %s", device->base.info.pci_bus_id, host);
    MP_TRY(mp__group_get(place, &ranks->group));
    MP_TRY(mp__group_peers_open(ranks->group, &device->base));
    ranks->device = device;
    (void)pthread_mutex_init(&ranks->lock, NULL);
    (void)pthread_mutex_init(&ranks->watch_lock, NULL);
    mp_clock_cond_init(&ranks->wake);
    MP_TRY(turns_open(ranks));
    MP_TRY(comm_open(ranks));
    const int fault = pthread_create(&ranks->watcher, NULL, watcher_main, ranks);
    if (fault != 0) {
        (void)MP_FAIL(DEVICE, "cannot start the thread that watches work between ranks: %s",
                      strerror(fault));
        abort_locked(ranks);
        return MP_FAIL(DEVICE, "%s", ranks->fault);
    }
    return MP_OK;
}

static mp_status open_once(cuda_device *device) {
    cuda_ranks *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a communicator");
    }
    const mp_status status = fill(fresh, device);
    if (status != MP_OK) {
        free(fresh);
        return status;
    }
    atomic_store_explicit(&the, fresh, memory_order_release);
    (void)atexit(stop_watcher);
    return MP_OK;
}

mp_status mp__cuda_ranks_get(cuda_device *device, cuda_ranks **out) {
    cuda_ranks *ranks = atomic_load_explicit(&the, memory_order_acquire);
    if (ranks == NULL) {
        (void)pthread_mutex_lock(&open_lock);
        const mp_status status = atomic_load(&the) == NULL ? open_once(device) : MP_OK;
        ranks = atomic_load(&the);
        (void)pthread_mutex_unlock(&open_lock);
        MP_TRY(status);
    }
    if (ranks->device != device) {
        return MP_FAIL(UNSUPPORTED,
                       "this rank works with GPU %d and cannot with GPU %d as well; start a "
                       "process for each GPU",
                       ranks->device->base.ordinal, device->base.ordinal);
    }
    *out = ranks;
    return MP_OK;
}
