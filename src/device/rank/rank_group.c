/* rank_group.c - see rank_group.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/rank/rank_group.h"

#include "base/clock.h"
#include "base/log.h"
#include "device/kernel_record.h"
#include "device/rank/rank_private.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TELL_MS = 2000 };

const char *mp_collective_name(mp_collective_kind kind) {
    switch (kind) {
    case MP_ALL_REDUCE:
        return "AllReduce";
    case MP_ALL_GATHER:
        return "AllGather";
    case MP_ALL_TO_ALL:
        return "AllToAll";
    }
    return "?";
}

bool mp_collective_wanted(void) {
    mp_rank rank;
    return mp_kernel_record_on() || mp__rank_read(&rank) != MP_NOT_FOUND;
}

/* ---- lives ---- */

static int link_count(const mp_group *group) {
    return group->rank.rank == 0 ? group->rank.size : 1;
}

void mp__group_close(mp_group *group) {
    if (group == NULL) {
        return;
    }
    for (int i = 0; i < link_count(group); i++) {
        if (group->links[i] >= 0) {
            (void)close(group->links[i]);
        }
    }
    (void)pthread_mutex_destroy(&group->lock);
    free(group->peers);
    free(group->agreed);
    free(group->links);
    free(group);
}

mp_status mp__group_open(const mp_rank *rank, const char *place, mp_group **out) {
    mp_group *fresh = calloc(1, sizeof *fresh);
    int *links = malloc((size_t)rank->size * sizeof *links);
    if (fresh == NULL || links == NULL) {
        free(fresh);
        free(links);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %d ranks", rank->size);
    }
    fresh->rank = *rank;
    fresh->process = getpid();
    fresh->links = links;
    (void)snprintf(fresh->place, sizeof fresh->place, "%s", place);
    (void)pthread_mutex_init(&fresh->lock, NULL);
    for (int i = 0; i < rank->size; i++) {
        links[i] = -1;
    }
    const mp_status status = mp__group_meet(fresh);
    if (status != MP_OK) {
        mp__group_close(fresh);
        return status;
    }
    fresh->met = true;
    MP_LOG(INFO, "rank %d of %d has met the others at %s, port %d", rank->rank, rank->size,
           rank->host, rank->port);
    *out = fresh;
    return MP_OK;
}

mp_status mp__group_check_work(const mp_collective *what) {
    const bool is_float = (MP_FLOATS & MP_BIT(what->type)) != 0;
    mp_rank rank = {.size = (int)MP_MAX(what->group, 1)};
    if (!mp_kernel_record_on()) {
        MP_TRY(mp__rank_read(&rank));
    }
    if (what->group != 0 && what->group != rank.size) { /* not so where kernels are noted */
        return MP_FAIL(INVALID_ARGUMENT,
                       "the model is for %lld ranks (group_size) and there are %d (WORLD_SIZE)",
                       (long long)what->group, rank.size);
    }
    if (what->count < 1 || mp_dtype_size(what->type) == 0 ||
        (what->kind == MP_ALL_REDUCE && !is_float)) {
        return MP_FAIL(UNSUPPORTED, "%s of %lld elements of %s", mp_collective_name(what->kind),
                       (long long)what->count, mp_dtype_name(what->type));
    }
    return what->kind != MP_ALL_TO_ALL || what->count % rank.size == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "AllToAll cannot deal %lld elements to %d ranks",
                         (long long)what->count, rank.size);
}

mp_status mp__group_get(const char *place, mp_group **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static mp_group *the; /* under lock */
    mp_rank rank;
    (void)pthread_mutex_lock(&lock);
    mp_status status = MP_OK;
    if (the == NULL) {
        status = mp__rank_read(&rank);
        status = status == MP_OK ? mp__group_open(&rank, place, &the) : status;
    }
    *out = the;
    (void)pthread_mutex_unlock(&lock);
    return status;
}

/* ---- breaking ---- */

