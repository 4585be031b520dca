/* pool_arena_test.c - how the arena grows, splits, merges and gives back: sizes to the byte.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

#define FIRST_SIZE "arena.initial_chunk_size_bytes="
#define GROWTH     "arena.initial_growth_chunk_size_bytes="
#define DEAD_BYTES "arena.max_dead_bytes_per_chunk="

enum { MANY = 16 };

/* Fills regions one by one: each block is as large as the region it should open. */
static void check_growth(kit *k, const size_t *regions, size_t count) {
    mp_addr blocks[MANY];
    CHECK(count <= MANY);
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        blocks[i] = kit_alloc(k, regions[i], NULL);
        CHECK_EQ_INT(kit_region_size(k, blocks[i]), regions[i]);
        total += regions[i];
        const mp_pool_stats stats = kit_stats(k);
        CHECK_EQ_INT(stats.total, total);
        CHECK_EQ_INT(stats.extensions, i + 1);
    }
    for (size_t i = 0; i < count; i++) {
        kit_free(k, blocks[i]);
    }
}

/* ---- growth ---- */

DEVICE_TEST(pool_arena_begins_with_the_initial_chunk) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=0"));
    const mp_addr block = kit_alloc(&k, 1000, NULL);
    CHECK_EQ_INT(kit_block_size(&k, block), 1024);
    CHECK_EQ_INT(kit_region_size(&k, block), KIT_MIB(1));
    const mp_pool_stats stats = kit_stats(&k);
    CHECK_EQ_INT(stats.total, KIT_MIB(1));
    CHECK_EQ_INT(stats.in_use, 1024);
    CHECK_EQ_INT(stats.requested, 1000);
    CHECK_EQ_INT(stats.extensions, 1);
    kit_free(&k, block);
    kit_close(&k);
}

DEVICE_TEST(pool_arena_doubles_up_to_the_largest_extension) {
    const size_t regions[] = {KIT_MIB(1), KIT_MIB(2), KIT_MIB(4), KIT_MIB(8), KIT_MIB(8)};
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_power_of_two_extend_bytes=8M"));
    check_growth(&k, regions, MP_COUNT_OF(regions));
    kit_close(&k);
}

DEVICE_TEST(pool_arena_doubles_until_a_request_fits) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS(FIRST_SIZE "64K"));
    const mp_addr block = kit_alloc(&k, KIT_KIB(300), NULL);
    CHECK_EQ_INT(kit_region_size(&k, block), KIT_KIB(512));
    CHECK_EQ_INT(kit_block_size(&k, block), KIT_KIB(512)); /* less than 128 MiB would be left */
    kit_free(&k, block);
    kit_close(&k);
}

DEVICE_TEST(pool_arena_serves_requests_beyond_the_largest_extension) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_power_of_two_extend_bytes=2M"));
    const mp_addr block = kit_alloc(&k, KIT_MIB(9), NULL);
    CHECK(kit_region_size(&k, block) >= KIT_MIB(9));
    const mp_addr next = kit_alloc(&k, KIT_MIB(9), NULL);
    CHECK(kit_region_size(&k, next) >= KIT_MIB(9));
    kit_free(&k, block);
    kit_free(&k, next);
    kit_close(&k);
}

DEVICE_TEST(pool_arena_extends_by_what_was_asked_for) {
    const size_t regions[] = {1024, KIT_MIB(3), 256, KIT_KIB(70) + 256};
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=1"));
    check_growth(&k, regions, MP_COUNT_OF(regions));
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    const mp_addr block = kit_alloc(&k, 1000, NULL); /* rounded up to 256 */
    CHECK_EQ_INT(kit_region_size(&k, block), 1024);
    kit_free(&k, block);
    kit_close(&k);
}

/* ---- limits ---- */

