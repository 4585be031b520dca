/* cuda_load.c - opens NVIDIA's libraries and fills the tables of cuda_load.h.
 *
 * Libraries with a CUDA version in their file name must not be newer than the driver's major
 * version, so the names tried depend on the driver where one is there; without one (kernels are
 * compiled in tests on any machine) the newest comes first.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_load.h"

#include "base/dynlib.h"
#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

enum { DRIVER_VERSION_MIN = 12000, NAMES_MAX = 4 };

cuda_driver_api mp__cu;
cuda_nvrtc_api mp__nvrtc;
cuda_blaslt_api mp__blaslt;
cuda_dnn_api mp__dnn;
cuda_fft_api mp__fft;
cuda_pti_api mp__pti;
cuda_nccl_api mp__nccl;

typedef struct symbol {
    const char *name;
    size_t offset; /* of the field in the table */
    bool optional;
} symbol;

#define CUDA_DRIVER(field, symbol)       {#symbol, offsetof(cuda_driver_api, field), false},
#define CUDA_DRIVER_NEWER(field, symbol) {#symbol, offsetof(cuda_driver_api, field), true},
static const symbol driver_symbols[] = {
#include "device/cuda/cuda_api.def"
};
#define CUDA_NVRTC(field, symbol) {#symbol, offsetof(cuda_nvrtc_api, field), false},
static const symbol nvrtc_symbols[] = {
#include "device/cuda/cuda_api.def"
};
#define CUDA_BLASLT(field, symbol) {#symbol, offsetof(cuda_blaslt_api, field), false},
static const symbol blaslt_symbols[] = {
#include "device/cuda/cuda_api.def"
};
#define CUDA_DNN(field, symbol) {#symbol, offsetof(cuda_dnn_api, field), false},
static const symbol dnn_symbols[] = {
#include "device/cuda/cuda_api.def"
};
#define CUDA_FFT(field, symbol) {#symbol, offsetof(cuda_fft_api, field), false},
static const symbol fft_symbols[] = {
#include "device/cuda/cuda_api.def"
};
#define CUDA_PTI(field, symbol) {#symbol, offsetof(cuda_pti_api, field), false},
static const symbol pti_symbols[] = {
#include "device/cuda/cuda_api.def"
};
#define CUDA_NCCL(field, symbol) {#symbol, offsetof(cuda_nccl_api, field), false},
static const symbol nccl_symbols[] = {
#include "device/cuda/cuda_api.def"
};

typedef struct library {
    const char *names[NAMES_MAX];   /* for a driver of CUDA 13 or newer, or none; NULL ends */
    const char *names12[NAMES_MAX]; /* for a driver of CUDA 12; none means the same names */
    const char *remedy;
    const symbol *symbols;
    size_t symbol_count;
    void *table;
} library;

#define SYMBOLS(list, api) .symbols = (list), .symbol_count = MP_COUNT_OF(list), .table = &(api)

