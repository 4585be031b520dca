/* pieces_test.c - outputs of any size in pieces, and how a kernel walks a piece, without memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/pieces.h"
#include "op/op_value.h"

#define K_T0 f32
#include "kernel/core/walk.h"

enum { VIEWS = 3 };
static const int64_t two_31 = INT64_C(1) << 31;

/* Element `i` of the piece, found alone, is where plain division finds it. */
static void check_element(const mp_shape *shape, const mp_shape *const *in, const mp_piece *piece,
                          int64_t i) {
    uint32_t at[VIEWS];
    k_walk_to(&piece->walk, (uint32_t)i, VIEWS, at);
    for (int v = 0; v < VIEWS; v++) {
        CHECK_EQ_INT(piece->in[v] + at[v], op_place(shape, in[v], piece->out + i));
        CHECK((piece->walk.whole >> v & 1) == 0 || at[v] == i);
    }
}

/* And so is each element of pack `i`. */
static void check_pack(const mp_shape *shape, const mp_shape *const *in, const mp_piece *piece,
                       int64_t i) {
    const k_spot spot = k_spot_of(&piece->walk, i, VIEWS);
    CHECK_EQ_INT(spot.first, i * K_WALK);
    for (int v = 0; v < VIEWS; v++) {
        const uint32_t step = (piece->walk.repeated >> v & 1) != 0 ? 0 : 1;
        for (uint32_t k = 0; k < K_WALK; k++) {
            const int64_t at =
                k < spot.cut ? spot.at[v] + k * step : spot.next[v] + (k - spot.cut) * step;
            CHECK_EQ_INT(piece->in[v] + at, op_place(shape, in[v], piece->out + spot.first + k));
        }
    }
}

static void check_piece(const mp_shape *shape, const mp_shape *const *in, const mp_piece *piece) {
    uint64_t random = (uint64_t)piece->out + 1;
    const int64_t count = piece->walk.count;
    const int64_t packs = k_walk_packs(&piece->walk, 0);
    CHECK(packs == 0 || packs == count / K_WALK);
    for (int round = 0; round < 50; round++) {
        check_element(shape, in, piece, (int64_t)(test_random(&random) % (uint64_t)count));
    }
    check_element(shape, in, piece, 0);
    check_element(shape, in, piece, count - 1);
    for (int round = 0; round < 50 && packs > 0; round++) {
        check_pack(shape, in, piece, (int64_t)(test_random(&random) % (uint64_t)packs));
    }
    if (packs > 0) {
        check_pack(shape, in, piece, packs - 1);
    }
}

/* Returns how many pieces there are. */
static int check_pieces(const mp_shape *shape, const mp_shape *x, const mp_shape *y,
                        const mp_shape *z) {
    const mp_shape *const in[VIEWS] = {x, y, z};
    int pieces = 0;
    int64_t first = 0;
    for (; first < mp_shape_count(shape); pieces++) {
        mp_piece piece;
        mp_piece_at(shape, in, VIEWS, first, &piece);
        CHECK_EQ_INT(piece.out, first);
        CHECK(piece.walk.count > 0 && piece.walk.count < two_31);
        check_piece(shape, in, &piece);
        first += piece.walk.count;
    }
    CHECK_EQ_INT(first, mp_shape_count(shape));
    return pieces;
}

TEST(pieces_of_small_outputs_are_one) {
    static const mp_shape none = {0, {0}};
    static const mp_shape scalar = {2, {1, 1}};
    static const mp_shape image = {4, {2, 3, 5, 67}};
    static const mp_shape channels = {3, {3, 1, 1}};
    static const mp_shape row = {1, {67}};
    static const mp_shape eight = {8, {2, 3, 2, 3, 2, 3, 2, 70}};
    static const mp_shape odd = {8, {2, 1, 2, 1, 2, 1, 2, 1}};
    static const mp_shape even = {7, {3, 1, 3, 1, 3, 1, 70}};
    static const mp_shape most = {2, {INT32_MAX, 1}};
    CHECK_EQ_INT(check_pieces(&none, &none, &none, &none), 1);
    CHECK_EQ_INT(check_pieces(&scalar, &scalar, &none, &scalar), 1);
    CHECK_EQ_INT(check_pieces(&image, &image, &channels, &row), 1);
    CHECK_EQ_INT(check_pieces(&image, &none, &channels, &image), 1);
    CHECK_EQ_INT(check_pieces(&eight, &odd, &even, &eight), 1);
    CHECK_EQ_INT(check_pieces(&most, &most, &none, &most), 1);
}

