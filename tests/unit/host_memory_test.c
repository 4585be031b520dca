/* host_memory_test.c - what only the emulated device does with memory: notes, exact figures of
 * mempools, memory of other processes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory_calls.h"
#include "test.h"
#include "test_log.h"

#include "device/host/host_device.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, GRANULE = 2 << 20, MEMORY = 64 << 20 };

static mp_device *open_device(mp_host_config config) {
    mp_device *device = NULL;
    config.memory_bytes = MEMORY;
    mp_log_set_sink(no_line, NULL); /* breaches are expected here */
    CHECK_OK(mp__host_device_create(&config, &device));
    return device;
}

static void close_device(mp_device *device) {
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    mp_log_set_sink(NULL, NULL);
}

static mp_stream *open_stream(mp_device *device) {
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    return stream;
}

static size_t used_of(mp_device *device) {
    size_t left = 0, total = 0;
    CHECK_OK(device->ops->memory_info(device, &left, &total));
    return total - left;
}

/* ---- notes ---- */

/* Work on the noted part is a breach, work beside it is not. */
static void check_note(mp_device *device, mp_addr addr, size_t size) {
    mp_stream *stream = open_stream(device);
    CHECK(device->info.notes);
    device->ops->note(device, addr + size / 4, size / 2, false);
    CHECK_OK(device->ops->fill(device, stream, addr, 0, 4, size / 16));
    CHECK_OK(device->ops->fill(device, stream, addr + size / 4 * 3, 0, 4, size / 16));
    CHECK_OK(device->ops->synchronize(device));
    device->ops->note(device, addr + size / 4, size / 4, true);
    CHECK_OK(device->ops->fill(device, stream, addr, 0, 4, size / 8));
    CHECK_OK(device->ops->synchronize(device));
    CHECK(mp__host_device_breach(device) == NULL);
    CHECK_OK(device->ops->fill(device, stream, addr + size / 2 - 4, 0, 4, 2));
    CHECK_FAILS(device->ops->synchronize(device), DEVICE, "given back to the pool");
    device->ops->stream_destroy(device, stream);
}

TEST(notes_are_for_every_kind_of_memory) {
    for (int kind = 0; kind < 3; kind++) {
        mp_device *device = open_device((mp_host_config){.mode = MP_HOST_ADVERSARIAL});
        mp_addr addr = 0;
        if (kind == 0) {
            CHECK_OK(device->ops->alloc(device, MIB, &addr));
            check_note(device, addr, MIB);
            device->ops->free(device, addr, MIB);
        } else if (kind == 1) {
            CHECK_OK(device->ops->alloc_pinned(device, MIB, &addr));
            check_note(device, addr, MIB);
            device->ops->free_pinned(device, addr, MIB);
        } else {
            CHECK_OK(device->ops->reserve(device, 8 * (size_t)GRANULE, &addr));
            CHECK_OK(device->ops->map(device, addr + GRANULE, GRANULE)); /* a note may cross them */
            CHECK_OK(device->ops->map(device, addr + 2 * GRANULE, 3 * (size_t)GRANULE));
            check_note(device, addr + GRANULE, 4 * (size_t)GRANULE);
            CHECK_OK(device->ops->unmap(device, addr + GRANULE, 4 * (size_t)GRANULE));
            device->ops->unreserve(device, addr, 8 * (size_t)GRANULE);
        }
        close_device(device);
    }
}

/* A note poisons the parts that have memory, and only those. */
TEST(notes_reach_over_addresses_without_memory) {
    mp_device *device = open_device((mp_host_config){.mode = MP_HOST_ADVERSARIAL});
    mp_addr addr = 0;
    uint16_t last = 0;
    CHECK_OK(device->ops->reserve(device, 3 * (size_t)GRANULE, &addr));
    CHECK_OK(device->ops->map(device, addr + 2 * GRANULE, GRANULE));
    CHECK_OK(device->ops->fill(device, NULL, addr + 2 * GRANULE, 0, 2, GRANULE / 2));
    device->ops->note(device, addr, 3 * (size_t)GRANULE, false);
    memcpy(&last, (const char *)addr + 3 * (size_t)GRANULE - 2, sizeof last);
    CHECK(last != 0);
    device->ops->note(device, addr, 3 * (size_t)GRANULE, true);
    CHECK_OK(device->ops->fill(device, NULL, addr + 2 * GRANULE, 0, 2, GRANULE / 2));
    CHECK_OK(device->ops->unmap(device, addr + 2 * GRANULE, GRANULE));
    device->ops->unreserve(device, addr, 3 * (size_t)GRANULE);
    CHECK(mp__host_device_breach(device) == NULL);
    close_device(device);
}

