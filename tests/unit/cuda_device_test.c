/* cuda_device_test.c - every entry of the device table on a real GPU; skipped where there is none.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COUNT = 1 << 16, MIB = 1 << 20 };

/* ---- kernels of these tests ---- */

typedef struct test_args {
    uint64_t y;
    int64_t count;
    uint32_t add;
    uint32_t rounds; /* of idle work */
} test_args;

static const mp_source sources[] = {
    {"test/kernels.cu",
     "#include \"test/args.h\"\n"
     "extern \"C\" __global__ void mp_test_add(const args a) {\n"
     "    unsigned *y = (unsigned *)a.y;\n"
     "    for (unsigned r = 0; r < a.rounds; r++) { __nanosleep(1000000); }\n"
     "    const long long step = (long long)gridDim.x * blockDim.x;\n"
     "    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < a.count;\n"
     "         i += step) { y[i] += a.add; }\n"
     "}\n"
     "extern \"C\" __global__ void mp_test_shared(const args a) {\n"
     "    extern __shared__ unsigned room[];\n"
     "    unsigned *y = (unsigned *)a.y;\n"
     "    for (long long i = threadIdx.x; i < a.count; i += blockDim.x) { room[i] = y[i]; }\n"
     "    __syncthreads();\n"
     "    for (long long i = threadIdx.x; i < a.count; i += blockDim.x) {\n"
     "        y[i] = room[a.count - 1 - i] + a.add;\n"
     "    }\n"
     "}\n"},
    {"test/args.h", "typedef struct args { unsigned long long y; long long count; unsigned add, "
                    "rounds; } args;\n"},
    {NULL, NULL}};
static const char *const no_defines[] = {NULL};
static const mp_kernel_image add_image = {
    .name = "mp_test_add", .source = "test/kernels.cu", .defines = no_defines, .sources = sources};
static const mp_kernel_image shared_image = {.name = "mp_test_shared",
                                             .source = "test/kernels.cu",
                                             .defines = no_defines,
                                             .sources = sources,
                                             .lanes = true};
static const mp_kernel_image missing_image = {.name = "mp_test_missing",
                                              .source = "test/kernels.cu",
                                              .defines = no_defines,
                                              .sources = sources};

static void add(mp_device *device, mp_stream *stream, const mp_kernel *kernel, mp_addr y,
                uint32_t value, uint32_t rounds) {
    const test_args args = {.y = y, .count = COUNT, .add = value, .rounds = rounds};
    const mp_grid grid = {.blocks = 16, .lanes = 256};
    CHECK_OK(device->ops->launch(device, stream, kernel, grid, &args, sizeof args));
}

/* Checks that all words on the device have this value. */
static void check_words(mp_device *device, mp_addr addr, size_t count, uint32_t value) {
    uint32_t *words = malloc(count * sizeof *words);
    CHECK(words != NULL);
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)words, addr, count * sizeof *words));
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ_INT(words[i], value);
    }
    free(words);
}

/* ---- finding ---- */

TEST(cuda_device_info) {
    mp_device *device = test_gpu();
    mp_device *again = NULL;
    const mp_device_info *info = &device->info;
    CHECK_OK(mp_device_get(MP_DEVICE_CUDA, 0, &again));
    CHECK(device == again && device->ordinal == 0);
    CHECK(info->kind == MP_DEVICE_CUDA && strlen(info->name) > 3);
    CHECK_STR_HAS(info->driver, "CUDA 1");
    CHECK(info->arch >= 50 && info->arch < 300 && info->multiprocessors > 0);
    CHECK(info->warp == 32 && info->block_lanes_max >= 512);
    CHECK(info->shared_bytes_max >= 48 << 10 && info->memory_bytes > (size_t)256 * MIB);
    CHECK(strchr(info->pci_bus_id, ':') != NULL);
    for (const char *at = info->pci_bus_id; *at != '\0'; at++) {
        CHECK(*at < 'A' || *at > 'Z');
    }
    const int count = mp_device_count(MP_DEVICE_CUDA, NULL);
    CHECK_FAILS(mp_device_get(MP_DEVICE_CUDA, count, &again), NOT_FOUND, "ordinals");
    CHECK_FAILS(mp_device_get(MP_DEVICE_CUDA, -1, &again), NOT_FOUND, "ordinals");
}

static void *get_device(void *context) {
    mp_device **out = context;
    CHECK_OK(mp_device_get(MP_DEVICE_CUDA, 0, out));
    return NULL;
}

