/* provider.c - the provider of one session. SPDX-License-Identifier: Apache-2.0 */
#include "ep/bridge.h"
#include "ep/plugin.h"
#include "pool/pool_handle.h"

#include "base/log.h"

#include <stdlib.h>

static mp_provider *from(const OrtEp *self) {
    return (mp_provider *)(uintptr_t)self;
}

static const char *get_name(const OrtEp *self) {
    (void)self;
    return MP_EP_NAME;
}

static OrtStatus *get_kernel_registry(OrtEp *self, const OrtKernelRegistry **out) {
    mp_factory *factory = from(self)->factory;
    OrtStatus *status = NULL;
    pthread_mutex_lock(&factory->lock);
    if (factory->registry == NULL) {
        status = mp__registry_create(&factory->registry);
    }
    *out = factory->registry;
    pthread_mutex_unlock(&factory->lock);
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
    mp_pool *pool = NULL;
    MP_TRY_ORT(mp__pool_again(provider->pool, &pool));
    return mp__sync_stream_create(provider->unit, pool, out);
}

/* Set only where the session's options name functions of another library. */
static OrtStatus *create_external_allocator(OrtEp *self, const OrtMemoryInfo *info,
                                            OrtAllocator **out) {
    mp_provider *provider = from(self);
    mp_pool *pool = NULL;
    *out = NULL;
    if (ORT->MemoryInfoGetDeviceMemType(info) == OrtDeviceMemoryType_HOST_ACCESSIBLE) {
        MP_TRY_ORT(mp__memory_open(provider->unit, MP_MEMORY_PINNED, NULL, "", &pool));
    } else {
        MP_TRY_ORT(mp__pool_again(provider->pool, &pool));
    }
    return mp__allocator_create(provider->unit, info, pool, out);
}

static OrtStatus *is_concurrent_run_supported(OrtEp *self, bool *out) {
    (void)self;
    *out = true; /* kernels keep no state between runs but their plans, which are shared */
    return NULL;
}

static OrtStatus *sync_device(OrtEp *self) {
    mp_device *device = from(self)->unit->device;
    return mp__to_ort(device->ops->synchronize(device));
}

OrtStatus *mp__provider_create(mp_factory *factory, mp_unit *unit, const OrtSessionOptions *session,
                               OrtEp **out) {
    mp_provider *provider = calloc(1, sizeof *provider);
    if (provider == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "no host memory for a provider"));
    }
    mp__factory_keep(factory);
    provider->factory = factory;
    provider->unit = unit;
    pthread_mutex_init(&provider->lock, NULL);
    mp__options_read(session, &provider->options);
    const mp_status opened =
        mp__memory_open_session(unit, session, &provider->options, &provider->pool);
    if (opened != MP_OK) {
        OrtStatus *failed = mp__to_ort(opened);
        mp__provider_release(provider);
        return failed;
    }
    provider->op_options = (mp_op_options){
        .tf32 = provider->options.use_tf32,
        .conv_workspace_max = provider->options.cudnn_conv_use_max_workspace,
        .conv_search = provider->options.cudnn_conv_algo_search,
    };
    provider->base = (OrtEp){
        .ort_version_supported = mp_the_plugin.version,
        .GetName = get_name,
        .GetCapability = mp__get_capability,
        .CreateAllocator =
            provider->options.gpu_external_alloc != 0 ? create_external_allocator : NULL,
        .CreateSyncStreamForDevice = create_sync_stream,
        .GetKernelRegistry = get_kernel_registry,
        .IsConcurrentRunSupported = is_concurrent_run_supported,
        .Sync = sync_device,
    };
    *out = &provider->base;
    return NULL;
}

void mp__provider_release(mp_provider *provider) {
    if (provider == NULL) {
        return;
    }
    if (provider->default_stream != NULL) {
        mp_device *device = provider->unit->device;
        if (device->ops->stream_synchronize(device, provider->default_stream) != MP_OK) {
            MP_LOG(ERROR, "a session is closed on a device that reports: %s", mp_error_message());
        }
        (void)mp_pool_stream_gone(provider->pool,
                                  device->ops->stream_native(device, provider->default_stream));
        device->ops->stream_destroy(device, provider->default_stream);
    }
    mp_pool_close(provider->pool);
    pthread_mutex_destroy(&provider->lock);
    mp_factory *factory = provider->factory;
    free(provider);
    mp__factory_drop(factory);
}
