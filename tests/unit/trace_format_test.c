/* trace_format_test.c - what the writers of traces are made of, and the files they write. What a
 * browser makes of the page, and Python of the snapshot, is in tests/pool/test_trace_page.py.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "pool/trace/trace.h"
#include "pool/trace/trace_map.h"
#include "pool/trace/trace_ranges.h"
#include "pool/trace/trace_text.h"
#include "unit/unpickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- tables, sets, texts ---- */

TEST(map_agrees_with_an_array) {
    enum { KEYS = 300, STEPS = 60000 };
    static bool there[KEYS];
    static uint64_t values[KEYS];
    mp_map map = {0};
    uint64_t row = test_seed(), value;
    size_t count = 0;
    memset(there, 0, sizeof there);
    CHECK(!mp__map_get(&map, 0, &value) && !mp__map_take(&map, 0, &value));
    for (int i = 0; i < STEPS; i++) {
        const uint64_t at = test_random(&row) % KEYS, key = at << 40 | at; /* far apart */
        value = 12345;
        if (test_random(&row) % 2 == 0) {
            CHECK_OK(mp__map_set(&map, key, (uint64_t)i));
            count += there[at] ? 0 : 1;
            there[at] = true;
            values[at] = (uint64_t)i;
        } else {
            CHECK(mp__map_take(&map, key, &value) == there[at]);
            CHECK(value == (there[at] ? values[at] : 12345));
            count -= there[at] ? 1 : 0;
            there[at] = false;
        }
        const uint64_t other = test_random(&row) % KEYS;
        CHECK(mp__map_get(&map, other << 40 | other, &value) == there[other]);
        CHECK(!there[other] || value == values[other]);
        CHECK_EQ_INT(map.count, count);
    }
    mp__map_free(&map);
}

TEST(ranges_agree_with_single_addresses) {
    enum { WIDTH = 64, STEPS = 40000 };
    bool there[WIDTH] = {false};
    mp_ranges set = {0};
    uint64_t row = test_seed();
    for (int i = 0; i < STEPS; i++) {
        const uint64_t begin = test_random(&row) % (WIDTH - 1);
        const uint64_t end = begin + 1 + test_random(&row) % (WIDTH - begin - 1);
        const bool add = test_random(&row) % 2 == 0;
        CHECK_OK(add ? mp__ranges_add(&set, (mp_range){begin, end})
                     : mp__ranges_remove(&set, (mp_range){begin, end}));
        memset(there + begin, add, end - begin);
        const uint64_t from = test_random(&row) % (WIDTH - 1),
                       to = from + 1 + test_random(&row) % 3;
        bool all = to <= WIDTH;
        for (uint64_t at = from; at < to && at < WIDTH; at++) {
            all = all && there[at];
        }
        CHECK(mp__ranges_hold(&set, (mp_range){from, to}) == all);
        for (size_t k = 0; k < set.count; k++) { /* apart from each other, and none empty */
            CHECK(set.items[k].begin < set.items[k].end);
            CHECK(k == 0 || set.items[k - 1].end < set.items[k].begin);
        }
    }
    mp__ranges_free(&set);
}

TEST(names_become_valid_text) {
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"", ""},
        {"plain", "plain"},
        {"z\xc3\xa9ro \xe2\x9c\x93 \xf0\x9f\x98\x80", "z\xc3\xa9ro \xe2\x9c\x93 \xf0\x9f\x98\x80"},
        {"cut \xe2\x9c", "cut ??"},
        {"\xff\xfe\x80", "???"},
        {"too long \xc0\xaf \xe0\x80\xaf", "too long ?? ???"},
        {"surrogate \xed\xa0\x80", "surrogate ???"},
        {"beyond \xf4\x90\x80\x80 \xf8\x88\x80\x80\x80", "beyond ???? ?????"},
        {"\xc3z", "?z"},
    };
    char out[64];
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        mp__text_clean(rows[i].text, sizeof out - 1, out);
        CHECK(strcmp(out, rows[i].expected) == 0);
    }
    mp__text_clean("abc\xc3\xa9", 4, out); /* the bound cuts a character */
    CHECK(strcmp(out, "abc?") == 0);
}

/* ---- a trace made by hand ---- */

#define MIB    (1u << 20)
#define REGION 0x7f0000000000u
#define PAGES  0x7f1000000000u
#define OWN    0x7f2000000000u

static mp_device device = {.ordinal = 2, .info = {.kind = MP_DEVICE_CUDA, .name = "A GPU"}};