TEST(cuda_device_opened_by_many_threads) {
    pthread_t threads[4];
    mp_device *found[4] = {NULL};
    if (mp_device_count(MP_DEVICE_CUDA, NULL) == 0) {
        SKIP("no GPU");
    }
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_create(&threads[i], NULL, get_device, &found[i]) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (size_t i = 1; i < MP_COUNT_OF(threads); i++) {
        CHECK(found[i] != NULL && found[i] == found[0]);
    }
}

TEST(cuda_device_leaves_the_context_alone) {
    mp_device *device = test_gpu();
    void *current = NULL;
    mp_addr addr = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(driver != NULL);
    int (*get)(void **) = NULL;
    void *symbol = dlsym(driver, "cuCtxGetCurrent");
    CHECK(symbol != NULL);
    memcpy(&get, &symbol, sizeof get);
    CHECK_OK(device->ops->alloc(device, MIB, &addr));
    CHECK(get(&current) == 0 && current == NULL);
    device->ops->free(device, addr, MIB);
    CHECK(get(&current) == 0 && current == NULL);
}

/* ---- memory ---- */

TEST_ALONE(cuda_memory_alloc) {
    mp_device *device = test_gpu();
    mp_addr addr = 0;
    size_t free_before = 0;
    size_t free_after = 0;
    size_t total = 0;
    CHECK_OK(device->ops->memory_info(device, &free_before, &total));
    CHECK(total > free_before && free_before > 0);
    CHECK_OK(device->ops->alloc(device, (size_t)64 * MIB, &addr));
    CHECK(addr % MP_ALIGNMENT == 0);
    CHECK_OK(device->ops->memory_info(device, &free_after, &total));
    CHECK(free_after < free_before);
    device->ops->free(device, addr, (size_t)64 * MIB);
    CHECK_FAILS(device->ops->alloc(device, total * 2, &addr), OUT_OF_MEMORY, "CUDA_ERROR");
    CHECK_OK(device->ops->alloc(device, 1, &addr));
    device->ops->free(device, addr, 1);
}

