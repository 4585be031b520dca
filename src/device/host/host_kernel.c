/* host_kernel.c - loads and launches kernels that were compiled for the CPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_work.h"

#include "base/clock.h"
#include "base/log.h"
#include "device/kernel_record.h"

#include <string.h>
#include <time.h>

/* ---- items ---- */

void mp__host_launch_run(host_device *host, const host_queue *queue, const host_item *item) {
    if (!mp__host_adversarial(host)) {
        mp__host_run_blocks(item->launch.image, item->launch.grid, item->bytes);
        return;
    }
    (void)pthread_mutex_lock(&host->lock);
    const uint64_t random = (uint64_t)mp__host_random(host, UINT32_MAX) << 32;
    (void)pthread_mutex_unlock(&host->lock);
    const char *fault =
        mp__host_run_shuffled(item->launch.image, item->launch.grid, item->bytes, random);
    if (fault != NULL) {
        mp__host_breach(host, "kernel %s on stream %u: %s", item->launch.image->name, queue->number,
                        fault);
    }
}

static bool run_launch(host_device *host, host_queue *queue, host_item *item) {
    if (item->launch.math == NULL) {
        mp__host_launch_run(host, queue, item);
    } else if (mp__host_ranks_launch(host, queue, item) != MP_OK) {
        mp__host_breach(host, "kernel %s on stream %u failed: %s", item->launch.image->name,
                        queue->number, mp_error_message());
    }
    return true;
}

static host_object *launch_object(const host_item *item) {
    return item->launch.math != NULL ? &item->launch.math->object : NULL;
}

/* Every eight-byte word of the arguments that lies in a range the device knows is taken for an
 * address. */
static bool launch_references(const host_item *item, host_reference_fn *fn, void *context) {
    const unsigned char *bytes = item->bytes;
    for (size_t i = 0; i + sizeof(mp_addr) <= item->bytes_size; i += sizeof(mp_addr)) {
        host_reference ref = {.size = 1};
        memcpy(&ref.addr, bytes + i, sizeof ref.addr);
        if (fn(context, item, ref)) {
            return true;
        }
    }
    return false;
}

static const char *launch_name(const host_item *item) {
    return item->launch.image->name;
}

static void describe_launch(host_device *host, const host_item *item, mp_profile_record *record) {
    const mp_grid grid = item->launch.grid;
    const uint32_t blocks[] = {grid.blocks, grid.blocks_y != 0 ? grid.blocks_y : 1, 1};
    const uint32_t lanes[] = {grid.lanes, 1, 1};
    (void)host;
    record->name = item->launch.image->name;
    for (int i = 0; i < 3; i++) {
        record->grid[i] = blocks[i];
        record->block[i] = lanes[i];
    }
}

static const host_item_kind launch_kind = {
    .run = run_launch,
    .object = launch_object,
    .references = launch_references,
    .name = launch_name,
    .describe = describe_launch,
};

/* ---- kernels ---- */

static bool is_ready(const mp_kernel *kernel) {
    return atomic_load_explicit(&kernel->ready, memory_order_acquire);
}

/* Takes as long as a compiler would. */
static void run_later(mp_later *self) {
    static const struct timespec ms = {.tv_nsec = 1000000};
    mp_kernel *kernel = MP_CONTAINER_OF(self, mp_kernel, later);
    const int64_t end = mp_clock_ms() + kernel->device->config.compile_ms;
    while (mp_clock_ms() < end && !atomic_load(&kernel->unwanted)) {
        (void)nanosleep(&ms, NULL);
    }
    const mp_status status = mp__host_kernel_ready(&kernel->device->base, kernel);
    (void)pthread_mutex_lock(&kernel->device->lock); /* until whoever queued this has set it */
    const mp_kernel *stand_in = kernel->stand_in;
    (void)pthread_mutex_unlock(&kernel->device->lock);
    if (status != MP_OK) {
        MP_LOG(WARNING, "%s, which is slower, keeps standing in for a kernel: %s",
               stand_in->image->name, mp_error_message());
    }
}