/* Three regions: one of the arena, one expandable, one block outside the arena. */
static mp_layout_region regions[] = {
    {.addr = REGION, .size = 4 * MIB, .first_block = 0, .block_count = 3},
    {.addr = PAGES, .size = 8 * MIB, .expandable = true, .first_block = 3, .block_count = 3},
    {.addr = OWN, .size = MIB, .reserved = true, .first_block = 6, .block_count = 1},
};
static mp_layout_block blocks[] = {
    {.addr = REGION, .size = 512, .requested = 500, .state = MP_BLOCK_LENT, .client = 1},
    {.addr = REGION + 512, .size = 1024, .state = MP_BLOCK_WAITING},
    {.addr = REGION + 1536, .size = 4 * MIB - 1536, .state = MP_BLOCK_FREE},
    {.addr = PAGES, .size = 2 * MIB, .state = MP_BLOCK_UNMAPPED},
    {.addr = PAGES + 2 * MIB, .size = 2 * MIB, .state = MP_BLOCK_KEPT},
    {.addr = PAGES + 4 * MIB, .size = 4 * MIB, .state = MP_BLOCK_UNMAPPED},
    {.addr = OWN, .size = MIB, .requested = MIB - 1, .state = MP_BLOCK_LENT, .client = 0},
};
static mp_layout layout = {
    .regions = regions,
    .region_count = MP_COUNT_OF(regions),
    .blocks = blocks,
    .block_count = MP_COUNT_OF(blocks),
    .clients = {"</script><b>", "numba \xc3"},
    .client_count = 2,
    .device = &device,
    .memory = MP_MEMORY_DEVICE,
    .stats = {.limit = 64 * MIB},
};

#define STREAM ((void *)(uintptr_t)0x5500)

static const mp_trace_event events[] = {
    {.action = MP_TRACE_GROW,
     .addr = REGION + 64 * MIB,
     .size = MIB}, /* of nothing that is known */
    {.action = MP_TRACE_FREE,
     .addr = REGION + 4096,
     .size = 256,
     .requested = 99}, /* lent before */
    {.action = MP_TRACE_ALLOC,
     .addr = OWN,
     .size = MIB,
     .requested = MIB - 1,
     .stream = MP_NO_STREAM},
    {.action = MP_TRACE_GROW, .addr = PAGES, .size = 4 * MIB, .pages = true, .client = 1},
    {.action = MP_TRACE_ALLOC,
     .addr = REGION,
     .size = 512,
     .requested = 500,
     .client = 1,
     .stream = STREAM},
    {.action = MP_TRACE_ALLOC, .addr = REGION + 512, .size = 1024, .requested = 1000, .client = 1},
    {.action = MP_TRACE_USE,
     .addr = REGION + 512,
     .size = 1024,
     .requested = 1000,
     .stream = STREAM},
    {.action = MP_TRACE_FREE, .addr = REGION + 512, .size = 1024, .requested = 1000, .client = 1},
    {.action = MP_TRACE_FAIL,
     .size = 256 * MIB,
     .requested = 256 * MIB,
     .total = 10 * MIB,
     .stream = STREAM},
    {.action = MP_TRACE_SHRINK, .addr = PAGES, .size = 2 * MIB, .pages = true},
    {.action = MP_TRACE_ALLOC, .addr = OWN + 16 * MIB, .size = 768, .requested = 700},
    {.action = MP_TRACE_FREE, .addr = OWN + 16 * MIB, .size = 768, .requested = 700},
};

/* The file that a format makes of it, with a 0 behind its end. */
static char *written(mp_trace_format format, size_t *size) {
    mp_trace_event timed[MP_COUNT_OF(events)];
    char path[] = "/tmp/millpond-format-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0);
    (void)close(file);
    for (size_t i = 0; i < MP_COUNT_OF(events); i++) {
        timed[i] = events[i];
        timed[i].thread = 40 + i % 2;
        timed[i].time_ns = 86399999999000 + i * 500000; /* the last second of a day, and on */
    }
    CHECK_OK(mp__trace_write(format, path, timed, MP_COUNT_OF(timed), 7, &layout));
    FILE *in = fopen(path, "r");
    char *text = malloc(1 << 20);
    CHECK(in != NULL && text != NULL);
    *size = fread(text, 1, (1 << 20) - 1, in);
    text[*size] = '\0';
    (void)fclose(in);
    CHECK(unlink(path) == 0);
    return text;
}

TEST(formats_that_are_not_there_are_refused) {
    CHECK_FAILS(mp__trace_write((mp_trace_format)3, "/tmp/x", NULL, 0, 0, &layout),
                INVALID_ARGUMENT, "format 3");
}

TEST(csv_balances) {
    NEEDS_OWN_PROCESS(); /* the time zone is the process's */
    size_t size;
    CHECK(setenv("TZ", "UTC", 1) == 0);
    tzset();
    char *text = written(MP_TRACE_RMM_CSV, &size);
    CHECK_STR_HAS(text, "Thread,Time,Action,Pointer,Size,Stream\n"
                        "40,00:00:00.000999,allocate,0x7f2000000000,1048575,0\n"
                        "40,00:00:00.001999,allocate,0x7f0000000000,500,0x5500\n"
                        "41,00:00:00.002499,allocate,0x7f0000000200,1000,0\n"
                        "41,00:00:00.003499,free,0x7f0000000200,1000,0\n"
                        "40,00:00:00.003999,allocate failure,(nil),268435456,0x5500\n"
                        "40,00:00:00.004999,allocate,0x7f2001000000,700,0\n"
                        "41,00:00:00.005499,free,0x7f2001000000,700,0\n");
    CHECK_EQ_INT(strchr(text, '\n') - text, 38);
    CHECK(strstr(text, ",99,") == NULL); /* the free of what was lent before the trace */
    free(text);
}

