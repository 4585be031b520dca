/* nbits_chain_cut_test.c - how chains of products of one row are cut: what lies in shared memory
 * fits and lies apart, and each stage has a warp.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "op/quantize/nbits_chain_cut.h"
#include "unit/test.h"

enum { RESERVED = 1 << 10 /* of shared memory, for each block */ };

static const mp_device_info whole = {
    .arch = 90, .multiprocessors = 132, .shared_bytes_max = 227 << 10, .cluster_blocks_max = 16};

/* Between two attentions of a decoder, as join_chain.c finds it. */
static mp_nbits_chain_args chain_of(int32_t width, int32_t inner, int32_t made) {
    return (mp_nbits_chain_args){.links = 4,
                                 .link = {{.n = width, .k = width},
                                          {.n = 2 * inner, .k = width, .gated = 1},
                                          {.n = width, .k = inner},
                                          {.n = made, .k = width}}};
}

enum { NORMED = 1 << 1 | 1 << 3 };

static void check_cut(const mp_nbits_chain_args *args, const mp_nbits_chain_cut *cut, int bits) {
    const int warps = (int)cut->lanes / 32;
    const int32_t ring = K_CHAIN_HEAD + warps * K_CHAIN_AHEAD(bits) * (int32_t)K_CHAIN_STAGE(bits);
    CHECK_EQ_INT(cut->blocks, 1 << args->blocks_log);
    CHECK(cut->lanes % 32 == 0 && cut->lanes <= K_CHAIN_LANES);
    CHECK((size_t)cut->shared_bytes + RESERVED <= whole.shared_bytes_max);
    CHECK(args->link[1].norm_at >= ring && args->link[3].norm_at > args->link[1].norm_at);
    CHECK(args->row >= args->link[3].norm_at + args->link[3].k * 2);
    CHECK(args->sums < (int32_t)cut->shared_bytes);
    for (int i = 0; i < args->links; i++) {
        const k_chain_link *link = &args->link[i];
        const int32_t to = args->given[i % 2], after = i % 2 == 0 ? args->given[1] : args->sums;
        const int32_t tiles = MP_CEIL_DIV(link->tiles, 1 << args->blocks_log);
        CHECK(link->stages * K_CHAIN_CHUNKS >= link->chunks && link->stages <= warps);
        CHECK_EQ_INT(link->next_tiles, warps / link->stages);
        for (int warp = 0; warp < warps; warp++) {
            CHECK_EQ_INT(warp * link->by_stages >> 16, warp / link->stages);
        }
        CHECK(to + link->made * 2 <= after);
        CHECK(args->sums + tiles * link->stages * K_CHAIN_COLUMNS * 4 <=
              (int32_t)cut->shared_bytes);
    }
}

TEST(nbits_chain_cut_fits) {
    static const int32_t widths[] = {64, 256, 320, 576, 768, 1024, 2048};
    int found = 0;
    for (size_t i = 0; i < MP_COUNT_OF(widths) * 3 * 2; i++) {
        const int32_t width = widths[i / 6], inner = width * (int32_t)(i / 2 % 3 + 1);
        const int bits = i % 2 == 0 ? 4 : 8;
        mp_nbits_chain_args args = chain_of(width, inner, 3 * width / 2);
        mp_nbits_chain_cut cut;
        if (mp_nbits_chain_cut_for(&whole, bits, NORMED, &args, &cut)) {
            found++;
            check_cut(&args, &cut, bits);
        }
    }
    CHECK(found > 10);
}

TEST(nbits_chain_cut_leaves_others_alone) {
    mp_nbits_chain_args args = chain_of(576, 1536, 960);
    mp_device_info part = whole;
    mp_nbits_chain_cut cut;
    CHECK(mp_nbits_chain_cut_for(&whole, 4, NORMED, &args, &cut));
    part.cluster_blocks_max = 8;
    CHECK(!mp_nbits_chain_cut_for(&part, 4, NORMED, &args, &cut));
    part = whole;
    part.arch = 80;
    CHECK(!mp_nbits_chain_cut_for(&part, 4, NORMED, &args, &cut));
    part = whole;
    part.shared_bytes_max = 99 << 10;
    args = chain_of(576, 1536, 960);
    CHECK(!mp_nbits_chain_cut_for(&part, 4, NORMED, &args, &cut));
    args = chain_of(2048, 8192, 3072); /* too many weights */
    CHECK(!mp_nbits_chain_cut_for(&whole, 4, NORMED, &args, &cut));
    args = chain_of(576, 1536, 1000); /* half a tile */
    CHECK(!mp_nbits_chain_cut_for(&whole, 4, NORMED, &args, &cut));
    args = chain_of(544, 1536, 960); /* an odd number of chunks */
    CHECK(!mp_nbits_chain_cut_for(&whole, 4, NORMED, &args, &cut));
}
