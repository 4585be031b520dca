/* kernel_batch_test.c - kernels of a batch are made ready at its end, all of them, and failures
 * have their sentence.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/kernel_batch.h"
#include "unit/test.h"

#include <stdatomic.h>

enum { KERNELS = 40 };

static atomic_int tries[KERNELS];
static atomic_int fails_at; /* -1: nowhere */

static mp_kernel *kernel_at(int i) {
    return (mp_kernel *)(uintptr_t)(i + 1);
}

static mp_status make_ready(mp_device *device, mp_kernel *kernel) {
    const int i = (int)(uintptr_t)kernel - 1;
    (void)device;
    atomic_fetch_add(&tries[i], 1);
    return i == atomic_load(&fails_at) ? MP_FAIL(INVALID_ARGUMENT, "kernel %d is wrong", i) : MP_OK;
}

static const mp_device_ops ops = {.kernel_ready = make_ready};

static mp_device begin(int fault) {
    for (int i = 0; i < KERNELS; i++) {
        atomic_store(&tries[i], 0);
    }
    atomic_store(&fails_at, fault);
    return (mp_device){.ops = &ops};
}

static void add_all(mp_device *device) {
    for (int i = 0; i < KERNELS; i++) {
        CHECK_OK(mp_kernel_batch_add(device, kernel_at(i)));
    }
}

TEST(kernel_batch_makes_all_ready_at_its_end) {
    mp_device device = begin(-1);
    mp_kernel_batch batch;
    mp_kernel_batch_open(&batch, &device);
    add_all(&device);
    for (int i = 0; i < KERNELS; i++) {
        CHECK_EQ_INT(atomic_load(&tries[i]), 0);
    }
    CHECK_OK(mp_kernel_batch_close(&batch));
    for (int i = 0; i < KERNELS; i++) {
        CHECK_EQ_INT(atomic_load(&tries[i]), 1);
    }
    CHECK_OK(mp_kernel_batch_add(&device, kernel_at(0))); /* there is none any more */
    CHECK_EQ_INT(atomic_load(&tries[0]), 2);
}

TEST(kernel_batch_fails_with_the_sentence_of_the_kernel) {
    mp_device device = begin(KERNELS - 1);
    mp_kernel_batch batch;
    mp_kernel_batch_open(&batch, &device);
    add_all(&device);
    CHECK_FAILS(mp_kernel_batch_close(&batch), INVALID_ARGUMENT, "kernel 39 is wrong");
    for (int i = 0; i < KERNELS; i++) {
        CHECK(atomic_load(&tries[i]) >= 1);
    }
}

TEST(kernel_batch_settles_what_there_is) {
    mp_device device = begin(-1);
    mp_kernel_batch batch;
    mp_kernel_batch_open(&batch, &device);
    CHECK_OK(mp_kernel_batch_add(&device, kernel_at(0)));
    CHECK_OK(mp_kernel_batch_settle(&device));
    CHECK_EQ_INT(atomic_load(&tries[0]), 1);
    CHECK_OK(mp_kernel_batch_add(&device, kernel_at(1)));
    CHECK_OK(mp_kernel_batch_close(&batch));
    CHECK(atomic_load(&tries[0]) == 1 && atomic_load(&tries[1]) == 1);
    mp_kernel_batch_open(&batch, &device);
    atomic_store(&fails_at, 2);
    CHECK_OK(mp_kernel_batch_add(&device, kernel_at(2)));
    CHECK_FAILS(mp_kernel_batch_settle(&device), INVALID_ARGUMENT, "kernel 2 is wrong");
    CHECK_FAILS(mp_kernel_batch_close(&batch), INVALID_ARGUMENT, "kernel 2 is wrong");
}

TEST(kernel_batch_of_nothing) {
    mp_device device = begin(-1);
    mp_kernel_batch batch;
    mp_kernel_batch_open(&batch, &device);
    CHECK_OK(mp_kernel_batch_close(&batch));
}

TEST(kernel_batches_nest_and_are_a_devices_own) {
    mp_device device = begin(-1), other = {.ops = &ops};
    mp_kernel_batch outer, inner;
    mp_kernel_batch_open(&outer, &device);
    mp_kernel_batch_open(&inner, &other);
    CHECK_OK(mp_kernel_batch_add(&device, kernel_at(0)));
    CHECK_OK(mp_kernel_batch_add(&other, kernel_at(1)));
    CHECK_OK(mp_kernel_batch_close(&inner));
    CHECK_EQ_INT(atomic_load(&tries[0]), 0);
    CHECK_EQ_INT(atomic_load(&tries[1]), 1);
    CHECK_OK(mp_kernel_batch_add(&other, kernel_at(2)));
    CHECK_EQ_INT(atomic_load(&tries[2]), 1);
    CHECK_OK(mp_kernel_batch_close(&outer));
    CHECK_EQ_INT(atomic_load(&tries[0]), 1);
}
