/* pool_kit.h - what tests of the pool share: opening, streams, and work whose result shows who had
 * which memory when.
 *
 * Reads are queued copies to pinned memory, so that they take place when the stream gets there;
 * what they should have found is compared in kit_verify.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_POOL_KIT_H
#define MP_TESTS_POOL_KIT_H

#include "device/host/host_device.h"
#include "layout_check.h"
#include "pool/pool_handle.h"
#include "unit/test.h"

#define KIT_OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define KIT_KIB(count)   ((size_t)(count) << 10)
#define KIT_MIB(count)   ((size_t)(count) << 20)

enum { KIT_READS_MAX = 256 };

typedef struct kit_stream {
    mp_stream *queue;
    void *native; /* what the pool is told */
} kit_stream;

typedef struct kit {
    mp_device *device; /* borrowed */
    mp_pool *pool;     /* owned; may be NULL */
    mp_addr reads;     /* owned; pinned, one uint32_t a read */
    uint32_t wanted[KIT_READS_MAX];
    size_t read_count;
    bool unchecked; /* its layout is not looked at when it closes */
} kit;

/* Opens a pool on `device` as client "kit"; without one where `options` is NULL. */
void kit_open(kit *k, mp_device *device, const char *const *options);
/* Verifies, closes the pool. */
void kit_close(kit *k);

kit_stream kit_stream_open(kit *k);
/* Waits, tells the pool, destroys. */
void kit_stream_close(kit *k, kit_stream *stream);

/* A pool and two streams. */
typedef struct kit_pair {
    kit k;
    kit_stream a, b;
} kit_pair;

void kit_pair_open(kit_pair *p, mp_device *device, const char *const *options);
/* Closes the streams, checks that nothing is allocated, closes the pool. */
void kit_pair_close(kit_pair *p);

/* A pool and three streams. */
typedef struct kit_trio {
    kit k;
    kit_stream a, b, c;
} kit_trio;

void kit_trio_open(kit_trio *t, mp_device *device, const char *const *options);
/* Closes the streams, checks that nothing is allocated and that a shrink leaves nothing, closes the
 * pool. */
void kit_trio_close(kit_trio *t);

/* Allocates from the pool; checks alignment and that the pool finds the block. */
mp_addr kit_alloc(kit *k, size_t size, const kit_stream *stream);
void kit_free(kit *k, mp_addr addr);

/* Queues a fill of the block with `tag`, in words of four bytes. */
void kit_fill(kit *k, const kit_stream *stream, mp_addr addr, size_t size, uint32_t tag);
/* Queues a read of the word at `addr`, which should find `tag`. */
void kit_read(kit *k, const kit_stream *stream, mp_addr addr, uint32_t tag);
/* Waits for the device and compares all reads so far. */
void kit_verify(kit *k);
/* Work queued on `after` from now on starts after what is queued on `before`. */
void kit_order(kit *k, const kit_stream *before, const kit_stream *after);

mp_pool_stats kit_stats(kit *k);
/* Gives: a layout that has been checked, until mp__layout_free. */
mp_layout kit_layout(kit *k);
/* Checks the layout. */
void kit_check(kit *k);
/* The size of the region around `addr`. */
size_t kit_region_size(kit *k, mp_addr addr);
/* The size of the allocated block at `addr`. */
size_t kit_block_size(kit *k, mp_addr addr);

/* ---- the log ---- */

/* From here on, log lines are kept instead of printed. */
void kit_log_keep(void);
/* Whether a line kept since has `part` in it; kept lines are forgotten. */
bool kit_log_has(const char *part);
void kit_log_end(void);

#endif
