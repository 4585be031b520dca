/* bins.c - segregated lists of free chunks, with a bit for each that is filled.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/bins.h"

enum {
    FEW = 256,     /* chunks of which a search looks at the whole class */
    LOOK_MAX = 16, /* and at how many of it otherwise */
};

void mp__bins_add(bins *all, chunk *c) {
    const int class = class_of(c->units);
    chunk *head = all->head[class];
    c->back = NULL;
    c->link = head;
    if (head != NULL) {
        head->back = c;
    }
    all->head[class] = c;
    all->filled[class / 64] |= (uint64_t)1 << (class % 64);
    all->bytes += chunk_bytes(c);
    all->count++;
}

void mp__bins_remove(bins *all, chunk *c) {
    const int class = class_of(c->units);
    if (c->back != NULL) {
        c->back->link = c->link;
    } else {
        all->head[class] = c->link;
        if (c->link == NULL) {
            all->filled[class / 64] &= ~((uint64_t)1 << (class % 64));
        }
    }
    if (c->link != NULL) {
        c->link->back = c->back;
    }
    c->link = c->back = NULL;
    all->bytes -= chunk_bytes(c);
    all->count--;
}

int mp__bins_next(const bins *all, int class) {
    int word = (class + 1) / 64;
    if (word >= BIN_WORDS) {
        return -1;
    }
    uint64_t bits = all->filled[word] & (UINT64_MAX << ((class + 1) % 64));
    while (bits == 0) {
        if (++word == BIN_WORDS) {
            return -1;
        }
        bits = all->filled[word];
    }
    return word * 64 + __builtin_ctzll(bits);
}

static bool fits_better(const chunk *c, const chunk *best) {
    return best == NULL || c->units < best->units ||
           (c->units == best->units && chunk_addr(c) < chunk_addr(best));
}

/* The best of a class in bins with few chunks: of the smallest that fit the one at the lowest
 * address. */
static chunk *best_of_few(const bins *all, int class, uint32_t units, uint64_t epoch_max) {
    chunk *best = NULL;
    for (chunk *c = all->head[class]; c != NULL; c = c->link) {
        if (c->units >= units && c->epoch <= epoch_max && fits_better(c, best)) {
            best = c;
        }
    }
    return best;
}

/* Of the class of `units` the smallest that fits; of a larger class, where all fit, the first. */
static chunk *best_of_many(const bins *all, int class, uint32_t units, uint64_t epoch_max) {
    const bool all_fit = class != class_of(units);
    chunk *best = NULL;
    int looked = 0;
    for (chunk *c = all->head[class]; c != NULL && looked < LOOK_MAX; c = c->link, looked++) {
        if (c->units < units || c->epoch > epoch_max || (best != NULL && c->units >= best->units)) {
            continue;
        }
        if (all_fit || c->units == units) {
            return c;
        }
        best = c;
    }
    return best;
}

chunk *mp__bins_best(const bins *all, uint32_t units, uint64_t epoch_max) {
    const bool few = all->count <= FEW;
    for (int class = mp__bins_next(all, class_of(units) - 1); class >= 0;
         class = mp__bins_next(all, class)) {
        chunk *best = few ? best_of_few(all, class, units, epoch_max)
                          : best_of_many(all, class, units, epoch_max);
        if (best != NULL) {
            return best;
        }
    }
    return NULL;
}
