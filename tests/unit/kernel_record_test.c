/* kernel_record_test.c - what is noted of the kernels that emulated devices are asked for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "test_kernels.h"

#include "device/host/host_device.h"
#include "device/kernel_record.h"

enum { IMAGES = 4, MULTIPROCESSORS = 128 };

static mp_device *device_make(void) {
    const mp_host_config config = {.memory_bytes = (size_t)16 << 20};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    return device;
}

static mp_kernel *load(mp_device *device, const mp_kernel_image *image) {
    mp_kernel *kernel = NULL;
    CHECK_OK(device->ops->kernel_load(device, image, &kernel));
    return kernel;
}

TEST(kernel_record_notes_nothing_before_its_start) {
    NEEDS_OWN_PROCESS();
    mp_device *device = device_make();
    mp_kernel *kernel = load(device, &test_affine_image);
    CHECK(!mp_kernel_record_on());
    CHECK_EQ_INT(mp_kernel_record_list(NULL, 0), 0);
    mp_kernel_record_start();
    CHECK(mp_kernel_record_on());
    device->ops->kernel_unload(device, kernel); /* which the record does not have */
    CHECK_EQ_INT(mp_kernel_record_list(NULL, 0), 0);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

TEST(kernel_record_has_each_image_once_until_it_is_unloaded) {
    NEEDS_OWN_PROCESS();
    const mp_kernel_image *images[IMAGES] = {NULL};
    mp_kernel_record_start();
    mp_device *one = device_make();
    mp_device *other = device_make();
    mp_kernel *sum = load(one, &test_sum_image);
    mp_kernel *affine[] = {load(one, &test_affine_image), load(other, &test_affine_image)};
    CHECK_EQ_INT(mp_kernel_record_list(images, IMAGES), 2);
    CHECK(images[0] == &test_sum_image && images[1] == &test_affine_image);
    images[1] = NULL;
    CHECK_EQ_INT(mp_kernel_record_list(images, 1), 2);
    CHECK(images[1] == NULL); /* no room was given for it */
    one->ops->kernel_unload(one, sum);
    one->ops->kernel_unload(one, affine[0]);
    CHECK_EQ_INT(mp_kernel_record_list(images, IMAGES), 1);
    CHECK(images[0] == &test_affine_image);
    other->ops->kernel_unload(other, affine[1]);
    CHECK_EQ_INT(mp_kernel_record_list(images, IMAGES), 0);
    CHECK_EQ_INT(mp__host_device_destroy(one), 0);
    CHECK_EQ_INT(mp__host_device_destroy(other), 0);
}

/* Not those of this machine, which would have plans choose kernels by it. */
TEST(kernel_record_is_made_as_for_a_large_gpu) {
    NEEDS_OWN_PROCESS();
    mp_kernel_record_start();
    mp_device *device = device_make();
    CHECK_EQ_INT(device->info.multiprocessors, MULTIPROCESSORS);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}
