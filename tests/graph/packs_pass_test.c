/* packs_pass_test.c - images whose channels do not fill packs are stored with some of them twice.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#include <stdarg.h>
#include <stdio.h>

#define NHWC  "com.ms.internal.nhwc."
#define CONV  NHWC "Conv-11 "
#define FUSED "millpond.nhwc.FusedConv-1 "
/* From two channels to three, and from three to two: four are stored. */
#define IMAGE "input x f32[?,?,?,2]\n"
#define MAKES IMAGE "const w f32[3,2,1,1] = 1 2 3 4 5 6\nconst b f32[3] = 7 8 9\n"
#define READS "const v f32[2,3,1,1] = 2 4 6 8 10 12\n"
#define FIRST "a = " CONV "(x, w, b) \"a\"\n"
#define LAST  "y = " CONV "(c, v) \"y\"\noutput y\n"
/* The same of four. */
#define W_OF_FOUR "[4,2,1,1] = 1 2 3 4 5 6 1 2\n"
#define B_OF_FOUR "[4] = 7 8 9 7\n"
#define V_OF_FOUR "[2,4,1,1] = 1 4 6 1 4 10 12 4\n"

static void becomes(const char *from, const char *to) {
    check("+channel_packs", from, to, 1);
}

static void stays(const char *text) {
    LEFT_ALONE("+channel_packs", text);
}

/* What is computed of each channel alone. */
TEST(graph_pass_channel_packs) {
    becomes(MAKES READS FIRST "c = Relu-14 (a) \"c\"\n" LAST,
            IMAGE "const w#9 f32" W_OF_FOUR "const b#10 f32" B_OF_FOUR "const v#11 f32" V_OF_FOUR
                  "a#7 = " CONV "(x, w#9, b#10) \"a\"\nc#8 = Relu-14 (a#7) \"c\"\n"
                  "y = " CONV "(c#8, v#11) \"y\"\noutput y\n");
    becomes(MAKES READS "const s f32[1,1,3] = 1 2 3\nconst m f32[] = 3\n"
                        "const d f32[3,1,1,1] = 4 5 6\n" FIRST "e = Mul-14 (a, s) \"e\"\n"
                        "f = Clip-13 (e, , m) \"f\"\ng = " FUSED "(f, d, , e) \"g\" group=3\n"
                        "c = " NHWC "MaxPool-12 (g) \"c\" kernel_shape=[2,2]\n" LAST,
            IMAGE "const m f32[] = 3\nconst w#18 f32" W_OF_FOUR "const b#19 f32" B_OF_FOUR
                  "const s#20 f32[1,1,4] = 1 2 3 1\nconst d#21 f32[4,1,1,1] = 4 5 6 4\n"
                  "const v#22 f32" V_OF_FOUR "a#13 = " CONV "(x, w#18, b#19) \"a\"\n"
                  "e#14 = Mul-14 (a#13, s#20) \"e\"\nf#15 = Clip-13 (e#14, , m) \"f\"\n"
                  "g#16 = " FUSED "(f#15, d#21, , e#14) \"g\" group=4\n"
                  "c#17 = " NHWC "MaxPool-12 (g#16) \"c\" kernel_shape=[2,2]\n"
                  "y = " CONV "(c#17, v#22) \"y\"\noutput y\n");
}

/* Lists of all dimensions. */
TEST(graph_pass_channel_packs_of_sizes) {
    becomes(MAKES READS "const s i64[4] = 1 8 8 3\n" FIRST
                        "c = Resize-13 (a, , , s) \"c\" mode=\"nearest\"\n" LAST,
            IMAGE "const s i64[4] = 1 8 8 3\nconst w#10 f32" W_OF_FOUR "const b#11 f32" B_OF_FOUR
                  "const #13 i64[1] = 0\nconst #14 i64[1] = 3\nconst #15 i64[1] = 4\n"
                  "const v#17 f32" V_OF_FOUR "a#8 = " CONV "(x, w#10, b#11) \"a\"\n"
                  "s#16 = Slice-13 (s, #13, #14) \"s\"\n"
                  "s#12 = Concat-13 (s#16, #15) \"s\" axis=0\n"
                  "c#9 = Resize-13 (a#8, , , s#12) \"c\" mode=\"nearest\"\n"
                  "y = " CONV "(c#9, v#17) \"y\"\noutput y\n");
    becomes(MAKES READS
            "const k f32[4] = 1 2 2 1\nconst p i64[8] = 0 1 1 0 0 1 1 0\n" FIRST
            "d = Resize-13 (a, , k) \"d\" mode=\"linear\"\nc = Pad-13 (d, p) \"c\"\n" LAST,
            IMAGE "const k f32[4] = 1 2 2 1\nconst p i64[8] = 0 1 1 0 0 1 1 0\n"
                  "const w#13 f32" W_OF_FOUR "const b#14 f32" B_OF_FOUR "const v#15 f32" V_OF_FOUR
                  "a#10 = " CONV "(x, w#13, b#14) \"a\"\n"
                  "d#11 = Resize-13 (a#10, , k) \"d\" mode=\"linear\"\n"
                  "c#12 = Pad-13 (d#11, p) \"c\"\ny = " CONV "(c#12, v#15) \"y\"\noutput y\n");
    /* which change the channels */
    stays(MAKES READS "const k f32[4] = 1 2 2 1.125\n" FIRST
                      "c = Resize-13 (a, , k) \"c\" mode=\"linear\"\n" LAST);
    stays(MAKES "const v f32[2,4,1,1]\nconst p i64[8] = 0 1 1 1 0 1 1 0\n" FIRST
                "c = Pad-13 (a, p) \"c\"\n" LAST);
}

