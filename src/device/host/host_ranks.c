/* host_ranks.c - work of all ranks on the emulated device, by way of rank 0 or by a kernel that
 * meets theirs in memory that processes share.
 *
 * Ranks agree before each kernel, so that all of them are about to run it; what happens to one of
 * them then is noticed where the others wait for it. One such kernel runs at a time, in the order
 * that was agreed on.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "device/host/host_lane.h"
#include "device/host/host_work.h"
#include "device/kernel_record.h"
#include "device/rank/rank_group.h"
#include "device/rank/rank_peers.h"

#include <sched.h>
#include <time.h>

enum {
    LOOK_MS = 5,     /* between two looks at the other ranks */
    GRACE_MS = 1000, /* in which comes what a rank has sent that is gone now */
};

typedef struct waiting {
    mp_group *group; /* borrowed from the process */
    int64_t until, next_look, gone_since;
} waiting;

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER; /* of the kernel that runs */
static waiting now;                                           /* under turn_lock */

/* The ranks, and what they reach of each other, before anything else is asked of them. */
static mp_status get_group(host_device *host, mp_group **out) {
    MP_TRY(mp__group_get("", out));
    return mp__group_peers_open(*out, &host->base);
}

mp_status mp__host_ranks_run(host_device *host, const mp_collective *what,
                             const mp_addr *operands) {
    mp_group *group = NULL;
    MP_TRY(get_group(host, &group));
    return mp__group_run(group, what, (const void *)operands[MP_COLLECTIVE_SOURCE],
                         (void *)operands[MP_COLLECTIVE_TARGET]);
}

/* ---- kernels that meet ---- */

static void give_up(waiting *w) {
    mp__group_break(w->group);
    mp__group_peers_stop(w->group);
}

static void look(waiting *w, int64_t time) {
    if (time > w->until) {
        (void)MP_FAIL(DEVICE,
                      "rank %d waited for work between ranks for %g s (MILLPOND_RANK_TIMEOUT)",
                      w->group->rank.rank, (double)w->group->rank.timeout_ms / 1000);
        give_up(w);
    } else if (mp__group_health(w->group) != MP_OK) {
        w->gone_since = w->gone_since == 0 ? time : w->gone_since;
        if (time - w->gone_since > GRACE_MS) {
            give_up(w);
        }
    }
}

void k_host_wait(void) {
    const int64_t time = mp_clock_ms();
    (void)sched_yield();
    if (now.group != NULL && time >= now.next_look) {
        now.next_look = time + LOOK_MS;
        look(&now, time);
    }
}

/* Under turn_lock. */
static mp_status run_agreed(host_device *host, const host_queue *queue, const host_item *item,
                            mp_group *group) {
    MP_TRY(mp__group_agree(group, &item->launch.math->collective));
    now = (waiting){.group = group, .until = mp_clock_ms() + group->rank.timeout_ms};
    mp__host_launch_run(host, queue, item);
    now = (waiting){.group = NULL};
    return mp__group_peers_stopped(group) ? MP_FAIL(DEVICE, "%s", group->fault) : MP_OK;
}

mp_status mp__host_ranks_launch(host_device *host, const host_queue *queue, const host_item *item) {
    mp_group *group = NULL;
    MP_TRY(get_group(host, &group));
    (void)pthread_mutex_lock(&turn_lock);
    const mp_status status = run_agreed(host, queue, item, group);
    (void)pthread_mutex_unlock(&turn_lock);
    return status;
}

mp_status mp__host_collective_peers(mp_device *self, mp_math *math, const mp_peers **out) {
    host_device *host = mp__host_from(self);
    mp_group *group = NULL;
    *out = NULL;
    MP_TRY(mp__host_call(host, "collective_peers"));
    if (mp_kernel_record_on()) { /* other ranks are not there */
        return MP_OK;
    }
    MP_TRY(get_group(host, &group));
    *out = mp__group_peers(group, &math->collective);
    return MP_OK;
}

mp_status mp__host_collective_launch(mp_device *self, mp_stream *stream, mp_math *math,
                                     const mp_kernel *kernel, mp_grid grid, const void *args,
                                     size_t args_size) {
    host_device *host = mp__host_from(self);
    host_item item;
    MP_TRY(mp__host_launch_item(self, stream, kernel, grid, args, args_size, &item));
    item.launch.math = math;
    if (host->config.mode != MP_HOST_EAGER || stream->queue->capture != NULL) {
        return mp__host_enqueue(host, stream->queue, &item);
    }
    mp__host_profile_mark(&item); /* at once, so that a failure is this call's */
    const int64_t begin = mp_clock_ns();
    MP_TRY(mp__host_ranks_launch(host, stream->queue, &item));
    if (mp__host_profiled(host)) {
        mp__host_profile_tell(host, stream->queue, &item, NULL, begin);
    }
    return MP_OK;
}
