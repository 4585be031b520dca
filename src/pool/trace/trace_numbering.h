/* trace_numbering.h - values numbered in the order they appear, from 0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_NUMBERING_H
#define MP_POOL_TRACE_NUMBERING_H

#include "pool/trace/trace_map.h"

typedef struct mp_numbering {
    mp_map numbers;
    uint64_t *values; /* owned; by number, numbers.count of them */
    size_t capacity;
} mp_numbering;

/* Gives the value a number, if it has none. An empty numbering is {0}. Fails: OUT_OF_MEMORY. */
mp_status mp__number(mp_numbering *all, uint64_t value);
/* 0 where it has none. */
uint64_t mp__number_of(const mp_numbering *all, uint64_t value);
void mp__numbering_free(mp_numbering *all);

#endif