/* Sizes are those that the image has. */
TEST(graph_pass_channel_packs_of_shapes) {
    becomes(MAKES READS FIRST "c = Relu-14 (a) \"c\"\nz = Shape-13 (a) \"z\"\noutput z\n" LAST,
            IMAGE "const w#10 f32" W_OF_FOUR "const b#11 f32" B_OF_FOUR
                  "const #13 i64[1] = 0\nconst #14 i64[1] = 3\nconst #15 i64[1] = 3\n"
                  "const v#17 f32" V_OF_FOUR "a#8 = " CONV "(x, w#10, b#11) \"a\"\n"
                  "c#9 = Relu-14 (a#8) \"c\"\nz#12 = Shape-13 (a#8) \"z\"\n"
                  "y = " CONV "(c#9, v#17) \"y\"\nz#16 = Slice-13 (z#12, #13, #14) \"z\"\n"
                  "z = Concat-13 (z#16, #15) \"z\" axis=0\noutput z\noutput y\n");
}

/* A Concat reads a part more than once; so small a one there has to be. */
TEST(graph_pass_channel_packs_of_parts) {
    becomes("input x f32[?,?,?,6]\ninput z f32[?,?,?,1]\n"
            "const v f32[2,7,1,1] = 2 2 2 2 2 2 2 8 8 8 8 8 8 8\n"
            "c = Concat-13 (x, z) \"c\" axis=-1\n" LAST,
            "input x f32[?,?,?,6]\ninput z f32[?,?,?,1]\n"
            "const v#6 f32[2,8,1,1] = 2 2 2 2 2 2 1 1 8 8 8 8 8 8 4 4\n"
            "c#5 = Concat-13 (x, z, z) \"c\" axis=-1\ny = " CONV "(c#5, v#6) \"y\"\noutput y\n");
    stays("input x f32[?,?,?,4]\ninput z f32[?,?,?,3]\n"
          "const v f32[2,7,1,1] = 2 2 2 2 2 2 2 8 8 8 8 8 8 8\n"
          "c = Concat-13 (x, z) axis=-1\n" LAST);
}

/* Channels that a Pad adds are alike, those of which there are copies too. */
TEST(graph_pass_channel_packs_behind_pads) {
    check("+channel_packs",
          "input x f32[?,?,?,4]\ninput t f32[?,?,?,2]\n"
          "const w f32[3,4,1,1] = 1 2 3 4 5 6 7 8 9 10 11 12\n"
          "const p i64[8] = 0 0 0 0 0 0 0 4\nconst z f32[] = -0\n"
          "const u f32[7,2,1,1] = 1 2 3 4 5 6 7 8 9 10 11 12 13 14\n"
          "const v f32[2,7,1,1] = 1 2 3 4 5 6 7 8 9 10 11 12 13 14\n"
          "a = " CONV "(x, w) \"a\"\nb = Pad-13 (a, p, z) \"b\"\n"
          "c = " FUSED "(t, u, , b) \"c\"\n" LAST,
          "input x f32[?,?,?,4]\ninput t f32[?,?,?,2]\n"
          "const w#14 f32[4,4,1,1] = 1 2 3 4 5 6 7 8 9 10 11 12 1 2 3 4\n"
          "const u#15 f32[8,2,1,1] = 1 2 3 4 5 6 7 8 9 10 11 12 13 14 7 8\n"
          "const v#16 f32[2,8,1,1] = 1 2 3 2 5 6 7 2 8 9 10 5.5 12 13 14 5.5\n"
          "a#11 = " CONV "(x, w#14) \"a\"\n"
          "b#12 = millpond.KeepFirst-1 (a#11) \"b\" kept=3 size=8 value=-0f\n"
          "c#13 = " FUSED "(t, u#15, , b#12) \"c\"\ny = " CONV "(c#13, v#16) \"y\"\n"
          "output y\n",
          2);
}

