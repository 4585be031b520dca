/* rank_meet.c - the ranks of a group find each other: rank 0 listens, each other rank says who it
 * is, and all are welcome once all are there.
 *
 * Anybody may connect. Who says nothing, or nothing that makes sense, is left waiting for a while
 * among a bounded number of others like it, and then dropped; ranks that are there lose nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/rank/rank_private.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_VERSION = 2, STRANGERS_MAX = 32, STRANGER_MS = 5000, LATER_MS = 10000 };

typedef struct hello {
    uint32_t version, rank, size, reserved;
    char place[MP_GROUP_PLACE_MAX];
} hello;

static_assert(sizeof(hello) == 16 + MP_GROUP_PLACE_MAX, "it is sent as it lies in memory");

typedef struct stranger {
    int fd;
    int64_t until;
} stranger;

typedef struct meeting { /* of rank 0 */
    mp_group *group;
    int listener;
    int missing;
    stranger strangers[STRANGERS_MAX];
    int stranger_count;
    char (*places)[MP_GROUP_PLACE_MAX]; /* owned; of each rank that is there */
    char refused[256];                  /* what the last one that was refused wanted */
} meeting;

/* ---- rank 0 ---- */

/* Whether somebody may join as this rank; a sentence where not. */
static mp_status check_hello(const meeting *m, const hello *who) {
    const mp_rank *rank = &m->group->rank;
    if (who->version != HELLO_VERSION) {
        return MP_FAIL(INVALID_ARGUMENT, "another version of Millpond runs there; install one on "
                                         "all machines");
    }
    if (who->size != (uint32_t)rank->size) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "WORLD_SIZE is %u for rank %u and %d for rank 0; all ranks need the same",
                       who->size, who->rank, rank->size);
    }
    if (who->rank == 0 || who->rank >= who->size) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "RANK is %u for a second process of %d; each needs a "
                       "number of its own from 0",
                       who->rank, rank->size);
    }
    if (m->group->links[who->rank] >= 0) {
        return MP_FAIL(INVALID_ARGUMENT, "two processes have RANK %u; each needs its own",
                       who->rank);
    }
    for (int r = 0; r < rank->size; r++) {
        const bool there = r == 0 || m->group->links[r] >= 0;
        if (there && who->place[0] != '\0' && strcmp(m->places[r], who->place) == 0) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "ranks %d and %u are both on %s; give each rank a GPU of its own, the "
                           "one that LOCAL_RANK names",
                           r, who->rank, who->place);
        }
    }
    return MP_OK;
}

static void refuse(meeting *m, int fd) {
    (void)snprintf(m->refused, sizeof m->refused, "%.200s", mp_error_message());
    MP_LOG(WARNING, "a process that wanted to join the ranks was refused: %s", m->refused);
    const mp_status told =
        mp__link_send(fd, MP_LINK_END, m->refused, strlen(m->refused), mp_clock_ms() + STRANGER_MS);
    (void)told; /* whoever does not listen needs no answer */
    (void)close(fd);
}

/* Somebody has said something, or has gone. Takes: the stranger's connection. */
static void hear(meeting *m, int fd) {
    hello who = {.version = 0};
    if (mp__link_receive(fd, MP_LINK_HELLO, &who, sizeof who, mp_clock_ms() + STRANGER_MS) !=
        MP_OK) {
        MP_LOG(WARNING, "a connection to rank 0 was closed: %s", mp_error_message());
        (void)close(fd);
        return;
    }
    who.place[sizeof who.place - 1] = '\0';
    if (check_hello(m, &who) != MP_OK) {
        refuse(m, fd);
        return;
    }
    mp__link_wait_whole(fd, 0);
    m->group->links[who.rank] = fd;
    memcpy(m->places[who.rank], who.place, sizeof who.place);
    m->missing--;
}

static void drop_stranger(meeting *m, int i) {
    m->strangers[i] = m->strangers[--m->stranger_count];
}

static void look_at_strangers(meeting *m) {
    for (int i = m->stranger_count - 1; i >= 0; i--) {
        const int fd = m->strangers[i].fd;
        if (mp__link_stirs(fd)) {
            drop_stranger(m, i);
            hear(m, fd);
        } else if (mp_clock_ms() > m->strangers[i].until) {
            drop_stranger(m, i);
            (void)close(fd);
        }
    }
}

/* A rank that is there says nothing before it is welcome: it has gone. */
static mp_status look_at_ranks(meeting *m) {
    mp_group *group = m->group;
    for (int r = 1; r < group->rank.size; r++) {
        if (group->links[r] >= 0 && mp__link_stirs(group->links[r])) {
            (void)MP_FAIL(DEVICE, "it has gone before all ranks were there");
            return mp__group_end(group, r);
        }
    }
    return MP_OK;
}