mp_status mp__host_kernel_open(mp_device *self, const mp_kernel_image *image, mp_kernel **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "kernel_load"));
    MP_TRY(mp__host_not_capturing(host, "kernel_load"));
    if (image->host == NULL) {
        return MP_FAIL(UNSUPPORTED, "kernel %s was not compiled for the CPU", image->name);
    }
    mp_kernel *kernel = NULL;
    MP_TRY(mp__host_object_create(host, HOST_KERNEL, sizeof *kernel, &kernel));
    kernel->image = image;
    kernel->device = host;
    kernel->later = (mp_later){.run = run_later, .owner = self};
    const mp_status status = mp_kernel_record_add(image);
    if (status != MP_OK) {
        mp__host_object_destroy(host, &kernel->object);
        return status;
    }
    *out = kernel;
    return MP_OK;
}

mp_status mp__host_kernel_ready(mp_device *self, mp_kernel *kernel) {
    MP_TRY(mp__host_call(mp__host_from(self), "kernel_ready"));
    atomic_store_explicit(&kernel->ready, true, memory_order_release);
    return MP_OK;
}

bool mp__host_kernel_ready_later(mp_device *self, mp_kernel *kernel, mp_kernel *stand_in) {
    host_device *host = mp__host_from(self);
    if (host->config.compile_ms == 0 || is_ready(kernel) ||
        mp__host_kernel_ready(self, stand_in) != MP_OK) {
        return false;
    }
    (void)pthread_mutex_lock(&host->lock);
    if (kernel->stand_in == NULL) {
        kernel->stand_in = mp_later_add(&kernel->later) ? stand_in : NULL;
    }
    const bool taken = kernel->stand_in != NULL;
    (void)pthread_mutex_unlock(&host->lock);
    return taken;
}

bool mp__host_kernels_settled(mp_device *self, bool wait) {
    if (wait) {
        mp_later_settle(self);
    }
    return !mp_later_has(self);
}

mp_status mp__host_kernel_load(mp_device *self, const mp_kernel_image *image, mp_kernel **out) {
    MP_TRY(mp__host_kernel_open(self, image, out));
    atomic_store_explicit(&(*out)->ready, true, memory_order_release);
    return MP_OK;
}

void mp__host_kernel_unload(mp_device *self, mp_kernel *kernel) {
    atomic_store(&kernel->unwanted, true);
    mp_later_drop(&kernel->later);
    mp_kernel_record_remove(kernel->image);
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
    if (grid.meets > 1) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "launch of %s with blocks that wait for one another; they run one after "
                       "the other here",
                       kernel->image->name);
    }
    return MP_OK;
}

/* What a launch takes that finds its kernel not ready. A graph would keep the stand-in for good. */
static const mp_kernel *kernel_for_now(mp_device *self, mp_stream *stream,
                                       const mp_kernel *kernel) {
    bool captured = false;
    if (kernel->stand_in == NULL) {
        return kernel;
    }
    if (mp__host_capture_active(self, stream, &captured) == MP_OK && captured) {
        mp_later_wait((mp_later *)(uintptr_t)&kernel->later);
    }
    return is_ready(kernel) ? kernel : kernel->stand_in;
}

mp_status mp__host_launch_item(mp_device *self, mp_stream *stream, const mp_kernel *kernel,
                               mp_grid grid, const void *args, size_t args_size, host_item *out) {
    MP_TRY(mp__host_call(mp__host_from(self), "launch"));
    MP_TRY(check_grid(kernel, grid));
    if (!is_ready(kernel)) {
        kernel = kernel_for_now(self, stream, kernel);
    }
    if (!is_ready(kernel)) {
        return MP_FAIL(INTERNAL, "kernel %s is launched before it was made ready",
                       kernel->image->name);
    }
    *out = (host_item){.kind = &launch_kind,
                       .launch = {.image = kernel->image, .grid = grid},
                       .bytes = args,
                       .bytes_size = args_size};
    return MP_OK;
}

mp_status mp__host_launch(mp_device *self, mp_stream *stream, const mp_kernel *kernel, mp_grid grid,
                          const void *args, size_t args_size) {
    host_item item;
    MP_TRY(mp__host_launch_item(self, stream, kernel, grid, args, args_size, &item));
    return mp__host_enqueue(mp__host_from(self), stream->queue, &item);
}