/* Copies for what knows nothing of them, where two convolutions gain for each. */
TEST(graph_pass_channel_packs_at_ends) {
    becomes(MAKES READS FIRST "c = Relu-14 (a) \"c\"\nz = Softmax-13 (a) \"z\"\noutput z\n" LAST,
            IMAGE "const w#10 f32" W_OF_FOUR "const b#11 f32" B_OF_FOUR "const v#12 f32" V_OF_FOUR
                  "const #13 i64[1] = 0\nconst #14 i64[1] = 3\nconst #15 i64[1] = 3\n"
                  "a#8 = " CONV "(x, w#10, b#11) \"a\"\nc#9 = Relu-14 (a#8) \"c\"\n"
                  "a = Slice-13 (a#8, #13, #14, #15) \"a\"\nz = Softmax-13 (a) \"z\"\n"
                  "y = " CONV "(c#9, v#12) \"y\"\noutput z\noutput y\n");
    becomes("input c f32[?,?,?,3]\n" READS "z = " CONV "(c, v) \"z\"\noutput z\n" LAST,
            "input c f32[?,?,?,3]\nconst v#5 f32" V_OF_FOUR "const v#6 f32" V_OF_FOUR
            "const #7 i64[4] = 0 1 2 0\nc#4 = Gather-13 (c, #7) \"c\" axis=3\n"
            "z = " CONV "(c#4, v#5) \"z\"\ny = " CONV "(c#4, v#6) \"y\"\noutput z\noutput y\n");
    stays("input c f32[?,?,?,3]\n" READS LAST);
    stays(MAKES READS FIRST "c = Relu-14 (a) \"c\"\ny = " CONV
                            "(c, v) \"y\"\nz = Softmax-13 (a) \"z\"\n"
                            "output y\noutput z\noutput c\n");
}

TEST(graph_pass_channel_packs_not) {
    /* as many as there are packs; half as many again would not do */
    stays(IMAGE "const w f32[4,2,1,1] = 1 2 3 4 5 6 7 8\nconst v f32[2,4,1,1]\n"
                "c = " CONV "(x, w)\n" LAST);
    stays(IMAGE "const w f32[5,2,1,1] = 1 2 3 4 5 6 7 8 9 10\n"
                "const v f32[1,5,1,1] = 1 2 3 4 5\nc = " CONV "(x, w)\n" LAST);
    /* weights that are not here; of groups; of one pixel; of a branch; not asked for */
    stays(IMAGE "input w f32[3,2,1,1]\n" READS "c = " CONV "(x, w)\n" LAST);
    stays("input x f32[?,?,?,6]\nconst w f32[3,2,1,1] = 1 2 3 4 5 6\n" READS "c = " CONV
          "(x, w) group=3\n" LAST);
    stays("input x f32[?,1,1,2]\nconst w f32[3,2,1,1] = 1 2 3 4 5 6\n" READS "g = " NHWC
          "GlobalAveragePool-1 (x)\na = " CONV "(g, w)\nc = " NHWC "GlobalMaxPool-1 (a)\n" LAST);
    stays(IMAGE "input k bool[]\nconst w f32[3,2,1,1] = 1 2 3 4 5 6\n" READS "when k\na = " CONV
                "(x, w)\ny = " CONV "(a, v)\nend\nz = millpond.Choose-1 (k, y, x)\noutput z\n");
    LEFT_ALONE(NULL, MAKES READS "c = " CONV "(x, w, b)\n" LAST);
}

/* ---- what is computed stays the same ---- */

#define WORDS "+channels_last,+channel_packs,+find_excitation"

