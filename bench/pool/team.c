/* team.c - threads that start together.
 * SPDX-License-Identifier: Apache-2.0 */
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SPINS_BEFORE_YIELD = 2000 };

typedef struct team {
    bench *self;
    team_fn *fn;
    void *context;
    atomic_uint ready;
    atomic_bool go;
} team;

typedef struct member {
    team *team;
    unsigned index;
    uint64_t end_ns;
    pthread_t thread;
} member;

void team_pause(unsigned *spins) {
    if (++*spins > SPINS_BEFORE_YIELD) {
        *spins = 0;
        (void)sched_yield();
        return;
    }
#if defined(__x86_64__)
    _mm_pause();
#endif
}

static void *member_main(void *argument) {
    member *own = argument;
    team *all = own->team;
    unsigned spins = 0;
    pin_thread(own->index);
    all->self->stage->thread_enter();
    (void)atomic_fetch_add(&all->ready, 1);
    while (!atomic_load_explicit(&all->go, memory_order_acquire)) {
        team_pause(&spins);
    }
    all->fn(all->self, own->index, all->context);
    own->end_ns = now_ns();
    return NULL;
}

double team_run(bench *self, unsigned count, team_fn *fn, void *context) {
    team all = {.self = self, .fn = fn, .context = context};
    member *members = must_alloc(count, sizeof *members);
    uint64_t end_ns = 0;
    for (unsigned i = 0; i < count; i++) {
        members[i] = (member){.team = &all, .index = i};
        if (pthread_create(&members[i].thread, NULL, member_main, &members[i]) != 0) {
            die("a thread cannot be started");
        }
    }
    while (atomic_load(&all.ready) != count) {
        (void)sched_yield();
    }
    const uint64_t start_ns = now_ns();
    atomic_store_explicit(&all.go, true, memory_order_release);
    for (unsigned i = 0; i < count; i++) {
        (void)pthread_join(members[i].thread, NULL);
        end_ns = members[i].end_ns > end_ns ? members[i].end_ns : end_ns;
    }
    free(members);
    return (double)(end_ns - start_ns);
}
