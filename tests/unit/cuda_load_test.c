/* cuda_load_test.c - NVIDIA's libraries have every function that cuda_api.def names; without a GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "device/cuda/cuda_load.h"

/* Skips where the library is not installed; any other failure is a mistake in the table. */
static void need(cuda_library library) {
    const mp_status status = mp__cuda_need(library);
    if (status == MP_NOT_FOUND && strstr(mp_error_message(), "has no function") == NULL) {
        SKIP("%s", mp_error_message());
    }
    CHECK_OK(status);
    CHECK_OK(mp__cuda_need(library));
}

TEST(cuda_load_driver) {
    need(CUDA_LIB_DRIVER);
    CHECK(mp__cuda_driver_version() >= 12000);
}

TEST(cuda_load_nvrtc) {
    int major = 0;
    int minor = 0;
    need(CUDA_LIB_NVRTC);
    CHECK(mp__nvrtc.version(&major, &minor) == NVRTC_SUCCESS && major >= 12);
}

TEST(cuda_load_cublaslt) {
    need(CUDA_LIB_BLASLT);
    CHECK(mp__blaslt.version() >= 120000);
}

TEST(cuda_load_cudnn) {
    need(CUDA_LIB_DNN);
    CHECK(mp__dnn.version() >= 90000);
}

TEST(cuda_load_cufft) {
    int version = 0;
    need(CUDA_LIB_FFT);
    CHECK(mp__fft.version(&version) == 0 && version > 0);
}

TEST(cuda_load_cupti) {
    uint32_t version = 0;
    need(CUDA_LIB_PTI);
    CHECK(mp__pti.version(&version) == 0 && version > 0);
}
