/* graph_fault_test.c - captured graphs when something goes wrong: nodes that fail, memory that runs
 * out, a device whose calls fail.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/graph_rig.h"

static void check_failing(mp_device *device, bool foreign, int at, int warm_ups) {
    rig_session s;
    rig_binding b;
    mp_options wishes = rig_wishes;
    wishes.min_num_runs_before_cuda_graph_capture = 7;
    CHECK_OK(rig_open(&s, device, NULL, &wishes));
    CHECK_OK(rig_bind(&b, &s));
    for (int i = 0; i < warm_ups; i++) {
        CHECK(!rig_run_is_launch(&b, NULL, 5));
    }
    *(foreign ? &b.foreign_node : &b.fail_node) = at;
    CHECK_FAILS(rig_run(&b, NULL), INVALID_ARGUMENT,
                foreign ? "another provider" : "as it is told");
    bool launched = false;
    for (uint32_t i = 0; i < 6; i++) { /* with a graph or without */
        launched = rig_run_is_launch(&b, NULL, i);
    }
    CHECK(launched == (foreign || warm_ups == 0)); /* a recording that failed is not tried again */
    rig_release_graph(&s, 0);
    CHECK(!rig_run_is_launch(&b, NULL, 40));
    CHECK(!rig_run_is_launch(&b, NULL, 41));
    CHECK(rig_run_is_launch(&b, NULL, 42));
    rig_unbind(&b);
    rig_close(&s);
}

DEVICE_TEST(graph_of_a_run_that_fails) {
    for (int at = 1; at <= RIG_NODES; at += 2) {
        for (int warm_ups = 0; warm_ups < 2; warm_ups++) {
            check_failing(device, false, at, warm_ups);
            check_failing(device, true, at, warm_ups);
        }
    }
}

DEVICE_TEST(graph_without_memory_to_set_apart) {
    rig_session s;
    rig_binding b;
    kit k;
    CHECK_OK(rig_open(&s, device, KIT_OPTIONS("arena.extend_strategy=1"), &rig_wishes));
    CHECK_OK(rig_bind(&b, &s));
    b.runs = 0;
    CHECK(!rig_run_is_launch(&b, "-1", 1)); /* the pool has what a run needs */
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=1"));
    mp_limit_set(kit_stats(&k).total);
    mp_addr rest[64];
    size_t count = 0;
    while (kit_stats(&k).in_use + 3 * RIG_BYTES < kit_stats(&k).total &&
           mp_pool_alloc(k.pool, RIG_BYTES, MP_NO_STREAM, &rest[count]) == MP_OK) {
        CHECK(++count < MP_COUNT_OF(rest));
    }
    for (uint32_t i = 0; i < 8; i++) {
        const mp_status status = rig_set(&s, b.x, i) == MP_OK ? rig_run(&b, NULL) : MP_DEVICE;
        CHECK(status == MP_OK || status == MP_OUT_OF_MEMORY);
        if (status == MP_OK) {
            CHECK_OK(rig_is(&s, b.y, i));
        }
    }
    while (count > 0) {
        CHECK_OK(mp_pool_free(k.pool, rest[--count]));
    }
    mp_limit_set(0);
    rig_release_graph(&s, 0);
    CHECK(!rig_run_is_launch(&b, NULL, 70));
    CHECK(rig_run_is_launch(&b, NULL, 71));
    rig_unbind(&b);
    rig_close(&s);
    kit_close(&k);
}

/* A device whose n-th call fails, for each n: every run that succeeds is right, and afterwards
 * nothing is left. */
static bool pass_with_fault(const char *const *options, uint64_t nth, mp_status kind) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = 64 << 20};
    mp_device *device = NULL;
    rig_session s;
    rig_binding b;
    CHECK_OK(mp__host_device_create(&config, &device));
    CHECK_OK(rig_open(&s, device, options, &rig_wishes));
    CHECK_OK(rig_bind(&b, &s));
    (void)mp__host_device_fail(device, nth, kind);
    for (uint32_t i = 0; i < 4; i++) {
        if (rig_set(&s, b.x, i) == MP_OK && rig_run(&b, "3") == MP_OK) {
            const mp_status right = rig_is(&s, b.y, i);
            CHECK(right != MP_INTERNAL); /* that would be other values */
        }
    }
    (void)s.provider.base.ReleaseCapturedGraph(&s.provider.base, 3);
    const bool waiting = mp__host_device_fail(device, 0, MP_OK);
    CHECK(!rig_run_is_launch(&b, "4", 1000));
    (void)rig_run_is_launch(&b, "4", 1001);
    rig_unbind(&b);
    mp_pool_stats stats;
    mp__thread_records_close(&s.provider);
    CHECK_OK(mp_pool_get_stats(s.provider.pool, &stats, sizeof stats));
    CHECK_EQ_INT(stats.in_use, 0);
    rig_close(&s);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    return waiting;
}

TEST(graph_on_a_device_whose_calls_fail) {
    static const mp_status kinds[] = {MP_DEVICE, MP_OUT_OF_MEMORY};
    kit_log_keep();
    for (size_t i = 0; i < MP_COUNT_OF(kinds); i++) {
        uint64_t nth = 1;
        while (!pass_with_fault(NULL, nth, kinds[i])) {
            nth++;
        }
        CHECK(nth > 50);
        for (nth = 1; !pass_with_fault(KIT_OPTIONS("arena.use_cuda_mempool=1"), nth, kinds[i]);) {
            nth++;
        }
    }
    kit_log_end();
}
