/* cuda_load.h - NVIDIA's libraries, opened on first need, as tables of functions.
 *
 * Call mp__cuda_need() for a library before its table is used; once it succeeded the table never
 * changes again, so readers take no lock.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_LOAD_H
#define MP_DEVICE_CUDA_LOAD_H

#include "base/status.h"
#include "device/cuda/cuda_nccl.h"
#include "device/cuda/cuda_pti.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <nvrtc.h>
#include <stdbool.h>
#include <stdint.h>

/* cuFFT's header is missing from many toolkits' include folders; as long as only its version is
 * asked for, this line stands in. It returns an enum, 0 for success. */
int cufftGetVersion(int *version);

/* The prototypes come from NVIDIA's headers. Where a header renames a function to a newer version,
 * the older symbol named in the table has the same parameters. */
#define CUDA_FIELD(field, symbol) __typeof__(&(symbol)) field;

typedef struct cuda_driver_api {
#define CUDA_DRIVER       CUDA_FIELD
#define CUDA_DRIVER_NEWER CUDA_FIELD
#include "device/cuda/cuda_api.def"
} cuda_driver_api;

typedef struct cuda_nvrtc_api {
#define CUDA_NVRTC CUDA_FIELD
#include "device/cuda/cuda_api.def"
} cuda_nvrtc_api;

typedef struct cuda_blaslt_api {
#define CUDA_BLASLT CUDA_FIELD
#include "device/cuda/cuda_api.def"
} cuda_blaslt_api;

typedef struct cuda_dnn_api {
#define CUDA_DNN CUDA_FIELD
#include "device/cuda/cuda_api.def"
} cuda_dnn_api;

typedef struct cuda_fft_api {
#define CUDA_FFT CUDA_FIELD
#include "device/cuda/cuda_api.def"
} cuda_fft_api;

typedef struct cuda_pti_api {
#define CUDA_PTI CUDA_FIELD
#include "device/cuda/cuda_api.def"
} cuda_pti_api;

typedef struct cuda_nccl_api {
#define CUDA_NCCL CUDA_FIELD
#include "device/cuda/cuda_api.def"
} cuda_nccl_api;

extern cuda_driver_api mp__cu;
extern cuda_nvrtc_api mp__nvrtc;
extern cuda_blaslt_api mp__blaslt;
extern cuda_dnn_api mp__dnn;
extern cuda_fft_api mp__fft;
extern cuda_pti_api mp__pti;
extern cuda_nccl_api mp__nccl;

typedef enum cuda_library {
    CUDA_LIB_DRIVER, /* also calls cuInit and checks the driver's version */
    CUDA_LIB_NVRTC,
    CUDA_LIB_BLASLT,
    CUDA_LIB_DNN,
    CUDA_LIB_FFT,
    CUDA_LIB_PTI,
    CUDA_LIB_NCCL,
    CUDA_LIBS,
} cuda_library;

/* Opens a library and fills its table. A failure is not remembered: a package that is imported
 * later may bring the library. Threads: any. Blocks: on the first call.
 * Fails: NOT_FOUND with the file and the remedy; UNSUPPORTED (the driver is too old); DEVICE. */
MP_MUST_CHECK mp_status mp__cuda_need(cuda_library library);

/* Whether that was done before. Threads: any. */
bool mp__cuda_has(cuda_library library);

/* Version of the driver, 13000 for CUDA 13.0; 0 before the driver was opened. */
int mp__cuda_driver_version(void);

#endif
