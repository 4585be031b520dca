/* test_plan.h - which tests run, in which order, and which of them share a process.
 *
 * First come the tests of devices, then those without one, last those that run alone: in that order
 * the longest do not come last, and nothing else is left to run beside the last ones. What starts
 * at a time is a batch: neighbours in the plan that run one after the other in a process. Only
 * tests of devices share one; on a GPU, where each process makes a context of its own, that is most
 * of the time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_TEST_PLAN_H
#define MP_TESTS_UNIT_TEST_PLAN_H

#include "test.h"

enum { TEST_BATCH_MAX = 64 };

typedef enum test_variant { PLAIN, EAGER, THREADED, ADVERSARIAL, CUDA } test_variant;

extern const char *const test_variant_names[CUDA + 1]; /* as they end a test's name */

typedef struct test_choice { /* all strings are borrowed */
    const char *filter;      /* part of the name and the variant; NULL for all */
    const char *modes;       /* names of variants, separated by commas; NULL for all */
    bool cuda;               /* there is a GPU */
    bool only_alone;         /* those that run alone, and no other */
    int shard, shards;       /* of those that do not: every `shards`th; 0 shards: all of both */
} test_choice;

typedef struct test_entry {
    const test_case *test;
    test_variant variant;
} test_entry;

typedef struct test_batch {
    size_t first, count; /* of the plan's entries; count 0: none */
} test_batch;

typedef struct test_plan {
    test_entry *entries; /* owned */
    size_t count;
    size_t devices_end; /* index behind the tests of devices */
    size_t alone_begin; /* index of the first that runs alone */
    size_t next;        /* index of the first that no batch has had */
    test_batch *again;  /* owned; batches given back */
    size_t again_count;
} test_plan;

/* Gives: `*out`, until the program ends. Ends the program where there is no memory. */
void test_plan_make(test_plan *out, const test_case *tests, const test_choice *choice);

/* The next batch, of at most `size` entries; one given back comes first. */
test_batch test_plan_take(test_plan *plan, size_t size);

/* Tests that did not run, for other processes; a batch of none is nothing. */
void test_plan_give_back(test_plan *plan, test_batch batch);

/* Whether the batch may start while `running` others do, the last of which is alone or not. */
bool test_plan_may_start(const test_plan *plan, test_batch batch, int running, bool is_alone,
                         int jobs);

bool test_plan_is_alone(const test_plan *plan, test_batch batch);

#endif
