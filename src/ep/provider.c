/* provider.c - the provider of one session. SPDX-License-Identifier: Apache-2.0 */
#include "ep/bridge.h"
#include "ep/plugin.h"

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
    return mp__sync_stream_create(provider->unit, out);
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
    provider->op_options = (mp_op_options){
        .tf32 = provider->options.use_tf32,
        .conv_workspace_max = provider->options.cudnn_conv_use_max_workspace,
        .conv_search = provider->options.cudnn_conv_algo_search,
    };
    provider->base = (OrtEp){
        .ort_version_supported = mp_the_plugin.version,
        .GetName = get_name,
        .GetCapability = mp__get_capability,
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
        mp_block_cache_settle(provider->unit->cache, provider->default_stream);
        device->ops->stream_destroy(device, provider->default_stream);
    }
    pthread_mutex_destroy(&provider->lock);
    mp_factory *factory = provider->factory;
    free(provider);
    mp__factory_drop(factory);
}