TEST(cuda_memory_copies) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    mp_addr first = 0;
    mp_addr second = 0;
    mp_addr pinned = 0;
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->alloc(device, MIB, &first));
    CHECK_OK(device->ops->alloc(device, MIB, &second));
    CHECK_OK(device->ops->alloc_pinned(device, MIB, &pinned));
    CHECK(pinned % MP_ALIGNMENT == 0);
    uint32_t *host = (uint32_t *)pinned;
    for (uint32_t i = 0; i < MIB / 4; i++) {
        host[i] = i * 2654435761U;
    }
    uint32_t *pageable = malloc(MIB);
    CHECK(pageable != NULL);
    CHECK_OK(device->ops->copy(device, stream, first, pinned, MIB));
    CHECK_OK(device->ops->copy(device, stream, second, first, MIB));
    CHECK_OK(device->ops->copy(device, stream, (mp_addr)pageable, second, MIB));
    CHECK(memcmp(pageable, host, MIB) == 0); /* pageable: there when the call returns */
    memset(pageable, 7, MIB);
    CHECK_OK(device->ops->copy(device, stream, first, (mp_addr)pageable, MIB));
    memset(pageable, 0, MIB); /* pageable: read when the call returned */
    CHECK_OK(device->ops->copy(device, stream, pinned, first, MIB));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK(host[0] == 0x07070707 && host[MIB / 4 - 1] == 0x07070707);
    CHECK_OK(device->ops->copy(device, NULL, first, (mp_addr)pageable, MIB));
    CHECK_OK(device->ops->copy(device, NULL, second, first, MIB));
    check_words(device, second, MIB / 4, 0);
    CHECK_OK(device->ops->copy(device, NULL, pinned, (mp_addr)pageable, MIB));
    CHECK(host[17] == 0);
    free(pageable);
    device->ops->free_pinned(device, pinned, MIB);
    device->ops->free(device, first, MIB);
    device->ops->free(device, second, MIB);
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_memory_fills) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    mp_addr addr = 0;
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->alloc(device, 4096, &addr));
    CHECK_OK(device->ops->fill(device, NULL, addr, 0xdeadbeef, 4, 1024));
    check_words(device, addr, 1024, 0xdeadbeef);
    CHECK_OK(device->ops->fill(device, stream, addr, 0xffff1234, 2, 2048));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check_words(device, addr, 1024, 0x12341234);
    CHECK_OK(device->ops->fill(device, NULL, addr, 0xffffff5a, 1, 4096));
    check_words(device, addr, 1024, 0x5a5a5a5a);
    CHECK_OK(device->ops->fill(device, NULL, addr + 4, 0, 1, 4088));
    check_words(device, addr, 1, 0x5a5a5a5a);
    check_words(device, addr + 4, 1022, 0);
    check_words(device, addr + 4092, 1, 0x5a5a5a5a);
    device->ops->free(device, addr, 4096);
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_memory_async) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    mp_mempool *mempool = NULL;
    mp_addr addr = 0;
    const mp_status status = device->ops->mempool_create(device, 0, &mempool);
    if (status == MP_UNSUPPORTED) {
        SKIP("%s", mp_error_message());
    }
    CHECK_OK(status);
    CHECK_OK(device->ops->stream_create(device, &stream));
    for (int i = 0; i < 10; i++) {
        CHECK_OK(device->ops->mempool_alloc(device, mempool, stream, MIB, &addr));
        CHECK(addr % MP_ALIGNMENT == 0);
        CHECK_OK(device->ops->fill(device, stream, addr, (uint32_t)i, 4, MIB / 4));
        CHECK_OK(device->ops->free_async(device, stream, addr, MIB));
    }
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    device->ops->mempool_destroy(device, mempool);
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_memory_virtual) {
    mp_device *device = test_gpu();
    const size_t granule = device->ops->granule(device);
    mp_addr base = 0;
    if (granule == 0) {
        SKIP("no virtual memory management");
    }
    CHECK_EQ_INT(granule % ((size_t)64 << 10), 0);
    CHECK_FAILS(device->ops->reserve(device, granule + 1, &base), INVALID_ARGUMENT, "multiple");
    CHECK_OK(device->ops->reserve(device, 100 * granule, &base));
    CHECK_OK(device->ops->map(device, base, 3 * granule));
    CHECK_OK(device->ops->fill(device, NULL, base, 1, 4, 3 * granule / 4));
    CHECK_OK(device->ops->map(device, base + 3 * granule, 2 * granule)); /* grows in place */
    CHECK_OK(device->ops->fill(device, NULL, base + 3 * granule, 1, 4, 2 * granule / 4));
    check_words(device, base, 5 * granule / 4, 1);
    CHECK_FAILS(device->ops->map(device, base + 4 * granule, 2 * granule), INVALID_ARGUMENT,
                "already mapped");
    CHECK_FAILS(device->ops->unmap(device, base + 4 * granule, 2 * granule), INVALID_ARGUMENT,
                "not all mapped");
    CHECK_FAILS(device->ops->map(device, base + 99 * granule, 2 * granule), INVALID_ARGUMENT,
                "reserved");
    /* A run that is part of one mapping and part of another. */
    CHECK_OK(device->ops->unmap(device, base + 2 * granule, 2 * granule));
    check_words(device, base, 2 * granule / 4, 1);
    check_words(device, base + 4 * granule, granule / 4, 1);
    CHECK_OK(device->ops->map(device, base + 2 * granule, 2 * granule));
    CHECK_OK(device->ops->fill(device, NULL, base, 2, 4, 5 * granule / 4));
    check_words(device, base, 5 * granule / 4, 2);
    CHECK_OK(device->ops->unmap(device, base, 5 * granule));
    device->ops->unreserve(device, base, 100 * granule);
}

TEST_ALONE(cuda_memory_virtual_out_of_memory) {
    mp_device *device = test_gpu();
    const size_t granule = device->ops->granule(device);
    size_t free_before = 0;
    size_t free_after = 0;
    size_t total = 0;
    mp_addr base = 0;
    if (granule == 0) {
        SKIP("no virtual memory management");
    }
    CHECK_OK(device->ops->memory_info(device, &free_before, &total));
    /* Little is left, so that running out takes few pieces. */
    mp_addr most = 0;
    const size_t taken = free_before > 64 * granule ? free_before - 64 * granule : 0;
    if (taken == 0 || device->ops->alloc(device, taken, &most) != MP_OK) {
        SKIP("not enough free memory for this test");
    }
    CHECK_OK(device->ops->reserve(device, 128 * granule, &base));
    CHECK_FAILS(device->ops->map(device, base, 128 * granule), OUT_OF_MEMORY, "CUDA_ERROR");
    CHECK_OK(device->ops->map(device, base, granule)); /* nothing was left behind */
    CHECK_OK(device->ops->unmap(device, base, granule));
    device->ops->unreserve(device, base, 128 * granule);
    device->ops->free(device, most, taken);
    CHECK_OK(device->ops->memory_info(device, &free_after, &total));
    CHECK(free_after + 16 * granule > free_before);
}

