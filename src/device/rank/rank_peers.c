/* rank_peers.c - see rank_peers.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/rank/rank_peers.h"

#include "base/log.h"
#include "device/kernel_record.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HOST_BYTES = 40,   /* of what names a machine */
    TURNS = 2,         /* parts of a box for each rank */
    COUNT_BYTES = 256, /* behind the box: the word that counts */
    PACKED = 2,        /* bytes of a part for each that is sent: half of them are marks */
    BLOCK = 2 << 20,   /* what GPUs share is whole blocks, which then are nobody else's */
    TEST_BYTES = 16,
};

struct mp_group_peers {
    mp_peers seen;
    size_t limit; /* bytes of a source; 0: there are none */
    mp_addr own;  /* the box, and the word behind it */
    size_t own_size;
};

static_assert(sizeof(mp_peers) == (MP_PEERS_MAX + 3) * 8 + 8, "kernels see it as it lies here");

/* Up to how many bytes one kernel is faster than NCCL: each rank sends all it has to all others. */
static size_t best_limit(int ranks) {
    return ranks <= 2 ? (size_t)1 << 20 : ranks <= 4 ? (size_t)256 << 10 : (size_t)64 << 10;
}

static size_t part_bytes(size_t limit) {
    return PACKED * MP_ALIGN_UP(limit, (size_t)COUNT_BYTES);
}

static size_t box_bytes(size_t limit, int ranks) {
    return TURNS * (size_t)ranks * part_bytes(limit);
}

static bool is_small(const mp_collective *what, size_t limit) {
    return what->kind == MP_ALL_REDUCE && what->count >= 1 && what->count <= MP_PEERS_BYTES_MAX &&
           (size_t)what->count * mp_dtype_size(what->type) <= limit;
}

bool mp_collective_may_be_direct(const mp_collective *what) {
    mp_rank rank = {.size = 2, .direct_bytes = -1};
    if (!mp_kernel_record_on() && mp__rank_read(&rank) != MP_OK) {
        return false;
    }
    return is_small(what, MP_PEERS_BYTES_MAX) && rank.size > 1 && rank.size <= MP_PEERS_MAX &&
           rank.direct_bytes != 0;
}

/* ---- what ranks tell each other ---- */

typedef struct offer {
    char host[HOST_BYTES]; /* the same on all ranks of one machine */
    uint64_t limit;        /* 0: this rank has no box */
    unsigned char handle[MP_IPC_HANDLE_BYTES];
} offer;

static_assert(sizeof(offer) == HOST_BYTES + 8 + MP_IPC_HANDLE_BYTES, "it is sent as it lies here");

typedef struct opening {
    mp_group *group;
    mp_device *device;
    struct mp_group_peers *peers;
    offer all[MP_PEERS_MAX];
} opening;

/* Gives every rank what each of them has. */
static mp_status gather(mp_group *group, const void *own, size_t size, void *all) {
    const mp_collective what = {.kind = MP_ALL_GATHER, .type = MP_U8, .count = (int64_t)size};
    return mp__group_run(group, &what, own, all);
}

/* A number that the kernel draws when the machine starts, and containers share. */
static void name_host(char *name) {
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t got = file >= 0 ? read(file, name, HOST_BYTES - 1) : 0;
    name[got > 0 ? got : 0] = '\0';
    if (file >= 0) {
        (void)close(file);
    }
}

/* ---- this rank's box ---- */

static mp_status box_make(const opening *o, size_t limit, offer *own) {
    const mp_device_ops *ops = o->device->ops;
    struct mp_group_peers *peers = o->peers;
    const size_t size =
        MP_ALIGN_UP(box_bytes(limit, o->group->rank.size) + COUNT_BYTES, (size_t)BLOCK);
    MP_TRY(ops->alloc(o->device, size, &peers->own));
    peers->own_size = size;
    MP_TRY(ops->ipc_export(o->device, peers->own, own->handle));
    MP_TRY(ops->fill(o->device, NULL, peers->own, 0, 4, size / 4));
    mp_addr stop = 0;
    MP_TRY(ops->alloc_pinned(o->device, sizeof(uint64_t), &stop));
    memset((void *)stop, 0, sizeof(uint64_t));
    peers->seen.stop = stop;
    return MP_OK;
}