static void tell(int fd, mp_link_word word, const char *text) {
    if (fd >= 0) {
        const mp_status told = mp__link_send(fd, word, text, strlen(text), mp_clock_ms() + TELL_MS);
        (void)told; /* whoever does not listen needs no answer */
    }
}

void mp__group_tell(mp_group *group, mp_link_word word) {
    char text[MP_LINK_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s", mp_error_message());
    for (int i = 0; i < link_count(group); i++) {
        tell(group->links[i], word, text);
    }
}

mp_status mp__group_end(mp_group *group, int about) {
    char text[MP_GROUP_FAULT_MAX];
    if (about >= 0) {
        (void)snprintf(text, sizeof text, "rank %d: %.400s", about, mp_error_message());
    } else {
        (void)snprintf(text, sizeof text, "%.500s", mp_error_message());
    }
    (void)MP_FAIL(DEVICE, "%s", text);
    const char *remedy = group->met ? "; restart all ranks" : "";
    if (!atomic_load(&group->broken)) {
        mp__group_tell(group, MP_LINK_END);
        (void)snprintf(group->fault, sizeof group->fault, "%.480s%s", text, remedy);
        atomic_store(&group->broken, true);
    }
    for (int i = 0; i < link_count(group); i++) { /* so that the others notice, too */
        if (group->links[i] >= 0) {
            (void)close(group->links[i]);
            group->links[i] = -1;
        }
    }
    return MP_FAIL(DEVICE, "%s%s", text, remedy);
}

/* Rank 0 says why it ends, and hangs up: what is sent to it meanwhile fails before that has been
 * read. Returns whether there is such a sentence, which then is the thread's. */
static bool has_last_word(const mp_group *group) {
    char text[MP_GROUP_FAULT_MAX];
    (void)snprintf(text, sizeof text, "%.500s", mp_error_message());
    if (group->links[0] >= 0 &&
        mp__link_receive(group->links[0], MP_LINK_END, NULL, 0, mp_clock_ms()) == MP_NOT_FOUND) {
        return true;
    }
    (void)MP_FAIL(DEVICE, "%s", text);
    return false;
}

mp_status mp__group_lose(mp_group *group, mp_status failed, int about) {
    return mp__group_end(group, failed == MP_NOT_FOUND || has_last_word(group) ? -1 : about);
}

mp_status mp__group_check(const mp_group *group) {
    if (group->process != getpid()) {
        return MP_FAIL(UNSUPPORTED, "a child of a fork is no rank; start a process for each rank");
    }
    return atomic_load(&group->broken) ? MP_FAIL(DEVICE, "%s", group->fault) : MP_OK;
}

void mp__group_break(mp_group *group) {
    (void)pthread_mutex_lock(&group->lock);
    (void)mp__group_end(group, -1);
    (void)pthread_mutex_unlock(&group->lock);
}

static bool has_hung_up(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLRDHUP};
    return poll(&one, 1, 0) > 0;
}

mp_status mp__group_look(mp_group *group) {
    for (int i = 0; i < link_count(group); i++) {
        const int fd = group->links[i];
        if (fd < 0 || !(group->rank.rank == 0 ? has_hung_up(fd) : mp__link_stirs(fd))) {
            continue;
        }
        const mp_status status =
            mp__link_receive(fd, MP_LINK_END, NULL, 0, mp_clock_ms() + TELL_MS);
        if (group->rank.rank != 0) {
            return mp__group_lose(group, status, 0);
        }
        if (status != MP_NOT_FOUND) { /* without a word */
            (void)MP_FAIL(DEVICE, "it has gone (its connection was closed)");
        }
        return mp__group_end(group, i);
    }
    return MP_OK;
}

mp_status mp__group_health(mp_group *group) {
    MP_TRY(mp__group_check(group));
    if (pthread_mutex_trylock(&group->lock) != 0) {
        return MP_OK; /* who holds it looks */
    }
    const mp_status status = mp__group_look(group);
    (void)pthread_mutex_unlock(&group->lock);
    return status;
}
