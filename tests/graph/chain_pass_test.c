/* chain_pass_test.c - products with packed weights one behind the other become one node.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#include <stdio.h>

#define GIVEN  "input x f16[?,?,64]\ninput r f16[?,?,64]\n"
#define W      "const w u8[64,2,16]\nconst s f16[64,2]\n"
#define VU     "const v u8[256,2,16]\nconst t f16[256,2]\nconst u u8[64,4,16]\nconst q f16[64,4]\n"
#define P      "const p u8[96,2,16]\nconst o f16[96,2]\n"
#define G      "const g f16[64]\n"
#define VALUES GIVEN W VU P G
#define PACKED " K=64 N=64 bits=4 block_size=32"
#define FIRST  "a = com.microsoft.MatMulNBits-1 (x, w, s) \"a\"" PACKED "\n"
#define NORMED(a, b)                                                                           \
    "n, m = millpond.NormMatMulNBits-1 (" a ", v, t, , , , " b ", g) \"n\" K=64 N=256 bits=4 " \
    "block_size=32 epsilon=0.0625f\n"
#define GATED                                                                          \
    "c = millpond.GatedMatMulNBits-1 (n, u, q) \"c\" K=128 N=64 bits=4 block_size=32 " \
    "gate=\"swish\" alpha=1f\n"
#define LAST(a, b, epsilon)                                                                   \
    "y, z = millpond.NormMatMulNBits-1 (" a ", p, o, , , , " b ", g) \"y\" K=64 N=96 bits=4 " \
    "block_size=32 epsilon=" epsilon "\n"
#define CHAIN                                                                                    \
    "y, z = millpond.ChainMatMulNBits-1 (x, r, w, s, , , v, t, , g, u, q, , , p, o, , g) \"y\" " \
    "bits=4 block_size=32 epsilon=0.0625f gated=2 gate=\"swish\" alpha=1f\n"
#define OUTPUTS "output y\noutput z\n"

TEST(graph_pass_join_chain) {
    check("gpu", VALUES FIRST NORMED("r", "a") GATED LAST("m", "c", "0.0625f") OUTPUTS,
          VALUES CHAIN OUTPUTS, 1);
    check("gpu", VALUES FIRST NORMED("a", "r") GATED LAST("c", "m", "0.0625f") OUTPUTS,
          VALUES CHAIN OUTPUTS, 1);
    /* without the first or the last one */
    check("gpu", GIVEN VU P G NORMED("x", "r") GATED LAST("m", "c", "0.0625f") OUTPUTS,
          GIVEN VU P G
          "y, z = millpond.ChainMatMulNBits-1 (x, r, v, t, , g, u, q, , , p, o, , g) \"y\" "
          "bits=4 block_size=32 epsilon=0.0625f gated=1 gate=\"swish\" alpha=1f\n" OUTPUTS,
          1);
    check("gpu", GIVEN W VU G FIRST NORMED("r", "a") GATED "output c\noutput m\n",
          GIVEN W VU G "c, m = millpond.ChainMatMulNBits-1 (x, r, w, s, , , v, t, , g, u, q) \"c\" "
                       "bits=4 block_size=32 epsilon=0.0625f gated=2 gate=\"swish\" alpha=1f\n"
                       "output c\noutput m\n",
          1);
}

/* Left alone: another epsilon in the last norm, zero points, a sum that somebody reads too early,
 * more than one row, too much for one launch. */
TEST(graph_pass_join_chain_leaves_others_alone) {
    check("gpu", VALUES FIRST NORMED("r", "a") GATED LAST("m", "c", "0.5f") OUTPUTS,
          VALUES "c, m = millpond.ChainMatMulNBits-1 (x, r, w, s, , , v, t, , g, u, q) \"c\" "
                 "bits=4 block_size=32 epsilon=0.0625f gated=2 gate=\"swish\" "
                 "alpha=1f\n" LAST("m", "c", "0.5f") OUTPUTS,
          1);
    LEFT_ALONE("gpu", GIVEN VU
               "const b u8[256,1]\n" G
               "n, m = millpond.NormMatMulNBits-1 (x, v, t, b, , , r, g) \"n\" K=64 N=256 bits=4 "
               "block_size=32 epsilon=0.0625f\n" GATED "output c\noutput m\n");
    LEFT_ALONE("gpu", GIVEN VU G NORMED("x", "r") "e = Neg-13 (m)\n" GATED "output c\noutput e\n");
    LEFT_ALONE("gpu", "input x f16[1,2,64]\ninput r f16[1,2,64]\n" VU G NORMED("x", "r") GATED
               "output c\noutput m\n");
    LEFT_ALONE("gpu",
               "input x f16[?,?,1024]\ninput r f16[?,?,1024]\nconst v u8[8192,32,16]\n"
               "const t f16[8192,32]\nconst u u8[1024,128,16]\nconst q f16[1024,128]\n"
               "const g f16[1024]\n"
               "n, m = millpond.NormMatMulNBits-1 (x, v, t, , , , r, g) K=1024 N=8192 bits=4 "
               "block_size=32\nc = millpond.GatedMatMulNBits-1 (n, u, q) K=4096 N=1024 bits=4 "
               "block_size=32\noutput c\noutput m\n");
}

DEVICE_TEST(chains_keep_results) {
    const mp_shape shapes[][2] = {
        {SHAPE(1, 1, 64), SHAPE(1, 1, 64)}, {SHAPE(1, 3, 64), SHAPE(1, 3, 64)},
        {SHAPE(2, 5, 64), SHAPE(2, 5, 64)}, {SHAPE(1, 0, 64), SHAPE(1, 0, 64)},
        {SHAPE(1, 4, 64), SHAPE(1, 1, 64)}, {SHAPE(1, 1, 64), SHAPE(2, 1, 64)}};
    static const char *const texts[] = {
        VALUES FIRST NORMED("r", "a") GATED LAST("m", "c", "0.0625f") OUTPUTS,
        GIVEN VU P G NORMED("x", "r") GATED LAST("c", "m", "0.0625f") OUTPUTS,
        GIVEN W VU G FIRST NORMED("r", "a") GATED "output c\noutput m\n",
    };
    for (size_t i = 0; i < MP_COUNT_OF(shapes) * MP_COUNT_OF(texts); i++) {
        pass_check_run_by(device, "gpu", texts[i % MP_COUNT_OF(texts)],
                          shapes[i / MP_COUNT_OF(texts)], 2e-2, 1);
    }
}
