/* core_dlpack.h - the structs of DLPack (github.com/dmlc/dlpack), version 1 and the one before: an
 * interface between libraries, so neither order nor types may change.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_PYTHON_CORE_DLPACK_H
#define MP_PYTHON_CORE_DLPACK_H

#include <stdint.h>

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 0 };

typedef enum dl_device_type { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 } dl_device_type;

typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t type_code; /* 1: unsigned */
    uint8_t type_bits;
    uint16_t type_lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed_tensor dl_managed_tensor;
struct dl_managed_tensor { /* before version 1 */
    dl_tensor tensor;
    void *context;
    void (*deleter)(dl_managed_tensor *self);
};

typedef struct dl_managed_versioned dl_managed_versioned;
struct dl_managed_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(dl_managed_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
};

#endif
