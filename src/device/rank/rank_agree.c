/* rank_agree.c - before ranks do something together, rank 0 compares what each is about to do; and
 * how bytes get from rank to rank where no GPU moves them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "device/rank/rank_private.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LATER_MS = 10000 };

/* What a rank is about to do, as it asks rank 0. */
typedef struct question {
    uint32_t kind, type;
    int64_t count;
    uint64_t asked;
} question;

static_assert(sizeof(question) == 24, "it is sent as it lies in memory");

static void describe(const question *q, char *text, size_t size) {
    (void)snprintf(text, size, "%s of %" PRId64 " %s",
                   mp_collective_name((mp_collective_kind)q->kind), q->count,
                   mp_dtype_name((mp_dtype)q->type));
}

static mp_status compare(const question *own, const question *other, int rank) {
    char here[80], there[80];
    if (memcmp(own, other, sizeof *own) == 0) {
        return MP_OK;
    }
    if (own->asked != other->asked) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "rank %d is at collective operation %" PRIu64 " where rank 0 is at %" PRIu64
                       "; all ranks must run the same model as often",
                       rank, other->asked, own->asked);
    }
    describe(own, here, sizeof here);
    describe(other, there, sizeof there);
    return MP_FAIL(INVALID_ARGUMENT,
                   "rank %d does %s where rank 0 does %s; all ranks must run the same model with "
                   "inputs of the same shapes",
                   rank, there, here);
}

/* What rank 0 has heard so far. */
typedef struct hearing {
    bool *asked;        /* owned; one a rank */
    struct pollfd *all; /* owned; likewise */
    int missing;
    mp_status verdict;
    char why[MP_LINK_TEXT_MAX];
} hearing;

static mp_status say_who_is_late(mp_group *group, const hearing *h, const question *own) {
    char list[128] = "";
    size_t used = 0;
    for (int r = 1; r < group->rank.size && used < sizeof list - 16; r++) {
        used += h->asked[r] ? 0
                            : (size_t)snprintf(list + used, sizeof list - used, "%s%d",
                                               used > 0 ? ", " : "", r);
    }
    (void)MP_FAIL(DEVICE, "rank %s did not come to %s within %g s (MILLPOND_RANK_TIMEOUT)", list,
                  mp_collective_name((mp_collective_kind)own->kind),
                  (double)group->rank.timeout_ms / 1000);
    return mp__group_end(group, -1);
}

/* Waits until somebody stirs; of those that have asked, only whether they are there. */
static mp_status wait_for_others(mp_group *group, hearing *h, int64_t until, const question *own) {
    enum { MOMENT_MS = 1000 };
    const int size = group->rank.size;
    for (int r = 1; r < size; r++) {
        const int events = h->asked[r] ? POLLRDHUP : POLLIN | POLLRDHUP;
        h->all[r] = (struct pollfd){.fd = group->links[r], .events = (short)events};
    }
    const int64_t left = until - mp_clock_ms();
    const int timeout = left <= 0 ? 0 : (int)MP_MIN(left, MOMENT_MS);
    const int ready = poll(h->all + 1, (nfds_t)size - 1, timeout);
    if (ready < 0) { /* a signal: nothing of it counts */
        memset(h->all, 0, (size_t)size * sizeof *h->all);
    }
    return ready <= 0 && left <= 0 ? say_who_is_late(group, h, own) : MP_OK;
}

static mp_status hear(mp_group *group, hearing *h, int r, int64_t until, const question *own) {
    question other;
    if (h->asked[r]) {
        (void)MP_FAIL(DEVICE, "it has gone (its connection was closed)");
        return mp__group_end(group, r);
    }
    if (mp__link_receive(group->links[r], MP_LINK_ASK, &other, sizeof other, until) != MP_OK) {
        return mp__group_end(group, r);
    }
    h->asked[r] = true;
    h->missing--;
    if (h->verdict == MP_OK && compare(own, &other, r) != MP_OK) {
        h->verdict = MP_INVALID_ARGUMENT;
        (void)snprintf(h->why, sizeof h->why, "%s", mp_error_message());
    }
    return MP_OK;
}

static mp_status hear_all(mp_group *group, hearing *h, const question *own) {
    const int64_t until = mp_clock_ms() + group->rank.timeout_ms;
    while (h->missing > 0) {
        MP_TRY(wait_for_others(group, h, until, own));
        for (int r = 1; r < group->rank.size; r++) {
            if (h->all[r].revents != 0) {
                MP_TRY(hear(group, h, r, until, own));
            }
        }
    }
    return MP_OK;
}

