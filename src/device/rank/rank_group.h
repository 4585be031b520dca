/* rank_group.h - the ranks as one of them sees them: met once, then asked before each piece of work
 * whether all are about to do the same.
 *
 * Every rank has a connection to rank 0, which compares and answers. A rank that is gone, that does
 * not come in time, or that does something else gives every rank the same sentence. After the first
 * two the group is broken for good: whoever waits is told, and every later call fails with that
 * sentence.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_RANK_GROUP_H
#define MP_DEVICE_RANK_GROUP_H

#include "device/collective.h"
#include "device/rank/rank_env.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { MP_GROUP_PLACE_MAX = 96, MP_GROUP_FAULT_MAX = 512 };

typedef struct mp_group {
    mp_rank rank;
    char place[MP_GROUP_PLACE_MAX];
    pid_t process;
    pthread_mutex_t lock; /* one call at a time, as the messages are */
    int *links;           /* owned; of rank 0: one for each rank, -1 its own; else one, to rank 0 */
    uint64_t asked;       /* pieces of work that all agreed on */
    struct mp_agreed *agreed; /* owned; kinds of work that all agreed on, the same on all ranks */
    size_t agreed_count;
    struct mp_group_peers *peers; /* owned; see rank_peers.h; NULL: that has not been tried */
    bool met;                     /* all ranks; they meet once in their lives */
    atomic_bool broken;           /* `fault` has been written */
    char fault[MP_GROUP_FAULT_MAX];
} mp_group;

/* Whether the description makes sense for this process's ranks, whom nobody has met yet. */
MP_MUST_CHECK mp_status mp__group_check_work(const mp_collective *what);

/* Meets the other ranks. `place` says which device this is ("" for an emulated one): no two ranks
 * may be at one place. Gives: `*out`, until mp__group_close. Blocks: until all are there, or the
 * time is up. Fails: DEVICE, INVALID_ARGUMENT. */
MP_MUST_CHECK mp_status mp__group_open(const mp_rank *rank, const char *place, mp_group **out);
void mp__group_close(mp_group *group); /* NULL is ignored */

/* The group that the process is in, opened on first need and kept until the process ends. A group
 * that could not be opened is tried again. Threads: any. */
MP_MUST_CHECK mp_status mp__group_get(const char *place, mp_group **out);

/* Whether all ranks are about to do `what`. Blocks: until all have asked, or the time is up.
 * Fails: INVALID_ARGUMENT where another rank does something else; DEVICE where the group is
 * broken. */
MP_MUST_CHECK mp_status mp__group_agree(mp_group *group, const mp_collective *what);

/* The same, but without asking where all ranks have agreed on such work before: what a rank has
 * forgotten, such as a plan, is nothing that others must be asked for again. */
MP_MUST_CHECK mp_status mp__group_agree_once(mp_group *group, const mp_collective *what);

/* Gives all ranks the bytes of rank 0. */
MP_MUST_CHECK mp_status mp__group_share(mp_group *group, void *bytes, size_t size);

/* Does `what`, after agreeing on it, with memory of the host, by way of rank 0. */
MP_MUST_CHECK mp_status mp__group_run(mp_group *group, const mp_collective *what,
                                      const void *source, void *target);

/* Whether the group can go on; looks for what other ranks have sent meanwhile, without waiting.
 * Fails: DEVICE with the sentence. */
MP_MUST_CHECK mp_status mp__group_health(mp_group *group);

/* Breaks the group with the sentence of the thread's last failure, and tells the other ranks. */
void mp__group_break(mp_group *group);

/* What `what` does to the sources of all ranks, one behind the other at `sources`: the target of
 * rank `rank`. */
void mp__group_compute(const mp_collective *what, int ranks, int rank, const char *sources,
                       char *target);

#endif
