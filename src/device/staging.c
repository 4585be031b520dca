/* staging.c - see staging.h.
 *
 * A piece has its place in the ring by its number. Its chunks are dealt out to the caller and its
 * helpers in order, by one counter; chunks below `open` may be copied, and whoever has one beyond
 * that waits for it. Only the caller talks to the device: it opens pieces whose place the device
 * has read (or written), and queues (or hands out) them in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/staging.h"

#include "base/helper.h"
#include "base/log.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 128 << 10,
    EACH = 8, /* chunks of a piece */
    PIECE = EACH * CHUNK,
    PLACES = 8, /* pieces of a ring */
    RING = PLACES * PIECE,
    RINGS_MAX = 4,     /* of a device */
    HELPERS_LEAST = 3, /* with fewer the driver is as fast */
    HELPERS_MOST = 5,  /* of a copy: with the caller they read what a bus carries */
    LEAST = 2 * PIECE,
};

typedef struct mp_staging_ring {
    mp_addr memory;            /* owned; pinned */
    mp_event *reached[PLACES]; /* owned; the device is done with what was queued for the place */
    size_t last;               /* place for which something was queued last */
    struct mp_staging_ring *next;
} ring;

typedef struct job {
    mp_device *device;
    mp_stream *stream;
    ring *ring;
    unsigned char *host; /* only read where it is sent */
    mp_addr remote;
    size_t size, pieces, chunks;
    bool sends;
    atomic_bool given_up;
    atomic_size_t next;           /* chunk that nobody has */
    atomic_size_t open;           /* chunks before it may be copied */
    atomic_size_t copied[PLACES]; /* chunks of the piece there */
} job;

bool mp_staging_pays(size_t size) {
    return size >= LEAST && mp_helper_count() >= HELPERS_LEAST;
}

/* ---- rings ---- */

static void ring_free(mp_device *device, ring *gone) {
    for (int i = 0; i < PLACES; i++) {
        if (gone->reached[i] != NULL) {
            device->ops->event_destroy(device, gone->reached[i]);
        }
    }
    if (gone->memory != 0) {
        device->ops->free_pinned(device, gone->memory, RING);
    }
    free(gone);
}

static mp_status ring_make(mp_device *device, ring **out) {
    ring *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a copy");
    }
    mp_status status = device->ops->alloc_pinned(device, RING, &fresh->memory);
    for (int i = 0; i < PLACES && status == MP_OK; i++) {
        status = device->ops->event_create(device, false, &fresh->reached[i]);
    }
    if (status != MP_OK) {
        ring_free(device, fresh);
        return status;
    }
    *out = fresh;
    return MP_OK;
}

/* NULL: there is none. */
static ring *ring_take(mp_staging *staging, mp_device *device) {
    (void)pthread_mutex_lock(&staging->lock);
    ring *found = staging->idle;
    const bool makes = found == NULL && staging->count < RINGS_MAX;
    staging->idle = found != NULL ? found->next : NULL;
    staging->count += makes ? 1 : 0;
    (void)pthread_mutex_unlock(&staging->lock);
    if (makes && ring_make(device, &found) != MP_OK) {
        MP_LOG(INFO, "copies from and to memory that is not pinned take the slower way: %s",
               mp_error_message());
        (void)pthread_mutex_lock(&staging->lock);
        staging->count--;
        (void)pthread_mutex_unlock(&staging->lock);
    }
    return found;
}

static void ring_give(mp_staging *staging, ring *used) {
    (void)pthread_mutex_lock(&staging->lock);
    used->next = staging->idle;
    staging->idle = used;
    (void)pthread_mutex_unlock(&staging->lock);
}

void mp_staging_close(mp_staging *staging, mp_device *device) {
    while (staging->idle != NULL) {
        ring *gone = staging->idle;
        staging->idle = gone->next;
        ring_free(device, gone);
    }
    staging->count = 0;
}

/* ---- what all threads do ---- */

static void copy_chunk(job *j, size_t chunk) {
    const size_t at = chunk * CHUNK, size = MP_MIN((size_t)CHUNK, j->size - at);
    unsigned char *place = (unsigned char *)j->ring->memory + at % RING;
    if (j->sends) {
        memcpy(place, j->host + at, size);
    } else {
        memcpy(j->host + at, place, size);
    }
    (void)atomic_fetch_add(&j->copied[chunk / EACH % PLACES], 1);
}

static void help(void *context) {
    job *j = context;
    for (;;) {
        const size_t chunk = atomic_fetch_add(&j->next, 1);
        if (chunk >= j->chunks) {
            return;
        }
        while (atomic_load(&j->open) <= chunk) {
            if (atomic_load(&j->given_up)) {
                return;
            }
            (void)sched_yield();
        }
        copy_chunk(j, chunk);
    }
}

/* ---- what the caller does ---- */

