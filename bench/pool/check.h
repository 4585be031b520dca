/* check.h - that an allocator is right, looked at before it is timed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_POOL_CHECK_H
#define BENCH_POOL_CHECK_H

#include "bench.h"

/* Live ranges by address; adding one that meets another ends the program. */
typedef struct ranges {
    struct range {
        uintptr_t begin, end;
    } * items; /* owned, sorted */
    size_t count, capacity;
} ranges;

void ranges_add(ranges *self, const void *block, uint64_t size);
void ranges_remove(ranges *self, const void *block);
void ranges_drop(ranges *self);

/* Fills blocks on several streams, each with its own number, hands some over to another stream by
 * an event, reads them all back and gives them back at once; ends the program where a block was
 * allocated twice or has another's number. With the pool that is open. */
void check_streams(bench *self);

#endif
