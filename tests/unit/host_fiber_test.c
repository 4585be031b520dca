/* host_fiber_test.c - stacks of the emulated device's lanes: what a switch must keep, and whose a
 * stack is. tools/check_aarch64.py runs these tests on an emulated AArch64, too.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "device/host/host_fiber.h"

#include <pthread.h>

enum { FIBERS = 50, TURNS = 100, DEEP_BYTES = 64 << 10, THREADS = 4 };

/* ---- what a call keeps, a switch keeps ---- */

typedef struct numbers {
    uint32_t index;
    uint64_t whole;
    double real;
    int turns;
} numbers;

/* More values live across each switch than there are registers that a call keeps, so those are all
 * used, and every fiber has values of its own. What is done to them cannot be foretold, so that
 * each has to be kept. */
static void churn(numbers *n, bool yields) {
    const uint64_t first = 1000 * (uint64_t)n->index + 1;
    uint64_t a = first, b = first + 1, c = first + 2, d = first + 3, e = first + 4, f = first + 5;
    uint64_t g = first + 6, h = first + 7, i = first + 8, j = first + 9, k = first + 10;
    double p = (double)first, q = p + 0.5, r = p + 1.5, s = p + 2.5, t = p + 3.5, u = p + 4.5;
    double v = p + 5.5, w = p + 6.5, x = p + 7.5, y = p + 8.5;
    for (int turn = 0; turn < TURNS; turn++) {
        if (yields) {
            mp__host_fiber_yield();
        }
        a ^= a << 1, b ^= b << 2, c ^= c << 3, d ^= d << 4, e ^= e << 5, f ^= f << 6;
        g ^= g >> 1, h ^= h >> 2, i ^= i >> 3, j ^= j >> 4, k ^= k >> 5;
        p += 1, q += 2, r += 3, s += 4, t += 5, u += 6, v += 7, w += 8, x += 9, y += 10;
        n->turns++;
    }
    n->whole =
        a ^ b * 3 ^ c * 5 ^ d * 7 ^ e * 9 ^ f * 11 ^ g * 13 ^ h * 15 ^ i * 17 ^ j * 19 ^ k * 21;
    n->real = p + q + r + s + t + u + v + w + x + y;
}

static void churn_and_yield(void *context) {
    churn(context, true);
}

static void check_numbers(const numbers *n) {
    numbers want = {.index = n->index};
    churn(&want, false);
    CHECK_EQ_INT(n->turns, TURNS);
    CHECK(n->whole == want.whole);
    CHECK(n->real == want.real);
}

static void run_all(numbers *all, uint32_t count) {
    CHECK_OK(mp__host_fiber_reserve(count));
    for (uint32_t i = 0; i < count; i++) {
        all[i] = (numbers){.index = i};
        mp__host_fiber_set(i, churn_and_yield, &all[i]);
    }
    for (int turn = 0; turn <= TURNS; turn++) {
        for (uint32_t i = 0; i < count; i++) {
            CHECK(mp__host_fiber_resume(i) == (turn == TURNS));
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        check_numbers(&all[i]);
    }
}

TEST(fibers_keep_their_registers) {
    numbers all[FIBERS];
    run_all(all, FIBERS);
    run_all(all, 3); /* the same stacks again */
}

/* The same for the thread that enters the fibers: `count` is 0 where none is. */
static double churn_around(uint64_t seed, uint32_t count, uint64_t *whole) {
    uint64_t a = seed, b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6, h = a + 7;
    double p = 0.25, q = 0.5, r = 1, s = 2, t = 4, u = 8, v = 16, w = 32;
    for (uint32_t i = 0; i < FIBERS; i++) {
        if (i < count) {
            (void)mp__host_fiber_resume(i);
        }
        a ^= a << 1, b ^= b << 2, c ^= c << 3, d ^= d << 4, e ^= e >> 5, f ^= f >> 6, g ^= g >> 7;
        h ^= h >> 8;
        p++, q++, r++, s++, t++, u++, v++, w++;
    }
    *whole = a ^ b * 3 ^ c * 5 ^ d * 7 ^ e * 9 ^ f * 11 ^ g * 13 ^ h * 15;
    return p + q + r + s + t + u + v + w;
}

TEST(the_thread_of_fibers_keeps_its_registers) {
    numbers all[FIBERS];
    CHECK_OK(mp__host_fiber_reserve(FIBERS));
    for (uint32_t i = 0; i < FIBERS; i++) {
        all[i] = (numbers){.index = i + 1};
        mp__host_fiber_set(i, churn_and_yield, &all[i]);
    }
    uint64_t whole = 0, want = 0;
    CHECK(churn_around(test_seed(), FIBERS, &whole) == churn_around(test_seed(), 0, &want));
    CHECK(whole == want);
}

/* ---- stacks ---- */

typedef struct depth {
    const void *where;
    bool is_aligned, is_whole;
} depth;

static void go_deep(void *context) {
    depth *d = context;
    volatile unsigned char bytes[DEEP_BYTES];
    _Alignas(16) volatile char aligned = 0;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * 7);
    }
    d->where = (const void *)(uintptr_t)bytes;
    const volatile void *volatile where = &aligned; /* else the compiler knows that it is */
    d->is_aligned = (uintptr_t)where % 16 == 0;
    mp__host_fiber_yield();
    d->is_whole = true;
    for (size_t i = 0; i < sizeof bytes; i++) {
        d->is_whole = d->is_whole && bytes[i] == (unsigned char)(i * 7);
    }
}

TEST(fibers_have_deep_stacks_of_their_own) {
    depth all[FIBERS] = {{.where = NULL}};
    CHECK_OK(mp__host_fiber_reserve(FIBERS));
    for (uint32_t i = 0; i < FIBERS; i++) {
        mp__host_fiber_set(i, go_deep, &all[i]);
        CHECK(!mp__host_fiber_resume(i));
    }
    for (uint32_t i = FIBERS; i-- > 0;) {
        CHECK(mp__host_fiber_resume(i));
        CHECK(all[i].is_aligned && all[i].is_whole);
        for (uint32_t j = 0; j < i; j++) {
            const intptr_t apart = (intptr_t)all[i].where - (intptr_t)all[j].where;
            CHECK(apart >= DEEP_BYTES || apart <= -DEEP_BYTES);
        }
    }
}

static void set_flag(void *context) {
    *(bool *)context = true;
}

TEST(a_fiber_that_never_yields_ends_at_once) {
    bool ran = false;
    CHECK_OK(mp__host_fiber_reserve(1));
    mp__host_fiber_set(0, set_flag, &ran);
    CHECK(mp__host_fiber_resume(0));
    CHECK(ran);
}

static void *run_in_thread(void *context) {
    run_all(context, 4);
    run_all(context, FIBERS); /* more stacks than before */
    return NULL;
}

TEST(every_thread_has_its_own_fibers) {
    static numbers all[THREADS][FIBERS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_create(&threads[i], NULL, run_in_thread, all[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_join(threads[i], NULL), 0);
    }
}
