/* pool_check_test.c - a record of a pool that was spoilt is found out, and said in one sentence.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/coalesce.h"
#include "pool/handle.h"
#include "pool/pool_kit.h"

/* A pool in which every list has something, and its record, to be spoilt. */
typedef struct scene {
    kit k;
    kit_stream stream;
    arena *a;
    stream_heap *heap; /* of the stream */
    chunk *used;       /* allocated on it */
    chunk *kept;       /* on its shelf */
    chunk *unused;     /* in its bins */
    chunk *waiting;    /* for another stream */
    mp_addr blocks[3]; /* allocated; the last outside of regions */
    kit_stream other;
} scene;

static chunk *chunk_at(const scene *s, mp_addr addr) {
    chunk *c = mp__address_find(&s->a->addresses, addr);
    CHECK(c != NULL);
    return c;
}

static void scene_open(scene *s, mp_device *device, const char *const *options) {
    *s = (scene){.a = NULL};
    kit_open(&s->k, device, options);
    s->stream = kit_stream_open(&s->k);
    s->other = kit_stream_open(&s->k);
    s->a = mp__handle_arena(s->k.pool);
    s->blocks[0] = kit_alloc(&s->k, 5000, &s->stream);
    s->blocks[1] = kit_alloc(&s->k, 7000, &s->stream);
    s->used = chunk_at(s, s->blocks[0]);
    s->heap = stream_heap_of(s->a, s->used);
    const mp_addr kept = kit_alloc(&s->k, 3000, &s->stream);
    const mp_addr waiting = kit_alloc(&s->k, KIT_KIB(64), &s->stream);
    s->kept = chunk_at(s, kept);
    s->waiting = chunk_at(s, waiting);
    CHECK_OK(mp_pool_reserve(s->k.pool, 9000, &s->blocks[2]));
    kit_fill(&s->k, &s->other, waiting, KIT_KIB(64), 7);
    CHECK_OK(mp_pool_record_use(s->k.pool, waiting, s->other.native));
    kit_free(&s->k, waiting);
    kit_free(&s->k, kept); /* last: a further request would empty the shelf */
    s->unused = s->waiting->next;
    while (s->unused != NULL && chunk_state_of(s->unused) != CHUNK_FREE) {
        s->unused = s->unused->next;
    }
    CHECK(chunk_state_of(s->kept) == CHUNK_KEPT && s->unused != NULL);
    CHECK(chunk_state_of(s->waiting) == CHUNK_WAITING);
    CHECK_OK(mp__pool_check(s->k.pool));
}

static void scene_close(scene *s) {
    CHECK_OK(mp__pool_check(s->k.pool));
    for (size_t i = 0; i < MP_COUNT_OF(s->blocks); i++) {
        kit_free(&s->k, s->blocks[i]);
    }
    kit_stream_close(&s->k, &s->stream);
    kit_stream_close(&s->k, &s->other);
    kit_close(&s->k);
}

/* Checks that `field`, changed by `change`, is found out with a sentence that has `sentence`. */
#define SPOIL(s, field, change, sentence)                               \
    do {                                                                \
        const __typeof__(field) before = (field);                       \
        (field) change;                                                 \
        CHECK_FAILS(mp__pool_check((s)->k.pool), INTERNAL, (sentence)); \
        (field) = before;                                               \
        CHECK_OK(mp__pool_check((s)->k.pool));                          \
    } while (0)

DEVICE_TEST(pool_check_finds_chunks_that_do_not_tile) {
    scene s;
    scene_open(&s, device, KIT_OPTIONS("arena.check=0"));
    SPOIL(&s, s.used->units, += 1, "is tiled up to 0x");
    SPOIL(&s, s.used->units, = 0, "where a chunk of 0 bytes");
    SPOIL(&s, s.unused->units, -= 1, s.unused->next != NULL ? "is tiled up to" : "has chunks for");
    SPOIL(&s, s.used->next->prev, = NULL, "does not lead back to the one before it in the region");
    SPOIL(&s, s.a->regions[0].size, += UNIT, "has chunks for");
    SPOIL(&s, s.used->state, = CHUNK_UNUSED, "and is unused");
    SPOIL(&s, s.used->state, = CHUNK_UNMAPPED, "and is unmapped");
    scene_close(&s);
}