DEVICE_TEST(pool_arena_stays_below_max_mem) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=4M"));
    CHECK_EQ_INT(kit_stats(&k).limit, KIT_MIB(4));
    const mp_addr first = kit_alloc(&k, KIT_MIB(1), NULL);
    const mp_addr second = kit_alloc(&k, KIT_MIB(2), NULL);
    CHECK_EQ_INT(kit_stats(&k).total, KIT_MIB(3)); /* so 1 MiB of the next 4 is allowed */
    const mp_pool_stats before = kit_stats(&k);
    mp_addr block = 1;
    CHECK_FAILS(mp_pool_alloc(k.pool, KIT_MIB(1) + 1, MP_NO_STREAM, &block), OUT_OF_MEMORY, "kit");
    CHECK_EQ_INT(block, 1);
    const mp_pool_stats after = kit_stats(&k);
    CHECK_EQ_INT(after.failures, before.failures + 1);
    CHECK_EQ_INT(after.total, before.total);
    CHECK_EQ_INT(after.allocs, before.allocs);
    CHECK_EQ_INT(after.in_use, before.in_use);
    block = kit_alloc(&k, KIT_MIB(1), NULL);
    CHECK_EQ_INT(kit_stats(&k).total, KIT_MIB(4));
    kit_free(&k, first);
    kit_free(&k, second);
    kit_free(&k, block);
    kit_close(&k);
}

DEVICE_TEST(pool_arena_uses_max_mem_that_is_no_multiple_of_the_alignment) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1000000"));
    mp_addr block = 0;
    CHECK_FAILS(mp_pool_alloc(k.pool, 1000000, MP_NO_STREAM, &block), OUT_OF_MEMORY, "1000000");
    block = kit_alloc(&k, 999936, NULL);
    CHECK_EQ_INT(kit_stats(&k).total, 999936);
    kit_free(&k, block);
    kit_close(&k);
}

/* A device of 10 MiB, of which 8 are had: the next extension must try less and less. */
TEST(pool_arena_backs_off_when_the_device_refuses) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = KIT_MIB(10)};
    const size_t requests[] = {KIT_KIB(1536), KIT_MIB(2), KIT_KIB(4), KIT_MIB(2) - 256};
    for (size_t i = 0; i < MP_COUNT_OF(requests); i++) {
        mp_device *device = NULL;
        kit k;
        CHECK_OK(mp__host_device_create(&config, &device));
        kit_open(&k, device, KIT_OPTIONS(FIRST_SIZE "8M"));
        const mp_addr first = kit_alloc(&k, KIT_MIB(8), NULL);
        const mp_addr block = kit_alloc(&k, requests[i], NULL);
        const size_t region = kit_region_size(&k, block);
        CHECK(region >= requests[i] && region <= KIT_MIB(2));
        /* The attempt before was refused, so the one that was not is at most a tenth less. */
        CHECK(region == requests[i] || region + 512 >= KIT_MIB(2) * 9 / 10);
        CHECK_EQ_INT(region % MP_ALIGNMENT, 0);
        kit_free(&k, first);
        kit_free(&k, block);
        kit_close(&k);
        CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    }
}

TEST(pool_arena_passes_on_that_the_device_is_full) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = KIT_MIB(10)};
    mp_device *device = NULL;
    kit k;
    CHECK_OK(mp__host_device_create(&config, &device));
    kit_open(&k, device, KIT_OPTIONS(FIRST_SIZE "8M"));
    const mp_addr first = kit_alloc(&k, KIT_MIB(7), NULL);
    mp_addr block = 0;
    CHECK_FAILS(mp_pool_alloc(k.pool, KIT_MIB(3), MP_NO_STREAM, &block), OUT_OF_MEMORY, "kit");
    CHECK_STR_HAS(mp_error_message(), "; the device has 2097152 of 10485760 bytes left");
    block = kit_alloc(&k, KIT_MIB(2), NULL); /* the failure spoilt nothing */
    kit_free(&k, first);
    kit_free(&k, block);
    kit_close(&k);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

/* ---- splitting and merging ---- */

/* Opens a region of 4 MiB, all of it free. */
static void open_with_four(kit *k, mp_device *device, const char *dead_bytes) {
    kit_open(k, device, KIT_OPTIONS(FIRST_SIZE "4M", dead_bytes));
    kit_free(k, kit_alloc(k, KIT_MIB(4), NULL));
    CHECK_EQ_INT(kit_stats(k).total, KIT_MIB(4));
}

