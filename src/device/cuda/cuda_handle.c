/* cuda_handle.c - handles of cuBLASLt and cuDNN.
 *
 * Handles are expensive (cuDNN's first one loads hundreds of megabytes) and are never destroyed,
 * only passed on. A cuDNN handle that no stream owns points at the device's own stream for copies,
 * so that it never remembers one that is gone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"

typedef mp_status handle_create(const cuda_device *device, void **out);

mp_status mp__cuda_blaslt_fail(cublasStatus_t result, const char *call) {
    const mp_status status = result == CUBLAS_STATUS_ALLOC_FAILED    ? MP_OUT_OF_MEMORY
                             : result == CUBLAS_STATUS_NOT_SUPPORTED ? MP_UNSUPPORTED
                             : result == CUBLAS_STATUS_INVALID_VALUE ? MP_INVALID_ARGUMENT
                                                                     : MP_DEVICE;
    return mp__fail(status, "cuBLASLt: %s failed with %s", call, mp__blaslt.error_name(result));
}

/* The thousands of a code of cuDNN 9 are its category. */
mp_status mp__cuda_dnn_fail(cudnnStatus_t result, const char *call) {
    const int category = (int)result / 1000;
    const mp_status status = result == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                                     result == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
                                 ? MP_OUT_OF_MEMORY
                             : category == CUDNN_STATUS_NOT_SUPPORTED / 1000 ? MP_UNSUPPORTED
                             : category == CUDNN_STATUS_BAD_PARAM / 1000     ? MP_INVALID_ARGUMENT
                                                                             : MP_DEVICE;
    return mp__fail(status, "cuDNN: %s failed with %s", call, mp__dnn.error_text(result));
}

static mp_status blaslt_create(const cuda_device *device, void **out) {
    (void)device;
    cublasLtHandle_t handle = NULL;
    const cublasStatus_t result = mp__blaslt.create(&handle);
    *out = handle;
    return result == CUBLAS_STATUS_SUCCESS ? MP_OK : mp__cuda_blaslt_fail(result, "cublasLtCreate");
}

static mp_status dnn_create(const cuda_device *device, void **out) {
    cudnnHandle_t handle = NULL;
    cudnnStatus_t result = mp__dnn.create(&handle);
    if (result != CUDNN_STATUS_SUCCESS) {
        return mp__cuda_dnn_fail(result, "cudnnCreate");
    }
    result = mp__dnn.set_stream(handle, device->copies);
    if (result != CUDNN_STATUS_SUCCESS) {
        (void)mp__dnn.destroy(handle);
        return mp__cuda_dnn_fail(result, "cudnnSetStream");
    }
    *out = handle;
    return MP_OK;
}

/* ---- the handles nobody is using ---- */

static mp_status handle_take(cuda_device *device, cuda_handles *handles, handle_create *create,
                             void **out) {
    (void)pthread_mutex_lock(&handles->lock);
    void *handle = handles->count > 0 ? handles->items[--handles->count] : NULL;
    (void)pthread_mutex_unlock(&handles->lock);
    if (handle != NULL) {
        *out = handle;
        return MP_OK;
    }
    /* Creating one allocates memory, which a thread that captures a stream may do only in the
     * relaxed mode: the allocation is not part of the graph. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)mp__cu.capture_mode(&mode);
    const mp_status status = create(device, out);
    (void)mp__cu.capture_mode(&mode);
    return status;
}

/* Keeps the handle; says whether there was room for it. */
static bool give(cuda_handles *handles, void *handle) {
    (void)pthread_mutex_lock(&handles->lock);
    const bool kept = handles->count < CUDA_HANDLES_KEPT;
    if (kept) {
        handles->items[handles->count++] = handle;
    }
    (void)pthread_mutex_unlock(&handles->lock);
    return kept;
}

mp_status mp__cuda_blaslt_take(cuda_device *device, cublasLtHandle_t *out) {
    void *handle = NULL;
    MP_TRY(handle_take(device, &device->blaslt, blaslt_create, &handle));
    *out = handle;
    return MP_OK;
}

void mp__cuda_blaslt_give(cuda_device *device, cublasLtHandle_t handle) {
    if (!give(&device->blaslt, handle)) {
        (void)mp__blaslt.destroy(handle);
    }
}

mp_status mp__cuda_dnn_take(cuda_device *device, cudnnHandle_t *out) {
    void *handle = NULL;
    MP_TRY(handle_take(device, &device->dnn, dnn_create, &handle));
    *out = handle;
    return MP_OK;
}

void mp__cuda_dnn_give(cuda_device *device, cudnnHandle_t handle) {
    if (!give(&device->dnn, handle)) {
        (void)mp__dnn.destroy(handle);
    }
}

/* ---- the handles of a stream ---- */

mp_status mp__cuda_stream_blaslt(cuda_device *device, mp_stream *stream, cublasLtHandle_t *out) {
    cuda_stream *owner = cuda_stream_from(stream);
    if (owner->blaslt == NULL) {
        MP_TRY(handle_take(device, &device->blaslt, blaslt_create, &owner->blaslt));
    }
    *out = owner->blaslt;
    return MP_OK;
}

mp_status mp__cuda_stream_dnn(cuda_device *device, mp_stream *stream, cudnnHandle_t *out) {
    cuda_stream *owner = cuda_stream_from(stream);
    if (owner->dnn == NULL) {
        void *handle = NULL;
        MP_TRY(handle_take(device, &device->dnn, dnn_create, &handle));
        const cudnnStatus_t result = mp__dnn.set_stream(handle, owner->handle);
        if (result != CUDNN_STATUS_SUCCESS) {
            (void)mp__dnn.destroy(handle);
            return mp__cuda_dnn_fail(result, "cudnnSetStream");
        }
        owner->dnn = handle;
    }
    *out = owner->dnn;
    return MP_OK;
}

void mp__cuda_stream_release(cuda_device *device, cuda_stream *stream) {
    if (stream->blaslt != NULL) {
        mp__cuda_blaslt_give(device, stream->blaslt);
    }
    if (stream->dnn != NULL &&
        mp__dnn.set_stream(stream->dnn, device->copies) == CUDNN_STATUS_SUCCESS) {
        mp__cuda_dnn_give(device, stream->dnn);
    }
}
