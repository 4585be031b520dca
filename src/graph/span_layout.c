/* span_layout.c - the largest first, each at the lowest place that is free for as long as it lives.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/span_layout.h"

#include "device/device.h"

#include <stdbool.h>
#include <stdlib.h>

static int by_size(const void *left, const void *right) {
    const mp_span *a = *(const mp_span *const *)left;
    const mp_span *b = *(const mp_span *const *)right;
    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    return a->first != b->first ? (a->first > b->first ? 1 : -1) : (a > b) - (a < b);
}

static bool meet(const mp_span *a, const mp_span *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset at which `span` fits between `placed`, which are sorted by offset. */
static size_t find_place(const mp_span *span, mp_span *const *placed, size_t count) {
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const mp_span *other = placed[i];
        if (!meet(span, other)) {
            continue;
        }
        if (other->offset >= at && other->offset - at >= span->bytes) {
            break;
        }
        at = other->offset + other->bytes > at ? other->offset + other->bytes : at;
    }
    return at;
}

static void insert(mp_span *span, mp_span **placed, size_t count) {
    size_t i = count;
    for (; i > 0 && placed[i - 1]->offset > span->offset; i--) {
        placed[i] = placed[i - 1];
    }
    placed[i] = span;
}

/* Rounds sizes up, so that all offsets come out aligned. Returns false where they overflow. */
static bool round_up(mp_span *span, size_t *sum) {
    size_t rounded = 0;
    if (__builtin_add_overflow(span->bytes, (size_t)MP_ALIGNMENT - 1, &rounded)) {
        return false;
    }
    span->bytes = rounded & ~(size_t)(MP_ALIGNMENT - 1);
    return !__builtin_add_overflow(*sum, span->bytes, sum);
}

mp_status mp_layout_spans(mp_span *spans, size_t count, size_t *total) {
    size_t sum = 0;
    *total = 0;
    mp_span **order = calloc(2 * count + 1, sizeof *order);
    if (order == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to lay %zu values out", count);
    }
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++) {
        if (!round_up(&spans[i], &sum)) {
            free(order);
            return MP_FAIL(INVALID_ARGUMENT, "a graph's values need more memory than there can be");
        }
        if (spans[i].bytes > 0) {
            order[wanted++] = &spans[i];
        }
    }
    qsort(order, wanted, sizeof *order, by_size);
    mp_span **placed = order + count;
    for (size_t i = 0; i < wanted; i++) {
        mp_span *span = order[i];
        span->offset = find_place(span, placed, i);
        insert(span, placed, i);
        *total = span->offset + span->bytes > *total ? span->offset + span->bytes : *total;
    }
    free(order);
    return MP_OK;
}
