/* host_kernel.c - loads and launches kernels that were compiled for the CPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_internal.h"

mp_status mp__host_kernel_load(mp_device *self, const mp_kernel_image *image, mp_kernel **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "kernel_load"));
    MP_TRY(mp__host_not_capturing(host, "kernel_load"));
    if (image->host == NULL) {
        return MP_FAIL(UNSUPPORTED, "kernel %s was not compiled for the CPU", image->name);
    }
    mp_kernel *kernel = NULL;
    MP_TRY(mp__host_object_create(host, HOST_KERNEL, sizeof *kernel, &kernel));
    kernel->image = image;
    *out = kernel;
    return MP_OK;
}

void mp__host_kernel_unload(mp_device *self, mp_kernel *kernel) {
    mp__host_object_destroy(mp__host_from(self), &kernel->object);
}

static mp_status check_grid(const mp_kernel *kernel, mp_grid grid) {
    if (grid.blocks == 0 || grid.lanes == 0 || grid.lanes > HOST_LANES_MAX ||
        grid.shared_bytes > HOST_SHARED_BYTES_MAX) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "launch of %s with %u blocks of %u lanes and %u shared bytes; the limits are "
            "1 block or more, %d lanes and %d bytes",
            kernel->image->name, grid.blocks, grid.lanes, grid.shared_bytes, HOST_LANES_MAX,
            HOST_SHARED_BYTES_MAX);
    }
    return MP_OK;
}

mp_status mp__host_launch(mp_device *self, mp_stream *stream, const mp_kernel *kernel, mp_grid grid,
                          const void *args, size_t args_size) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "launch"));
    MP_TRY(check_grid(kernel, grid));
    host_item item = {.kind = HOST_LAUNCH,
                      .launch = {.image = kernel->image, .grid = grid},
                      .bytes = args,
                      .bytes_size = args_size};
    return mp__host_enqueue(host, stream->queue, &item);
}
