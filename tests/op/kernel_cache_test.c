/* kernel_cache_test.c - kernels by name, from several threads and for devices that come and go.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/kernel_cache.h"

#include "device/host/host_device.h"
#include "unit/test.h"

#include <pthread.h>

static const char *const names[] = {
    "pointwise1_relu_f32", "pointwise1_exp_f32", "pointwise2_add_f32",
    "pointwise2_mul_f64",  "clip_f32",           "norm_packed_f32_f32"};

DEVICE_TEST(kernel_cache_finds_by_name) {
    const mp_kernel *first = NULL;
    const mp_kernel *again = NULL;
    const mp_kernel *other = NULL;
    CHECK_OK(mp_kernel_cache_get(device, names[0], &first));
    CHECK_OK(mp_kernel_cache_get(device, names[0], &again));
    CHECK_OK(mp_kernel_cache_get(device, names[1], &other));
    CHECK(first == again && first != other);
    CHECK_FAILS(mp_kernel_cache_get(device, "no_such_f32", &other), INTERNAL, "'no_such_f32'");
    CHECK_FAILS(mp_kernel_cache_get(device, "", &other), INTERNAL, "kernels.txt");
    mp_kernel_cache_drop(device);
    mp_kernel_cache_drop(device); /* nothing left */
}

static mp_device *host_device(void) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = 1 << 20};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    return device;
}

TEST(kernel_cache_keeps_nothing_that_failed_to_load) {
    mp_device *device = host_device();
    const mp_kernel *kernel = NULL;
    (void)mp__host_device_fail(device, 1, MP_DEVICE);
    CHECK(mp_kernel_cache_get(device, names[0], &kernel) == MP_DEVICE);
    CHECK_OK(mp_kernel_cache_get(device, names[0], &kernel));
    CHECK(kernel != NULL);
    mp_kernel_cache_drop(device);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

typedef struct reader {
    pthread_t thread;
    mp_device *device;
    const mp_kernel *found[MP_COUNT_OF(names)];
} reader;

static void *read_all(void *context) {
    reader *r = context;
    for (size_t i = 0; i < 200; i++) {
        const size_t at = i % MP_COUNT_OF(names);
        const mp_kernel *kernel = NULL;
        CHECK_OK(mp_kernel_cache_get(r->device, names[at], &kernel));
        CHECK(r->found[at] == NULL || r->found[at] == kernel);
        r->found[at] = kernel;
    }
    return NULL;
}

TEST(kernel_cache_gives_all_threads_one_kernel) {
    reader readers[4];
    mp_device *device = host_device();
    for (size_t i = 0; i < MP_COUNT_OF(readers); i++) {
        readers[i] = (reader){.device = device};
        CHECK(pthread_create(&readers[i].thread, NULL, read_all, &readers[i]) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(readers); i++) {
        CHECK(pthread_join(readers[i].thread, NULL) == 0);
    }
    for (size_t i = 1; i < MP_COUNT_OF(readers); i++) {
        CHECK(memcmp(readers[i].found, readers[0].found, sizeof readers[0].found) == 0);
    }
    mp_kernel_cache_drop(device);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

static void *come_and_go(void *unused) {
    for (int i = 0; i < 50; i++) {
        mp_device *device = host_device();
        const mp_kernel *kernel = NULL;
        CHECK_OK(mp_kernel_cache_get(device, names[i % 2], &kernel));
        mp_kernel_cache_drop(device);
        CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    }
    return unused;
}

TEST(kernel_cache_of_one_device_ignores_the_others) {
    pthread_t threads[3];
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_create(&threads[i], NULL, come_and_go, NULL) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}
