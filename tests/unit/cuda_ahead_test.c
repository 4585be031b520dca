/* cuda_ahead_test.c - the cache filled for a GPU that is not here: what a session on the emulated
 * device asked for has the keys that a session on the GPU looks for. Without a GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "test_folder.h"

#include "device/cuda/cuda_ahead.h"
#include "device/cuda/cuda_jit.h"
#include "device/host/host_device.h"
#include "device/kernel_record.h"
#include "kernel/kernel_table.h"
#include "op/core/kernel_cache.h"
#include "op/fused/fused_kernel.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARCH = 90, TABLE_AND_FUSED = 2, LIST_MAX = 8 };

static void begin(void) {
    int major = 0;
    int minor = 0;
    NEEDS_OWN_PROCESS();
    if (mp__cuda_compiler_version(&major, &minor) != MP_OK) {
        SKIP("%s", mp_error_message());
    }
    CHECK(setenv("MILLPOND_CACHE_DIR", test_folder(), 1) == 0 && unsetenv("MILLPOND_CACHE") == 0);
    CHECK(setenv("MILLPOND_KERNELS", "off", 1) == 0);
    mp_kernel_record_start();
}

/* ---- a GPU, as far as fused kernels ask it ---- */

typedef struct gpu {
    mp_device base; /* first, so that a device can be cast */
    const mp_kernel_image *opened;
} gpu;

static mp_status gpu_open(mp_device *self, const mp_kernel_image *image, mp_kernel **out) {
    ((gpu *)(void *)self)->opened = image;
    *out = (mp_kernel *)(void *)self;
    return MP_OK;
}

static mp_status gpu_ready(mp_device *self, mp_kernel *kernel) {
    CHECK((void *)self == (void *)kernel);
    return MP_OK;
}

static void gpu_unload(mp_device *self, mp_kernel *kernel) {
    CHECK((void *)self == (void *)kernel);
}

static const mp_device_ops gpu_ops = {
    .kernel_open = gpu_open, .kernel_ready = gpu_ready, .kernel_unload = gpu_unload};

/* ---- tests ---- */

static mp_device *host_make(void) {
    const mp_host_config config = {.memory_bytes = (size_t)16 << 20};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    return device;
}

static void host_end(mp_device *device) {
    mp_kernel_cache_drop(device);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    CHECK_EQ_INT(mp_kernel_record_list(NULL, 0), 0);
}

/* Two inputs, a number, and what fused kernels are for. */
static mp_expression expression_make(float number) {
    mp_expression e = {0};
    const int x = mp_expression_input(&e, MP_F32);
    const int y = mp_expression_input(&e, MP_F16);
    const int n = mp_expression_number(&e, MP_F32, number);
    const int wide = mp_expression_cast(&e, y, MP_F32);
    const int product = mp_expression_function(&e, "mul", x, n, 0, 0);
    const int sum = mp_expression_function(&e, "add", product, wide, 0, 0);
    CHECK(mp_expression_output(&e, sum));
    return e;
}

static const mp_reading whole[] = {MP_READ_WHOLE, MP_READ_WHOLE};
static const mp_reading one[] = {MP_READ_WHOLE, MP_READ_ONE};

static void ask_host(mp_device *device) {
    const mp_expression e = expression_make(1.5f);
    const mp_kernel *kernel = NULL;
    mp_fused_kernel fused;
    CHECK_OK(mp_kernel_cache_get(device, "pointwise1_relu_f32", &kernel));
    CHECK_OK(mp_fused_kernel_get(device, &e, whole, &fused));
    CHECK(fused.program != NULL); /* it still runs as ever */
}

static const mp_kernel_image *ask_gpu(gpu *device, const mp_reading *readings) {
    const mp_expression e = expression_make(2.5f); /* numbers are no part of the text */
    mp_fused_kernel fused;
    CHECK_OK(mp_fused_kernel_get(&device->base, &e, readings, &fused));
    CHECK(fused.program == NULL && device->opened->text != NULL);
    return device->opened;
}

TEST(cuda_ahead_fused_kernels_have_the_keys_of_a_gpu) {
    const mp_kernel_image *images[LIST_MAX] = {NULL};
    gpu device = {.base = {.ops = &gpu_ops, .info = {.kind = MP_DEVICE_CUDA, .arch = ARCH}}};
    cuda_ahead_counts counts;
    uint8_t recorded[MP_SHA256_SIZE];
    uint8_t wanted[MP_SHA256_SIZE];
    bool found = false;
    begin();
    mp_device *host = host_make();
    ask_host(host);
    CHECK_EQ_INT(mp_kernel_record_list(images, LIST_MAX), TABLE_AND_FUSED);
    CHECK(images[0] >= mp__kernel_images && images[0] < mp__kernel_images + mp__kernel_image_count);
    const mp_kernel_image *same = ask_gpu(&device, whole);
    CHECK_OK(mp__cuda_ready_key(images[1], ARCH, recorded));
    CHECK_OK(mp__cuda_ready_key(same, ARCH, wanted));
    CHECK(memcmp(recorded, wanted, sizeof wanted) == 0);
    CHECK_OK(mp__cuda_ahead(ARCH, &counts));
    CHECK_OK(mp__cuda_build_kept(same, ARCH, &found));
    CHECK(found);
    CHECK_OK(mp__cuda_build_kept(images[0], ARCH, &found));
    CHECK(found);
    CHECK_OK(mp__cuda_build_kept(ask_gpu(&device, one), ARCH, &found));
    CHECK(!found); /* read otherwise, it is another kernel, which the host was not asked for */
    mp_fused_kernel_drop(&device.base);
    host_end(host);
}

TEST(cuda_ahead_counts_what_it_does) {
    size_t own = 0;
    cuda_ahead_counts counts;
    (void)mp__cuda_own_images(&own);
    begin();
    mp_device *host = host_make();
    ask_host(host);
    const int all = TABLE_AND_FUSED + (int)own;
    CHECK_OK(mp__cuda_ahead(ARCH, &counts));
    CHECK(counts.all == all && counts.compiled == all && test_folder_count() == all);
    CHECK(counts.ready == 0 && counts.cached == 0 && counts.failed == 0);
    CHECK_OK(mp__cuda_ahead(ARCH, &counts));
    CHECK(counts.all == all && counts.cached == all && test_folder_count() == all);
    CHECK(counts.ready == 0 && counts.compiled == 0 && counts.failed == 0);
    CHECK_FAILS(mp__cuda_ahead(42, &counts), INVALID_ARGUMENT, "compute capability 4.2");
    CHECK_EQ_INT(counts.all, 0);
    host_end(host);
}

TEST(cuda_ahead_goes_on_behind_a_kernel_that_fails) {
    static const char *const none[] = {NULL};
    static const mp_source sources[] = {{"test/broken.cu", "nonsense\n"}, {NULL, NULL}};
    static const mp_kernel_image broken = {
        .name = "mp_test_broken", .source = "test/broken.cu", .defines = none, .sources = sources};
    cuda_ahead_counts counts;
    begin();
    CHECK_OK(mp_kernel_record_add(&broken));
    CHECK_FAILS(mp__cuda_ahead(ARCH, &counts), INVALID_ARGUMENT, "mp_test_broken");
    CHECK_EQ_INT(counts.failed, 1);
    CHECK_EQ_INT(counts.compiled, counts.all - 1);
    CHECK_EQ_INT(test_folder_count(), counts.compiled);
}
