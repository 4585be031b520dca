/* island_ahead_test.c - which programs are made before they are needed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/later.h"
#include "ep/graph_rig.h"
#include "ep/island/island.h"
#include "ep/island/island_note.h"
#include "graph/text.h"
#include "op/core/kernel_cache.h"

enum { ALIGN = 16 };

#define MASK "input mask i64[?,?]\ninput x f32[?]\n"

static const char decoder[] =
    MASK "sum = ReduceSum-11 (mask) axes=[1]\ny = Relu-14 (x)\noutput sum\noutput y\n";

typedef struct isle {
    rig_session s;
    mp_island island;
} isle;

static void open_isle(isle *of, mp_device *device, const char *text, int most) {
    static const mp_options wishes = {.fusion = 1};
    CHECK_OK(rig_open(&of->s, device, NULL, &wishes));
    of->s.provider.options.fusion_programs = most;
    mp__island_list_open(&of->s.provider);
    CHECK_OK(mp__island_keep_open(&of->s.provider));
    of->island = (mp_island){
        .provider = &of->s.provider, .programs.most = most, .name = (char *)(uintptr_t) "isle"};
    CHECK_OK(mp_graph_read(text, &of->island.graph));
    pthread_mutex_init(&of->island.lock, NULL);
    mp__island_list_add(&of->island);
}

static void close_isle(isle *of) {
    mp_device *device = of->s.provider.unit->device;
    mp__island_list_remove(&of->island);
    mp__island_programs_close(&of->island);
    mp_graph_destroy(of->island.graph);
    pthread_mutex_destroy(&of->island.lock);
    mp__island_keep_close(&of->s.provider);
    mp__island_list_close(&of->s.provider);
    rig_close(&of->s);
    mp_kernel_cache_drop(device);
}

typedef struct sizes {
    mp_tensor in[2];
} sizes;

/* A mask of so many texts and tokens; and x, of so many numbers. */
static sizes of(int64_t texts, int64_t tokens, int64_t numbers) {
    return (sizes){{{.type = MP_I64, .shape = {.rank = 2, .dim = {texts, tokens}}},
                    {.type = MP_F32, .shape = {.rank = 1, .dim = {numbers}}}}};
}

static void run(isle *is, sizes with) {
    mp_island_program *p = NULL;
    CHECK_OK(mp__island_program_get(&is->island, with.in, ALIGN, &p));
    mp__island_program_drop(&is->island, p);
    mp_later_settle(&is->island);
}

static bool has(isle *is, sizes with) {
    return mp__island_program_has(&is->island, with.in, ALIGN);
}

DEVICE_TEST(island_ahead_of_a_mask_that_grows) {
    isle is;
    open_isle(&is, device, decoder, 32);
    run(&is, of(1, 7, 5));
    run(&is, of(1, 8, 5));
    CHECK(!has(&is, of(1, 9, 5))); /* nothing has gone on yet */
    for (int64_t tokens = 9; tokens < 60; tokens++) {
        run(&is, of(1, tokens, 5));
        run(&is, of(1, tokens, 5)); /* the same again is no sign of an end */
        CHECK(has(&is, of(1, tokens + 1, 5)));
        CHECK(!has(&is, of(1, tokens + 2, 5)));
    }
    CHECK_EQ_INT(is.island.programs.count, 32);
    close_isle(&is);
}

DEVICE_TEST(island_ahead_of_several_sizes) {
    isle is;
    open_isle(&is, device, decoder, 32);
    run(&is, of(2, 30, 0));
    run(&is, of(2, 20, 100));
    run(&is, of(2, 10, 200));
    CHECK(has(&is, of(2, 0, 300)));
    run(&is, of(2, 0, 300)); /* there is no shape behind it */
    CHECK_EQ_INT(is.island.programs.count, 4);
    run(&is, of(2, 5, 300));
    run(&is, of(2, 11, 300)); /* 5, then 6 more */
    CHECK_EQ_INT(is.island.programs.count, 6);
    run(&is, of(2, 17, 300));
    CHECK(has(&is, of(2, 23, 300)));
    close_isle(&is);
}

/* What is timed on the device, or has a state, is planned when it is needed; so is all where few
 * programs are kept. */
DEVICE_TEST(island_ahead_is_left_out) {
    static const struct {
        const char *text;
        int most;
    } cases[] = {
        {decoder, 3},
        {MASK "y = RandomUniformLike-1 (x)\noutput y\n", 32},
        {MASK "w = Unsqueeze-11 (x) axes=[0,1]\ny = ConvTranspose-11 (w, w)\noutput y\n", 32},
    };
    for (size_t i = 0; i < MP_COUNT_OF(cases); i++) {
        isle is;
        open_isle(&is, device, cases[i].text, cases[i].most);
        for (int64_t tokens = 3; tokens < 6; tokens++) {
            run(&is, of(1, tokens, 5));
        }
        CHECK(!has(&is, of(1, 6, 5)));
        close_isle(&is);
    }
}
