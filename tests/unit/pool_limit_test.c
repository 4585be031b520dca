/* pool_limit_test.c - running out of memory: the limit of the process, and hooks that free some.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#include <stdlib.h>

/* ---- the limit of all pools ---- */

TEST(pool_limit_counts_all_pools_together) {
    NEEDS_OWN_PROCESS();
    CHECK(setenv("MILLPOND_HOST_DEVICES", "2", 1) == 0);
    CHECK_EQ_INT(mp_limit_get(), 0);
    mp_limit_set(KIT_MIB(3));
    CHECK_EQ_INT(mp_limit_get(), KIT_MIB(3));
    mp_pool *first = NULL, *second = NULL, *pinned = NULL;
    CHECK_OK(mp_pool_open("host:0", MP_MEMORY_DEVICE, "first", NULL, &first));
    CHECK_OK(mp_pool_open("host:1", MP_MEMORY_DEVICE, "second", NULL, &second));
    CHECK_OK(mp_pool_open("host:1", MP_MEMORY_PINNED, "second", NULL, &pinned));
    mp_addr a = 0, b = 0, c = 0, p = 0;
    CHECK_OK(mp_pool_alloc(first, KIT_MIB(1), MP_NO_STREAM, &a));
    CHECK_OK(mp_pool_alloc(second, KIT_MIB(1), MP_NO_STREAM, &b));
    CHECK_FAILS(mp_pool_alloc(second, KIT_MIB(2), MP_NO_STREAM, &c), OUT_OF_MEMORY, "limit");
    CHECK_OK(mp_pool_alloc(pinned, KIT_MIB(8), MP_NO_STREAM, &p)); /* does not count */
    CHECK_OK(mp_pool_alloc(second, KIT_MIB(1), MP_NO_STREAM, &c)); /* just what is left */
    CHECK(mp_pool_reserve(first, 256, &p) == MP_OUT_OF_MEMORY);
    CHECK_OK(mp_pool_free(second, c));
    CHECK_OK(mp_pool_shrink(second, NULL));
    CHECK_OK(
        mp_pool_alloc(first, KIT_KIB(900), MP_NO_STREAM, &c)); /* what one gives, another has */
    mp_limit_set(KIT_MIB(1));                                  /* below what is had */
    CHECK(mp_pool_alloc(first, KIT_MIB(1), MP_NO_STREAM, &p) == MP_OUT_OF_MEMORY);
    CHECK_OK(mp_pool_free(first, a));
    CHECK_OK(mp_pool_alloc(first, KIT_MIB(1), MP_NO_STREAM, &a)); /* no growth is needed */
    mp_limit_set(0);
    mp_addr large = 0;
    CHECK_OK(mp_pool_alloc(first, KIT_MIB(20), MP_NO_STREAM, &large));
    CHECK_OK(mp_pool_free(first, large));
    CHECK_OK(mp_pool_free(first, a));
    CHECK_OK(mp_pool_free(second, b));
    CHECK_OK(mp_pool_free(first, c));
    mp_pool_close(first);
    mp_pool_close(second);
    mp_pool_close(pinned);
}

/* A limit stops growth, not allocating. */
TEST(pool_limit_lends_what_is_there) {
    NEEDS_OWN_PROCESS();
    mp_pool *pool = NULL;
    CHECK_OK(mp_pool_open("host:0", MP_MEMORY_DEVICE, "test", NULL, &pool));
    mp_limit_set(KIT_MIB(4));
    mp_addr block = 0, other = 0;
    CHECK_OK(mp_pool_alloc(pool, KIT_MIB(3), MP_NO_STREAM, &block)); /* a region of 4 MiB */
    CHECK_OK(mp_pool_free(pool, block));
    CHECK_OK(mp_pool_alloc(pool, KIT_MIB(4), MP_NO_STREAM, &block));
    CHECK(mp_pool_alloc(pool, 1, MP_NO_STREAM, &other) == MP_OUT_OF_MEMORY);
    CHECK_OK(mp_pool_free(pool, block));
    mp_limit_set(0);
    mp_pool_close(pool);
}

TEST(pool_limit_reads_the_environment) {
    NEEDS_OWN_PROCESS();
    CHECK(setenv("MILLPOND_LIMIT", "5M", 1) == 0);
    CHECK_EQ_INT(mp_limit_get(), KIT_MIB(5));
}

/* The pool gives its own free regions back before it refuses: 3 MiB in regions of 1 and 2, and a
 * request of 3. */
DEVICE_TEST(pool_limit_gives_free_regions_back_before_it_refuses) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=3M"));
    const mp_addr a = kit_alloc(&k, KIT_MIB(1), NULL), b = kit_alloc(&k, KIT_MIB(2), NULL);
    kit_free(&k, a);
    kit_free(&k, b);
    const mp_addr whole = kit_alloc(&k, KIT_MIB(3), NULL);
    CHECK_EQ_INT(kit_stats(&k).failures, 0);
    kit_free(&k, whole);
    kit_close(&k);
}

/* ---- hooks ---- */

typedef struct hook {
    mp_pool *pool;
    mp_addr blocks[4]; /* frees one a call */
    size_t left, calls, size;
    int *order;
    int turn; /* which of all calls its last one was */
} hook;

static bool free_one(void *context, size_t size) {
    hook *h = context;
    h->calls++;
    h->size = size;
    if (h->order != NULL) {
        h->turn = ++*h->order;
    }
    if (h->left == 0) {
        return false;
    }
    CHECK_OK(mp_pool_free(h->pool, h->blocks[--h->left]));
    return true;
}

