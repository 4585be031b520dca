/* staging.h - large copies between a device and memory of the host that is not pinned, through
 * pinned memory in pieces.
 *
 *     host     | piece 3 | piece 4 | ...        several threads copy a piece into its place
 *     pinned   | place 0 | place 1 | ... | 7 |  a ring; the device reads one, the threads write
 * others device   ... | piece 1 | piece 2 |
 *
 * A driver does the same for such memory with one thread, which is as fast as that thread copies: a
 * fifth of what the bus can carry.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_STAGING_H
#define MP_DEVICE_STAGING_H

#include "device/device.h"

#include <pthread.h>

/* The rings of a device that no copy is using; all zero but for the lock at first. */
typedef struct mp_staging {
    pthread_mutex_t lock;
    struct mp_staging_ring *idle; /* owned */
    int count;                    /* of rings, those in use too */
} mp_staging;

/* Whether a copy of so many bytes is faster so, on this machine. */
bool mp_staging_pays(size_t size);

/* Copies between `host`, which is not pinned, and `remote`, memory of the device. `stream` is none
 * that is being captured. What was queued there has ended before the copy begins; a source on the
 * host has been read, and a target on the host has been written, when the call returns; a target on
 * the device is written when the stream gets there. `*done` false: nothing was done, since there is
 * no pinned memory to be had or all of it is in use; copy without. Threads: any. Blocks: yes. */
mp_status mp_staging_send(mp_staging *staging, mp_device *device, mp_stream *stream, mp_addr remote,
                          const void *host, size_t size, bool *done);
mp_status mp_staging_fetch(mp_staging *staging, mp_device *device, mp_stream *stream, void *host,
                           mp_addr remote, size_t size, bool *done);

/* Frees the rings, none of which is in use, nor waited for by a stream. */
void mp_staging_close(mp_staging *staging, mp_device *device);

#endif