/* Infinite numbers, and no numbers, of one channel. */
DEVICE_TEST(graph_pass_channel_packs_infinite) {
    static const char text[] =
        "input x f32[?,2,?,?]\nconst w f32[3,2,1,1] = 0 0 1 2 -1 3\nconst v f32[2,3,1,1]\n"
        "const k f32[2,3,1,1] = 1 2 3 -4 -5 0\na = Conv-11 (x, w)\nb = Reciprocal-13 (a)\n"
        "c = Conv-11 (b, v)\nd = Conv-11 (b, k)\ne = Relu-14 (d)\noutput c\noutput e\n";
    const mp_shape in[] = {SHAPE(1, 2, 3, 5)};
    pass_check_run_by(device, WORDS, text, in, 1e-5, 1);
}

/* A network as text, made at random: images of several numbers of channels, of whole size or half
 * of it. */
typedef struct net {
    char text[8192];
    size_t used;
    uint64_t state;
    int channels[32], level[32], count;
} net;

static int draw(net *n, int most) {
    n->state = n->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((n->state >> 33) % (uint64_t)most);
}

static void say(net *n, const char *format, ...) {
    va_list list;
    va_start(list, format);
    n->used += (size_t)vsnprintf(n->text + n->used, sizeof n->text - n->used, format, list);
    va_end(list);
    CHECK(n->used < sizeof n->text);
}

static int add(net *n, int channels, int level) {
    n->channels[n->count] = channels;
    n->level[n->count] = level;
    return n->count++;
}

static void add_conv(net *n, const char *type, int from, int to, int stride) {
    const int i = n->count, kernel = stride == 2 ? 3 : 1 + 2 * draw(n, 2);
    say(n, "const w%d %s[%d,%d,%d,%d]\nconst b%d %s[%d]\n", i, type, to, n->channels[from], kernel,
        kernel, i, type, to);
    say(n, "p%d = Conv-11 (v%d, w%d, b%d) pads=[%d,%d,%d,%d] strides=[%d,%d]\n", i, from, i, i,
        kernel / 2, kernel / 2, kernel / 2, kernel / 2, stride, stride);
    say(n, "v%d = Tanh-13 (p%d)\n", i, i);
    (void)add(n, to, n->level[from] + stride - 1);
}

/* Another image with these channels and of this size, or the image itself. */
static int like(net *n, int image) {
    int found = image;
    for (int i = 0; i < n->count; i++) {
        if (i != image && n->channels[i] == n->channels[image] && n->level[i] == n->level[image] &&
            draw(n, 2) == 0) {
            found = i;
        }
    }
    return found;
}

static void add_node(net *n, const char *type) {
    static const int many[] = {18, 11, 24, 6, 18};
    enum { CONV_ANY, CONV_DOWN, UP, SUM, EACH, ALONE, POOL, GATE, SIDE, PART, KINDS };
    const int from = draw(n, n->count), i = n->count, channels = n->channels[from];
    const int level = n->level[from];
    switch (draw(n, KINDS)) {
    case CONV_DOWN:
        if (level == 0) {
            add_conv(n, type, from, many[draw(n, 5)], 2);
            return;
        }
        break;
    case UP:
        if (level == 1) {
            say(n, "v%d = Resize-13 (v%d, , k) mode=\"nearest\"\n", i, from);
            (void)add(n, channels, 0);
            return;
        }
        break;
    case SUM:
        say(n, "v%d = Add-14 (v%d, v%d)\n", i, from, like(n, from));
        (void)add(n, channels, level);
        return;
    case EACH:
        say(n, "const s%d %s[%d,1,1]\nq%d = Mul-14 (v%d, s%d)\nv%d = Sigmoid-13 (q%d)\n", i, type,
            channels, i, from, i, i, i);
        (void)add(n, channels, level);
        return;
    case ALONE:
        say(n, "const w%d %s[%d,1,3,3]\nv%d = Conv-11 (v%d, w%d) pads=[1,1,1,1] group=%d\n", i,
            type, channels, i, from, i, channels);
        (void)add(n, channels, level);
        return;
    case POOL:
        say(n, "v%d = %s (v%d) kernel_shape=[3,3] pads=[1,1,1,1]\n", i,
            draw(n, 2) == 0 ? "MaxPool-12" : "AveragePool-11", from);
        (void)add(n, channels, level);
        return;
    case GATE:
        say(n, "const w%d %s[4,%d,1,1]\nconst u%d %s[%d,4,1,1]\n", i, type, channels, i, type,
            channels);
        say(n, "g%d = GlobalAveragePool-1 (v%d)\nf%d = Conv-11 (g%d, w%d)\n", i, from, i, i, i);
        say(n, "h%d = Conv-11 (f%d, u%d)\no%d = Sigmoid-13 (h%d)\nv%d = Mul-14 (v%d, o%d)\n", i, i,
            i, i, i, i, from, i);
        (void)add(n, channels, level);
        return;
    case PART:
        if (channels >= 11) {
            const int most = channels - 1 - draw(n, 5), wide = n->count;
            add_conv(n, type, from, most, 1);
            say(n, "const c%d i64[1] = %d\nl%d = Slice-13 (v%d, zero, c%d, one)\n", wide, most,
                wide, from, wide);
            say(n, "r%d = Slice-13 (v%d, c%d, end, one)\nt%d = Add-14 (l%d, v%d)\n", wide, from,
                wide, wide, wide, wide);
            say(n, "v%d = Concat-13 (t%d, r%d) axis=1\n", n->count, wide, wide);
            (void)add(n, channels, level);
            return;
        }
        break;
    case SIDE:
        say(n, "v%d = Concat-13 (v%d, v%d) axis=1\n", i, from, like(n, from));
        (void)add(n, 2 * channels, level);
        return;
    default:
        break;
    }
    add_conv(n, type, from, many[draw(n, 5)], 1);
}

