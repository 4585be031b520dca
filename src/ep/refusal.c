/* refusal.c - convolutions need cuDNN on a GPU. Where a session forbids it or the machine has none,
 * they are left to the CPU's provider when the session is made, instead of failing in the first
 * run. SPDX-License-Identifier: Apache-2.0 */
#include "ep/refusal.h"

#include "base/log.h"

/* A convolution of one element. */
static mp_status try_convolution(mp_device *device) {
    const mp_conv smallest = {.type = MP_F32,
                              .spatial = 2,
                              .search = 2,
                              .batch = 1,
                              .in_channels = 1,
                              .out_channels = 1,
                              .groups = 1,
                              .in = {1, 1},
                              .out = {1, 1},
                              .kernel = {1, 1},
                              .stride = {1, 1},
                              .dilation = {1, 1}};
    mp_math *math = NULL;
    MP_TRY(device->ops->conv_prepare(device, &smallest, &math));
    device->ops->math_release(device, math);
    return MP_OK;
}

bool mp__refused(mp_provider *provider, const mp_op *op) {
    if (!op->needs_conv) {
        return false;
    }
    if (!provider->options.enable_cudnn) {
        return true;
    }
    if (provider->convolutions == MP_NOT_TRIED) {
        const mp_status status = try_convolution(provider->unit->device);
        provider->convolutions = status == MP_UNSUPPORTED ? MP_MISSING : MP_THERE;
        if (status == MP_UNSUPPORTED) {
            MP_LOG(WARNING, "convolutions are left to other providers: %s", mp_error_message());
        }
    }
    return provider->convolutions == MP_MISSING;
}