static void box_drop(const opening *o) {
    struct mp_group_peers *peers = o->peers;
    if (peers->seen.stop != 0) {
        o->device->ops->free_pinned(o->device, peers->seen.stop, sizeof(uint64_t));
    }
    if (peers->own != 0) {
        o->device->ops->free(o->device, peers->own, peers->own_size);
    }
    memset(peers, 0, sizeof *peers);
}

static offer make_offer(const opening *o) {
    const mp_rank *rank = &o->group->rank;
    const size_t limit =
        rank->direct_bytes < 0 ? best_limit(rank->size) : (size_t)rank->direct_bytes;
    offer own = {.limit = 0};
    name_host(own.host);
    if (limit == 0 || own.host[0] == '\0') {
        return own;
    }
    if (box_make(o, limit, &own) != MP_OK) {
        MP_LOG(INFO, "this rank has no memory that others reach: %s", mp_error_message());
        box_drop(o);
        return own;
    }
    own.limit = limit;
    return own;
}

/* ---- those of the others ---- */

/* What all ranks can sum; 0 where one of them has no box, or is elsewhere. The same everywhere. */
static size_t common_limit(const opening *o) {
    uint64_t limit = o->all[0].limit;
    for (int r = 1; r < o->group->rank.size; r++) {
        const offer *other = &o->all[r];
        limit =
            memcmp(other->host, o->all[0].host, HOST_BYTES) != 0 ? 0 : MP_MIN(limit, other->limit);
    }
    return (size_t)MP_MIN(limit, MP_PEERS_BYTES_MAX);
}

static void close_all(const opening *o) {
    mp_peers *seen = &o->peers->seen;
    for (int r = 0; r < o->group->rank.size; r++) {
        if (r != o->group->rank.rank && seen->box[r] != 0) {
            const mp_status closed = o->device->ops->ipc_close(o->device, seen->box[r]);
            (void)closed; /* it is lost, which hurts nobody */
        }
    }
    memset(seen->box, 0, sizeof seen->box);
}

static mp_status open_all(const opening *o, size_t limit) {
    mp_peers *seen = &o->peers->seen;
    const mp_rank *rank = &o->group->rank;
    for (int r = 0; r < rank->size; r++) {
        mp_addr addr = o->peers->own;
        size_t size = o->peers->own_size;
        if (r != rank->rank) {
            MP_TRY(o->device->ops->ipc_open(o->device, o->all[r].handle, &addr, &size));
        }
        seen->box[r] = addr;
        if (size < box_bytes(limit, rank->size)) {
            return MP_FAIL(DEVICE, "rank %d shares %zu bytes of memory, too few for %zu", r, size,
                           box_bytes(limit, rank->size));
        }
    }
    seen->turns = o->peers->own + o->peers->own_size - COUNT_BYTES;
    seen->part = part_bytes(limit);
    seen->rank = rank->rank;
    seen->ranks = rank->size;
    return MP_OK;
}

/* ---- whether bytes come ---- */

/* Where rank `from` writes for a test, in a box. */
static uint64_t test_place(const mp_peers *seen, int box, int from) {
    return seen->box[box] + (uint64_t)from * TEST_BYTES;
}

static void test_bytes(int from, unsigned char *bytes) {
    memset(bytes, 0x40 + from, TEST_BYTES);
}

static mp_status send_tests(const opening *o) {
    const mp_peers *seen = &o->peers->seen;
    unsigned char bytes[TEST_BYTES];
    test_bytes(seen->rank, bytes);
    for (int r = 0; r < seen->ranks; r++) {
        MP_TRY(o->device->ops->copy(o->device, NULL, test_place(seen, r, seen->rank),
                                    (mp_addr)bytes, TEST_BYTES));
    }
    return MP_OK;
}

