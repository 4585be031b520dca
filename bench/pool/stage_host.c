/* stage_host.c - the emulated device, through what libmillpond.so keeps for its own build.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include "base/status.h"
#include "device/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Work of a microsecond: so many words filled, about. */
enum { WORDS_A_US = 2048, SCRATCH_WORDS = 1 << 20, PINNED_MAX = 64 };

static mp_device *device;
static mp_addr scratch;
static const char *(*message)(void);
static struct {
    void *memory;
    size_t size;
} pinned_blocks[PINNED_MAX];

static void must(mp_status status, const char *what) {
    if (status != MP_OK) {
        die("%s: %s", what, message());
    }
}

static void enter(void) {
}

static void *stream_create(void) {
    mp_stream *stream = NULL;
    must(device->ops->stream_create(device, &stream), "stream_create");
    return stream;
}

static void wait_all(void) {
    must(device->ops->synchronize(device), "synchronize");
}

static void order(void *earlier, void *later) {
    mp_event *event = NULL;
    must(device->ops->event_create(device, false, &event), "event_create");
    must(device->ops->event_record(device, event, earlier), "event_record");
    must(device->ops->event_wait(device, event, later), "event_wait");
    device->ops->event_destroy(device, event);
}

static void busy(void *stream, unsigned us) {
    for (size_t left = (size_t)us * WORDS_A_US; left > 0;) {
        const size_t count = left < SCRATCH_WORDS ? left : SCRATCH_WORDS;
        must(device->ops->fill(device, stream, scratch, us, sizeof(uint32_t), count), "fill");
        left -= count;
    }
}

static void fill(void *stream, void *block, uint32_t value, size_t count) {
    must(device->ops->fill(device, stream, (mp_addr)block, value, sizeof value, count), "fill");
}

static void read_block(void *stream, void *pinned, const void *block, size_t size) {
    must(device->ops->copy(device, stream, (mp_addr)pinned, (mp_addr)block, size), "copy");
}

static void *pinned_alloc(size_t size) {
    for (size_t i = 0; i < PINNED_MAX; i++) {
        if (pinned_blocks[i].memory == NULL) {
            mp_addr addr = 0;
            must(device->ops->alloc_pinned(device, size, &addr), "alloc_pinned");
            pinned_blocks[i].memory = (void *)addr;
            pinned_blocks[i].size = size;
            return (void *)addr;
        }
    }
    die("more than %d pinned blocks", PINNED_MAX);
}

static void pinned_free(void *pinned) {
    for (size_t i = 0; i < PINNED_MAX; i++) {
        if (pinned_blocks[i].memory == pinned) {
            device->ops->free_pinned(device, (mp_addr)pinned, pinned_blocks[i].size);
            pinned_blocks[i].memory = NULL;
            return;
        }
    }
}

static void memory(size_t *free_bytes, size_t *total_bytes) {
    must(device->ops->memory_info(device, free_bytes, total_bytes), "memory_info");
}

static void *hold(size_t size) {
    mp_addr addr = 0;
    must(device->ops->alloc(device, size, &addr), "alloc of the memory to be held");
    return (void *)addr;
}

static void release(void *held, size_t size) {
    device->ops->free(device, (mp_addr)held, size);
}

stage *stage_host(const char **why) {
    static stage self = {.name = "host",
                         .thread_enter = enter,
                         .stream_create = stream_create,
                         .wait_all = wait_all,
                         .order = order,
                         .busy = busy,
                         .fill = fill,
                         .read = read_block,
                         .pinned_alloc = pinned_alloc,
                         .pinned_free = pinned_free,
                         .memory = memory,
                         .hold = hold,
                         .release = release};
    mp_status (*get)(mp_device_kind, int, mp_device **) = NULL;
    void *library = dlopen("libmillpond.so.0", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        *why = "libmillpond.so.0 cannot be loaded";
        return NULL;
    }
    void *found = dlsym(library, "mp_device_get");
    memcpy(&get, &found, sizeof get);
    found = dlsym(library, "mp_error_message");
    memcpy(&message, &found, sizeof message);
    if (get == NULL || message == NULL || get(MP_DEVICE_HOST, 0, &device) != MP_OK) {
        *why = "libmillpond.so offers no emulated device";
        return NULL;
    }
    must(device->ops->alloc(device, SCRATCH_WORDS * sizeof(uint32_t), &scratch), "alloc");
    (void)snprintf(self.device, sizeof self.device, "%s", device->info.name);
    (void)snprintf(self.driver, sizeof self.driver, "%s", device->info.driver);
    return &self;
}
