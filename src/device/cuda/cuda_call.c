/* cuda_call.c - what a driver call needs around it: the right context, and a sentence on failure.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"

#include "base/log.h"

#include <stdio.h>

typedef struct error_note {
    CUresult result;
    mp_status status;
    const char *advice;
} error_note;

/* After these the context is lost: every later call in the process fails the same way. */
#define RESTART                                                                               \
    "; a kernel or the hardware broke the GPU's context, which nothing but a restart of the " \
    "process repairs (compute-sanitizer finds the kernel)"

static const error_note notes[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, MP_OUT_OF_MEMORY, "; free memory on the device or ask for less"},
    {CUDA_ERROR_NOT_SUPPORTED, MP_UNSUPPORTED, "; this GPU or driver lacks it"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, MP_UNSUPPORTED, "; the two GPUs are not connected"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, MP_UNSUPPORTED, "; the kernel was built for another GPU"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, MP_UNSUPPORTED,
     "; NVRTC is newer than the driver: update the driver or install an older NVRTC"},
    {CUDA_ERROR_INVALID_VALUE, MP_INVALID_ARGUMENT, ""},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, MP_INVALID_ARGUMENT,
     "; the block asks for more registers or shared memory than there are"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, MP_UNSUPPORTED,
     "; the stream is being captured into a graph, which this call cannot be part of"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, MP_UNSUPPORTED,
     "; a stream that waits for the default stream is being captured, and the call would join the "
     "capture: name a stream of your own"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, MP_DEVICE,
     "; an earlier call broke the capture: run the work once before capturing it"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, MP_DEVICE,
     "; another process holds the GPU exclusively (see the compute mode in nvidia-smi)"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, MP_DEVICE, RESTART},
    {CUDA_ERROR_LAUNCH_FAILED, MP_DEVICE, RESTART},
    {CUDA_ERROR_LAUNCH_TIMEOUT, MP_DEVICE, RESTART},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, MP_DEVICE, RESTART},
    {CUDA_ERROR_MISALIGNED_ADDRESS, MP_DEVICE, RESTART},
    {CUDA_ERROR_INVALID_ADDRESS_SPACE, MP_DEVICE, RESTART},
    {CUDA_ERROR_INVALID_PC, MP_DEVICE, RESTART},
    {CUDA_ERROR_HARDWARE_STACK_ERROR, MP_DEVICE, RESTART},
    {CUDA_ERROR_ASSERT, MP_DEVICE, RESTART},
    {CUDA_ERROR_ECC_UNCORRECTABLE, MP_DEVICE, RESTART},
    {CUDA_ERROR_NVLINK_UNCORRECTABLE, MP_DEVICE, RESTART},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, MP_DEVICE, RESTART},
};

static error_note note_of(CUresult result) {
    for (size_t i = 0; i < MP_COUNT_OF(notes); i++) {
        if (notes[i].result == result) {
            return notes[i];
        }
    }
    return (error_note){.result = result, .status = MP_DEVICE, .advice = ""};
}

mp_status mp__cuda_fail(const cuda_device *device, CUresult result, const char *call) {
    const char *name = NULL;
    const char *text = NULL;
    (void)mp__cu.error_name(result, &name);
    (void)mp__cu.error_text(result, &text);
    const error_note note = note_of(result);
    return mp__fail(note.status, "%s on CUDA device %d failed: %s (%s)%s", call,
                    device->base.ordinal, name != NULL ? name : "unknown error",
                    text != NULL ? text : "no description", note.advice);
}

void mp__cuda_warn(const cuda_device *device, CUresult result, const char *call) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) {
        return;
    }
    (void)mp__cuda_fail(device, result, call);
    MP_LOG(ERROR, "%s", mp_error_message());
}

mp_status mp__cuda_switch(const cuda_device *device, cuda_scope *scope) {
    CUresult result = mp__cu.context_current(&scope->previous);
    if (result == CUDA_SUCCESS) {
        result = mp__cu.context_set(device->context);
    }
    if (result != CUDA_SUCCESS) {
        return mp__cuda_fail(device, result, "cuCtxSetCurrent");
    }
    scope->switched = true;
    return MP_OK;
}
