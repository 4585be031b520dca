/* gather_idle.c - free memory brought together: what has become idle joins lane 0, shelves are
 * emptied, and the device is waited for. Under the arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/gather_idle.h"

#include "pool/arena/coalesce.h"
#include "pool/arena/order.h"
#include "pool/arena/retired.h"
#include "pool/arena/shelf.h"

static void gather_lane(arena *a, lane *l) {
    for (int class = mp__bins_next(&l->bins, -1); class >= 0;
         class = mp__bins_next(&l->bins, class)) {
        for (chunk *c = l->bins.head[class], *next = NULL; c != NULL; c = next) {
            next = c->link;
            if (c->epoch <= l->reached) {
                mp__bins_remove(&l->bins, c);
                chunk_set_lane(c, 0);
                mp__chunk_bin(a, c);
            }
        }
    }
}

void mp__arena_gather_idle(arena *a) {
    for (size_t i = 1; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        if (l->bins.count > 0 && (!l->is_capture || l->gone)) {
            gather_lane(a, l);
        }
    }
}

void mp__arena_gather(arena *a) {
    for (size_t i = 0; i < lane_count_of(a); i++) {
        mp__shelf_clear(a, lane_at(a, (unsigned)i), true);
    }
    mp__order_poll(a);
    mp__arena_gather_idle(a);
}

mp_status mp__arena_quiesce(arena *a) {
    if (a->captures_open > 0) {
        return MP_FAIL(BUSY, "the device cannot be waited for while a stream is being captured");
    }
    for (size_t i = 1; i < lane_count_of(a); i++) { /* first: what is freed while the device is
                                                       waited for is in the next epoch */
        lane *l = lane_at(a, (unsigned)i);
        l->ending = mp__order_end_epoch(l);
    }
    MP_TRY(a->device->ops->synchronize(a->device));
    for (size_t i = 1; i < lane_count_of(a); i++) {
        lane *l = lane_at(a, (unsigned)i);
        if (!l->is_capture) {
            l->reached = l->ending;
        }
        if (l->ended && !l->gone) {
            mp__lane_end(a, l);
        }
    }
    mp__order_collect(a, false);
    mp__arena_gather(a);
    mp__reserve_give_back(a, false);
    return MP_OK;
}