static void check_split(kit *k, size_t request, size_t lent) {
    const mp_addr block = kit_alloc(k, request, NULL);
    CHECK_EQ_INT(kit_block_size(k, block), lent);
    CHECK_EQ_INT(kit_stats(k).in_use, lent);
    CHECK_EQ_INT(kit_stats(k).requested, request);
    CHECK_EQ_INT(kit_stats(k).total, KIT_MIB(4));
    kit_free(k, block);
    kit_check(k);
}

DEVICE_TEST(pool_arena_splits_off_what_would_lie_dead) {
    kit k;
    open_with_four(&k, device, DEAD_BYTES "1M");
    check_split(&k, KIT_MIB(3), KIT_MIB(3));       /* 1 MiB would be dead */
    check_split(&k, KIT_MIB(3) + 256, KIT_MIB(4)); /* 256 bytes less */
    check_split(&k, KIT_MIB(2), KIT_MIB(2));       /* half of the chunk */
    check_split(&k, KIT_MIB(3) + 1, KIT_MIB(4));   /* rounded up first */
    check_split(&k, KIT_MIB(1) - 100, KIT_MIB(1));
    check_split(&k, KIT_MIB(4), KIT_MIB(4));
    kit_close(&k);
}

DEVICE_TEST(pool_arena_keeps_small_remainders_whole) {
    kit k;
    open_with_four(&k, device, DEAD_BYTES "128M");
    check_split(&k, KIT_MIB(2), KIT_MIB(2));
    check_split(&k, KIT_MIB(2) + 1, KIT_MIB(4));
    check_split(&k, KIT_MIB(3), KIT_MIB(4));
    kit_close(&k);
}

DEVICE_TEST(pool_arena_splits_always_where_no_byte_may_be_dead) {
    kit k;
    open_with_four(&k, device, DEAD_BYTES "0");
    check_split(&k, KIT_MIB(4) - 256, KIT_MIB(4) - 256);
    check_split(&k, KIT_MIB(4), KIT_MIB(4)); /* and makes no empty chunk */
    kit_close(&k);
}

DEVICE_TEST(pool_arena_merges_free_neighbours) {
    enum { COUNT = 8 };
    kit k;
    kit_open(&k, device, KIT_OPTIONS(DEAD_BYTES "0", "arena.max_mem=1M"));
    mp_addr blocks[COUNT];
    static const int orders[][COUNT] = {
        {0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {1, 3, 5, 7, 0, 2, 4, 6}};
    for (size_t o = 0; o < MP_COUNT_OF(orders); o++) {
        for (int i = 0; i < COUNT; i++) {
            blocks[i] = kit_alloc(&k, KIT_KIB(128), NULL);
        }
        CHECK_EQ_INT(kit_stats(&k).in_use, KIT_MIB(1));
        for (int i = 0; i < COUNT; i++) {
            kit_free(&k, blocks[orders[o][i]]);
            kit_check(&k);
        }
        /* There is no more to be had, so this is one chunk again. */
        const mp_addr whole = kit_alloc(&k, KIT_MIB(1), NULL);
        kit_free(&k, whole);
    }
    kit_close(&k);
}

/* Holes of 3, 5 and 4 KiB between lent blocks. */
DEVICE_TEST(pool_arena_takes_the_chunk_that_fits_best) {
    enum { COUNT = 7 };
    static const size_t sizes[COUNT] = {256, 3072, 256, 5120, 256, 4096, 256};
    kit k;
    kit_open(&k, device, KIT_OPTIONS(DEAD_BYTES "0", "arena.max_mem=1M"));
    mp_addr blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = kit_alloc(&k, sizes[i], NULL);
    }
    const mp_addr rest = kit_alloc(&k, KIT_MIB(1) - 13312, NULL); /* all the rest */
    CHECK_EQ_INT(kit_stats(&k).in_use, KIT_MIB(1));
    for (int i = 1; i < COUNT; i += 2) {
        kit_free(&k, blocks[i]);
    }
    CHECK_EQ_INT(kit_alloc(&k, 3328, NULL), blocks[5]);
    CHECK_EQ_INT(kit_alloc(&k, 2816, NULL), blocks[1]);
    CHECK_EQ_INT(kit_alloc(&k, 4352, NULL), blocks[3]);
    for (int i = 0; i < COUNT; i++) {
        kit_free(&k, blocks[i]);
    }
    kit_free(&k, rest);
    kit_close(&k);
}

