/* test_computer.h - computes for passes, on a device without a pool.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TEST_COMPUTER_H
#define MP_TEST_COMPUTER_H

#include "graph/graph.h"

typedef struct test_computer {
    mp_computer base;
    size_t lent;  /* bytes */
    int calls;    /* of lend */
    bool refuses; /* to lend anything */
} test_computer;

static inline mp_status test_lend(void *context, size_t size, mp_addr *out) {
    test_computer *c = context;
    c->calls++;
    if (c->refuses) {
        return MP_FAIL(OUT_OF_MEMORY, "the test has no memory");
    }
    MP_TRY(c->base.device->ops->alloc(c->base.device, size, out));
    c->lent = size;
    return MP_OK;
}

static inline void test_give_back(void *context, mp_addr addr) {
    test_computer *c = context;
    c->base.device->ops->free(c->base.device, addr, c->lent);
    c->lent = 0;
}

static inline void test_computer_open(test_computer *c, mp_device *device) {
    *c = (test_computer){.base = {device, test_lend, test_give_back, c}};
}

#endif