/* Each session with islands has one. */
DEVICE_TEST(pool_limit_asks_as_many_hooks_as_there_are) {
    enum { HOOKS = 100 };
    kit k;
    hook hooks[HOOKS];
    mp_addr refused = 0;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=4M"));
    for (int i = 0; i < HOOKS; i++) {
        hooks[i] = (hook){.pool = k.pool};
        CHECK_OK(mp_pool_add_hook(k.pool, free_one, &hooks[i]));
    }
    CHECK(mp_pool_alloc(k.pool, KIT_MIB(8), MP_NO_STREAM, &refused) == MP_OUT_OF_MEMORY);
    for (int i = 0; i < HOOKS; i++) {
        CHECK_EQ_INT(hooks[i].calls, 1);
        CHECK_OK(mp_pool_remove_hook(k.pool, free_one, &hooks[i]));
    }
    kit_close(&k);
}

DEVICE_TEST(pool_limit_asks_hooks_before_it_fails) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=4M", "arena.max_dead_bytes_per_chunk=0"));
    int order = 0;
    hook first = {.pool = k.pool, .order = &order}, second = {.pool = k.pool, .order = &order};
    for (int i = 0; i < 4; i++) {
        second.blocks[i] = kit_alloc(&k, KIT_KIB(i == 0 ? 2048 : 512), NULL);
    }
    second.left = 4;
    CHECK_OK(mp_pool_add_hook(k.pool, free_one, &first));
    CHECK_OK(mp_pool_add_hook(k.pool, free_one, &second));
    kit_free(&k, kit_alloc(&k, KIT_KIB(512), NULL)); /* fits: nobody is asked */
    CHECK_EQ_INT(first.calls + second.calls, 0);
    const mp_addr block = kit_alloc(&k, KIT_KIB(1024), NULL);
    CHECK(first.calls >= 1 && second.calls >= 1);
    CHECK(first.turn < second.turn); /* in the order they were added; the last call has helped */
    CHECK_EQ_INT(first.size, KIT_KIB(1024));
    CHECK_EQ_INT(kit_stats(&k).failures, 0);
    mp_addr refused = 0;
    CHECK(mp_pool_alloc(k.pool, KIT_MIB(8), MP_NO_STREAM, &refused) == MP_OUT_OF_MEMORY);
    CHECK_EQ_INT(kit_stats(&k).failures, 1);
    CHECK_OK(mp_pool_remove_hook(k.pool, free_one, &first));
    CHECK_FAILS(mp_pool_remove_hook(k.pool, free_one, &first), NOT_FOUND, "hook");
    CHECK_OK(mp_pool_remove_hook(k.pool, free_one, &second));
    const size_t calls = first.calls + second.calls;
    CHECK(mp_pool_alloc(k.pool, KIT_MIB(8), MP_NO_STREAM, &refused) == MP_OUT_OF_MEMORY);
    CHECK_EQ_INT(first.calls + second.calls, calls);
    while (second.left > 0) {
        kit_free(&k, second.blocks[--second.left]);
    }
    kit_free(&k, block);
    kit_close(&k);
}

/* A hook that itself asks for memory is not asked again on the way. */
static bool ask_again(void *context, size_t size) {
    hook *h = context;
    h->calls++;
    mp_addr block = 0;
    CHECK(mp_pool_alloc(h->pool, size, MP_NO_STREAM, &block) == MP_OUT_OF_MEMORY);
    return true; /* a lie */
}

DEVICE_TEST(pool_limit_is_not_led_round_in_circles_by_hooks) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1M"));
    hook h = {.pool = k.pool};
    CHECK_OK(mp_pool_add_hook(k.pool, ask_again, &h));
    mp_addr refused = 0;
    CHECK_FAILS(mp_pool_alloc(k.pool, KIT_MIB(2), MP_NO_STREAM, &refused), OUT_OF_MEMORY, "kit");
    CHECK(h.calls >= 1 && h.calls <= 100);
    CHECK_OK(mp_pool_remove_hook(k.pool, ask_again, &h));
    kit_close(&k);
}

/* One that claims to have freed something does not keep the next from being asked. */
static bool lie(void *context, size_t size) {
    (void)context, (void)size;
    return true;
}

DEVICE_TEST(pool_limit_asks_the_next_hook_when_one_did_not_help) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1M"));
    hook h = {.pool = k.pool, .left = 1};
    h.blocks[0] = kit_alloc(&k, KIT_MIB(1), NULL);
    CHECK_OK(mp_pool_add_hook(k.pool, lie, &h));
    CHECK_OK(mp_pool_add_hook(k.pool, free_one, &h));
    kit_free(&k, kit_alloc(&k, KIT_MIB(1), NULL));
    CHECK_EQ_INT(h.calls, 1);
    CHECK_OK(mp_pool_remove_hook(k.pool, lie, &h));
    CHECK_OK(mp_pool_remove_hook(k.pool, free_one, &h));
    kit_close(&k);
}

/* Reserve asks too, and the pool may be closed with hooks in it. */
DEVICE_TEST(pool_limit_asks_hooks_for_reserves) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=2M"));
    hook h = {.pool = k.pool, .left = 1};
    CHECK_OK(mp_pool_reserve(k.pool, KIT_MIB(2), &h.blocks[0]));
    CHECK_OK(mp_pool_add_hook(k.pool, free_one, &h));
    mp_addr block = 0;
    CHECK_OK(mp_pool_reserve(k.pool, KIT_MIB(1), &block));
    CHECK(h.calls >= 1);
    kit_free(&k, block);
    kit_close(&k);
}
