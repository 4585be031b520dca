/* stage_cuda.c - the first GPU, in its primary context, which every library of the process shares.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "driver.h"

#include <stdio.h>

enum { STREAM_NON_BLOCKING = 1, EVENT_NO_TIMING = 2 };

/* Spins for `ns` nanoseconds of the GPU's clock. */
static const char spin_text[] = ".version 6.4\n"
                                ".target sm_75\n"
                                ".address_size 64\n"
                                ".visible .entry spin(.param .u64 ns) {\n"
                                "  .reg .u64 %start, %now, %limit;\n"
                                "  .reg .pred %more;\n"
                                "  ld.param.u64 %limit, [ns];\n"
                                "  mov.u64 %start, %globaltimer;\n"
                                "again:\n"
                                "  mov.u64 %now, %globaltimer;\n"
                                "  sub.u64 %now, %now, %start;\n"
                                "  setp.lt.u64 %more, %now, %limit;\n"
                                "  @%more bra again;\n"
                                "  ret;\n"
                                "}\n";

static void *context, *spin;

static void enter(void) {
    driver_must(cu.context_set(context), "cuCtxSetCurrent");
}

static void *stream_create(void) {
    void *stream = NULL;
    driver_must(cu.stream_create(&stream, STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
}

static void wait_all(void) {
    driver_must(cu.context_wait(), "cuCtxSynchronize");
}

static void order(void *earlier, void *later) {
    void *event = NULL;
    driver_must(cu.event_create(&event, EVENT_NO_TIMING), "cuEventCreate");
    driver_must(cu.event_record(event, earlier), "cuEventRecord");
    driver_must(cu.stream_wait_event(later, event, 0), "cuStreamWaitEvent");
    driver_must(cu.event_destroy(event), "cuEventDestroy");
}

static void busy(void *stream, unsigned us) {
    uint64_t ns = (uint64_t)us * 1000;
    void *arguments[] = {&ns};
    driver_must(cu.launch(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
}

static void fill(void *stream, void *block, uint32_t value, size_t count) {
    driver_must(cu.fill((cu_memory)(uintptr_t)block, value, count, stream), "cuMemsetD32Async");
}

static void read_block(void *stream, void *pinned, const void *block, size_t size) {
    driver_must(cu.read(pinned, (cu_memory)(uintptr_t)block, size, stream), "cuMemcpyDtoHAsync");
}

static void *pinned_alloc(size_t size) {
    void *pinned = NULL;
    driver_must(cu.host_alloc(&pinned, size), "cuMemAllocHost");
    return pinned;
}

static void pinned_free(void *pinned) {
    driver_must(cu.host_free(pinned), "cuMemFreeHost");
}

static void memory(size_t *free_bytes, size_t *total_bytes) {
    driver_must(cu.memory_info(free_bytes, total_bytes), "cuMemGetInfo");
}

static void *hold(size_t size) {
    cu_memory held = 0;
    driver_must(cu.memory_alloc(&held, size), "cuMemAlloc of the memory to be held");
    return (void *)(uintptr_t)held;
}

static void release(void *held, size_t size) {
    (void)size;
    driver_must(cu.memory_free((cu_memory)(uintptr_t)held), "cuMemFree");
}

stage *stage_cuda(const char **why) {
    static stage self = {.name = "cuda",
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
    int device = 0, version = 0;
    void *module = NULL;
    if (!driver_open(why)) {
        return NULL;
    }
    if (cu.device_get(&device, 0) != 0) {
        *why = "the driver shows no GPU";
        return NULL;
    }
    driver_must(cu.device_name(self.device, sizeof self.device, device), "cuDeviceGetName");
    driver_must(cu.version(&version), "cuDriverGetVersion");
    (void)snprintf(self.driver, sizeof self.driver, "CUDA %d.%d", version / 1000,
                   version % 1000 / 10);
    driver_must(cu.context_retain(&context, device), "cuDevicePrimaryCtxRetain");
    enter();
    driver_must(cu.module_load(&module, spin_text), "cuModuleLoadData");
    driver_must(cu.module_function(&spin, module, "spin"), "cuModuleGetFunction");
    return &self;
}
