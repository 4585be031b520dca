/* cuda_math.c - what prepared matrix products and convolutions have in common.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"

static const cuda_type types[] = {
    {MP_F32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
     CUDNN_FMA_MATH},
    {MP_F64, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE,
     CUDNN_DEFAULT_MATH},
    {MP_F16, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT,
     CUDNN_TENSOR_OP_MATH},
    {MP_BF16, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT,
     CUDNN_TENSOR_OP_MATH},
};

const cuda_type *mp__cuda_type_find(mp_dtype type) {
    for (size_t i = 0; i < MP_COUNT_OF(types); i++) {
        if (types[i].type == type) {
            return &types[i];
        }
    }
    return NULL;
}

static cuda_math *math_of(mp_math *math) {
    return (cuda_math *)(void *)math;
}

size_t mp__cuda_math_workspace(mp_device *self, const mp_math *math) {
    (void)self;
    return ((const cuda_math *)(const void *)math)->workspace;
}

mp_status mp__cuda_math_run(mp_device *self, mp_stream *stream, mp_math *math,
                            const mp_addr *operands, mp_addr workspace) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const mp_status status =
        math_of(math)->ops->run(device, stream, math_of(math), operands, workspace);
    mp__cuda_exit(&scope);
    return status;
}

void mp__cuda_math_release(mp_device *self, mp_math *math) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    if (mp__cuda_enter(device, &scope) == MP_OK) {
        math_of(math)->ops->release(device, math_of(math));
        mp__cuda_exit(&scope);
    }
}
