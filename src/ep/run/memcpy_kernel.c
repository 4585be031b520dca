/* memcpy_kernel.c - the copies that ONNX Runtime puts between nodes of two providers, on the run's
 * stream.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/nvtx.h"
#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"

#include <stdlib.h>

typedef struct memcpy_kernel {
    OrtKernelImpl base; /* first */
    mp_provider *provider;
    mp_label label; /* of its output, for the pool's trace */
} memcpy_kernel;

static OrtStatus *copy(mp_provider *provider, OrtKernelContext *context) {
    const OrtValue *source = NULL;
    OrtValue *target = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    const int64_t *dims = NULL;
    size_t rank = 0;
    mp_stream *stream = NULL;
    bool own = false;
    ORT_TRY(ORT->KernelContext_GetInput(context, 0, &source));
    ORT_TRY(ORT->GetTensorElementTypeAndShapeDataReference(source, &type, &dims, &rank));
    ORT_TRY(ORT->KernelContext_GetOutput(context, 0, dims, rank, &target));
    MP_TRY_ORT(mp__stream_of_context(provider, context, &stream, &own));
    MP_TRY_ORT(mp__copy_value(provider->factory, source, target, stream));
    return mp__to_ort(mp__stream_done(provider, stream, own));
}

static OrtStatus *compute(OrtKernelImpl *self, OrtKernelContext *context) {
    const memcpy_kernel *kernel = (memcpy_kernel *)self;
    mp__nvtx_push("Memcpy");
    const mp_label before = mp_label_set(kernel->label);
    OrtStatus *status = copy(kernel->provider, context);
    (void)mp_label_set(before);
    mp__nvtx_pop();
    return status;
}

static void release(OrtKernelImpl *self) {
    free(self);
}

OrtStatus *mp__memcpy_create(void *unused, const OrtKernelInfo *info, OrtKernelImpl **out) {
    (void)unused;
    const OrtEp *ep = NULL;
    ORT_TRY(ORT_EP->KernelInfo_GetEp(info, &ep));
    memcpy_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a kernel"));
    }
    kernel->provider = (mp_provider *)(uintptr_t)ep;
    kernel->label = mp_label_make(MP_LABEL_ACTIVATIONS, "Memcpy", NULL);
    kernel->base = (OrtKernelImpl){
        .ort_version_supported = mp_the_plugin.version, .Compute = compute, .Release = release};
    *out = &kernel->base;
    return NULL;
}