DEVICE_TEST(pool_check_finds_regions_that_overlap_or_are_out_of_order) {
    scene s;
    scene_open(&s, device, KIT_OPTIONS("arena.check=0"));
    const mp_addr large = kit_alloc(&s.k, KIT_MIB(3), &s.stream);
    CHECK_EQ_INT(s.a->region_count, 2);
    region *all = s.a->regions;
    SPOIL(&s, all[1].addr, = all[0].addr + UNIT, "overlap or are out of order");
    const region first = all[0];
    all[0] = all[1];
    all[1] = first;
    CHECK_FAILS(mp__pool_check(s.k.pool), INTERNAL, "overlap or are out of order");
    all[1] = all[0];
    all[0] = first;
    kit_free(&s.k, large);
    scene_close(&s);
}

DEVICE_TEST(pool_check_finds_blocks_outside_of_regions_that_are_no_reserved_ones) {
    scene s;
    scene_open(&s, device, KIT_OPTIONS("arena.check=0"));
    chunk *c = s.a->reserved;
    SPOIL(&s, c->state, = CHUNK_LENT, "lies outside of regions and is allocated");
    SPOIL(&s, c->state, = CHUNK_UNMAPPED, "lies outside of regions and is unmapped");
    SPOIL(&s, c->units, = 0, "of 0 bytes lies outside of regions");
    SPOIL(&s, c->back, = s.used, "in the list of reserved blocks");
    SPOIL(&s, c->link, = c, "in the list of reserved blocks"); /* it bites its tail */
    SPOIL(&s, s.a->retired, = c, "lies outside of regions and is reserved");
    scene_close(&s);
}

DEVICE_TEST(pool_check_finds_states_and_lists_that_disagree) {
    scene s;
    scene_open(&s, device, KIT_OPTIONS("arena.check=0"));
    SPOIL(&s, s.used->state, = CHUNK_FREE, "which is free, is in the map of addresses");
    SPOIL(&s, s.waiting->state, = CHUNK_LENT, "which is allocated, is not in the map of addresses");
    SPOIL(&s, s.kept->state, = CHUNK_LENT, "bytes in use, its");
    SPOIL(&s, s.used->heap, = 4000, "is of heap 4000, of");
    SPOIL(&s, s.unused->heap, = 0, "bins of heap 0 have 0 chunks of 0 bytes");
    SPOIL(&s, s.heap->shelf_count, += 1, "shelves of heap");
    SPOIL(&s, s.heap->shelf_bytes, -= UNIT, "and are counted as");
    SPOIL(&s, s.heap->shelf_filled[0], = UINT64_MAX, "is marked as filled, and is empty");
    SPOIL(&s, s.heap->shelf[class_of(s.kept->units)], = NULL, "is marked as filled, and is empty");
    SPOIL(&s, s.heap->shelf_filled[0], = 0, "is marked as empty, and has chunks");
    SPOIL(&s, s.heap->shelf[class_of(s.kept->units)], = s.unused, "which is free on heap");
    SPOIL(&s, s.kept->link, = s.kept, "shelves of heap"); /* it bites its tail */
    SPOIL(&s, s.unused->back, = s.used, "does not lead back to the one before it in the bins of");
    SPOIL(&s, s.heap->bins.bytes, += UNIT, "bins of heap");
    SPOIL(&s, s.heap->bins.count, = 0, "bins of heap");
    SPOIL(&s, s.a->holes.count, += 1, "the holes have");
    SPOIL(&s, s.a->waiting_count, += 1, "wait for a stream");
    SPOIL(&s, s.a->waiting, = NULL, "wait for a stream");
    SPOIL(&s, s.a->waiting, = s.unused, "wait for a stream");
    SPOIL(&s, s.a->addresses.count, -= 1, "the map of addresses counts");
    scene_close(&s);
}