/* And leaves zeros behind. */
static mp_status look_at_tests(const opening *o) {
    const mp_peers *seen = &o->peers->seen;
    unsigned char bytes[TEST_BYTES], wanted[TEST_BYTES];
    for (int r = 0; r < seen->ranks; r++) {
        const mp_addr place = test_place(seen, seen->rank, r);
        test_bytes(r, wanted);
        MP_TRY(o->device->ops->copy(o->device, NULL, (mp_addr)bytes, place, TEST_BYTES));
        MP_TRY(o->device->ops->fill(o->device, NULL, place, 0, 4, TEST_BYTES / 4));
        if (memcmp(bytes, wanted, TEST_BYTES) != 0) {
            return MP_FAIL(DEVICE, "bytes that rank %d wrote into this rank's memory are not there",
                           r);
        }
    }
    return MP_OK;
}

/* ---- all of it ---- */

/* Whether no rank failed at what it did last; all wait for one another. */
static mp_status all_fine(const opening *o, mp_status own, bool *fine) {
    uint8_t all[MP_PEERS_MAX] = {0};
    const uint8_t mine = own == MP_OK;
    if (own != MP_OK) {
        MP_LOG(INFO, "this rank does not reach the memory of others: %s", mp_error_message());
    }
    MP_TRY(gather(o->group, &mine, 1, all));
    *fine = true;
    for (int r = 0; r < o->group->rank.size; r++) {
        *fine = *fine && all[r] == 1;
    }
    return MP_OK;
}

/* Boxes are zeros before they are offered. */
static mp_status open_together(opening *o) {
    const offer own = make_offer(o);
    bool fine = false;
    MP_TRY(gather(o->group, &own, sizeof own, o->all));
    const size_t limit = common_limit(o);
    if (limit > 0) {
        mp_status status = open_all(o, limit);
        status = status == MP_OK ? send_tests(o) : status;
        MP_TRY(all_fine(o, status, &fine));
        if (fine) { /* otherwise not every byte was sent */
            MP_TRY(all_fine(o, look_at_tests(o), &fine));
        }
    }
    if (fine) {
        o->peers->limit = limit;
        MP_LOG(INFO, "sums of up to %zu bytes are made by kernels that reach the other ranks",
               limit);
    } else {
        close_all(o);
        box_drop(o);
    }
    return MP_OK;
}

static mp_status open_once(mp_group *group, mp_device *device) {
    struct mp_group_peers *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %d ranks", group->rank.size);
    }
    opening o = {.group = group, .device = device, .peers = fresh};
    const bool few = group->rank.size > 1 && group->rank.size <= MP_PEERS_MAX;
    const mp_status status = few ? open_together(&o) : MP_OK;
    if (status != MP_OK) { /* the group is broken; what others reach stays where it is */
        free(fresh);
        return status;
    }
    group->peers = fresh;
    return MP_OK;
}

mp_status mp__group_peers_open(mp_group *group, mp_device *device) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&lock);
    const mp_status status = group->peers == NULL ? open_once(group, device) : MP_OK;
    (void)pthread_mutex_unlock(&lock);
    return status;
}

const mp_peers *mp__group_peers(const mp_group *group, const mp_collective *what) {
    const struct mp_group_peers *peers = group->peers;
    return peers != NULL && is_small(what, peers->limit) ? &peers->seen : NULL;
}

static atomic_uint *stop_word(const mp_group *group) {
    return group->peers != NULL ? (atomic_uint *)group->peers->seen.stop : NULL;
}

void mp__group_peers_stop(mp_group *group) {
    atomic_uint *stop = stop_word(group);
    if (stop != NULL) {
        atomic_store(stop, 1);
    }
}

bool mp__group_peers_stopped(const mp_group *group) {
    const atomic_uint *stop = stop_word(group);
    return stop != NULL && atomic_load(stop) != 0;
}
