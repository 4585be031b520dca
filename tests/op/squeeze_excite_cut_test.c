/* squeeze_excite_cut_test.c - however an image is dealt, all of it is, and blocks have room.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/squeeze_excite_cut.h"
#include "unit/test.h"

#include "base/macros.h"

enum { KIB = 1 << 10, QUAD = 4, ALIGNED = 16 };

/* Devices: many multiprocessors with clusters, some without, and one that is emulated. */
static const mp_excite_room rooms[] = {
    {.lanes = 512, .multiprocessors = 132, .cluster_max = 16, .shared_max = 227 * KIB},
    {.lanes = 512, .multiprocessors = 84, .cluster_max = 8, .shared_max = 99 * KIB},
    {.lanes = 512, .multiprocessors = 40, .cluster_max = 0, .shared_max = 64 * KIB},
    {.lanes = 32, .multiprocessors = 2, .shared_max = 48 * KIB, .emulated = true},
};

static void check_places(const mp_excite_args *a) {
    const int32_t places[] = {a->at_sums,  a->at_mean, a->at_mine, a->at_told,
                              a->at_inner, a->at_gate, a->at_w1,   a->at_w2,
                              a->at_b1,    a->at_b2,   a->at_x};
    for (size_t i = 0; i < MP_COUNT_OF(places); i++) {
        CHECK(places[i] >= K_EXCITE_BOX && places[i] % ALIGNED == 0);
    }
}

static void check_launch(const mp_excite_room *room, const mp_excite_args *a) {
    const int32_t pack = ALIGNED / room->size, pieces = a->blocks / a->slices;
    check_places(a);
    CHECK_EQ_INT(a->blocks % a->slices, 0);
    CHECK(a->slice % pack == 0 && a->rows2 % pack == 0 && a->pitch % QUAD == 0);
    CHECK((int64_t)a->slices * a->slice >= a->channels);
    CHECK((int64_t)pieces * a->piece >= a->pixels);
    CHECK((int64_t)((a->work & K_EXCITE_SCALE) != 0 ? a->slices : a->blocks) * a->rows2 >=
          a->gates);
    CHECK(a->across <= room->lanes && (a->across & (a->across - 1)) == 0);
    CHECK(mp_excite_held(room, a) <= room->shared_max);
    CHECK(!a->meets || a->blocks <= room->cluster_max);
}

static void check_cut(const mp_excite_room *room, const mp_excite_args *image) {
    mp_excite_args cut[2] = {*image};
    const int launches = mp_excite_cut(room, cut);
    CHECK(launches == 1 || launches == 2);
    for (int i = 0; i < launches; i++) {
        check_launch(room, &cut[i]);
    }
    if (launches == 1) {
        CHECK_EQ_INT(cut[0].work & ~(K_EXCITE_SCALE | K_EXCITE_ADD),
                     K_EXCITE_SQUEEZE | K_EXCITE_GATES);
        CHECK_EQ_INT(cut[0].told, cut[0].blocks);
    } else {
        CHECK_EQ_INT(cut[0].work & ~K_EXCITE_SCALE, K_EXCITE_SQUEEZE);
        CHECK_EQ_INT(cut[1].work & ~K_EXCITE_SCALE, K_EXCITE_GATES);
        CHECK(cut[0].told == cut[0].blocks && cut[1].told == cut[0].blocks);
    }
}

TEST(squeeze_excite_is_dealt_whole) {
    static const int32_t pixels[] = {1, 2, 49, 195, 784, 12544, 104 * 152, 1 << 20};
    static const int32_t channels[] = {8, 24, 40, 72, 672, 1152, 2304, 4096};
    static const int64_t images[] = {1, 3, 32, 1000};
    for (size_t i = 0; i < MP_COUNT_OF(rooms) * MP_COUNT_OF(pixels) * MP_COUNT_OF(channels) *
                               MP_COUNT_OF(images) * 4;
         i++) {
        size_t left = i;
        mp_excite_room room = rooms[left % MP_COUNT_OF(rooms)];
        mp_excite_args image = {.pixels =
                                    pixels[(left /= MP_COUNT_OF(rooms)) % MP_COUNT_OF(pixels)]};
        image.channels = channels[(left /= MP_COUNT_OF(pixels)) % MP_COUNT_OF(channels)];
        room.images = images[(left /= MP_COUNT_OF(channels)) % MP_COUNT_OF(images)];
        left /= MP_COUNT_OF(images);
        room.size = left % 2 == 0 ? 2 : 4;
        image.inner = MP_MAX(image.channels / 24, 1);
        image.work = left / 2 == 0 ? K_EXCITE_SCALE : 0;
        image.gates = left / 2 == 0 ? image.channels : image.channels / 3;
        check_cut(&room, &image);
    }
}

/* A small image on a GPU with clusters is one launch, a large one two. */
TEST(squeeze_excite_is_one_launch_or_two) {
    mp_excite_room room = rooms[0];
    mp_excite_args cut[2] = {
        {.pixels = 49, .channels = 1152, .inner = 48, .gates = 1152, .work = K_EXCITE_SCALE}};
    room.images = 1;
    room.size = 2;
    CHECK_EQ_INT(mp_excite_cut(&room, cut), 1);
    CHECK(cut[0].meets && cut[0].held && cut[0].keeps);
    cut[0] = (mp_excite_args){
        .pixels = 104 * 152, .channels = 96, .inner = 24, .gates = 96, .work = K_EXCITE_SCALE};
    CHECK_EQ_INT(mp_excite_cut(&room, cut), 2);
}
