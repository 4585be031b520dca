/* pool_peer_test.c - a pool's memory opened to another device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#include <stdlib.h>

static mp_device *asked_reader, *asked_owner;

static mp_status note_peer(mp_device *self, mp_device *other) {
    asked_reader = self;
    asked_owner = other;
    return MP_OK;
}

static mp_status refuse_peer(mp_device *self, mp_device *other) {
    return MP_FAIL(UNSUPPORTED, "devices %d and %d are not connected", self->ordinal,
                   other->ordinal);
}

TEST(pool_peer_asks_the_device_that_reads) {
    NEEDS_OWN_PROCESS();
    (void)setenv("MILLPOND_HOST_DEVICES", "2", 1);
    mp_device *devices[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(mp_device_get(MP_DEVICE_HOST, i, &devices[i]));
    }
    mp_pool *pool = NULL;
    CHECK_OK(mp_pool_open("host:0", MP_MEMORY_DEVICE, "test", NULL, &pool));
    CHECK_OK(mp_pool_enable_peer(pool, 1));
    CHECK_OK(mp_pool_enable_peer(pool, 0)); /* itself */
    CHECK_FAILS(mp_pool_enable_peer(pool, 2), INVALID_ARGUMENT, "device 2 requested");

    const mp_device_ops *real = devices[1]->ops;
    mp_device_ops changed = *real;
    devices[1]->ops = &changed;
    changed.peer_enable = note_peer;
    CHECK_OK(mp_pool_enable_peer(pool, 1));
    CHECK(asked_reader == devices[1] && asked_owner == devices[0]);
    changed.peer_enable = refuse_peer;
    CHECK_FAILS(mp_pool_enable_peer(pool, 1), UNSUPPORTED, "not connected");
    devices[1]->ops = real;
    mp_pool_close(pool);
}
