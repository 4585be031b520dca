/* capture.h - memory of captured graphs, and streams that come to an end: as the functions of
 * millpond.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_CAPTURE_H
#define MP_POOL_CAPTURE_H

#include "pool/arena/arena.h"

struct mp_capture {
    arena *owner;
    mp_capture *next;
    size_t heap_count;
    stream_heap **heaps; /* owned array; one heap for each stream that was captured */
    void **streams;
};

mp_status mp__arena_stream_settled(arena *a, void *native);
mp_status mp__arena_stream_gone(arena *a, void *native);
mp_status mp__arena_stream_over(arena *a, void *native, uint8_t client);
mp_status mp__arena_stream_mark(arena *a, void *native, uint64_t *mark);
mp_status mp__arena_stream_ordered(arena *a, void *consumer, void *producer, uint64_t mark);
mp_status mp__arena_capture_begin(arena *a, void *native, mp_capture **capture);
mp_status mp__arena_capture_end(arena *a, void *native);
mp_status mp__arena_capture_release(arena *a, mp_capture *capture);
void mp__captures_close(arena *a);

#endif