/* Ends with a convolution of the last image and with one of another. */
static void make(net *n, const char *type, uint64_t seed) {
    *n = (net){.state = seed * 2654435761u + 1};
    say(n, "input v0 %s[?,3,?,?]\nconst k f32[4] = 1 1 2 2\n", type);
    say(n, "const zero i64[1] = 0\nconst one i64[1] = 1\nconst end i64[1] = 999\n");
    (void)add(n, 3, 0);
    for (int i = 0; i < 10; i++) {
        add_node(n, type);
    }
    add_conv(n, type, n->count - 1, 5, 1);
    add_conv(n, type, draw(n, n->count - 1), 16, 1);
    say(n, "output v%d\noutput v%d\n", n->count - 2, n->count - 1);
}

DEVICE_TEST(graph_pass_channel_packs_of_networks) {
    enum { SEEDS = 6 };
    static const mp_shape sizes[][1] = {{SHAPE(1, 3, 8, 6)}, {SHAPE(2, 3, 4, 10)}};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        net n;
        make(&n, "f32", seed);
        pass_check_run_by(device, WORDS, n.text, sizes[seed % 2], 1e-3, 1);
        make(&n, "f16", seed);
        pass_check_run_by(device, WORDS, n.text, sizes[1 - seed % 2], 0.1, 1);
    }
}

/* Two branches of a network that keeps several sizes, which are summed in each. */
DEVICE_TEST(graph_pass_channel_packs_of_fused_branches) {
#define BRANCHES(type)                                                                        \
    "input x " type "[?,18,?,?]\nconst k f32[4] = 1 1 2 2\nconst a " type "[18,18,3,3]\n"     \
    "const b " type "[36,18,3,3]\nconst c " type "[18,36,1,1]\nconst d " type "[36,36,3,3]\n" \
    "const e " type "[8,18,1,1]\np = Conv-11 (x, a) pads=[1,1,1,1]\nq = Tanh-13 (p)\n"        \
    "r = Conv-11 (q, a) pads=[1,1,1,1]\ns = Add-14 (r, q)\nt = Tanh-13 (s)\n"                 \
    "h = Conv-11 (x, b) pads=[1,1,1,1] strides=[2,2]\ni = Tanh-13 (h)\n"                      \
    "j = Conv-11 (i, d) pads=[1,1,1,1]\nl = Add-14 (j, i)\nm = Tanh-13 (l)\n"                 \
    "n = Conv-11 (m, c)\no = Resize-13 (n, , k) mode=\"nearest\"\nu = Add-14 (t, o)\n"        \
    "v = Tanh-13 (u)\nw = Conv-11 (t, b) pads=[1,1,1,1] strides=[2,2]\ny = Add-14 (w, m)\n"   \
    "z = Relu-14 (y)\nf = Conv-11 (v, e)\ng = GlobalAveragePool-1 (z)\noutput f\noutput g\n"
    static const mp_shape in[] = {SHAPE(2, 18, 8, 12)}, none[] = {SHAPE(0, 18, 8, 12)};
    pass_check_run_by(device, WORDS, BRANCHES("f32"), in, 1e-4, 3);
    pass_check_run_by(device, WORDS, BRANCHES("f16"), in, 2e-2, 3);
    pass_check_run_by(device, WORDS, BRANCHES("bf16"), in, 2e-1, 3);
    pass_check_run_by(device, WORDS, BRANCHES("f32"), none, 0, 3);
}