DEVICE_TEST(pool_arena_lends_neither_empty_nor_boundless_blocks) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=0"));
    const mp_addr empty = kit_alloc(&k, 0, NULL);
    const mp_addr other = kit_alloc(&k, 0, NULL);
    CHECK(empty != other);
    CHECK_EQ_INT(kit_stats(&k).requested, 2);
    CHECK_EQ_INT(kit_block_size(&k, empty), 256);
    static const size_t sizes[] = {SIZE_MAX,       SIZE_MAX - 1, SIZE_MAX - 254,   SIZE_MAX - 255,
                                   SIZE_MAX - 256, SIZE_MAX / 2, SIZE_MAX / 2 + 1, (size_t)1 << 50};
    for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
        mp_addr block = 7;
        CHECK(mp_pool_alloc(k.pool, sizes[i], MP_NO_STREAM, &block) == MP_OUT_OF_MEMORY);
        CHECK(mp_pool_reserve(k.pool, sizes[i], &block) == MP_OUT_OF_MEMORY);
        CHECK_EQ_INT(block, 7);
    }
    CHECK_EQ_INT(kit_stats(&k).failures, 2 * MP_COUNT_OF(sizes));
    kit_free(&k, empty);
    kit_free(&k, other);
    kit_close(&k);
}

/* ---- giving back ---- */

DEVICE_TEST(pool_arena_shrinks_by_whole_regions) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS(GROWTH "3M"));
    mp_addr blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = kit_alloc(&k, KIT_MIB(1) << i, NULL); /* regions of 1, 2, 4 and 8 MiB */
    }
    kit_free(&k, blocks[0]);
    kit_free(&k, blocks[2]);
    kit_free(&k, blocks[3]);
    const mp_addr small = kit_alloc(&k, 1, NULL); /* somewhere in one of those three */
    const size_t kept = kit_region_size(&k, small);
    size_t released = 0;
    CHECK_OK(mp_pool_shrink(k.pool, &released));
    CHECK_EQ_INT(released, KIT_MIB(13) - kept);
    mp_pool_stats stats = kit_stats(&k);
    CHECK_EQ_INT(stats.total, KIT_MIB(2) + kept);
    CHECK_EQ_INT(stats.total_max, KIT_MIB(15));
    CHECK_EQ_INT(stats.shrinkages, 2);
    CHECK_OK(mp_pool_shrink(k.pool, &released)); /* nothing more to give */
    CHECK_EQ_INT(released, 0);
    kit_free(&k, small);
    kit_free(&k, blocks[1]);
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    stats = kit_stats(&k);
    CHECK_EQ_INT(stats.total, 0);
    CHECK_EQ_INT(stats.shrinkages, 4);
    const size_t again[] = {KIT_MIB(3), KIT_MIB(6), KIT_MIB(12)};
    for (int i = 0; i < 3; i++) { /* growth starts anew */
        blocks[i] = kit_alloc(&k, again[i], NULL);
        CHECK_EQ_INT(kit_region_size(&k, blocks[i]), again[i]);
    }
    for (int i = 0; i < 3; i++) {
        kit_free(&k, blocks[i]);
    }
    kit_close(&k);
}