/* ---- streams and events ---- */

static void set_flag(void *context) {
    atomic_store((atomic_int *)context, 1);
}

TEST(cuda_stream_order) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    mp_stream *wrapped = NULL;
    mp_kernel *kernel = NULL;
    mp_addr addr = 0;
    bool idle = true;
    atomic_int flag = 0;
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->kernel_load(device, &add_image, &kernel));
    CHECK_OK(device->ops->alloc(device, COUNT * 4, &addr));
    CHECK_OK(device->ops->fill(device, stream, addr, 5, 4, COUNT));
    add(device, stream, kernel, addr, 1, 50);
    CHECK_OK(device->ops->stream_call(device, stream, set_flag, &flag));
    CHECK_OK(device->ops->stream_query(device, stream, &idle));
    CHECK(!idle && atomic_load(&flag) == 0);
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_OK(device->ops->stream_query(device, stream, &idle));
    CHECK(idle && atomic_load(&flag) == 1);
    check_words(device, addr, COUNT, 6);
    CHECK_OK(
        device->ops->stream_wrap(device, device->ops->stream_native(device, stream), &wrapped));
    CHECK(device->ops->stream_native(device, wrapped) ==
          device->ops->stream_native(device, stream));
    add(device, wrapped, kernel, addr, 10, 0);
    device->ops->stream_destroy(device, wrapped);
    CHECK_OK(device->ops->stream_wrap(device, NULL, &wrapped)); /* the legacy default stream */
    CHECK_OK(device->ops->synchronize(device));
    add(device, wrapped, kernel, addr, 100, 0);
    CHECK_OK(device->ops->stream_synchronize(device, wrapped));
    check_words(device, addr, COUNT, 116);
    device->ops->stream_destroy(device, wrapped);
    device->ops->kernel_unload(device, kernel);
    device->ops->free(device, addr, COUNT * 4);
    device->ops->stream_destroy(device, stream);
}

TEST(cuda_events) {
    mp_device *device = test_gpu();
    mp_stream *streams[2] = {NULL};
    mp_event *event = NULL;
    mp_event *start = NULL;
    mp_event *end = NULL;
    mp_kernel *kernel = NULL;
    mp_addr addr = 0;
    bool reached = false;
    float ms = 0;
    CHECK_OK(device->ops->stream_create(device, &streams[0]));
    CHECK_OK(device->ops->stream_create(device, &streams[1]));
    CHECK_OK(device->ops->event_create(device, false, &event));
    CHECK_OK(device->ops->event_create(device, true, &start));
    CHECK_OK(device->ops->event_create(device, true, &end));
    CHECK_OK(device->ops->kernel_load(device, &add_image, &kernel));
    CHECK_OK(device->ops->alloc(device, COUNT * 4, &addr));
    CHECK_OK(device->ops->event_query(device, event, &reached)); /* never recorded: reached */
    CHECK(reached);
    CHECK_OK(device->ops->event_wait(device, event, streams[1]));
    CHECK_OK(device->ops->fill(device, NULL, addr, 1, 4, COUNT));
    CHECK_OK(device->ops->event_record(device, start, streams[0]));
    add(device, streams[0], kernel, addr, 1, 30);
    CHECK_OK(device->ops->event_record(device, end, streams[0]));
    CHECK_OK(device->ops->event_record(device, event, streams[0]));
    CHECK_OK(device->ops->event_query(device, event, &reached));
    CHECK(!reached);
    CHECK_OK(device->ops->event_wait(device, event, streams[1]));
    CHECK_OK(device->ops->fill(device, streams[1], addr, 9, 4, COUNT));
    CHECK_OK(device->ops->event_synchronize(device, event));
    CHECK_OK(device->ops->event_query(device, event, &reached));
    CHECK(reached);
    CHECK_OK(device->ops->stream_synchronize(device, streams[1]));
    check_words(device, addr, COUNT, 9);
    CHECK_OK(device->ops->event_elapsed(device, start, end, &ms));
    CHECK(ms > 5 && ms < 10000);
    CHECK(device->ops->event_elapsed(device, event, end, &ms) != MP_OK); /* without timing */
    device->ops->event_destroy(device, event);
    device->ops->event_destroy(device, start);
    device->ops->event_destroy(device, end);
    device->ops->kernel_unload(device, kernel);
    device->ops->free(device, addr, COUNT * 4);
    device->ops->stream_destroy(device, streams[0]);
    device->ops->stream_destroy(device, streams[1]);
}