TEST(snapshot_can_be_undone_event_by_event) {
    static const char *const expected[] = {
        "{'segments': [{'device': 2, 'address': 139637976727552, 'total_size': 4194304, "
        "'allocated_size': 512, 'active_size': 1536, 'requested_size': 500, 'stream': 0, "
        "'segment_type': 'large', 'segment_pool_id': (0, 0), 'is_expandable': False, 'frames': [], "
        "'blocks': [{'address': 139637976727552, 'size': 512, 'requested_size': 500, "
        "'state': 'active_allocated', 'frames': [{'name': 'numba ?', 'filename': 'client', 'line': "
        "0}]}, "
        "{'address': 139637976728064, 'size': 1024, 'requested_size': 1024, 'state': "
        "'active_pending_free', 'frames': []}, {'address': 139637976729088, 'size': 4192768, "
        "'requested_size': 4192768, 'state': 'inactive', 'frames': []}]}, ",
        /* of the expandable region, the pages that are mapped */
        "{'device': 2, 'address': 139706698301440, 'total_size': 2097152, 'allocated_size': 0, ",
        "'is_expandable': True, 'frames': [], 'blocks': [{'address': 139706698301440, 'size': "
        "2097152, ",
        "'requested_size': 1048575, 'state': 'active_allocated', 'frames': [{'name': "
        "'</script><b>', ",
        "'device_traces': [[], [], [{'action': 'free_requested', 'addr': 139637976731648, "
        "'size': 99, 'stream': 0, 'time_us': 86400000499, ",
        "{'action': 'oom', 'device_free': 56623104, 'size': 268435456, 'stream': 21760, ",
        "'user_metadata': {'thread': 40, 'lent_as': 512}}",
        "'allocator_settings': {'allocator': 'Millpond', ",
        "'trace_alloc_overflowed': True}, 'external_annotations': []}",
    };
    /* A block outside the arena brings a segment; a range of pages is mapped; a free without a
     * stream to wait for is complete; the unknown growth is left out, the free lent before is not.
     */
    static const char *const order[] = {
        "'free_requested', 'addr': 139637976731648, 'size': 99,",
        "'free_completed', 'addr': 139637976731648, 'size': 99,",
        "'segment_alloc', 'addr': 139775415681024, 'size': 1048576,",
        "'alloc', 'addr': 139775415681024, 'size': 1048575, 'stream': -1,",
        "'segment_map', 'addr': 139706696204288, 'size': 4194304,",
        "'alloc', 'addr': 139637976727552, 'size': 500, 'stream': 21760,",
        "'alloc', 'addr': 139637976728064, 'size': 1000,",
        "'free_requested', 'addr': 139637976728064, 'size': 1000,",
        "'oom', 'device_free'",
        "'segment_unmap', 'addr': 139706696204288, 'size': 2097152,",
        "'segment_alloc', 'addr': 139775432458240, 'size': 768,",
        "'alloc', 'addr': 139775432458240, 'size': 700,",
        "'free_requested', 'addr': 139775432458240, 'size': 700,",
        "'free_completed', 'addr': 139775432458240, 'size': 700,",
        "'segment_free', 'addr': 139775432458240, 'size': 768,",
    };
    size_t size, count = 0;
    char *pickle = written(MP_TRACE_SNAPSHOT, &size);
    char *text = test_unpickle(pickle, size);
    for (size_t i = 0; i < MP_COUNT_OF(expected); i++) {
        CHECK_STR_HAS(text, expected[i]);
    }
    for (const char *at = strstr(text, "'action': "); at != NULL;
         at = strstr(at + 1, "'action': ")) {
        CHECK(count < MP_COUNT_OF(order));
        CHECK_EQ_INT(strncmp(at + 10, order[count], strlen(order[count])), 0);
        count++;
    }
    CHECK_EQ_INT(count, MP_COUNT_OF(order));
    free(text);
    free(pickle);
}

TEST(page_holds_its_data_and_nothing_runs_of_it) {
    size_t size;
    char *text = written(MP_TRACE_HTML, &size);
    CHECK(strncmp(text, "<!doctype html>", 15) == 0);
    CHECK_STR_HAS(text, "default-src 'none'; img-src data:; style-src 'sha256-");
    CHECK_STR_HAS(text, "\"device\":\"cuda:2\",\"memory\":\"device\",\"name\":\"A GPU\"");
    CHECK_STR_HAS(text, "\"clients\":[\"\\u003c/script\\u003e\\u003cb\\u003e\",\"numba ?\"]");
    CHECK_STR_HAS(text, "\"event_count\":12,\"dropped\":7,\"block_count\":7");
    CHECK_STR_HAS(text, "\"limit\":67108864");
    CHECK(strstr(text, "</script><b>") == NULL);
    CHECK(strstr(text, "src=\"") == NULL && strstr(text, "http") == strstr(text, "http-equiv"));
    CHECK(strcmp(text + size - 8, "</html>\n") == 0);
    free(text);
}