DEVICE_TEST(pool_arena_reserves_outside_of_its_regions) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.extend_strategy=0"));
    const mp_addr block = kit_alloc(&k, 1000, NULL);
    mp_addr weights = 0;
    CHECK_OK(mp_pool_reserve(k.pool, KIT_MIB(3) + 1000, &weights));
    mp_pool_stats stats = kit_stats(&k);
    CHECK_EQ_INT(stats.reserves, 1);
    CHECK_EQ_INT(stats.allocs, 2);
    CHECK_EQ_INT(stats.extensions, 1);
    CHECK_EQ_INT(stats.requested, KIT_MIB(3) + 2000);
    CHECK_EQ_INT(stats.alloc_size_max, KIT_MIB(3) + 1000);
    mp_layout layout = kit_layout(&k);
    const mp_layout_region *region = layout_region_around(&layout, weights);
    CHECK(region != NULL && region->reserved && region->addr == weights);
    CHECK(region->size >= KIT_MIB(3) + 1000 && region->size < KIT_MIB(3) + 1000 + MP_ALIGNMENT);
    CHECK(!layout_region_around(&layout, block)->reserved);
    mp__layout_free(&layout);
    CHECK_OK(mp_pool_shrink(k.pool, NULL));
    CHECK_EQ_INT(kit_stats(&k).total, stats.total);
    kit_free(&k, weights); /* back to the device at once */
    CHECK_EQ_INT(kit_stats(&k).total, KIT_MIB(1));
    CHECK_EQ_INT(kit_stats(&k).in_use, 1024);
    kit_free(&k, block);
    kit_close(&k);
}

DEVICE_TEST(pool_arena_counts) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1M"));
    const mp_addr a = kit_alloc(&k, 1000, NULL), b = kit_alloc(&k, 2000, NULL);
    kit_free(&k, a);
    const mp_addr c = kit_alloc(&k, 100, NULL);
    mp_pool_stats stats = kit_stats(&k);
    CHECK_EQ_INT(stats.in_use_max, 1024 + 2048);
    CHECK_EQ_INT(stats.in_use, kit_block_size(&k, b) + kit_block_size(&k, c));
    CHECK_EQ_INT(stats.requested, 2100);
    CHECK_EQ_INT(stats.allocs, 3);
    CHECK_EQ_INT(stats.frees, 1);
    CHECK_EQ_INT(stats.alloc_size_max, 2000);
    CHECK_EQ_INT(stats.total_max, KIT_MIB(1));
    mp_addr refused = 0;
    CHECK(mp_pool_alloc(k.pool, KIT_MIB(2), MP_NO_STREAM, &refused) == MP_OUT_OF_MEMORY);
    CHECK_EQ_INT(kit_stats(&k).failures, 1);
    CHECK_EQ_INT(kit_stats(&k).alloc_size_max, 2000); /* of requests that were served */
    kit_free(&k, b);
    kit_free(&k, c);
    mp_pool_reset_peaks(k.pool);
    stats = kit_stats(&k);
    CHECK_EQ_INT(stats.in_use_max, 0);
    CHECK_EQ_INT(stats.total_max, KIT_MIB(1));
    CHECK_EQ_INT(stats.allocs, 3);
    kit_close(&k);
}

DEVICE_TEST(pool_arena_says_what_is_in_use_when_memory_runs_out) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=1M", DEAD_BYTES "0"));
    const mp_addr a = kit_alloc(&k, KIT_KIB(256), NULL), b = kit_alloc(&k, KIT_KIB(512), NULL);
    mp_addr refused = 0;
    CHECK(mp_pool_alloc(k.pool, KIT_KIB(300), MP_NO_STREAM, &refused) == MP_OUT_OF_MEMORY);
    const char *text = mp_error_message();
    CHECK_STR_HAS(text, "307200"); /* asked for */
    CHECK_STR_HAS(text, "786432"); /* in use */
    CHECK_STR_HAS(text, "kit");    /* by whom */
    CHECK_STR_HAS(text, "262144"); /* the largest free chunk */
    kit_free(&k, a);
    kit_free(&k, b);
    kit_close(&k);
}

/* ---- gathering before growth ---- */

