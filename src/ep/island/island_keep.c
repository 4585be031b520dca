/* island_keep.c - what the islands of a session keep on the device between runs: values that were
 * known while planning, and captured graphs.
 *
 * Both can be had again, so they go when the pool runs out of memory, before a request fails, and
 * beyond what the session's options allow. The plans stay: they are host memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/capture/session_graph.h"
#include "ep/island/island.h"

#include "base/log.h"
#include "ep/stream/run_stream.h"

#include <stdlib.h>

/* Called by the pool when it runs out of memory. A run that is recorded must not wait. */
static bool on_pressure(void *context, size_t size) {
    (void)size;
    return mp__recorded_run() == NULL && mp__islands_shed(context);
}

mp_status mp__island_keep_open(mp_provider *provider) {
    if (!provider->islands.has_hook) {
        MP_TRY(mp_pool_add_hook(provider->pool, on_pressure, provider));
        provider->islands.has_hook = true;
    }
    return MP_OK;
}

void mp__island_keep_close(mp_provider *provider) {
    if (provider->islands.has_hook) {
        (void)mp_pool_remove_hook(provider->pool, on_pressure, provider);
        provider->islands.has_hook = false;
    }
}

/* ---- one program ---- */

void mp__island_keeps(const mp_island *island, mp_island_program *p, size_t more, size_t less) {
    atomic_size_t *kept = &island->provider->islands.kept;
    p->kept_bytes += more;
    p->kept_bytes -= less;
    atomic_fetch_add_explicit(kept, more, memory_order_relaxed);
    atomic_fetch_sub_explicit(kept, less, memory_order_relaxed);
}

uint64_t mp__island_tick(const mp_island *island) {
    return atomic_fetch_add_explicit(&island->provider->islands.clock, 1, memory_order_relaxed);
}

static void take_graphs(mp_island_program *p, mp_island_rest *rest) {
    rest->graph_count = 0;
    for (int i = 0; i < p->instance_count; i++) {
        if (p->instances[i].exec != NULL) {
            rest->graphs[rest->graph_count++] = p->instances[i].exec;
        }
        free(p->instances[i].addresses);
    }
    p->instance_count = 0;
}

void mp__island_take(const mp_island *island, mp_island_program *p, mp_island_rest *rest) {
    take_graphs(p, rest);
    rest->literals = p->literals;
    p->literals = 0;
    atomic_fetch_sub_explicit(&island->provider->islands.kept, p->kept_bytes, memory_order_relaxed);
    p->kept_bytes = 0;
}

/* What was queued may use them yet. A graph of the user's keeps the literals. */
void mp__island_rest_drop(const mp_provider *provider, const mp_island_rest *rest) {
    mp_device *device = provider->unit->device;
    if (rest->graph_count == 0 && rest->literals == 0) {
        return;
    }
    (void)mp__run_streams_finish(provider);
    for (int i = 0; i < rest->graph_count; i++) {
        device->ops->graph_destroy(device, rest->graphs[i]);
    }
    (void)mp__give_back(provider->pool, rest->literals);
}

/* ---- all of them ---- */

static mp_island_program *older(mp_island_program *p, mp_island_program *found) {
    const bool is_idle = p->users == 0 && p->kept_bytes > 0;
    return is_idle && (found == NULL || p->last < found->last) ? p : found;
}

/* The idle program that was used longest ago, of `found` and those of the list. With the island's
 * lock held. */
static mp_island_program *oldest_on(const mp_shelf *shelf, mp_island_program *found) {
    for (int i = 0; i < shelf->count; i++) {
        mp_island_program *p = shelf->list[i];
        found = older(p, found);
        if (p->joined != NULL) {
            found = older(p->joined, found);
        }
        found = oldest_on(&p->next, found);
    }
    return found;
}

static mp_island_program *oldest_in(const mp_island *island) {
    return oldest_on(&island->programs, NULL);
}

/* The island with the program that was used longest ago of all; NULL for none. With the list's lock
 * held. */
static mp_island *oldest_island(const mp_island_list *list) {
    mp_island *found = NULL;
    uint64_t last = UINT64_MAX;
    for (mp_island *island = list->first; island != NULL; island = island->next) {
        (void)pthread_mutex_lock(&island->lock);
        const mp_island_program *p = oldest_in(island);
        if (p != NULL && p->last < last) {
            found = island;
            last = p->last;
        }
        (void)pthread_mutex_unlock(&island->lock);
    }
    return found;
}

/* Takes from the program that was used longest ago; false where there is none. */
static bool take_oldest(mp_island_list *list, mp_island_rest *rest) {
    bool taken = false;
    (void)pthread_mutex_lock(&list->lock);
    mp_island *island = oldest_island(list);
    if (island != NULL) {
        (void)pthread_mutex_lock(&island->lock);
        mp_island_program *p = oldest_in(island); /* a run may have begun to use it meanwhile */
        if (p != NULL) {
            mp__island_take(island, p, rest);
            taken = true;
        }
        (void)pthread_mutex_unlock(&island->lock);
    }
    (void)pthread_mutex_unlock(&list->lock);
    return taken;
}

static bool shed_until(mp_provider *provider, size_t most) {
    mp_island_list *list = &provider->islands;
    mp_island_rest rest;
    bool any = false;
    while (atomic_load_explicit(&list->kept, memory_order_relaxed) > most &&
           take_oldest(list, &rest)) {
        mp__island_rest_drop(provider, &rest);
        any = true;
    }
    return any;
}

void mp__islands_bound(mp_provider *provider) {
    (void)shed_until(provider, provider->options.fusion_memory);
}

bool mp__islands_shed(mp_provider *provider) {
    const bool any = shed_until(provider, 0);
    if (any) {
        MP_LOG(INFO, "islands have given back what they keep between runs");
    }
    return any;
}
