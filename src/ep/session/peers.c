/* peers.c - which devices reach each other's memory; asked once for each pair.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/session/plugin.h"

static void connect_one_way(mp_device *reader, mp_device *owner) {
    if (reader->ops->peer_enable(reader, owner) != MP_OK) {
        MP_LOG(INFO, "copies between devices %d and %d go through the host: %s", reader->ordinal,
               owner->ordinal, mp_error_message());
    }
}

void mp__peers_connect(mp_device *a, mp_device *b) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static atomic_uint_fast64_t connected[MP_UNITS_MAX]; /* bit j of i: the pair was asked for */
    mp_device *low = a->ordinal < b->ordinal ? a : b;
    mp_device *high = low == a ? b : a;
    const uint64_t bit = UINT64_C(1) << high->ordinal % 64;
    if (low->ordinal >= MP_UNITS_MAX || (atomic_load(&connected[low->ordinal]) & bit) != 0) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    if ((atomic_load(&connected[low->ordinal]) & bit) == 0) {
        connect_one_way(low, high);
        connect_one_way(high, low);
        atomic_fetch_or(&connected[low->ordinal], bit);
    }
    (void)pthread_mutex_unlock(&lock);
}
