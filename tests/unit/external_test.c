/* external_test.c - memory and timeline semaphores of other APIs: files stand for them on an
 * emulated device; a GPU has to refuse those.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "device/device.h"
#include "random.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 3 * 4096 + 100, FUZZ_ROUNDS = 300 };

static int make_file(size_t size) {
    const int fd = memfd_create("external_test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    return fd;
}

static void *look_into(int fd, size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static bool is_gpu(const mp_device *device) {
    return device->info.kind == MP_DEVICE_CUDA;
}

static void check_refused(mp_device *device, int fd, size_t size) {
    mp_import *import = NULL;
    mp_addr addr = 0;
    CHECK_FAILS(device->ops->import_open(device, fd, size, &import, &addr), INVALID_ARGUMENT,
                "file descriptor");
    CHECK(import == NULL && addr == 0);
}

DEVICE_TEST(external_memory_is_shared_with_its_file) {
    const mp_device_ops *ops = device->ops;
    if (is_gpu(device)) {
        return; /* needs memory that Vulkan exported */
    }
    const int fd = make_file(BYTES);
    unsigned char *outside = look_into(fd, BYTES);
    outside[17] = 5;
    mp_import *import = NULL;
    mp_addr addr = 0;
    mp_addr own = 0;
    mp_stream *stream = NULL;
    unsigned char got[BYTES];
    CHECK_OK(ops->import_open(device, fd, BYTES, &import, &addr));
    CHECK(close(fd) == 0); /* the caller's own */
    CHECK_OK(ops->stream_create(device, &stream));
    CHECK_OK(ops->alloc(device, BYTES, &own));
    CHECK_OK(ops->copy(device, stream, own, addr, BYTES));
    CHECK_OK(ops->fill(device, stream, addr + 100, 0x77, 1, BYTES - 100));
    CHECK_OK(ops->copy(device, stream, (mp_addr)got, own, BYTES));
    CHECK_OK(ops->stream_synchronize(device, stream));
    CHECK_EQ_INT(got[17], 5);
    CHECK_EQ_INT(outside[17], 5);
    CHECK_EQ_INT(outside[99], 0);
    CHECK_EQ_INT(outside[100], 0x77);
    CHECK_EQ_INT(outside[BYTES - 1], 0x77);
    CHECK_FAILS(ops->fill(device, stream, addr + 100, 1, 1, BYTES), INVALID_ARGUMENT, "");
    ops->import_close(device, import);
    ops->free(device, own, BYTES);
    ops->stream_destroy(device, stream);
    CHECK(munmap(outside, BYTES) == 0);
}

DEVICE_TEST(external_memory_that_is_none_is_refused) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const int folder = open("/", O_RDONLY);
    const int sealed = memfd_create("external_test", MFD_CLOEXEC); /* against being sealed */
    const int good = make_file(BYTES);
    CHECK(folder >= 0 && sealed >= 0 && ftruncate(sealed, BYTES) == 0);
    check_refused(device, -1, BYTES);
    check_refused(device, 1 << 20, BYTES);
    check_refused(device, ends[0], BYTES);
    check_refused(device, folder, BYTES);
    check_refused(device, sealed, BYTES);
    check_refused(device, good, BYTES + 1);
    check_refused(device, good, SIZE_MAX);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(folder) == 0);
    CHECK(close(sealed) == 0 && close(good) == 0);
}

/* Files and sizes drawn at random: what fits is taken and can be written to its last byte, what
 * does not is refused. */
DEVICE_TEST(external_memory_of_any_size) {
    const mp_device_ops *ops = device->ops;
    uint64_t state = test_seed();
    if (is_gpu(device)) {
        return;
    }
    for (int round = 0; round < FUZZ_ROUNDS; round++) {
        const size_t size = 1 + test_random(&state) % 9000;
        const size_t asked = test_random(&state) % 3 == 0 ? test_random(&state) % 20000
                                                          : 1 + test_random(&state) % size;
        const int fd = make_file(size);
        mp_import *import = NULL;
        mp_addr addr = 0;
        const mp_status status = ops->import_open(device, fd, asked, &import, &addr);
        CHECK_EQ_INT(status, asked > 0 && asked <= size ? MP_OK : MP_INVALID_ARGUMENT);
        if (status == MP_OK) {
            CHECK(ftruncate(fd, 0) != 0); /* it can no longer shrink */
            CHECK_OK(ops->fill(device, NULL, addr + asked - 1, 9, 1, 1));
            ops->import_close(device, import);
        }
        CHECK(close(fd) == 0);
    }
}

/* ---- semaphores ---- */

typedef struct other_api {
    _Atomic(uint64_t) *count;
    uint64_t value;
} other_api;

static void *signal_later(void *context) {
    const other_api *other = context;
    (void)usleep(3000);
    atomic_store(other->count, other->value);
    return NULL;
}

