/* model_test.c - short runs of the model; pool_model does long ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include "base/macros.h"
#include "device/host/host_device.h"
#include "unit/test.h"

enum { FAULT_STEPS = 120, REPORT_LIMIT_S = 60 };
/* A sanitizer takes ten times as long. Only threaded mode has threads for it to look at, and the
 * others have all else. */
#if MP_WITH_TSAN
enum { STEPS = 300, FORKED_STEPS = 3000, WITH_FAULTS = 0 };
static const int modes[] = {MP_HOST_THREADED};
#elif MP_WITH_ASAN
enum { STEPS = 300, FORKED_STEPS = 3000, WITH_FAULTS = 1 };
static const int modes[] = {MP_HOST_EAGER, MP_HOST_ADVERSARIAL};
#else
enum { STEPS = 1000, FORKED_STEPS = 20000, WITH_FAULTS = 1 };
static const int modes[] = {MP_HOST_EAGER, MP_HOST_THREADED, MP_HOST_ADVERSARIAL};
#endif

static void run_job(const model_job *job) {
    model_result result;
    CHECK_OK(model_job_run(job, &result));
    if (result.failed) {
        model_job_report(job, &result, REPORT_LIMIT_S);
        test_fail(__FILE__, __LINE__, "%s, operation %" PRIu64 ": %s", job->plan.config->name,
                  result.done, result.why);
    }
}

static void run_config(const char *name) {
    NEEDS_OWN_PROCESS(); /* which forks, and so must not have used a pool */
    const model_config *config = model_config_named(name);
    CHECK(config != NULL);
    for (size_t i = 0; i < MP_COUNT_OF(modes); i++) {
        const model_job job = {
            .plan = {.config = config, .seed = test_seed() + 17, .count = FORKED_STEPS},
            .mode = modes[i],
            .device_seed = test_seed()};
        run_job(&job);
    }
}

TEST(pool_model_of_the_default) {
    run_config("default");
}

TEST(pool_model_of_little_memory) {
    run_config("small");
}

TEST(pool_model_of_expandable_regions) {
    run_config("expandable");
    run_config("expandable-small");
}

TEST(pool_model_of_guarded_blocks) {
    run_config("guard");
}

TEST(pool_model_of_growth_as_requested) {
    run_config("as-requested");
}

/* In this process, so that it works on a GPU too. */
DEVICE_TEST(pool_model_on_any_device) {
    for (size_t i = 0; i < model_config_count; i++) {
        const model_plan plan = {.config = &model_configs[i], .seed = test_seed(), .count = STEPS};
        model_result result;
        if (!model_run(device, &plan, &result)) {
            test_fail(__FILE__, __LINE__, "%s, operation %" PRIu64 ": %s", plan.config->name,
                      result.done, result.why);
        }
    }
}

/* ---- faults ---- */

/* Every call of the device fails once, and each time nothing is lost. */
static void fail_each_call(const char *name, mp_status status) {
    if (!WITH_FAULTS) {
        SKIP("this has no threads for the thread sanitizer to look at");
    }
    const model_config *config = model_config_named(name);
    CHECK(config != NULL);
    for (int mode = MP_HOST_EAGER; mode <= MP_HOST_ADVERSARIAL; mode += MP_HOST_ADVERSARIAL) {
        model_result result = {0};
        uint64_t nth = 1;
        for (; !result.fault_left; nth++) {
            const mp_host_config host = {
                .mode = (unsigned)mode, .seed = nth, .memory_bytes = (size_t)64 << 20};
            const model_plan plan = {.config = config,
                                     .seed = test_seed() + nth % 5,
                                     .count = FAULT_STEPS,
                                     .check_often = true,
                                     .fault = nth,
                                     .fault_status = status};
            mp_device *device = NULL;
            CHECK_OK(mp__host_device_create(&host, &device));
            if (!model_run(device, &plan, &result)) {
                test_fail(__FILE__, __LINE__,
                          "%s in mode %d, call %" PRIu64 " failed; operation %" PRIu64 ": %s", name,
                          mode, nth, result.done, result.why);
            }
            CHECK_EQ_INT(mp__host_device_destroy(device), 0);
        }
        CHECK(nth > FAULT_STEPS); /* there were calls to fail */
    }
}

TEST(pool_model_survives_faults_of_the_device) {
    fail_each_call("default", MP_DEVICE);
    fail_each_call("small", MP_DEVICE);
}

TEST(pool_model_survives_a_device_that_is_full) {
    fail_each_call("default", MP_OUT_OF_MEMORY);
    fail_each_call("small", MP_OUT_OF_MEMORY);
}

TEST(pool_model_survives_faults_in_expandable_regions) {
    fail_each_call("expandable-small", MP_DEVICE);
    fail_each_call("expandable-small", MP_OUT_OF_MEMORY);
}

TEST(pool_model_survives_faults_with_guards) {
    fail_each_call("guard", MP_DEVICE);
    fail_each_call("guard", MP_OUT_OF_MEMORY);
}