/* Queues work on memory and moves it. Returns whether the work was still queued then. */
static bool move_used_memory(uint64_t seed) {
    mp_device *device = open_device((mp_host_config){.mode = MP_HOST_ADVERSARIAL, .seed = seed});
    mp_stream *stream = open_stream(device);
    mp_addr addr = 0;
    CHECK_OK(device->ops->reserve(device, 2 * (size_t)GRANULE, &addr));
    CHECK_OK(device->ops->map(device, addr, GRANULE));
    CHECK_OK(device->ops->fill(device, stream, addr, 0, 4, 1));
    bool idle = false;
    CHECK_OK(device->ops->stream_query(device, stream, &idle));
    if (!idle) {
        CHECK_OK(device->ops->remap(device, addr + GRANULE, addr, GRANULE));
        CHECK_STR_HAS(mp__host_device_breach(device), "remap");
        CHECK_OK(
            device->ops->remap(device, addr, addr + GRANULE, GRANULE)); /* so that it ends well */
    }
    device->ops->stream_destroy(device, stream);
    CHECK_OK(device->ops->unmap(device, addr, GRANULE));
    device->ops->unreserve(device, addr, 2 * (size_t)GRANULE);
    close_device(device);
    return !idle;
}

TEST(moving_memory_that_is_in_use_is_a_breach) {
    int found = 0;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        found += move_used_memory(seed);
    }
    CHECK(found > 0);
}

/* ---- mempools ---- */

static void check_usage(mp_device *device, mp_mempool *mempool, size_t reserved, size_t used) {
    mp_mempool_usage usage = {0};
    CHECK_OK(device->ops->mempool_usage(device, mempool, &usage));
    CHECK_EQ_INT(usage.reserved, reserved);
    CHECK_EQ_INT(usage.used, used);
    CHECK_EQ_INT(used_of(device), reserved);
}

TEST(mempool_figures_are_exact) {
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode++) {
        mp_device *device = open_device((mp_host_config){.mode = (unsigned)mode, .seed = 1});
        mp_stream *stream = open_stream(device);
        mp_mempool *mempool = NULL;
        mp_addr a = 0, b = 0;
        CHECK_OK(device->ops->mempool_create(device, 3 * MIB, &mempool));
        CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, 4 * MIB, &a));
        CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, 2 * MIB, &b));
        check_usage(device, mempool, 6 * MIB, 6 * MIB);
        CHECK_OK(device->ops->free_async(device, stream, a, 4 * MIB));
        check_usage(device, mempool, 6 * MIB, 2 * MIB);
        CHECK_OK(device->ops->stream_synchronize(device, stream)); /* back to the threshold */
        check_usage(device, mempool, 3 * MIB, 2 * MIB);
        CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, 2 * MIB, &a)); /* 1 kept */
        check_usage(device, mempool, 4 * MIB, 4 * MIB);
        CHECK_OK(device->ops->free_async(device, stream, a, 2 * MIB));
        CHECK_OK(device->ops->free_async(device, stream, b, 2 * MIB));
        CHECK_FAILS(device->ops->free_async(device, stream, b, 2 * MIB), INVALID_ARGUMENT,
                    "free_async of 2097152 bytes");
        CHECK_OK(device->ops->stream_synchronize(device, stream));
        check_usage(device, mempool, 3 * MIB, 0);
        CHECK_OK(device->ops->mempool_trim(device, mempool, 2 * MIB));
        check_usage(device, mempool, 2 * MIB, 0);
        CHECK_OK(device->ops->mempool_trim(device, mempool, 2 * MIB));
        check_usage(device, mempool, 2 * MIB, 0);
        device->ops->mempool_destroy(device, mempool);
        CHECK_EQ_INT(used_of(device), 0);
        device->ops->stream_destroy(device, stream);
        CHECK(mp__host_device_breach(device) == NULL);
        close_device(device);
    }
}