static mp_status answer(mp_group *group, const hearing *h) {
    if (h->verdict != MP_OK) {
        (void)MP_FAIL(INVALID_ARGUMENT, "%s", h->why);
        mp__group_tell(group, MP_LINK_REFUSE);
        return MP_FAIL(INVALID_ARGUMENT, "%s", h->why);
    }
    const int64_t until = mp_clock_ms() + group->rank.timeout_ms;
    for (int r = 1; r < group->rank.size; r++) {
        if (mp__link_send(group->links[r], MP_LINK_GO, "", 0, until) != MP_OK) {
            return mp__group_end(group, r);
        }
    }
    return MP_OK;
}

/* Rank 0 compares, and answers all. */
static mp_status judge(mp_group *group, const question *own) {
    const size_t size = (size_t)group->rank.size;
    hearing h = {.asked = calloc(size, sizeof *h.asked),
                 .all = calloc(size, sizeof *h.all),
                 .missing = group->rank.size - 1};
    mp_status status =
        h.asked != NULL && h.all != NULL
            ? hear_all(group, &h, own)
            : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %zu ranks", size);
    if (status == MP_OK) {
        status = answer(group, &h);
    }
    free(h.asked);
    free(h.all);
    return status;
}

static mp_status ask(mp_group *group, const question *own) {
    const int64_t until = mp_clock_ms() + group->rank.timeout_ms;
    MP_TRY(mp__group_look(group)); /* rank 0 may have said that it is the end */
    mp_status status = mp__link_send(group->links[0], MP_LINK_ASK, own, sizeof *own, until);
    if (status == MP_OK) { /* rank 0 gives up first, and says why */
        status = mp__link_receive(group->links[0], MP_LINK_GO, NULL, 0, until + LATER_MS);
    }
    if (status == MP_INVALID_ARGUMENT) {
        return status;
    }
    return status == MP_OK ? MP_OK : mp__group_lose(group, status, 0);
}

static mp_status agree(mp_group *group, const mp_collective *what) {
    const question own = {.kind = (uint32_t)what->kind,
                          .type = (uint32_t)what->type,
                          .count = what->count,
                          .asked = group->asked};
    MP_TRY(mp__group_check(group));
    if (group->rank.size > 1) {
        MP_TRY(group->rank.rank == 0 ? judge(group, &own) : ask(group, &own));
    }
    group->asked++;
    return MP_OK;
}

/* ---- once for each kind of work ---- */

enum { AGREED_MAX = 1 << 16 }; /* beyond that all ranks ask each time */

struct mp_agreed {
    mp_collective what;
};

static bool is_agreed(const mp_group *group, const mp_collective *what) {
    for (size_t i = 0; i < group->agreed_count; i++) {
        const mp_collective *known = &group->agreed[i].what;
        if (known->kind == what->kind && known->type == what->type && known->count == what->count) {
            return true;
        }
    }
    return false;
}

/* Room for one more, before others rely on it. */
static mp_status make_room(mp_group *group) {
    const size_t count = group->agreed_count;
    if (count == AGREED_MAX || (count & (count - 1)) != 0) { /* it doubles at powers of two */
        return MP_OK;
    }
    struct mp_agreed *larger =
        realloc(group->agreed, (count == 0 ? 1 : 2 * count) * sizeof *larger);
    if (larger == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %zu kinds of work", count);
    }
    group->agreed = larger;
    return MP_OK;
}

static mp_status agree_once(mp_group *group, const mp_collective *what) {
    MP_TRY(mp__group_check(group));
    if (is_agreed(group, what)) {
        return MP_OK;
    }
    if (make_room(group) != MP_OK) {
        return mp__group_end(group, -1);
    }
    MP_TRY(agree(group, what));
    if (group->agreed_count < AGREED_MAX) {
        group->agreed[group->agreed_count++].what = *what;
    }
    return MP_OK;
}

mp_status mp__group_agree_once(mp_group *group, const mp_collective *what) {
    (void)pthread_mutex_lock(&group->lock);
    const mp_status status = agree_once(group, what);
    (void)pthread_mutex_unlock(&group->lock);
    return status;
}

mp_status mp__group_agree(mp_group *group, const mp_collective *what) {
    (void)pthread_mutex_lock(&group->lock);
    const mp_status status = agree(group, what);
    (void)pthread_mutex_unlock(&group->lock);
    return status;
}

/* ---- bytes ---- */