/* Copies a chunk that is open; false where others have all of them. */
static bool take_part(job *j) {
    size_t chunk = atomic_load(&j->next);
    while (chunk < atomic_load(&j->open)) {
        if (atomic_compare_exchange_weak(&j->next, &chunk, chunk + 1)) {
            copy_chunk(j, chunk);
            return true;
        }
    }
    return false;
}

/* Returns when all of an open piece has been copied. */
static void finish(job *j, size_t piece) {
    const size_t wanted = MP_MIN((size_t)EACH, j->chunks - piece * EACH);
    while (atomic_load(&j->copied[piece % PLACES]) < wanted) {
        if (!take_part(j)) {
            (void)sched_yield();
        }
    }
}

/* Its place may be written, by threads or by the device. */
static void clear(job *j, size_t piece) {
    atomic_store(&j->copied[piece % PLACES], 0);
}

static void open_to(job *j, size_t pieces) {
    atomic_store(&j->open, MP_MIN(pieces * EACH, j->chunks));
}

static mp_status queue(job *j, size_t piece) {
    const mp_device_ops *ops = j->device->ops;
    const size_t at = piece * PIECE, size = MP_MIN((size_t)PIECE, j->size - at);
    const mp_addr place = j->ring->memory + at % RING, remote = j->remote + at;
    MP_TRY(ops->copy(j->device, j->stream, j->sends ? remote : place, j->sends ? place : remote,
                     size));
    j->ring->last = piece % PLACES;
    return ops->event_record(j->device, j->ring->reached[piece % PLACES], j->stream);
}

static mp_status await(job *j, size_t piece) {
    return j->device->ops->event_synchronize(j->device, j->ring->reached[piece % PLACES]);
}

/* A piece is queued when it has been copied; the place of the one before is used again when the
 * device has read it, while it reads this one. */
static mp_status send(job *j) {
    open_to(j, PLACES);
    for (size_t piece = 0; piece < j->pieces; piece++) {
        finish(j, piece);
        MP_TRY(queue(j, piece));
        if (piece > 0 && piece - 1 + PLACES < j->pieces) {
            MP_TRY(await(j, piece - 1));
            clear(j, piece - 1);
            open_to(j, piece + PLACES);
        }
    }
    return MP_OK;
}

/* The device is ahead: by as many pieces as have a place. */
static mp_status fetch(job *j) {
    for (size_t piece = 0; piece < MP_MIN((size_t)PLACES, j->pieces); piece++) {
        MP_TRY(queue(j, piece));
    }
    for (size_t piece = 0; piece < j->pieces; piece++) {
        MP_TRY(await(j, piece));
        open_to(j, piece + 1);
        if (piece > 0) {
            finish(j, piece - 1);
        }
        if (piece > 0 && piece - 1 + PLACES < j->pieces) {
            clear(j, piece - 1);
            MP_TRY(queue(j, piece - 1 + PLACES));
        }
    }
    finish(j, j->pieces - 1);
    return MP_OK;
}

static mp_status carry_out(job *j) {
    mp_helped helped = {.join = help, .context = j};
    /* Else helpers would wait for more than copies. */
    MP_TRY(j->device->ops->stream_synchronize(j->device, j->stream));
    /* Whoever had the ring before may have left while the device still reads it. */
    MP_TRY(await(j, j->ring->last));
    mp_helper_ask(&helped, HELPERS_MOST);
    const mp_status status = j->sends ? send(j) : fetch(j);
    atomic_store(&j->given_up, true);
    mp_helper_end(&helped);
    return status;
}

static mp_status start(mp_staging *staging, job *j, bool *done) {
    j->ring = ring_take(staging, j->device);
    *done = j->ring != NULL;
    if (!*done) {
        return MP_OK;
    }
    j->chunks = MP_CEIL_DIV(j->size, (size_t)CHUNK);
    j->pieces = MP_CEIL_DIV(j->size, (size_t)PIECE);
    atomic_init(&j->given_up, false);
    atomic_init(&j->next, 0);
    atomic_init(&j->open, 0);
    for (int i = 0; i < PLACES; i++) {
        atomic_init(&j->copied[i], 0);
    }
    const mp_status status = carry_out(j);
    if (status != MP_OK) { /* the next to have the ring finds it unused all the same */
        (void)j->device->ops->stream_synchronize(j->device, j->stream);
    }
    ring_give(staging, j->ring);
    return status;
}

mp_status mp_staging_send(mp_staging *staging, mp_device *device, mp_stream *stream, mp_addr remote,
                          const void *host, size_t size, bool *done) {
    job j = {.device = device,
             .stream = stream,
             .host = (unsigned char *)(uintptr_t)host,
             .remote = remote,
             .size = size,
             .sends = true};
    return start(staging, &j, done);
}

mp_status mp_staging_fetch(mp_staging *staging, mp_device *device, mp_stream *stream, void *host,
                           mp_addr remote, size_t size, bool *done) {
    job j = {.device = device, .stream = stream, .host = host, .remote = remote, .size = size};
    return start(staging, &j, done);
}
