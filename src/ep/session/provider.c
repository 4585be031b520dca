/* provider.c - the provider of one session.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/bridge.h"
#include "ep/capture/session_graph.h"
#include "ep/context/compatibility.h"
#include "ep/context/context.h"
#include "ep/island/island.h"
#include "ep/island/island_note.h"
#include "ep/island/weights.h"
#include "ep/placement/left_note.h"
#include "ep/placement/nhwc.h"
#include "ep/session/plugin.h"
#include "ep/session/profiler.h"
#include "ep/stream/stream_options.h"
#include "pool/pool_handle.h"

#include "base/log.h"

#include <stdlib.h>

static mp_provider *from(const OrtEp *self) {
    return (mp_provider *)(uintptr_t)self;
}

static const char *get_name(const OrtEp *self) {
    return from(self)->factory->name->provider;
}

static OrtStatus *get_kernel_registry(OrtEp *self, const OrtKernelRegistry **out) {
    mp_factory *factory = from(self)->factory;
    OrtStatus *status = NULL;
    (void)pthread_mutex_lock(&factory->lock);
    if (factory->registry == NULL) {
        status = mp__registry_create(factory->name->provider, &factory->registry);
    }
    *out = factory->registry;
    (void)pthread_mutex_unlock(&factory->lock);
    return status;
}

static OrtStatus *create_sync_stream(OrtEp *self, const OrtMemoryDevice *memory,
                                     OrtSyncStreamImpl **out) {
    mp_provider *provider = from(self);
    *out = NULL;
    if (mp__unit_of(provider->factory, memory) != provider->unit) {
        return mp__to_ort(MP_FAIL(INVALID_ARGUMENT,
                                  "this session runs on device %d, and a stream was asked for "
                                  "another",
                                  provider->unit->device->ordinal));
    }
    mp_run_stream *stream = NULL;
    MP_TRY_ORT(mp__session_stream(provider, &stream));
    return mp__sync_stream_create(stream, out);
}

/* Set only where the session's options name functions of another library. */
static OrtStatus *create_external_allocator(OrtEp *self, const OrtMemoryInfo *info,
                                            OrtAllocator **out) {
    mp_provider *provider = from(self);
    mp_pool *pool = NULL;
    *out = NULL;
    if (ORT->MemoryInfoGetDeviceMemType(info) == OrtDeviceMemoryType_HOST_ACCESSIBLE) {
        MP_TRY_ORT(mp__pool_again(provider->pinned, &pool));
    } else {
        MP_TRY_ORT(mp__pool_again(provider->pool, &pool));
    }
    return mp__allocator_create(provider->unit, info, pool, out);
}

static OrtStatus *is_concurrent_run_supported(OrtEp *self, bool *out) {
    /* Kernels keep no state between runs but their plans, which are shared. */
    *out = from(self)->only_stream == NULL;
    return NULL;
}

/* Stream by stream: waiting for the device at once would break the captures of other threads. */
static OrtStatus *sync_device(OrtEp *self) {
    return mp__to_ort(mp__run_streams_wait_device(from(self)));
}

/* Once a process: who meant to run on a GPU would not notice, and the CPU provider is faster. */
static void warn_of_emulation(const mp_provider *provider) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (!provider->factory->emulation_unasked || provider->options.meant_host ||
        atomic_flag_test_and_set(&warned)) {
        return;
    }
    MP_LOG(WARNING,
           "a session runs on the emulated device, on the CPU and slower than with "
           "CPUExecutionProvider, since %s; `millpond doctor` shows what is missing, and "
           "MILLPOND_DEVICE=host says that it is meant",
           provider->factory->device_reason);
}

static mp_status open_provider(mp_provider *provider, const OrtSessionOptions *session) {
    MP_TRY(mp__options_read(session, provider->unit, &provider->options));
    MP_TRY(mp__stream_options_settle(&provider->options));
    MP_TRY(mp__context_open(session, &provider->context_path, &provider->context));
    MP_TRY(mp__memory_open_session(provider->unit, session, &provider->options, &provider->pool,
                                   &provider->pinned));
    return mp__only_stream_open(provider);
}

OrtStatus *mp__provider_create(mp_factory *factory, mp_unit *unit, const OrtSessionOptions *session,
                               OrtEp **out) {
    mp_provider *provider = calloc(1, sizeof *provider);
    if (provider == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a provider"));
    }
    mp__factory_keep(factory);
    mp__island_list_open(provider);
    provider->factory = factory;
    provider->unit = unit;
    const mp_status opened = open_provider(provider, session);
    if (opened != MP_OK) {
        OrtStatus *failed = mp__to_ort(opened);
        mp__provider_release(provider);
        return failed;
    }
    provider->op_options = mp__options_of_ops(&provider->options);
    warn_of_emulation(provider);
    mp__options_publish(session, &provider->options, &provider->session_name,
                        &provider->options_note);
    provider->base = (OrtEp){
        .ort_version_supported = mp_the_plugin.version,
        .GetName = get_name,
        .GetCapability = mp__get_capability,
        .CreateAllocator =
            provider->options.gpu_external_alloc != 0 ? create_external_allocator : NULL,
        .CreateSyncStreamForDevice = create_sync_stream,
        .GetPreferredDataLayout = mp__preferred_layout,
        .ShouldConvertDataLayoutForOp = mp__should_convert,
        .GetKernelRegistry = get_kernel_registry,
        .IsConcurrentRunSupported = is_concurrent_run_supported,
        .Sync = sync_device,
        .CreateProfiler = mp__profiler_create,
    };
    mp__island_list_publish(provider);
    mp__only_stream_install(provider);
    mp__graph_install(provider);
    mp__islands_install(provider);
    mp__compatibility_install(&provider->base);
    mp__resource_install(&provider->base);
    *out = &provider->base;
    return NULL;
}

void mp__provider_release(mp_provider *provider) {
    if (provider == NULL) {
        return;
    }
    mp__thread_records_close(provider);
    mp__island_keep_close(provider);
    mp__weights_release(provider);
    mp__context_close(provider->context);
    free(provider->context_path);
    mp__run_stream_drop(provider->only_stream);
    mp_note_remove(provider->options_note);
    mp__island_list_close(provider);
    mp__left_note_release(provider);
    mp__budget_release(provider->budget);
    mp_pool_close(provider->pool);
    mp_pool_close(provider->pinned);
    mp_factory *factory = provider->factory;
    free(provider);
    mp__factory_drop(factory);
}
