/* retired.c - blocks outside the arena that were freed, on their way back to the source. Under the
 * arena's lock.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/retired.h"

void mp__reserved_release(arena *a, chunk *c) {
    mp__source_free(&a->source, chunk_addr(c), chunk_bytes(c));
    mp__region_give(a, chunk_bytes(c));
    mp__chunk_put(c);
}

bool mp__reserved_is_of_graph(const arena *a, const chunk *c) {
    return stream_heap_is_graphs(stream_heap_of(a, c));
}

void mp__reserve_give_back(arena *a, bool all) {
    for (chunk **link = &a->retired; *link != NULL;) {
        chunk *c = *link;
        if (!all && mp__reserved_is_of_graph(a, c)) {
            link = &c->link;
            continue;
        }
        *link = c->link;
        mp__reserved_release(a, c);
    }
}
