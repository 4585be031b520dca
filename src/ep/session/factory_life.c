/* factory_life.c - a factory goes with the last of those that refer to it: the registration, its
 * sessions, allocators, streams.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"

#include <stdlib.h>

void mp__factory_keep(mp_factory *factory) {
    atomic_fetch_add_explicit(&factory->references, 1, memory_order_relaxed);
}

void mp__factory_drop(mp_factory *factory) {
    if (atomic_fetch_sub_explicit(&factory->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    if (factory->registry != NULL) {
        ORT_EP->ReleaseKernelRegistry(factory->registry);
    }
    mp__units_close(factory);
    pthread_mutex_destroy(&factory->lock);
    free(factory);
}