DEVICE_TEST(pool_check_finds_counts_that_disagree) {
    scene s;
    scene_open(&s, device, KIT_OPTIONS("arena.check=0"));
    SPOIL(&s, s.heap->in_use, += 256, "bytes in use, its");
    SPOIL(&s, s.heap->clients[0].in_use, -= 256, "the clients of heap");
    SPOIL(&s, s.heap->clients[0].blocks, += 1, "the clients of heap");
    SPOIL(&s, s.heap->allowance, = 0, "with an allowance of 0");
    SPOIL(&s, s.heap->allowance, += 256, "are assigned");
    SPOIL(&s, s.a->assigned, += 256, "are assigned");
    SPOIL(&s, s.a->peak, = 0, "and the peak is 0");
    SPOIL(&s, s.a->total, += UNIT, "the chunks make");
    SPOIL(&s, s.a->total, = 0, "0 bytes are reserved from the device");
    SPOIL(&s, s.a->counts.total_max, = 0, "the most was 0");
    SPOIL(&s, s.a->reserved, = NULL, "the chunks make");
    scene_close(&s);
}

/* Cuts a chunk of `from` in two, which is found out with `sentence`, and makes it one again. */
static void check_apart(scene *s, bins *from, chunk *c, const char *sentence) {
    CHECK_OK(mp__chunk_prepare(&s->a->chunks, &s->a->chunks.shared, 1));
    mp__bins_remove(from, c);
    chunk *rest = mp__chunk_split(s->a, c, 1);
    mp__bins_add(from, c);
    mp__bins_add(from, rest);
    CHECK_FAILS(mp__pool_check(s->k.pool), INTERNAL, sentence);
    mp__bins_remove(from, c);
    mp__bins_remove(from, rest);
    mp__chunk_join(c, rest);
    mp__bins_add(from, c);
    CHECK_OK(mp__pool_check(s->k.pool));
}

TEST(pool_check_finds_neighbours_that_are_apart) {
    scene s;
    mp_device *device = NULL;
    const mp_host_config host = {.memory_bytes = KIT_MIB(64)};
    CHECK_OK(mp__host_device_create(&host, &device));
    scene_open(&s, device, KIT_OPTIONS("arena.check=0", "arena.expandable=1"));
    chunk *hole = s.unused;
    while (hole != NULL && chunk_state_of(hole) != CHUNK_UNMAPPED) {
        hole = hole->next;
    }
    CHECK(hole != NULL);
    check_apart(&s, &s.heap->bins, s.unused, "are both free on heap");
    check_apart(&s, &s.a->holes, hole, "are both unmapped on heap");
    scene_close(&s);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

DEVICE_TEST(pool_check_option_logs_a_breach_once) {
    scene s;
    mp_addr block = 0;
    scene_open(&s, device, KIT_OPTIONS("arena.check=1"));
    kit_log_keep();
    CHECK_OK(mp_pool_stream_settled(s.k.pool, s.stream.native));
    CHECK(!kit_log_has("arena.check"));
    s.a->holes.count += 1;                          /* which a pool of plain regions never reads */
    block = kit_alloc(&s.k, KIT_MIB(3), &s.stream); /* goes on as if nothing were */
    CHECK(kit_log_has("is not consistent: the holes have 0 chunks of 0 bytes, and are "
                      "counted as 1 of 0"));
    kit_free(&s.k, block);
    s.a->holes.count -= 1;
    CHECK(!kit_log_has("arena.check"));
    kit_log_end();
    scene_close(&s);
}

DEVICE_TEST(pool_check_is_off_unless_asked_for) {
    scene s;
    scene_open(&s, device, KIT_OPTIONS("arena.check=0"));
    kit_log_keep();
    s.a->holes.count += 1;
    CHECK_OK(mp_pool_stream_settled(s.k.pool, s.stream.native));
    s.a->holes.count -= 1;
    CHECK(!kit_log_has("arena.check"));
    kit_log_end();
    scene_close(&s);
}
