/* cuda_math.c - what prepared matrix products and convolutions have in common.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"

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