static mp_status say_who_is_missing(meeting *m) {
    char list[128] = "";
    size_t used = 0;
    for (int r = 1; r < m->group->rank.size && used < sizeof list - 16; r++) {
        if (m->group->links[r] < 0) {
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%d", used > 0 ? ", " : "", r);
        }
    }
    (void)MP_FAIL(DEVICE,
                  "of %d ranks %d did not come within %g s: rank %s%s%s; start all ranks, or set "
                  "MILLPOND_RANK_TIMEOUT to more seconds",
                  m->group->rank.size, m->missing, (double)m->group->rank.timeout_ms / 1000, list,
                  m->refused[0] != '\0' ? "; one was refused: " : "", m->refused);
    return mp__group_end(m->group, -1);
}

static mp_status accept_some(meeting *m) {
    while (m->stranger_count < STRANGERS_MAX) {
        int fd = -1;
        MP_TRY(mp__link_accept(m->listener, &fd));
        if (fd < 0) {
            return MP_OK;
        }
        mp__link_wait_whole(fd, sizeof(hello));
        m->strangers[m->stranger_count++] = (stranger){fd, mp_clock_ms() + STRANGER_MS};
    }
    return MP_OK;
}

/* Until somebody stirs, or a moment has passed. */
static void wait_a_moment(const meeting *m) {
    enum { MOMENT_MS = 100 };
    struct pollfd all[STRANGERS_MAX + 1];
    int count = 0;
    if (m->stranger_count < STRANGERS_MAX) {
        all[count++] = (struct pollfd){.fd = m->listener, .events = POLLIN};
    }
    for (int i = 0; i < m->stranger_count; i++) {
        all[count++] = (struct pollfd){.fd = m->strangers[i].fd, .events = POLLIN | POLLRDHUP};
    }
    (void)poll(all, (nfds_t)count, MOMENT_MS);
}

static mp_status gather(meeting *m) {
    const int64_t until = mp_clock_ms() + m->group->rank.timeout_ms;
    while (m->missing > 0) {
        if (mp_clock_ms() > until) {
            return say_who_is_missing(m);
        }
        wait_a_moment(m);
        MP_TRY(accept_some(m));
        look_at_strangers(m);
        MP_TRY(look_at_ranks(m));
    }
    return MP_OK;
}

static mp_status welcome_all(mp_group *group) {
    const int64_t until = mp_clock_ms() + group->rank.timeout_ms;
    for (int r = 1; r < group->rank.size; r++) {
        if (mp__link_send(group->links[r], MP_LINK_WELCOME, "", 0, until) != MP_OK) {
            return mp__group_end(group, r);
        }
    }
    return MP_OK;
}

static mp_status host(mp_group *group) {
    meeting m = {.group = group, .missing = group->rank.size - 1};
    m.places = calloc((size_t)group->rank.size, sizeof *m.places);
    if (m.places == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to meet %d ranks",
                       group->rank.size);
    }
    memcpy(m.places[0], group->place, sizeof group->place);
    mp_status status = mp__link_listen(group->rank.host, group->rank.port, &m.listener);
    if (status == MP_OK) {
        status = gather(&m);
        (void)close(m.listener);
    }
    for (int i = 0; i < m.stranger_count; i++) {
        (void)close(m.strangers[i].fd);
    }
    free(m.places);
    return status == MP_OK ? welcome_all(group) : status;
}

/* ---- other ranks ---- */

static mp_status join(mp_group *group) {
    const mp_rank *rank = &group->rank;
    const int64_t until = mp_clock_ms() + rank->timeout_ms;
    hello who = {
        .version = HELLO_VERSION, .rank = (uint32_t)rank->rank, .size = (uint32_t)rank->size};
    memcpy(who.place, group->place, sizeof who.place);
    MP_TRY(mp__link_connect(rank->host, rank->port, until, &group->links[0]));
    mp_status status = mp__link_send(group->links[0], MP_LINK_HELLO, &who, sizeof who, until);
    if (status == MP_OK) { /* rank 0 gives up first, and says why */
        status = mp__link_receive(group->links[0], MP_LINK_WELCOME, NULL, 0, until + LATER_MS);
    }
    return status == MP_OK ? MP_OK : mp__group_lose(group, status, 0);
}

mp_status mp__group_meet(mp_group *group) {
    return group->rank.size == 1 ? MP_OK : group->rank.rank == 0 ? host(group) : join(group);
}
