/* graph_test.c - captured graphs of a session: what they give, when they are made, what they hold.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/graph_rig.h"

#include <stdio.h>

/* ---- what must be so ---- */

static void check_life(mp_device *device, const char *const *options, const mp_options *wishes) {
    rig_session s;
    rig_binding b;
    CHECK_OK(rig_open(&s, device, options, wishes));
    CHECK_OK(rig_bind(&b, &s));
    CHECK(!rig_run_is_launch(&b, NULL, 10));
    CHECK_EQ_INT(b.runs, 3); /* two that warm up, and one that is recorded */
    for (uint32_t i = 0; i < 5; i++) {
        CHECK(rig_run_is_launch(&b, NULL, 100 * i));
    }
    CHECK(!rig_run_is_launch(&b, "-1", 7)); /* never a graph */
    CHECK(!rig_run_is_launch(&b, "-1", 8));
    CHECK(!rig_run_is_launch(&b, "5", 9));
    CHECK(rig_run_is_launch(&b, "5", 10));
    CHECK(rig_run_is_launch(&b, "0", 11));
    rig_release_graph(&s, 0);
    CHECK(rig_run_is_launch(&b, "5", 12));
    CHECK(!rig_run_is_launch(&b, "0", 13));
    CHECK(rig_run_is_launch(&b, "0", 14));
    b.is_unsynced = true;
    for (uint32_t i = 0; i < 5; i++) {
        CHECK(rig_run_is_launch(&b, i % 2 == 0 ? "0" : "5", 200 + i));
        CHECK(!rig_run_is_launch(&b, "-1", 300 + i));
    }
    rig_unbind(&b);
    rig_close(&s);
}

DEVICE_TEST(graph_lives_in_the_arena) {
    check_life(device, NULL, &rig_wishes);
}

DEVICE_TEST(graph_lives_in_expandable_memory) {
    check_life(device, KIT_OPTIONS("arena.expandable=1"), &rig_wishes);
}

DEVICE_TEST(graph_lives_in_memory_with_borders) {
    check_life(device, KIT_OPTIONS("arena.guard=1", "arena.poison=1"), &rig_wishes);
}

DEVICE_TEST(graph_lives_in_the_drivers_pool) {
    check_life(device, KIT_OPTIONS("arena.use_cuda_mempool=1"), &rig_wishes);
}

DEVICE_TEST(graph_lives_on_one_stream_for_all) {
    mp_options wishes = rig_wishes;
    wishes.use_ep_level_unified_stream = true;
    check_life(device, NULL, &wishes);
}

DEVICE_TEST(graph_lives_on_a_stream_of_the_users) {
    mp_stream *stream = NULL;
    mp_options wishes = rig_wishes;
    CHECK_OK(device->ops->stream_create(device, &stream));
    wishes.user_compute_stream = (uintptr_t)device->ops->stream_native(device, stream);
    check_life(device, NULL, &wishes);
    device->ops->stream_destroy(device, stream);
}

/* It cannot be captured itself. */
DEVICE_TEST(graph_lives_on_the_default_stream) {
    mp_options wishes = rig_wishes;
    wishes.has_user_compute_stream = true;
    check_life(device, NULL, &wishes);
}

TEST(streams_that_a_session_cannot_have) {
    mp_options both = {.user_compute_stream = 77, .gpu_external_alloc = 5};
    mp_options thread = {.user_compute_stream = 2};
    mp_options external = {.gpu_external_alloc = 5, .do_copy_in_default_stream = true};
    CHECK_FAILS(mp__stream_options_settle(&both), INVALID_ARGUMENT, "exclude each other");
    CHECK_FAILS(mp__stream_options_settle(&thread), INVALID_ARGUMENT, "for each thread");
    CHECK_OK(mp__stream_options_settle(&external));
    CHECK(external.use_ep_level_unified_stream && !external.has_user_compute_stream);
}

/* ---- when ---- */

DEVICE_TEST(graph_waits_for_as_many_runs_as_it_is_told) {
    static const int leasts[] = {0, 1, 3, 7, 8, 20};
    for (size_t i = 0; i < MP_COUNT_OF(leasts); i++) {
        rig_session s;
        rig_binding b;
        mp_options wishes = rig_wishes;
        wishes.min_num_runs_before_cuda_graph_capture = leasts[i];
        CHECK_OK(rig_open(&s, device, NULL, &wishes));
        CHECK_OK(rig_bind(&b, &s));
        uint32_t turns = 0;
        while (!rig_run_is_launch(&b, NULL, turns)) {
            turns++;
        }
        CHECK_EQ_INT(b.runs, leasts[i] + 1);
        CHECK_EQ_INT(turns, leasts[i] / 7 + 1); /* ONNX Runtime would give up at eight */
        rig_unbind(&b);
        rig_close(&s);
    }
}

DEVICE_TEST(graph_is_not_made_of_runs_that_do_not_fit) {
    rig_session s;
    rig_binding b;
    CHECK_OK(rig_open(&s, device, NULL, &rig_wishes));
    CHECK_OK(rig_bind(&b, &s));
    kit_log_keep();
    b.is_unfit = true;
    for (int i = 1; i < 6; i++) {
        CHECK(!rig_run_is_launch(&b, NULL, (uint32_t)i));
        CHECK_EQ_INT(b.runs, i);
        CHECK(kit_log_has("the test says so") == (i == 1)); /* it is told once */
    }
    kit_log_end();
    b.is_unfit = false;
    CHECK(!rig_run_is_launch(&b, NULL, 50));
    CHECK_EQ_INT(b.runs, 5 + 3);
    CHECK(rig_run_is_launch(&b, NULL, 51));
    rig_unbind(&b);
    rig_close(&s);
}