TEST(cuda_graphs) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    mp_kernel *kernel = NULL;
    mp_graph_exec *graph = NULL;
    mp_addr addr = 0;
    bool active = true;
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->kernel_load(device, &add_image, &kernel));
    CHECK_OK(device->ops->alloc(device, COUNT * 4, &addr));
    CHECK_OK(device->ops->fill(device, NULL, addr, 0, 4, COUNT));
    CHECK_OK(device->ops->capture_active(device, stream, &active));
    CHECK(!active);
    CHECK_OK(device->ops->capture_begin(device, stream));
    CHECK_OK(device->ops->capture_active(device, stream, &active));
    CHECK(active);
    for (uint32_t i = 0; i < 10; i++) {
        add(device, stream, kernel, addr, i, 0);
    }
    CHECK_OK(device->ops->capture_end(device, stream, &graph));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check_words(device, addr, COUNT, 0); /* recorded, not run */
    for (int i = 0; i < 3; i++) {
        CHECK_OK(device->ops->graph_launch(device, graph, stream));
    }
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check_words(device, addr, COUNT, 135);
    device->ops->graph_destroy(device, graph);
    /* A capture that was broken says so, and the stream is usable again. */
    CHECK_OK(device->ops->capture_begin(device, stream));
    CHECK(device->ops->stream_synchronize(device, stream) != MP_OK);
    CHECK(device->ops->capture_end(device, stream, &graph) != MP_OK);
    add(device, stream, kernel, addr, 1, 0);
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check_words(device, addr, COUNT, 136);
    device->ops->kernel_unload(device, kernel);
    device->ops->free(device, addr, COUNT * 4);
    device->ops->stream_destroy(device, stream);
}

/* ---- kernels ---- */

TEST(cuda_kernels) {
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    mp_kernel *kernel = NULL;
    mp_kernel *again = NULL;
    mp_addr addr = 0;
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->kernel_load(device, &shared_image, &kernel));
    CHECK_OK(device->ops->kernel_load(device, &shared_image, &again));
    CHECK(kernel == again); /* loaded once */
    device->ops->kernel_unload(device, again);
    CHECK_FAILS(device->ops->kernel_load(device, &missing_image, &again), DEVICE,
                "mp_test_missing");
    /* All the shared memory there is, beyond the 48 KiB that need no permission. */
    const uint32_t words = (uint32_t)device->info.shared_bytes_max / 4;
    const test_args args = {.count = words, .add = 3};
    test_args call = args;
    mp_grid grid = {.blocks = 1, .lanes = 256, .shared_bytes = words * 4};
    CHECK_OK(device->ops->alloc(device, words * 4, &addr));
    CHECK_OK(device->ops->fill(device, stream, addr, 4, 4, words));
    call.y = addr;
    CHECK_OK(device->ops->launch(device, stream, kernel, grid, &call, sizeof call));
    memset(&call, 0xff, sizeof call); /* borrowed during the call only */
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check_words(device, addr, words, 7);
    call = args;
    grid.shared_bytes = (uint32_t)device->info.shared_bytes_max + 1024;
    CHECK_FAILS(device->ops->launch(device, stream, kernel, grid, &call, sizeof call),
                INVALID_ARGUMENT, "mp_test_shared");
    device->ops->kernel_unload(device, kernel);
    device->ops->free(device, addr, words * 4);
    device->ops->stream_destroy(device, stream);
}

