/* seed.c - see seed.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/pointwise/seed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static atomic_ullong plans_without_seed;
static uint64_t process_seed;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void make_process_seed(void) {
    if (getentropy(&process_seed, sizeof process_seed) != 0) {
        struct timespec now = {0, 0};
        (void)clock_gettime(CLOCK_REALTIME, &now);
        process_seed = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
    }
}

uint64_t mp_seed_of(const mp_planner *p) {
    const mp_attr *attr = mp_node_attr(p->node, "seed");
    if (attr == NULL) {
        const uint64_t step = UINT64_C(0x9e3779b97f4a7c15); /* odd: no two plans share a seed */
        (void)pthread_once(&process_once, make_process_seed);
        return process_seed + step * atomic_fetch_add(&plans_without_seed, 1);
    }
    uint32_t bits = 0;
    if (attr->kind == MP_ATTR_INT) {
        return (uint64_t)attr->i;
    }
    memcpy(&bits, &attr->f, sizeof bits);
    return bits;
}
