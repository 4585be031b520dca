/* thrift.h - how long a stream's heap that has grown is sparing with memory rather than with time.
 * Under the locks of the arena and of the heap.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_THRIFT_H
#define MP_POOL_THRIFT_H

#include "pool/arena/arena.h"

enum {
    THRIFT = 4096, /* chunks gathered for a heap before its thrift ends */
    ASKS_MAX = 16, /* times that streams are asked for a heap after each growth */
};

/* Makes a heap begin to be thrifty, where that is worth it. */
void mp__thrift_begin(const arena *a, stream_heap *heap);
/* `count` more chunks were gathered for it. Without the heap's lock. */
void mp__thrift_count(const arena *a, stream_heap *heap, size_t count);

#endif
