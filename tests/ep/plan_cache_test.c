/* plan_cache_test.c - a node's plans: what is one key and what is another, eviction, threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/run/plan_cache.h"

#include "device/host/host_device.h"
#include "op/core/host_input.h"
#include "unit/test.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_int made;

/* The output is as long as input 0; input 1, on the host, is remembered as output 1. */
static mp_status plan_counted(mp_planner *p) {
    int64_t value[4] = {0};
    int count = 0;
    made++;
    MP_TRY(mp_host_ints(p, 1, "value", 4, value, &count));
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &p->in[0].shape));
    return mp_plan_host_output(p, 0, value, 0);
}

static const mp_op op = {.name = "Counted", .domain = "", .host_in = 2, .plan = plan_counted};
static const mp_node node = {.op = &op, .version = 1, .name = "n"};

typedef struct inputs {
    mp_tensor in[2];
    int64_t value[4];
} inputs;

static mp_plan *get(mp_plan_cache *cache, mp_device *device, const inputs *x, int in_count,
                    int32_t align) {
    mp_plan *plan = NULL;
    CHECK_OK(mp_plan_cache_get(cache, device, &node, x->in, in_count, 1, align, &plan));
    CHECK(mp_shape_equal(&mp_plan_output_at(plan, 0)->shape, &x->in[0].shape));
    return plan;
}

static void set(inputs *x, int64_t length, int64_t value) {
    *x = (inputs){.value = {value}};
    x->in[0] = (mp_tensor){.type = MP_F32, .shape = {.rank = 1, .dim = {length}}};
    x->in[1] =
        (mp_tensor){.type = MP_I64, .shape = {.rank = 1, .dim = {1}}, .data = (mp_addr)x->value};
}

static mp_device *open_device(void) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = 1 << 20};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    return device;
}

TEST(plan_cache_tells_inputs_apart) {
    mp_device *device = open_device();
    mp_plan_cache *cache = NULL;
    inputs x[7];
    mp_plan *plans[7];
    CHECK_OK(mp_plan_cache_create(&cache));
    set(&x[0], 5, 1);
    set(&x[1], 6, 1); /* another length */
    set(&x[2], 5, 2); /* another value on the host */
    set(&x[3], 5, 1);
    x[3].in[0].type = MP_F16; /* another type */
    set(&x[4], 5, 1);
    x[4].in[0].shape = (mp_shape){.rank = 2, .dim = {1, 5}};
    set(&x[5], 5, 1);
    x[5].in[1] = (mp_tensor){.type = MP_NONE}; /* absent */
    set(&x[6], 5, 1);
    x[6].in[1].shape.dim[0] = 0; /* empty */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 7; i++) {
            mp_plan *plan = get(cache, device, &x[i], 2, 16);
            CHECK(round == 0 || plan == plans[i]);
            plans[i] = plan;
            for (int k = 0; k < i; k++) {
                CHECK(plans[k] != plan);
            }
            mp_plan_release(plan);
        }
        CHECK_EQ_INT(made, 7);
    }
    mp_plan *unaligned = get(cache, device, &x[0], 2, 1);
    CHECK(unaligned != plans[0]);
    mp_plan_release(unaligned);
    mp_plan_cache_destroy(cache);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

TEST(plan_cache_drops_the_oldest_and_its_users_keep_theirs) {
    mp_device *device = open_device();
    mp_plan_cache *cache = NULL;
    inputs x;
    CHECK_OK(mp_plan_cache_create(&cache));
    set(&x, 1, 0);
    mp_plan *kept = get(cache, device, &x, 2, 16);
    for (int64_t length = 2; length < 200; length++) {
        set(&x, length, 0);
        mp_plan_release(get(cache, device, &x, 2, 16));
    }
    CHECK_EQ_INT(made, 199);
    CHECK_EQ_INT(mp_plan_output_at(kept, 0)->shape.dim[0], 1); /* dropped, and alive */
    mp_plan_release(get(cache, device, &x, 2, 16));
    CHECK_EQ_INT(made, 199);
    mp_plan_cache_destroy(cache);
    mp_plan_release(kept);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

TEST(plan_cache_does_not_keep_what_failed_or_is_too_long) {
    enum { LONG = 10000 };
    static int64_t values[LONG];
    mp_device *device = open_device();
    mp_plan_cache *cache = NULL;
    mp_plan *plan = NULL;
    inputs x;
    CHECK_OK(mp_plan_cache_create(&cache));
    set(&x, 5, 0);
    x.in[1].shape.dim[0] = LONG; /* more than the operator takes */
    x.in[1].data = (mp_addr)values;
    for (int i = 1; i < 4; i++) {
        CHECK_FAILS(mp_plan_cache_get(cache, device, &node, x.in, 2, 1, 16, &plan),
                    INVALID_ARGUMENT, "Counted 'n': value of shape 10000");
        CHECK(plan == NULL);
        CHECK_EQ_INT(made, i);
    }
    mp_plan_cache_destroy(cache);
    mp_plan_cache_destroy(NULL);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

typedef struct user {
    pthread_t thread;
    mp_plan_cache *cache;
    mp_device *device;
    uint64_t random;
} user;

/* More shapes than are kept, so that plans are dropped while others use them. */
static void *use(void *context) {
    user *u = context;
    for (int i = 0; i < 400; i++) {
        inputs x;
        const int64_t length = 1 + (int64_t)(test_random(&u->random) % 48);
        set(&x, length, length % 3);
        mp_plan_release(get(u->cache, u->device, &x, 2, 16));
    }
    return NULL;
}

TEST(plan_cache_serves_threads) {
    mp_device *device = open_device();
    user users[4];
    mp_plan_cache *cache = NULL;
    CHECK_OK(mp_plan_cache_create(&cache));
    for (size_t i = 0; i < MP_COUNT_OF(users); i++) {
        users[i] = (user){.cache = cache, .device = device, .random = i};
        CHECK(pthread_create(&users[i].thread, NULL, use, &users[i]) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(users); i++) {
        CHECK(pthread_join(users[i].thread, NULL) == 0);
    }
    mp_plan_cache_destroy(cache);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

TEST(plan_cache_says_what_it_has) {
    mp_device *device = open_device();
    mp_plan_cache *cache = NULL;
    inputs x;
    CHECK_OK(mp_plan_cache_create(&cache));
    set(&x, 5, 1);
    CHECK(!mp_plan_cache_has(cache, x.in, 2, 16));
    mp_plan_release(get(cache, device, &x, 2, 16));
    CHECK(mp_plan_cache_has(cache, x.in, 2, 16));
    CHECK(!mp_plan_cache_has(cache, x.in, 2, 1));
    set(&x, 5, 2);
    CHECK(!mp_plan_cache_has(cache, x.in, 2, 16));
    CHECK_EQ_INT(made, 1);
    mp_plan_cache_destroy(cache);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}