/* Three are tried, and ONNX Runtime, which would give up after eight runs, is never kept waiting.
 */
DEVICE_TEST(graph_recordings_that_come_to_nothing) {
    for (int least = 0; least < 9; least++) {
        rig_session s;
        rig_binding b;
        mp_options wishes = rig_wishes;
        wishes.min_num_runs_before_cuda_graph_capture = least;
        CHECK_OK(rig_open(&s, device, NULL, &wishes));
        CHECK_OK(rig_bind(&b, &s));
        kit_log_keep();
        b.is_stopped = true;
        for (uint32_t i = 0; i < 4; i++) {
            CHECK(!rig_run_is_launch(&b, NULL, i));
        }
        CHECK(kit_log_has("has failed before"));
        kit_log_end();
        const int before = b.runs;
        CHECK(!rig_run_is_launch(&b, NULL, 9));
        CHECK_EQ_INT(b.runs, before + 1);
        b.is_stopped = false;
        rig_release_graph(&s, 0);
        while (!rig_run_is_launch(&b, NULL, 10)) {
            CHECK(b.runs < before + 20);
        }
        rig_unbind(&b);
        rig_close(&s);
    }
}

/* The run that would be recorded turns out not to fit, once it is under way. */
DEVICE_TEST(graph_recording_ends_in_the_middle_of_a_run) {
    rig_session s;
    rig_binding b;
    mp_options wishes = rig_wishes;
    wishes.min_num_runs_before_cuda_graph_capture = 7;
    CHECK_OK(rig_open(&s, device, NULL, &wishes));
    CHECK_OK(rig_bind(&b, &s));
    CHECK(!rig_run_is_launch(&b, NULL, 1));
    b.is_unfit = true;
    CHECK(!rig_run_is_launch(&b, NULL, 2));
    CHECK(!rig_run_is_launch(&b, NULL, 3));
    CHECK_EQ_INT(b.runs, 7 + 2);
    b.is_unfit = false;
    CHECK(!rig_run_is_launch(&b, NULL, 4));
    CHECK_EQ_INT(b.runs, 7 + 2 + 1);
    CHECK(rig_run_is_launch(&b, NULL, 5));
    rig_unbind(&b);
    rig_close(&s);
}

/* ---- memory ---- */

static bool is_lent(const rig_session *s, mp_addr addr) {
    mp_block_info info;
    return mp_pool_find(s->provider.pool, addr, &info) == MP_OK;
}

/* What a graph writes to is not allocated to others, though its user has freed it. */
static void check_holds(mp_device *device, const char *const *options) {
    rig_session s;
    rig_binding b;
    rig_binding other;
    CHECK_OK(rig_open(&s, device, options, &rig_wishes));
    CHECK_OK(rig_bind(&b, &s));
    CHECK(!rig_run_is_launch(&b, "1", 1));
    CHECK(!rig_run_is_launch(&b, "2", 1));
    rig_unbind(&b);
    CHECK_FAILS(mp__give_back(s.provider.pool, b.x), INVALID_ARGUMENT, "before");
    CHECK(is_lent(&s, b.x) && is_lent(&s, b.y));
    CHECK_OK(rig_bind(&other, &s));
    CHECK(other.x != b.x && other.x != b.y && other.y != b.x && other.y != b.y);
    CHECK_OK(rig_set(&s, other.x, 3));
    CHECK_OK(rig_set(&s, other.y, 4));
    CHECK_OK(rig_run(&b, "1"));
    CHECK_OK(rig_is(&s, other.x, 3));
    CHECK_OK(rig_is(&s, other.y, 4));
    for (int id = 1; id <= 2; id++) {
        CHECK(is_lent(&s, b.x) && is_lent(&s, b.y));
        rig_release_graph(&s, id);
    }
    CHECK(!is_lent(&s, b.x) && !is_lent(&s, b.y));
    rig_unbind(&other);
    rig_close(&s);
}

DEVICE_TEST(graph_holds_what_it_uses) {
    check_holds(device, NULL);
    check_holds(device, KIT_OPTIONS("arena.use_cuda_mempool=1"));
}

DEVICE_TEST(graph_memory_goes_back_with_the_last_graph) {
    kit k;
    rig_session s;
    rig_binding b;
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=1"));
    CHECK_OK(rig_open(&s, device, NULL, &rig_wishes));
    CHECK_OK(rig_bind(&b, &s));
    for (int i = 0; i < 20; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "%d", i);
        CHECK(!rig_run_is_launch(&b, id, 1));
    }
    const uint64_t with_graphs = kit_stats(&k).total;
    CHECK(with_graphs < 20 * RIG_BYTES); /* they share it */
    for (int i = 0; i < 20; i++) {
        rig_release_graph(&s, i);
    }
    CHECK_EQ_INT(kit_stats(&k).in_use, kit_block_size(&k, b.x) + kit_block_size(&k, b.y));
    rig_unbind(&b);
    rig_close(&s);
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    CHECK_EQ_INT(kit_stats(&k).total, 0);
    kit_close(&k);
}
