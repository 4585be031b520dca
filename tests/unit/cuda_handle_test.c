/* cuda_handle_test.c - handles of cuBLASLt and cuDNN: a stream has its own, from its first need on,
 * and passes it on when it goes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"
#include "test.h"

typedef mp_status take_fn(cuda_device *device, mp_stream *stream, void **out);

static mp_status take_blaslt(cuda_device *device, mp_stream *stream, void **out) {
    cublasLtHandle_t handle = NULL;
    MP_TRY(mp__cuda_stream_blaslt(device, stream, &handle));
    *out = handle;
    return MP_OK;
}

static mp_status take_dnn(cuda_device *device, mp_stream *stream, void **out) {
    cudnnHandle_t handle = NULL;
    MP_TRY(mp__cuda_stream_dnn(device, stream, &handle));
    *out = handle;
    return MP_OK;
}

/* `apart`: streams have different ones; cuBLASLt may give one to all who ask. */
static void check(mp_device *gpu, cuda_library library, take_fn *take, bool apart) {
    cuda_device *device = cuda_device_of(gpu);
    cuda_scope scope;
    mp_stream *stream[2] = {NULL, NULL};
    void *handle[2] = {NULL, NULL};
    void *again = NULL;
    if (mp__cuda_need(library) != MP_OK) {
        SKIP("%s", mp_error_message());
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(gpu->ops->stream_create(gpu, &stream[i]));
        CHECK(cuda_stream_from(stream[i])->blaslt == NULL);
        CHECK(cuda_stream_from(stream[i])->dnn == NULL);
    }
    CHECK_OK(mp__cuda_enter(device, &scope));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(take(device, stream[i], &handle[i]));
        CHECK_OK(take(device, stream[i], &again));
        CHECK(handle[i] != NULL && again == handle[i]);
    }
    CHECK(!apart || handle[0] != handle[1]);
    gpu->ops->stream_destroy(gpu, stream[1]);
    CHECK_OK(gpu->ops->stream_create(gpu, &stream[1]));
    CHECK_OK(take(device, stream[1], &again));
    CHECK(again == handle[1]); /* passed on, since making one is dear */
    mp__cuda_exit(&scope);
    for (int i = 0; i < 2; i++) {
        gpu->ops->stream_destroy(gpu, stream[i]);
    }
}

TEST(cuda_handles_of_blaslt_are_taken_at_need) {
    check(test_gpu(), CUDA_LIB_BLASLT, take_blaslt, false);
}

TEST(cuda_handles_of_dnn_are_taken_at_need) {
    check(test_gpu(), CUDA_LIB_DNN, take_dnn, true);
}