TEST(mempool_trim_keeps_what_is_in_use) {
    mp_device *device = open_device((mp_host_config){.mode = MP_HOST_THREADED});
    mp_stream *first = open_stream(device), *second = open_stream(device);
    mp_mempool *mempool = NULL;
    mp_addr addr = 0;
    CHECK_OK(device->ops->mempool_create(device, (size_t)8 * MIB, &mempool));
    CHECK_OK(device->ops->mempool_alloc(device, mempool, first, MIB, &addr));
    CHECK_OK(device->ops->free_async(device, first, addr, MIB));
    CHECK_OK(device->ops->stream_synchronize(device, first));
    CHECK_OK(device->ops->mempool_alloc(device, mempool, second, MIB, &addr));
    check_usage(device, mempool, MIB, MIB);
    CHECK_OK(device->ops->mempool_trim(device, mempool, 0)); /* all of it is in use */
    check_usage(device, mempool, MIB, MIB);
    CHECK_OK(device->ops->free_async(device, second, addr, MIB));
    CHECK_OK(device->ops->stream_synchronize(device, second));
    CHECK_OK(device->ops->mempool_trim(device, mempool, 0));
    check_usage(device, mempool, 0, 0);
    device->ops->mempool_destroy(device, mempool);
    device->ops->stream_destroy(device, first);
    device->ops->stream_destroy(device, second);
    close_device(device);
}

TEST(mempool_memory_outlives_its_mempool) {
    mp_device *device = open_device((mp_host_config){.mode = MP_HOST_EAGER});
    mp_stream *stream = open_stream(device);
    mp_mempool *mempool = NULL;
    mp_addr addr = 0;
    CHECK_OK(device->ops->mempool_create(device, MIB, &mempool));
    CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, MIB, &addr));
    device->ops->mempool_destroy(device, mempool);
    CHECK_OK(device->ops->fill(device, stream, addr, 1, 4, MIB / 4));
    CHECK_OK(device->ops->free_async(device, stream, addr, MIB));
    CHECK_EQ_INT(used_of(device), 0);
    device->ops->stream_destroy(device, stream);
    close_device(device);
}

TEST(a_device_may_lack_mempools) {
    mp_device *device = open_device((mp_host_config){.no_mempools = true});
    mp_mempool *mempool = NULL;
    CHECK_FAILS(device->ops->mempool_create(device, 0, &mempool), UNSUPPORTED,
                "no stream-ordered memory pools");
    close_device(device);
}

TEST(the_environment_switches_what_a_device_can_do) {
    NEEDS_OWN_PROCESS();
    mp_device *device = NULL;
    mp_mempool *mempool = NULL;
    mp_addr addr = 0;
    unsigned char handle[MP_IPC_HANDLE_BYTES];
    (void)setenv("MILLPOND_HOST_IPC", "1", 1);
    (void)setenv("MILLPOND_HOST_MEMPOOLS", "maybe", 1);
    CHECK_FAILS(mp_device_get(MP_DEVICE_HOST, 0, &device), INVALID_ARGUMENT, "maybe");
    (void)setenv("MILLPOND_HOST_MEMPOOLS", "0", 1);
    CHECK_OK(mp_device_get(MP_DEVICE_HOST, 0, &device));
    CHECK_FAILS(device->ops->mempool_create(device, 0, &mempool), UNSUPPORTED,
                "MILLPOND_HOST_MEMPOOLS=0");
    CHECK_OK(device->ops->alloc(device, 8192, &addr));
    CHECK_OK(device->ops->ipc_export(device, addr, handle));
    device->ops->free(device, addr, 8192);
}

/* ---- native handles ---- */

TEST(native_handles_are_the_streams_themselves) {
    mp_device *device = open_device((mp_host_config){.mode = MP_HOST_EAGER});
    mp_stream *stream = open_stream(device), *wrap = NULL, *again = NULL;
    CHECK(device->ops->stream_native(device, stream) == stream);
    CHECK_OK(device->ops->stream_wrap(device, stream, &wrap));
    CHECK_OK(device->ops->stream_wrap(device, wrap, &again)); /* a wrap will do, too */
    CHECK(device->ops->stream_native(device, wrap) == stream);
    CHECK(device->ops->stream_native(device, again) == stream);
    CHECK_FAILS(device->ops->stream_wrap(device, &wrap, &again), INVALID_ARGUMENT, "not a stream");
    device->ops->stream_destroy(device, again);
    device->ops->stream_destroy(device, wrap);
    CHECK_OK(device->ops->stream_synchronize(device, stream)); /* the owner's is still there */
    device->ops->stream_destroy(device, stream);
    close_device(device);
}

