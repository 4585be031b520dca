/* nvtx.c - ranges in a domain of their own, "Millpond".
 *
 * The official header brings all the code there is; no library is linked. It gives no domain where
 * no profiler listens, which is how we know.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/nvtx.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define WITH_NVTX 1
#endif
#endif
#ifndef WITH_NVTX
#define WITH_NVTX 0
#endif

bool mp_nvtx_available(void) {
    return WITH_NVTX;
}

#if WITH_NVTX

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

atomic_bool mp__nvtx_on = true;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t domain; /* NULL where nobody listens */

static void find_listener(void) {
    domain = nvtxDomainCreateA("Millpond");
    if (domain == NULL) {
        atomic_store_explicit(&mp__nvtx_on, false, memory_order_relaxed);
    }
}

void mp__nvtx_push_slow(const char *text) {
    (void)pthread_once(&once, find_listener);
    if (domain != NULL) {
        nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                       .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                       .messageType = NVTX_MESSAGE_TYPE_ASCII};
        range.message.ascii = text;
        (void)nvtxDomainRangePushEx(domain, &range);
    }
}

void mp__nvtx_pop_slow(void) {
    (void)pthread_once(&once, find_listener);
    if (domain != NULL) {
        (void)nvtxDomainRangePop(domain);
    }
}

#else

atomic_bool mp__nvtx_on = false;

void mp__nvtx_push_slow(const char *text) {
    (void)text;
}

void mp__nvtx_pop_slow(void) {
}

#endif