TEST(pieces_of_outputs_beyond_31_bits) {
    const mp_shape none = {0, {0}};
    const mp_shape line = {1, {two_31 + 5}};
    const mp_shape rows = {2, {3, two_31}};
    const mp_shape row = {1, {two_31}};
    const mp_shape column = {2, {3, 1}};
    const mp_shape odd = {3, {5, (two_31 >> 1) + 1, 2}};
    const mp_shape odd_middle = {2, {(two_31 >> 1) + 1, 1}};
    const mp_shape odd_ends = {3, {5, 1, 2}};
    const mp_shape image = {4, {1 << 12, 64, 1 << 8, 1 << 7}};
    const mp_shape channels = {3, {64, 1, 1}};
    const mp_shape batch = {4, {1 << 12, 1, 1, 1}};
    CHECK_EQ_INT(check_pieces(&line, &line, &none, &line), 2);
    CHECK_EQ_INT(check_pieces(&rows, &rows, &row, &column), 6); /* 2^31 - 1024 and 1024 each */
    CHECK_EQ_INT(check_pieces(&odd, &odd, &odd_middle, &odd_ends), 10);
    CHECK_EQ_INT(check_pieces(&image, &image, &channels, &batch), 5);
}

/* Planning takes no memory of the device, so outputs may be as large as one likes. */
DEVICE_TEST(pieces_are_a_step_each) {
    const int64_t rows[] = {3, two_31};
    const int64_t channels[] = {2, 3, two_31 / 2, 1};
    op_case add = {.name = "Add",
                   .version = 14,
                   .in = {op_tensor_of(MP_F16, NULL, 2, rows), OP_TENSOR(MP_F16, NULL, 3, 1)},
                   .in_count = 2,
                   .out_count = 1};
    op_case norm = {.name = "BatchNormalization",
                    .version = 15,
                    .in = {op_tensor_of(MP_F16, NULL, 4, channels), OP_TENSOR(MP_F16, NULL, 3),
                           OP_TENSOR(MP_F16, NULL, 3), OP_TENSOR(MP_F16, NULL, 3),
                           OP_TENSOR(MP_F16, NULL, 3)},
                    .in_count = 5,
                    .out_count = 1};
    mp_plan *plan = NULL;
    CHECK_OK(op_plan(device, &add, &plan));
    CHECK_EQ_INT(mp_plan_step_count(plan), 6);
    mp_plan_release(plan);
    CHECK_OK(op_plan(device, &norm, &plan));
    CHECK_EQ_INT(mp_plan_step_count(plan), 1 + 6); /* the fold, and a channel of one image each */
    mp_plan_release(plan);
    op_close(device, &add);
}

/* Sizes that a model may ask for with few bytes of input: the plan is refused, not made. */
DEVICE_TEST(pieces_have_an_end) {
    const int64_t x[] = {1 << 16, 1, 1};
    const int64_t y[] = {1, 1 << 22, 1};
    const int64_t z[] = {1, 1, 1 << 22};
    op_case where = {.name = "Where",
                     .version = 16,
                     .in = {op_tensor_of(MP_BOOL, NULL, 3, x), op_tensor_of(MP_U8, NULL, 3, y),
                            op_tensor_of(MP_U8, NULL, 3, z)},
                     .in_count = 3,
                     .out_count = 1};
    mp_plan *plan = NULL;
    CHECK_FAILS(op_plan(device, &where, &plan), UNSUPPORTED,
                "shape 65536x4194304x4194304 would be walked in 537985024 parts");
    op_close(device, &where);
    int64_t fives[MP_RANK_MAX];
    int64_t reversed[MP_RANK_MAX];
    for (int d = 0; d < MP_RANK_MAX; d++) {
        fives[d] = 5;
        reversed[d] = MP_RANK_MAX - 1 - d;
    }
    const mp_attr perm[] = {
        {.name = "perm", .kind = MP_ATTR_INTS, .ints = reversed, .count = MP_RANK_MAX}};
    op_case transpose = {.name = "Transpose",
                         .version = 13,
                         .attrs = perm,
                         .attr_count = 1,
                         .in = {op_tensor_of(MP_U8, NULL, MP_RANK_MAX, fives)},
                         .in_count = 1,
                         .out_count = 1};
    CHECK_FAILS(op_plan(device, &transpose, &plan), UNSUPPORTED, "walked in 390625 parts");
    op_close(device, &transpose);
}
