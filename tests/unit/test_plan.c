/* test_plan.c - see test_plan.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test_plan.h"

#include <stdio.h>
#include <stdlib.h>

const char *const test_variant_names[CUDA + 1] = {"", "@eager", "@threaded", "@adversarial",
                                                  "@cuda"};

/* Tests without a device have no mode and are always wanted. */
static bool is_wanted_mode(const test_choice *choice, test_variant variant) {
    return variant == PLAIN || choice->modes == NULL ||
           strstr(choice->modes, test_variant_names[variant] + 1) != NULL;
}

static bool is_wanted(const test_choice *choice, const test_case *test, test_variant variant) {
    if ((test->run != NULL) != (variant == PLAIN) || (variant == CUDA && !choice->cuda) ||
        !is_wanted_mode(choice, variant)) {
        return false;
    }
    char name[256];
    (void)snprintf(name, sizeof name, "%s%s", test->name, test_variant_names[variant]);
    return choice->filter == NULL || strstr(name, choice->filter) != NULL;
}

/* Of those that do not run alone, the shards have one after the other in turn. */
static bool is_in_shard(const test_choice *choice, bool alone, size_t turn) {
    if (choice->only_alone || alone) {
        return choice->only_alone ? alone : choice->shards == 0;
    }
    return choice->shards == 0 || turn % (size_t)choice->shards == (size_t)choice->shard - 1;
}

typedef enum part { OF_DEVICES, WITHOUT_DEVICE, ALONE, PARTS } part;

static part part_of(const test_case *test, test_variant variant) {
    return test->alone ? ALONE : variant == PLAIN ? WITHOUT_DEVICE : OF_DEVICES;
}

static void add_part(test_plan *plan, const test_case *tests, const test_choice *choice,
                     part wanted, size_t *turn) {
    for (const test_case *test = tests; test != NULL; test = test->next) {
        for (test_variant variant = PLAIN; variant <= CUDA; variant++) {
            if (part_of(test, variant) == wanted && is_wanted(choice, test, variant) &&
                is_in_shard(choice, test->alone, (*turn)++)) {
                plan->entries[plan->count++] = (test_entry){test, variant};
            }
        }
    }
}

static void *array_of(size_t count, size_t size) {
    void *array = calloc(count + 1, size);
    if (array == NULL) {
        perror("calloc");
        exit(2);
    }
    return array;
}

void test_plan_make(test_plan *out, const test_case *tests, const test_choice *choice) {
    size_t count = 0, turn = 0;
    for (const test_case *test = tests; test != NULL; test = test->next) {
        count += CUDA + 1;
    }
    *out = (test_plan){.entries = array_of(count, sizeof *out->entries),
                       .again = array_of(count, sizeof *out->again)};
    add_part(out, tests, choice, OF_DEVICES, &turn);
    out->devices_end = out->count;
    add_part(out, tests, choice, WITHOUT_DEVICE, &turn);
    out->alone_begin = out->count;
    add_part(out, tests, choice, ALONE, &turn);
}

test_batch test_plan_take(test_plan *plan, size_t size) {
    if (plan->again_count > 0) {
        return plan->again[--plan->again_count];
    }
    test_batch batch = {plan->next, plan->next < plan->count ? 1 : 0};
    if (plan->next < plan->devices_end) {
        const size_t left = plan->devices_end - plan->next;
        batch.count = size < left ? size : left;
    }
    plan->next += batch.count;
    return batch;
}

void test_plan_give_back(test_plan *plan, test_batch batch) {
    if (batch.count > 0) {
        plan->again[plan->again_count++] = batch;
    }
}

bool test_plan_may_start(const test_plan *plan, test_batch batch, int running, bool is_alone,
                         int jobs) {
    return running == 0 || (!is_alone && !test_plan_is_alone(plan, batch) && running < jobs);
}

bool test_plan_is_alone(const test_plan *plan, test_batch batch) {
    return batch.first >= plan->alone_begin;
}
