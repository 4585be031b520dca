/* entry.c - the exported functions: the two that a provider's library has, and the one of a library
 * of custom operators, for sessions that are made with the provider's name alone: ONNX Runtime then
 * does not ask the factory for schemas before it reads the model.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/later.h"
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/placement/brought.h"
#include "ep/session/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mp_plugin mp_the_plugin;

#define MP_EXPORT __attribute__((visibility("default")))

MP_EXPORT OrtStatus *CreateEpFactories(const char *registration, const OrtApiBase *base,
                                       const OrtLogger *logger, OrtEpFactory **factories,
                                       size_t factories_max, size_t *factory_count);
MP_EXPORT OrtStatus *ReleaseEpFactory(OrtEpFactory *factory);
MP_EXPORT OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base);

/* The API version of a runtime "1.31.1" is its minor number; 0 for text of another form. */
static uint32_t api_version_of(const char *text) {
    if (text == NULL || strncmp(text, "1.", 2) != 0) {
        return 0;
    }
    char *end = NULL;
    const unsigned long minor = strtoul(text + 2, &end, 10);
    return end == text + 2 || minor > 9999 ? 0 : (uint32_t)minor;
}

/* Objects of an earlier factory may be alive and use the tables, so they are set once. */
static OrtStatus *adopt(mp_plugin tables) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&lock);
    if (ORT == NULL) {
        mp_the_plugin = tables;
    }
    const bool same = ORT == tables.ort && ORT_EP == tables.ep;
    (void)pthread_mutex_unlock(&lock);
    return same
               ? NULL
               : tables.ort->CreateStatus(
                     ORT_FAIL,
                     "the library is in use by another ONNX Runtime of this process; give this one "
                     "a copy of the file, as millpond.genai does");
}

/* Never asks for a version above the runtime's: that would print to the host's stderr. */
static OrtStatus *negotiate(const OrtApiBase *base) {
    const char *text = base->GetVersionString();
    const uint32_t runtime = api_version_of(text);
    if (runtime < MP_ORT_API_MIN) {
        const OrtApi *oldest = base->GetApi(1);
        char message[160];
        (void)snprintf(
            message, sizeof message,
            "Millpond needs ONNX Runtime 1.%d or newer and was loaded by %s; upgrade the "
            "package onnxruntime",
            MP_ORT_API_MIN, text != NULL ? text : "an unknown version");
        return oldest != NULL ? oldest->CreateStatus(ORT_NOT_IMPLEMENTED, message) : NULL;
    }
    const uint32_t version = MP_MIN(runtime, MP_ORT_API_MAX);
    const OrtApi *ort = base->GetApi(version);
    const OrtEpApi *ep = ort != NULL ? ort->GetEpApi() : NULL;
    if (ep == NULL) {
        const OrtApi *oldest = base->GetApi(1);
        return oldest != NULL
                   ? oldest->CreateStatus(ORT_NOT_IMPLEMENTED,
                                          "this ONNX Runtime does not hand out its provider API")
                   : NULL;
    }
    return adopt((mp_plugin){.ort = ort, .ep = ep, .version = version, .runtime = runtime});
}

OrtStatus *CreateEpFactories(const char *registration, const OrtApiBase *base,
                             const OrtLogger *logger, OrtEpFactory **factories,
                             size_t factories_max, size_t *factory_count) {
    if (base == NULL) {
        return NULL; /* without it not even a status can be made */
    }
    if (factory_count != NULL) {
        *factory_count = 0;
    }
    ORT_TRY(negotiate(base));
    if (ORT == NULL) {
        return NULL; /* the runtime is so strange that it has no table to make a status with */
    }
    if (factories == NULL || factory_count == NULL || factories_max < 1) {
        return ORT->CreateStatus(ORT_INVALID_ARGUMENT,
                                 "CreateEpFactories needs room for one factory");
    }
    mp__log_attach(logger);
    mp_factory *factory = NULL;
    const mp_status status = mp__factory_create(registration, &factory);
    if (status != MP_OK) {
        mp__log_detach();
        return mp__to_ort(status);
    }
    mp_later_guard_end(); /* on the main thread, most likely */
    factories[0] = &factory->base;
    *factory_count = 1;
    return NULL;
}

OrtStatus *ReleaseEpFactory(OrtEpFactory *factory) {
    if (factory != NULL) {
        mp__log_detach();
        mp__factory_drop((mp_factory *)factory);
    }
    return NULL;
}

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    if (base == NULL || options == NULL) {
        return NULL; /* as above */
    }
    ORT_TRY(negotiate(base));
    return ORT != NULL ? mp__brought_add(options) : NULL;
}