static mp_status share(mp_group *group, void *bytes, size_t size) {
    const int64_t until = mp_clock_ms() + group->rank.timeout_ms;
    MP_TRY(mp__group_check(group));
    for (int r = 1; group->rank.rank == 0 && r < group->rank.size; r++) {
        if (mp__link_send(group->links[r], MP_LINK_DATA, bytes, size, until) != MP_OK) {
            return mp__group_end(group, r);
        }
    }
    if (group->rank.rank == 0) {
        return MP_OK;
    }
    const mp_status status =
        mp__link_receive(group->links[0], MP_LINK_DATA, bytes, size, until + LATER_MS);
    return status == MP_OK ? MP_OK : mp__group_lose(group, status, 0);
}

mp_status mp__group_share(mp_group *group, void *bytes, size_t size) {
    (void)pthread_mutex_lock(&group->lock);
    const mp_status status = share(group, bytes, size);
    (void)pthread_mutex_unlock(&group->lock);
    return status;
}

/* ---- work with memory of the host ---- */

static mp_status sizes(const mp_group *group, const mp_collective *what, size_t *own,
                       size_t *target, size_t *all) {
    const size_t ranks = (size_t)group->rank.size;
    if (__builtin_mul_overflow((size_t)what->count, mp_dtype_size(what->type), own) ||
        __builtin_mul_overflow(*own, ranks, all)) {
        return MP_FAIL(OUT_OF_MEMORY, "%s of %" PRId64 " elements by %zu ranks is too large",
                       mp_collective_name(what->kind), what->count, ranks);
    }
    *target = what->kind == MP_ALL_GATHER ? *all : *own;
    return MP_OK;
}

/* Rank 0 has all sources, and makes all targets. */
static mp_status serve(mp_group *group, const mp_collective *what, char *sources, size_t own,
                       char *made, size_t size) {
    const int64_t until = mp_clock_ms() + group->rank.timeout_ms;
    const int ranks = group->rank.size;
    for (int r = 1; r < ranks; r++) {
        if (mp__link_receive(group->links[r], MP_LINK_DATA, sources + (size_t)r * own, own,
                             until) != MP_OK) {
            return mp__group_end(group, r);
        }
    }
    for (int r = 1; r < ranks; r++) {
        if (r == 1 || what->kind == MP_ALL_TO_ALL) { /* otherwise all have the same */
            mp__group_compute(what, ranks, r, sources, made);
        }
        if (mp__link_send(group->links[r], MP_LINK_DATA, made, size, until) != MP_OK) {
            return mp__group_end(group, r);
        }
    }
    return MP_OK;
}

static mp_status run_first(mp_group *group, const mp_collective *what, const void *source,
                           void *target) {
    size_t own = 0, size = 0, all = 0;
    MP_TRY(sizes(group, what, &own, &size, &all));
    char *sources = malloc(all);
    char *made = malloc(size);
    mp_status status = MP_OK;
    if (sources == NULL || made == NULL) {
        (void)MP_FAIL(OUT_OF_MEMORY, "rank 0 cannot allocate %zu bytes of host memory for %s", all,
                      mp_collective_name(what->kind));
        status = mp__group_end(group, -1);
    } else {
        memcpy(sources, source, own);
        status = serve(group, what, sources, own, made, size);
    }
    if (status == MP_OK) {
        mp__group_compute(what, group->rank.size, 0, sources, target);
    }
    free(sources);
    free(made);
    return status;
}

static mp_status run_other(mp_group *group, const mp_collective *what, const void *source,
                           void *target) {
    size_t own = 0, size = 0, all = 0;
    const int64_t until = mp_clock_ms() + group->rank.timeout_ms;
    MP_TRY(sizes(group, what, &own, &size, &all));
    mp_status status = mp__link_send(group->links[0], MP_LINK_DATA, source, own, until);
    if (status == MP_OK) { /* rank 0 gives up first, and says why */
        status = mp__link_receive(group->links[0], MP_LINK_DATA, target, size, until + LATER_MS);
    }
    return status == MP_OK ? MP_OK : mp__group_lose(group, status, 0);
}

mp_status mp__group_run(mp_group *group, const mp_collective *what, const void *source,
                        void *target) {
    (void)pthread_mutex_lock(&group->lock);
    mp_status status = agree(group, what);
    if (status == MP_OK) {
        status = group->rank.rank == 0 ? run_first(group, what, source, target)
                                       : run_other(group, what, source, target);
    }
    (void)pthread_mutex_unlock(&group->lock);
    return status;
}