static const library libraries[CUDA_LIBS] = {
    [CUDA_LIB_DRIVER] = {.names = {"libcuda.so.1"},
                         .remedy = "install NVIDIA's driver, or give the container access to the "
                                   "GPU (docker run --gpus all)",
                         SYMBOLS(driver_symbols, mp__cu)},
    [CUDA_LIB_NVRTC] = {.names = {"libnvrtc.so.13", "libnvrtc.so.12"},
                        .names12 = {"libnvrtc.so.12"},
                        .remedy = "install it with: pip install nvidia-cuda-nvrtc (for a driver of "
                                  "CUDA 12: nvidia-cuda-nvrtc-cu12), or set CUDA_PATH to a toolkit",
                        SYMBOLS(nvrtc_symbols, mp__nvrtc)},
    [CUDA_LIB_BLASLT] = {.names = {"libcublasLt.so.13", "libcublasLt.so.12"},
                         .names12 = {"libcublasLt.so.12"},
                         .remedy = "install it with: pip install nvidia-cublas (for a driver of "
                                   "CUDA 12: nvidia-cublas-cu12), or set CUDA_PATH to a toolkit",
                         SYMBOLS(blaslt_symbols, mp__blaslt)},
    [CUDA_LIB_DNN] = {.names = {"libcudnn.so.9"},
                      .remedy = "install it with: pip install nvidia-cudnn-cu13 (for a driver of "
                                "CUDA 12: nvidia-cudnn-cu12)",
                      SYMBOLS(dnn_symbols, mp__dnn)},
    [CUDA_LIB_FFT] = {.names = {"libcufft.so.12", "libcufft.so.11"},
                      .names12 = {"libcufft.so.11"},
                      .remedy = "install it with: pip install nvidia-cufft (for a driver of CUDA "
                                "12: nvidia-cufft-cu12), or set CUDA_PATH to a toolkit",
                      SYMBOLS(fft_symbols, mp__fft)},
    [CUDA_LIB_PTI] = {.names = {"libcupti.so.13", "libcupti.so.12"},
                      .names12 = {"libcupti.so.12"},
                      .remedy = "install it with: pip install nvidia-cuda-cupti (for a driver of "
                                "CUDA 12: nvidia-cuda-cupti-cu12), or set CUDA_PATH to a toolkit",
                      SYMBOLS(pti_symbols, mp__pti)},
    [CUDA_LIB_NCCL] = {.names = {"libnccl.so.2"},
                       .remedy = "install it with: pip install nvidia-nccl-cu13 (for a driver of "
                                 "CUDA 12: nvidia-nccl-cu12)",
                       SYMBOLS(nccl_symbols, mp__nccl)},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool ready[CUDA_LIBS];
static atomic_int driver_version;

int mp__cuda_driver_version(void) {
    return atomic_load_explicit(&driver_version, memory_order_acquire);
}

static const char *const *names_of(const library *lib) {
    const int version = mp__cuda_driver_version();
    const bool old = version != 0 && version < 13000 && lib->names12[0] != NULL;
    return old ? lib->names12 : lib->names;
}

/* Function pointers are stored through memcpy, for C has no conversion from `void *` to them. */
static mp_status table_fill(const library *lib, void *handle) {
    for (size_t i = 0; i < lib->symbol_count; i++) {
        const symbol *entry = &lib->symbols[i];
        void *address = NULL;
        const mp_status status = mp_dynlib_symbol(handle, entry->name, &address);
        if (status != MP_OK && !entry->optional) {
            return status;
        }
        memcpy((char *)lib->table + entry->offset, &address, sizeof address);
    }
    return MP_OK;
}

static mp_status driver_start(void) {
    int version = 0;
    CUresult result = mp__cu.driver_version(&version);
    if (result == CUDA_SUCCESS && version < DRIVER_VERSION_MIN) {
        return MP_FAIL(UNSUPPORTED,
                       "NVIDIA's driver supports CUDA %d.%d and Millpond needs 12.0; update the "
                       "driver",
                       version / 1000, version % 1000 / 10);
    }
    result = result == CUDA_SUCCESS ? mp__cu.init(0) : result;
    if (result == CUDA_ERROR_NO_DEVICE) {
        return MP_FAIL(NOT_FOUND, "NVIDIA's driver is installed but shows no GPU; check nvidia-smi "
                                  "and the variable CUDA_VISIBLE_DEVICES");
    }
    if (result != CUDA_SUCCESS) {
        const char *name = NULL;
        (void)mp__cu.error_name(result, &name);
        return MP_FAIL(
            DEVICE, "NVIDIA's driver could not be started: cuInit gave %s (%d); check nvidia-smi",
            name != NULL ? name : "an unknown error", (int)result);
    }
    atomic_store_explicit(&driver_version, version, memory_order_release);
    return MP_OK;
}

static mp_status library_open(cuda_library which) {
    const library *lib = &libraries[which];
    const mp_dynlib_place place = {.names = names_of(lib),
                                   .package = "nvidia",
                                   .subdir = "lib",
                                   .any_between = true,
                                   .remedy = lib->remedy};
    void *handle = NULL;
    MP_TRY(mp_dynlib_open(&place, &handle));
    MP_TRY(table_fill(lib, handle));
    if (which == CUDA_LIB_DRIVER) {
        MP_TRY(driver_start());
    }
    MP_LOG(INFO, "loaded %s", mp_dynlib_file(handle));
    return MP_OK;
}

bool mp__cuda_has(cuda_library which) {
    return atomic_load_explicit(&ready[which], memory_order_acquire);
}

mp_status mp__cuda_need(cuda_library which) {
    if (mp__cuda_has(which)) {
        return MP_OK;
    }
    (void)pthread_mutex_lock(&lock);
    mp_status status = MP_OK;
    if (!atomic_load_explicit(&ready[which], memory_order_relaxed)) {
        status = library_open(which);
        atomic_store_explicit(&ready[which], status == MP_OK, memory_order_release);
    }
    (void)pthread_mutex_unlock(&lock);
    return status;
}
