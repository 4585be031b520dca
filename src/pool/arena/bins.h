/* bins.h - the free chunks of one stream's heap, by size. Guarded by the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_BINS_H
#define MP_POOL_BINS_H

#include "pool/arena/chunk.h"

enum { BIN_WORDS = (CLASS_COUNT + 63) / 64 };

typedef struct bins {
    uint64_t filled[BIN_WORDS]; /* one bit a class */
    chunk *head[CLASS_COUNT];
    size_t bytes, count;
} bins;

void mp__bins_add(bins *all, chunk *c);
void mp__bins_remove(bins *all, chunk *c);

/* The chunk that fits `units` best among those whose epoch is at most `epoch_max`: from the class
 * of `units` the smallest that is large enough, else one of the next class that has any. A class
 * that is long is looked through only in part. NULL where none fits. */
chunk *mp__bins_best(const bins *all, uint32_t units, uint64_t epoch_max);

/* The class after `class` (-1 to begin) that has chunks; -1 where none has. */
int mp__bins_next(const bins *all, int class);

#endif