/* Small blocks that were freed beside each other serve one that is as large as all. */
DEVICE_TEST(pool_arena_gathers_before_it_grows) {
    mp_addr blocks[8];
    kit k;
    kit_open(&k, device, KIT_OPTIONS(FIRST_SIZE "1M"));
    kit_stream stream = kit_stream_open(&k);
    for (size_t i = 0; i < MP_COUNT_OF(blocks); i++) {
        blocks[i] = kit_alloc(&k, KIT_KIB(128), &stream);
    }
    for (size_t i = 0; i < MP_COUNT_OF(blocks); i++) {
        kit_free(&k, blocks[i]);
    }
    const mp_addr all = kit_alloc(&k, KIT_MIB(1), &stream);
    CHECK_EQ_INT(kit_stats(&k).total, KIT_MIB(1));
    CHECK_EQ_INT(kit_stats(&k).extensions, 1);
    kit_free(&k, all);
    kit_stream_close(&k, &stream);
    kit_close(&k);
}

/* A set of blocks whose sizes change and change must not have its shelf taken apart for good. */
DEVICE_TEST(pool_arena_grows_once_it_has_gathered_enough) {
    enum { BLOCKS = 9, CHANGES = 6000 };
    mp_addr blocks[BLOCKS];
    kit k;
    kit_open(&k, device, KIT_OPTIONS(FIRST_SIZE "1M"));
    kit_stream stream = kit_stream_open(&k);
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = kit_alloc(&k, KIT_KIB(80), &stream);
    }
    uint64_t extensions = 0;
    for (size_t i = 0; i < CHANGES; i++) {
        kit_free(&k, blocks[i % BLOCKS]);
        blocks[i % BLOCKS] = kit_alloc(&k, KIT_KIB(60 + (7 * i) % 25), &stream);
        extensions = i == CHANGES / 12 ? kit_stats(&k).extensions : extensions;
    }
    CHECK_EQ_INT(extensions, 1);
    CHECK(kit_stats(&k).total <= KIT_MIB(8));
    for (size_t i = 0; i < BLOCKS; i++) {
        kit_free(&k, blocks[i]);
    }
    kit_stream_close(&k, &stream);
    kit_close(&k);
}

/* ---- slack ---- */

/* A kept chunk that is larger than a request by less than an eighth is lent with it, but not by
 * more than is allowed to lie dead. */
DEVICE_TEST(pool_arena_bounds_what_a_kept_chunk_lends_too_much) {
    static const struct {
        const char *option;
        size_t size;
    } cases[] = {{DEAD_BYTES "1M", KIT_KIB(64)}, {DEAD_BYTES "2K", KIT_KIB(60)}};
    for (size_t i = 0; i < MP_COUNT_OF(cases); i++) {
        kit k;
        kit_open(&k, device, KIT_OPTIONS(FIRST_SIZE "1M", cases[i].option));
        kit_stream stream = kit_stream_open(&k);
        const mp_addr block = kit_alloc(&k, KIT_KIB(64), &stream);
        for (size_t n = 0; n < 5000; n++) { /* none of which the shelf serves: thrift ends */
            kit_free(&k, kit_alloc(&k, n % 2 == 0 ? 256 : 512, &stream));
        }
        kit_free(&k, block);
        const mp_addr again = kit_alloc(&k, KIT_KIB(60), &stream);
        CHECK_EQ_INT(kit_block_size(&k, again), cases[i].size);
        kit_free(&k, again);
        kit_stream_close(&k, &stream);
        kit_close(&k);
    }
}

/* ---- odd sizes ---- */

DEVICE_TEST(pool_arena_rounds_regions_up) {
    kit k;
    kit_open(&k, device, KIT_OPTIONS(FIRST_SIZE "1000"));
    const mp_addr first = kit_alloc(&k, 100, NULL);
    CHECK_EQ_INT(kit_region_size(&k, first), 1024);
    const mp_addr second = kit_alloc(&k, 1024, NULL);
    CHECK_EQ_INT(kit_region_size(&k, second), 2048);
    kit_free(&k, first);
    kit_free(&k, second);
    kit_close(&k);
}
