/* table_cache_test.c - tables that are made once: which are one, what has room, what fails, and
 * what operators do without.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/table_cache.h"

#include "device/host/host_device.h"
#include "op/core/kernel_cache.h"
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

/* Every word is the context's. */
static mp_status fill_with(const void *context, mp_device *device, mp_stream *stream, mp_addr out,
                           size_t size) {
    return device->ops->fill(device, stream, out, *(const uint32_t *)context, 4, size / 4);
}

static mp_status fill_fails(const void *context, mp_device *device, mp_stream *stream, mp_addr out,
                            size_t size) {
    (void)context, (void)device, (void)stream, (void)out, (void)size;
    return MP_FAIL(INTERNAL, "no words today");
}

static mp_table table_of(const uint32_t *word, size_t size) {
    return (mp_table){
        .fill = fill_with, .context = word, .key = word, .key_size = sizeof *word, .size = size};
}

DEVICE_TEST(table_cache_makes_each_once) {
    const uint32_t words[2] = {7, 9};
    mp_addr addr[3] = {0};
    for (int i = 0; i < 3; i++) {
        const mp_table table = table_of(&words[i % 2], 64);
        CHECK_OK(mp_table_cache_get(device, &table, &addr[i]));
    }
    CHECK(addr[0] != 0 && addr[1] != 0);
    CHECK(addr[0] == addr[2] && addr[0] != addr[1]);
    for (int i = 0; i < 2; i++) {
        uint32_t got[16];
        CHECK_OK(device->ops->copy(device, NULL, (mp_addr)got, addr[i], sizeof got));
        CHECK(got[0] == words[i] && got[15] == words[i]);
    }
    mp_kernel_cache_drop(device);
}

DEVICE_TEST(table_cache_has_bounds) {
    const uint32_t word = 3;
    mp_addr addr = 1;
    mp_table table = table_of(&word, MP_TABLES_BYTES_MAX / 4 + 4);
    CHECK_OK(mp_table_cache_get(device, &table, &addr));
    CHECK(addr == 0);
    for (uint32_t i = 0; i <= MP_TABLES_MAX; i++) {
        table = table_of(&i, 4);
        CHECK_OK(mp_table_cache_get(device, &table, &addr));
        CHECK((addr != 0) == (i < MP_TABLES_MAX));
    }
    mp_table_cache_drop(device);
    table = table_of(&word, 4);
    CHECK_OK(mp_table_cache_get(device, &table, &addr));
    CHECK(addr != 0);
    mp_table_cache_drop(device);
}

/* Whatever call fails, nothing of the table is left, and the next one makes it. */
TEST(table_cache_keeps_nothing_that_failed) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = 1 << 20};
    const uint32_t word = 5;
    mp_device *device = NULL;
    mp_addr addr = 0;
    CHECK_OK(mp__host_device_create(&config, &device));
    mp_table table = table_of(&word, 64);
    table.fill = fill_fails;
    CHECK_FAILS(mp_table_cache_get(device, &table, &addr), INTERNAL, "no words today");
    table = table_of(&word, 2 << 20); /* more than the device has: made in each run */
    CHECK_OK(mp_table_cache_get(device, &table, &addr));
    CHECK(addr == 0);
    table = table_of(&word, 64);
    int failed = 0;
    for (uint64_t nth = 1; addr == 0; nth++) {
        (void)mp__host_device_fail(device, nth, MP_DEVICE);
        failed += mp_table_cache_get(device, &table, &addr) != MP_OK;
    }
    CHECK(failed >= 3); /* memory, stream, fill */
    (void)mp__host_device_fail(device, 0, MP_DEVICE);
    mp_table_cache_drop(device);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

/* ---- without room ---- */

static void use_up(mp_device *device) {
    for (uint32_t i = 0; i < MP_TABLES_MAX; i++) {
        mp_addr addr = 0;
        const mp_table table = table_of(&i, 4);
        CHECK_OK(mp_table_cache_get(device, &table, &addr));
    }
}

DEVICE_TEST(tables_in_each_run) {
    enum { N = 34, ENTRIES = 700 };
    float x[2 * N] = {0};
    int64_t keys[ENTRIES], values[ENTRIES];
    x[2] = 1; /* the spectrum is the roots of one themselves */
    for (int64_t i = 0; i < ENTRIES; i++) {
        keys[i] = 3 * i;
        values[i] = i * i;
    }
    op_case dft = {
        .name = "DFT", .version = 20, .in = {op_f32(x, 1, N, 2)}, .in_count = 1, .out_count = 1};
    use_up(device);
    op_run(device, &dft);
    for (int64_t k = 0; k < N; k++) {
        const double turn = 2 * 3.14159265358979323846 * (double)k / N;
        const float *got = (const float *)dft.out[0].data + 2 * k;
        op_check_close((double)got[0], cos(turn), 2e-6, "cosine", k);
        op_check_close((double)got[1], -sin(turn), 2e-6, "sine", k);
    }
    op_close(device, &dft);
    const mp_attr attrs[] = {
        {.name = "keys_int64s", .kind = MP_ATTR_INTS, .ints = keys, .count = ENTRIES},
        {.name = "values_int64s", .kind = MP_ATTR_INTS, .ints = values, .count = ENTRIES}};
    op_case label = {.domain = "ai.onnx.ml",
                     .name = "LabelEncoder",
                     .version = 4,
                     .attrs = attrs,
                     .attr_count = 2,
                     .in = {op_i64(keys, ENTRIES)},
                     .in_count = 1,
                     .out_count = 1};
    use_up(device);
    op_run(device, &label);
    CHECK(op_same(&label.out[0], values));
    op_close(device, &label);
}

/* A table that is there is not made again, and a run is the transform alone. */
DEVICE_TEST(tables_are_no_steps) {
    const float x[64] = {0};
    op_case c = {
        .name = "DFT", .version = 20, .in = {op_f32(x, 2, 16, 2)}, .in_count = 1, .out_count = 1};
    mp_plan *plan = NULL;
    CHECK_OK(op_plan(device, &c, &plan));
    CHECK_EQ_INT(mp_plan_step_count(plan), 1);
    CHECK_EQ_INT(mp_plan_scratch_bytes(plan), 0);
    mp_plan_release(plan);
    mp_kernel_cache_drop(device);
}