/* What a launch costs, for whoever reads the log; no promise is checked. */
TEST(cuda_launch_cost) {
    enum { LAUNCHES = 20000 };
    mp_device *device = test_gpu();
    mp_stream *stream = NULL;
    mp_kernel *kernel = NULL;
    mp_addr addr = 0;
    struct timespec times[2];
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->kernel_load(device, &add_image, &kernel));
    CHECK_OK(device->ops->alloc(device, COUNT * 4, &addr));
    const test_args args = {.y = addr, .count = 256};
    const mp_grid grid = {.blocks = 1, .lanes = 256};
    for (int pass = 0; pass < 2; pass++) {
        (void)clock_gettime(CLOCK_MONOTONIC, &times[0]);
        for (int i = 0; i < LAUNCHES; i++) {
            CHECK_OK(device->ops->launch(device, stream, kernel, grid, &args, sizeof args));
        }
        (void)clock_gettime(CLOCK_MONOTONIC, &times[1]);
        CHECK_OK(device->ops->stream_synchronize(device, stream));
    }
    const double ns = (double)(times[1].tv_sec - times[0].tv_sec) * 1e9 +
                      (double)(times[1].tv_nsec - times[0].tv_nsec);
    (void)fprintf(stderr, "# a launch takes %.0f ns\n", ns / LAUNCHES);
    device->ops->kernel_unload(device, kernel);
    device->ops->free(device, addr, COUNT * 4);
    device->ops->stream_destroy(device, stream);
}

typedef struct worker {
    mp_device *device;
    mp_kernel *kernel;
} worker;

static void *work(void *context) {
    const worker *self = context;
    mp_device *device = self->device;
    mp_stream *stream = NULL;
    mp_addr addr = 0;
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->alloc(device, COUNT * 4, &addr));
    CHECK_OK(device->ops->fill(device, stream, addr, 0, 4, COUNT));
    for (int i = 0; i < 200; i++) {
        add(device, stream, self->kernel, addr, 1, 0);
    }
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    check_words(device, addr, COUNT, 200);
    device->ops->free(device, addr, COUNT * 4);
    device->ops->stream_destroy(device, stream);
    return NULL;
}

TEST(cuda_many_threads) {
    pthread_t threads[8];
    worker self = {.device = test_gpu()};
    CHECK_OK(self.device->ops->kernel_load(self.device, &add_image, &self.kernel));
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_create(&threads[i], NULL, work, &self) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    self.device->ops->kernel_unload(self.device, self.kernel);
}

/* ---- two GPUs ---- */

TEST(cuda_peers) {
    mp_device *near = test_gpu();
    mp_device *far = NULL;
    mp_addr here = 0;
    mp_addr there = 0;
    mp_addr mapped = 0;
    mp_kernel *kernel = NULL;
    mp_stream *stream = NULL;
    CHECK_OK(near->ops->peer_enable(near, near));
    if (mp_device_count(MP_DEVICE_CUDA, NULL) < 2) {
        SKIP("one GPU only");
    }
    CHECK_OK(mp_device_get(MP_DEVICE_CUDA, 1, &far));
    CHECK_OK(near->ops->alloc(near, COUNT * 4, &here));
    CHECK_OK(far->ops->alloc(far, COUNT * 4, &there));
    CHECK_OK(far->ops->fill(far, NULL, there, 3, 4, COUNT));
    CHECK_OK(near->ops->copy(near, NULL, here, there, COUNT * 4)); /* with or without access */
    check_words(near, here, COUNT, 3);
    const size_t granule = far->ops->granule(far);
    CHECK_OK(far->ops->reserve(far, granule, &mapped));
    CHECK_OK(far->ops->map(far, mapped, granule)); /* before access is given */
    CHECK_OK(far->ops->fill(far, NULL, mapped, 3, 4, COUNT));
    const mp_status status = near->ops->peer_enable(near, far);
    if (status == MP_UNSUPPORTED) {
        SKIP("%s", mp_error_message());
    }
    CHECK_OK(status);
    CHECK_OK(near->ops->peer_enable(near, far));
    CHECK_OK(near->ops->stream_create(near, &stream));
    CHECK_OK(near->ops->kernel_load(near, &add_image, &kernel));
    add(near, stream, kernel, there, 4, 0);
    add(near, stream, kernel, mapped, 5, 0);
    CHECK_OK(near->ops->stream_synchronize(near, stream));
    check_words(far, there, COUNT, 7);
    check_words(far, mapped, COUNT, 8);
    near->ops->kernel_unload(near, kernel);
    near->ops->stream_destroy(near, stream);
    CHECK_OK(far->ops->unmap(far, mapped, granule));
    far->ops->unreserve(far, mapped, granule);
    near->ops->free(near, here, COUNT * 4);
    far->ops->free(far, there, COUNT * 4);
}