/* ---- memory of other processes ---- */

/* The other process. Returns what failed. */
static int use_from_outside(const unsigned char *handle) {
    mp_device *device = NULL;
    const mp_host_config config = {.memory_bytes = MEMORY};
    mp_addr addr = 0;
    if (mp__host_device_create(&config, &device) != MP_OK) {
        return 5;
    }
    const int failed = test_use_shared(device, handle, &addr);
    if (failed != 0) {
        return failed;
    }
    if (device->ops->ipc_close(device, addr) != MP_INVALID_ARGUMENT) {
        return 6; /* closed already */
    }
    return mp__host_device_destroy(device) == 0 ? 0 : 7;
}

static int run_outside(const unsigned char *handle) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        _exit(use_from_outside(handle));
    }
    int state = 0;
    CHECK_EQ_INT(waitpid(child, &state, 0), child);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST(memory_is_shared_with_another_process) {
    for (int adversarial = 0; adversarial < 2; adversarial++) {
        mp_host_config config = {.ipc = true};
        config.mode = adversarial ? MP_HOST_ADVERSARIAL : MP_HOST_EAGER;
        mp_device *device = open_device(config);
        unsigned char handle[MP_IPC_HANDLE_BYTES];
        mp_addr other = 0, addr = 0, opened = 0;
        size_t size = 0;
        uint32_t word = 0;
        CHECK_OK(device->ops->alloc(device, 5000, &other));
        CHECK_OK(device->ops->alloc(device, MIB, &addr));
        CHECK_OK(device->ops->fill(device, NULL, addr, 11, 4, MIB / 4));
        CHECK_OK(device->ops->ipc_export(device, addr, handle));
        CHECK_FAILS(device->ops->ipc_open(device, handle, &opened, &size), INVALID_ARGUMENT,
                    "this process");
        CHECK_EQ_INT(run_outside(handle), 0);
        CHECK_OK(device->ops->copy(device, NULL, (mp_addr)&word, addr + MIB - 4, 4));
        CHECK_EQ_INT(word, 12);
        device->ops->free(device, addr, MIB);
        device->ops->free(device, other, 5000);
        CHECK(mp__host_device_breach(device) == NULL);
        close_device(device);
    }
}

TEST(stale_handles_are_refused) {
    mp_device *device = open_device((mp_host_config){.ipc = true});
    unsigned char handle[MP_IPC_HANDLE_BYTES];
    mp_addr addr = 0;
    size_t size = 0;
    CHECK_OK(device->ops->alloc(device, MIB, &addr));
    CHECK_OK(device->ops->ipc_export(device, addr, handle));
    device->ops->free(device, addr, MIB);
    CHECK_EQ_INT(run_outside(handle), 1); /* cannot be opened */
    memset(handle, 0x5a, sizeof handle);
    CHECK_FAILS(device->ops->ipc_open(device, handle, &addr, &size), INVALID_ARGUMENT, "not of an");
    close_device(device);
}

TEST(only_shared_allocations_are_exported) {
    mp_device *device = open_device((mp_host_config){.ipc = true});
    unsigned char handle[MP_IPC_HANDLE_BYTES];
    mp_addr small = 0, pinned = 0;
    CHECK_OK(device->ops->alloc(device, 100, &small));
    CHECK_OK(device->ops->alloc_pinned(device, MIB, &pinned));
    CHECK_FAILS(device->ops->ipc_export(device, small, handle), UNSUPPORTED, "at least 4096");
    CHECK_FAILS(device->ops->ipc_export(device, small + 4, handle), INVALID_ARGUMENT, "begins");
    CHECK_FAILS(device->ops->ipc_export(device, pinned, handle), INVALID_ARGUMENT, "begins");
    device->ops->free(device, small, 100);
    device->ops->free_pinned(device, pinned, MIB);
    close_device(device);
    device = open_device((mp_host_config){.mode = MP_HOST_EAGER});
    CHECK_OK(device->ops->alloc(device, MIB, &small));
    CHECK_FAILS(device->ops->ipc_export(device, small, handle), UNSUPPORTED, "MILLPOND_HOST_IPC");
    device->ops->free(device, small, MIB);
    close_device(device);
}