DEVICE_TEST(external_semaphore_of_another_api_is_waited_for) {
    const mp_device_ops *ops = device->ops;
    if (is_gpu(device)) {
        return;
    }
    const int fd = make_file(64);
    other_api other = {.count = look_into(fd, 64), .value = 3};
    mp_semaphore *semaphore = NULL;
    mp_stream *stream = NULL;
    mp_addr own = 0;
    unsigned char got = 0;
    pthread_t thread;
    CHECK_OK(ops->semaphore_open(device, fd, &semaphore));
    CHECK_OK(ops->stream_create(device, &stream));
    CHECK_OK(ops->alloc(device, 256, &own));
    CHECK(pthread_create(&thread, NULL, signal_later, &other) == 0);
    CHECK_OK(ops->semaphore_wait(device, semaphore, stream, 2)); /* 3 is more */
    CHECK_OK(ops->fill(device, stream, own, 7, 1, 256));
    CHECK_OK(ops->semaphore_signal(device, semaphore, stream, 10));
    CHECK_OK(ops->copy(device, stream, (mp_addr)&got, own, 1));
    CHECK_OK(ops->stream_synchronize(device, stream));
    CHECK_EQ_INT(got, 7);
    CHECK_EQ_INT((int)atomic_load(other.count), 10);
    CHECK(pthread_join(thread, NULL) == 0);
    ops->semaphore_close(device, semaphore);
    ops->stream_destroy(device, stream);
    ops->free(device, own, 256);
    CHECK(munmap((void *)(uintptr_t)other.count, 64) == 0 && close(fd) == 0);
}

/* One import signals, another one of the same file waits: the streams' order comes from the count
 * alone. */
DEVICE_TEST(external_semaphore_orders_two_streams) {
    const mp_device_ops *ops = device->ops;
    enum { ROUNDS = 20, SIZE = 512 };
    if (is_gpu(device)) {
        return;
    }
    const int fd = make_file(8);
    mp_semaphore *theirs = NULL;
    mp_semaphore *ours = NULL;
    mp_stream *producer = NULL;
    mp_stream *consumer = NULL;
    mp_addr from = 0;
    mp_addr to = 0;
    CHECK_OK(ops->semaphore_open(device, fd, &theirs));
    CHECK_OK(ops->semaphore_open(device, fd, &ours));
    CHECK(close(fd) == 0);
    CHECK_OK(ops->stream_create(device, &producer));
    CHECK_OK(ops->stream_create(device, &consumer));
    CHECK_OK(ops->alloc(device, SIZE, &from));
    CHECK_OK(ops->alloc(device, SIZE, &to));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        unsigned char got[SIZE];
        CHECK_OK(ops->semaphore_wait(device, theirs, producer, 2 * round));
        CHECK_OK(ops->fill(device, producer, from, (uint32_t)round + 1, 1, SIZE));
        CHECK_OK(ops->semaphore_signal(device, theirs, producer, 2 * round + 1));
        CHECK_OK(ops->semaphore_wait(device, ours, consumer, 2 * round + 1));
        CHECK_OK(ops->copy(device, consumer, to, from, SIZE));
        CHECK_OK(ops->semaphore_signal(device, ours, consumer, 2 * round + 2));
        CHECK_OK(ops->copy(device, consumer, (mp_addr)got, to, SIZE));
        CHECK_EQ_INT(got[0], (int)round + 1);
        CHECK_EQ_INT(got[SIZE - 1], (int)round + 1);
    }
    CHECK_OK(ops->synchronize(device));
    ops->semaphore_close(device, theirs);
    ops->semaphore_close(device, ours);
    ops->stream_destroy(device, producer);
    ops->stream_destroy(device, consumer);
    ops->free(device, from, SIZE);
    ops->free(device, to, SIZE);
}

DEVICE_TEST(external_semaphore_that_is_none_is_refused) {
    const mp_device_ops *ops = device->ops;
    const int small = make_file(4);
    const int good = make_file(8);
    int ends[2];
    CHECK(pipe(ends) == 0);
    const int none[] = {-1, 1 << 20, ends[0], small};
    for (size_t i = 0; i < MP_COUNT_OF(none); i++) {
        mp_semaphore *semaphore = NULL;
        CHECK_FAILS(ops->semaphore_open(device, none[i], &semaphore), INVALID_ARGUMENT, "");
        CHECK(semaphore == NULL);
    }
    if (!is_gpu(device)) {
        mp_semaphore *semaphore = NULL;
        mp_stream *stream = NULL;
        mp_graph_exec *graph = NULL;
        CHECK_OK(ops->semaphore_open(device, good, &semaphore));
        CHECK_OK(ops->stream_create(device, &stream));
        CHECK_OK(ops->capture_begin(device, stream));
        CHECK_FAILS(ops->semaphore_wait(device, semaphore, stream, 0), INVALID_ARGUMENT, "");
        CHECK_FAILS(ops->semaphore_signal(device, semaphore, stream, 1), INVALID_ARGUMENT, "");
        CHECK_OK(ops->capture_end(device, stream, &graph));
        ops->graph_destroy(device, graph);
        ops->stream_destroy(device, stream);
        ops->semaphore_close(device, semaphore);
    }
    CHECK(close(small) == 0 && close(good) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}
