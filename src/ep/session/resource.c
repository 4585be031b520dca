/* resource.c - what a session's provider tells ONNX Runtime of its device and its memory.
 *
 * Left out on purpose: GetWeightlessSupport, which is asked of providers that save what they
 * compile and may leave the weights out of it; compiled models of this one hold graphs, and leave
 * constants to ONNX Runtime.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/island/island.h"
#include "ep/session/plugin.h"
#include "pool/pool_handle.h"

#include <inttypes.h>
#include <string.h>

static const mp_provider *from(const OrtEp *self) {
    return (const mp_provider *)self;
}

/* ---- what there is ---- */

/* What the pool of the session could still allocate; ONNX Runtime fills the device up to it where
 * the session asks for that (session.resource_cuda_partitioning_settings). */
static OrtStatus *get_available_resource(const OrtEp *self, OrtResourceCount *out) {
    uint64_t bytes = 0;
    MP_TRY_ORT(mp__pool_available(from(self)->pool, &bytes));
    *out = (OrtResourceCount){.kind = OrtResourceCountKind_TotalBytes,
                              .value = {.total_bytes = bytes}};
    return NULL;
}

static OrtStatus *get_default_memory_device(const OrtEp *self, const OrtMemoryDevice **out) {
    *out = from(self)->unit->memory_device;
    return NULL;
}

/* The weights are on the device by now: ONNX Runtime copies them without a stream. */
static OrtStatus *on_session_initialization_end(OrtEp *self) {
    const mp_provider *provider = from(self);
    mp_pool_stats stats;
    uint64_t left = 0;
    MP_TRY_ORT(mp_pool_get_stats(provider->pool, &stats, sizeof stats));
    MP_TRY_ORT(mp__pool_available(provider->pool, &left));
    MP_LOG(INFO,
           "a session is ready on device %d (%s): its pool has %" PRIu64
           " bytes allocated and could allocate %" PRIu64 " more",
           provider->unit->device->ordinal, provider->unit->device->info.name, stats.in_use, left);
    return NULL;
}

/* ---- what may change while the session lives ---- */

#define WORKLOAD "ep.dynamic.workload_type"

/* Plans are made with the other options and kept, and captured graphs are made of plans. */
static mp_status check_dynamic(const char *key, const char *value) {
    if (strcmp(key, WORKLOAD) != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "'%s' cannot be changed while a session lives, only " WORKLOAD
                       " can; make another session with the new value",
                       key);
    }
    return strcmp(value, "Default") == 0 || strcmp(value, "Efficient") == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, WORKLOAD " is '%s'; use Default or Efficient", value);
}

/* Efficient: memory that no run needs now goes back to the device. The pool has it again when it
 * needs it, so there is nothing to do for Default. */
static OrtStatus *set_dynamic_options(OrtEp *self, const char *const *keys,
                                      const char *const *values, size_t count) {
    bool efficient = false;
    for (size_t i = 0; i < count; i++) {
        MP_TRY_ORT(check_dynamic(keys[i], values[i]));
        efficient = strcmp(values[i], "Efficient") == 0;
    }
    if (!efficient) {
        return NULL;
    }
    (void)mp__islands_shed((mp_provider *)self);
    return mp__to_ort(mp_pool_shrink(from(self)->pool, NULL));
}

void mp__resource_install(OrtEp *ep) {
    ep->SetDynamicOptions = set_dynamic_options;
    if (mp_the_plugin.version >= 26) {
        ep->GetAvailableResource = get_available_resource;
    }
    if (mp_the_plugin.version >= 27) {
        ep->OnSessionInitializationEnd = on_session_initialization_end;
        ep->GetDefaultMemoryDevice = get_default_memory_device;
    }
}
