/* ask_test.c - what is read back behind segments: as few numbers as say all, once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/segment_run.h"
#include "graph/text.h"
#include "unit/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 16 };

static const mp_tensor row = {.type = MP_F32, .shape = {.rank = 1, .dim = {COUNT}}};

static void fill(float *x) {
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(i * 5 % 13) - 6;
    }
}

static mp_tensor list(mp_dtype type, int64_t count) {
    return (mp_tensor){.type = type, .shape = {.rank = 1, .dim = {count}}};
}

static void read_graph(const char *text, mp_graph **out) {
    CHECK_OK(mp_graph_read(text, out));
}

/* Four numbers that the device makes, of which two Slices want two each. */
static const char boxes[] = "input x f32[16]\n"
                            "input b f32[4]\n"
                            "const k0 i64[] = 0\n"
                            "const k1 i64[] = 1\n"
                            "const k2 i64[] = 2\n"
                            "const k3 i64[] = 3\n"
                            "const first i64[1] = 0\n"
                            "const one i64[1] = 1\n"
                            "const most i64[1] = 12\n"
                            "box = Cast-13 (b) to=7\n"
                            "l = Gather-13 (box, k0)\n"
                            "r = Gather-13 (box, k2)\n"
                            "w = Sub-14 (r, l)\n"
                            "lv = Unsqueeze-13 (l, first)\n"
                            "lo = Max-13 (lv, one)\n"
                            "wv = Unsqueeze-13 (w, first)\n"
                            "wc = Concat-13 (wv, most) axis=0\n"
                            "hi = ReduceMin-13 (wc) keepdims=1\n"
                            "p = Slice-13 (x, lo, hi)\n"
                            "q = Neg-13 (p)\n"
                            "t = Gather-13 (box, k1)\n"
                            "o = Gather-13 (box, k3)\n"
                            "tv = Unsqueeze-13 (t, first)\n"
                            "s = Sub-14 (o, t)\n"
                            "ov = Unsqueeze-13 (s, first)\n"
                            "u = Slice-13 (q, tv, ov)\n"
                            "y = Exp-13 (u)\n"
                            "output y\n";

DEVICE_TEST(asking_reads_what_sizes_follow_from_once) {
    static const float b4[][4] = {{2, 1, 13, 6}, {0, 0, 30, 9}, {3, 2, 9, 5}};
    float x[COUNT];
    mp_graph *graph = NULL;
    segment_bench b;
    segments_open(&b, device);
    fill(x);
    read_graph(boxes, &graph);
    for (size_t c = 0; c < MP_COUNT_OF(b4); c++) {
        const mp_tensor tensors[] = {row, list(MP_F32, 4)};
        const mp_addr in[] = {segments_take(&b, x, sizeof x), segments_take(&b, b4[c], 16)};
        const int lo = (int)b4[c][0] > 1 ? (int)b4[c][0] : 1;
        const int width = (int)(b4[c][2] - b4[c][0]);
        const int hi = width < 12 ? width : 12;
        const int top = (int)b4[c][1];
        const int bottom =
            (int)(b4[c][3] - b4[c][1]) < hi - lo ? (int)(b4[c][3] - b4[c][1]) : hi - lo;
        segment_outcome result;
        float got[COUNT];
        segments_run(&b, graph, tensors, in, &result);
        CHECK_EQ_INT(result.segments, 2);
        CHECK_EQ_INT(result.waits, 1);
        CHECK_EQ_INT(result.read_bytes, 4 * sizeof(int64_t));
        CHECK_EQ_INT(result.out[0].shape.dim[0], bottom - top);
        segments_fetch(&b, &result, 0, got);
        for (int i = 0; i < bottom - top; i++) {
            const float want = x[lo + top + i];
            CHECK(got[i] * 1.001f > __builtin_expf(-want) &&
                  got[i] < __builtin_expf(-want) * 1.001f);
        }
        CHECK(result.steps <= 1 + 4); /* the Cast; then Slices, Neg, Exp */
    }
    mp_graph_destroy(graph);
    segments_close(&b);
}

typedef struct amount {
    const char *text;
    int waits;
    size_t bytes;
    bool of_condition;
} amount;

#define LENGTHS                \
    "input x f32[16]\n"        \
    "input lengths i64[8]\n"   \
    "input n i64[1]\n"         \
    "const first i64[1] = 0\n" \
    "const one i64[1] = 1\n"   \
    "const two i64[1] = 2\n"   \
    "const fifteen i64[1] = 15\n"

/* Programs are found by what is read: no more of it than was asked for, and nothing from before
 * what many numbers have in common. */
static const amount amounts[] = {
    {LENGTHS "m = ReduceMax-13 (lengths) keepdims=1\n"
             "y = Slice-13 (x, first, m)\n"
             "output y\n",
     1, 8, false},
    {LENGTHS "h = Div-14 (n, two)\n"
             "i = Add-14 (h, one)\n"
             "y = Slice-13 (x, first, i)\n"
             "output y\n",
     1, 8, false},
    {LENGTHS "f = Cast-13 (n) to=1\n"
             "g = Cast-13 (f) to=6\n"
             "h = Cast-13 (g) to=7\n"
             "y = Slice-13 (x, first, h)\n"
             "output y\n",
     1, 4, false},
    {LENGTHS "c = Less-13 (n, fifteen)\n"
             "d = Not-1 (c)\n"
             "when d\n"
             "a = Exp-13 (x)\n"
             "end\n"
             "unless d\n"
             "b = Neg-13 (x)\n"
             "end\n"
             "y = millpond.Choose-1 (d, a, b)\n"
             "output y\n",
     1, 1, true},
    /* Two values that have nothing in common. */
    {LENGTHS "m = ReduceMax-13 (lengths) keepdims=1\n"
             "k = Add-14 (n, one)\n"
             "y = Slice-13 (x, first, m)\n"
             "z = Slice-13 (x, first, k)\n"
             "output y\n"
             "output z\n",
     2, 16, false},
};

DEVICE_TEST(asking_reads_no_more_than_is_asked_for) {
    static const int64_t lengths[] = {3, 9, 4, 1, 7, 2, 5, 8};
    static const int64_t n = 6;
    float x[COUNT];
    fill(x);
    for (size_t c = 0; c < MP_COUNT_OF(amounts); c++) {
        const amount *one = &amounts[c];
        const mp_tensor tensors[] = {row, list(MP_I64, 8), list(MP_I64, 1)};
        mp_graph *graph = NULL;
        segment_outcome result;
        segment_bench b;
        segments_open(&b, device);
        read_graph(one->text, &graph);
        const mp_addr in[] = {segments_take(&b, x, sizeof x),
                              segments_take(&b, lengths, sizeof lengths),
                              segments_take(&b, &n, sizeof n)};
        segments_run(&b, graph, tensors, in, &result);
        CHECK_EQ_INT(result.segments, 2);
        CHECK_EQ_INT(result.waits, one->waits);
        CHECK_EQ_INT(result.read_bytes, one->bytes);
        CHECK_EQ_INT(result.asks_condition, one->of_condition);
        mp_graph_destroy(graph);
        segments_close(&b);
    }
}

/* ---- chains at random, against loops in C ---- */

enum { NUMBERS = 24, LINES = 4096, INPUTS = 3 };

typedef struct chain {
    char text[LINES];
    int length;
    int64_t values[NUMBERS]; /* of lists of one number, by their number */
    int count;
    uint64_t state;
} chain;

static void write(chain *c, const char *text) {
    const int size = (int)strlen(text);
    CHECK(c->length + size < LINES);
    memcpy(c->text + c->length, text, (size_t)size + 1);
    c->length += size;
}

static int draw(chain *c, int most) {
    return (int)(test_random(&c->state) % (uint64_t)most);
}

static int64_t wrapped(uint64_t value) {
    return (int64_t)value;
}

static int64_t quotient(int64_t x, int64_t y) {
    return y == 0 ? 0 : y == -1 ? wrapped(0 - (uint64_t)x) : x / y;
}

static int64_t remainder_of(int64_t x, int64_t y) {
    const int64_t rest = y == 0 || y == -1 ? 0 : x % y;
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static int64_t compute(int op, int64_t x, int64_t y) {
    switch (op) {
    case 0:
        return wrapped((uint64_t)x + (uint64_t)y);
    case 1:
        return wrapped((uint64_t)x - (uint64_t)y);
    case 2:
        return wrapped((uint64_t)x * (uint64_t)y);
    case 3:
        return quotient(x, y);
    case 4:
        return remainder_of(x, y);
    case 5:
        return x > y ? x : y;
    default:
        return x < y ? x : y;
    }
}

/* A list of one number more, of two that are there: by one node, or by two. */
static void add_number(chain *c) {
    static const char *const names[] = {"Add-14", "Sub-14", "Mul-14", "Div-14",
                                        "Mod-13", "Max-13", "Min-13"};
    char line[128];
    const int op = draw(c, 8), left = draw(c, c->count), right = draw(c, c->count), at = c->count;
    const int64_t x = c->values[left], y = c->values[right];
    if (op < 7) {
        (void)snprintf(line, sizeof line, "n%d = %s (n%d, n%d)\n", at, names[op], left, right);
        c->values[at] = compute(op, x, y);
    } else {
        (void)snprintf(line, sizeof line,
                       "l%d = Less-13 (n%d, n%d)\nn%d = Where-16 (l%d, n%d, n%d)\n", at, left,
                       right, at, at, left, right);
        c->values[at] = x < y ? x : y;
    }
    write(c, line);
    c->count++;
}

/* Floats between two numbers, which later nodes read; `*count` of them. */
static void add_slice(chain *c, int number, int *first, int *count) {
    char line[512];
    const int left = draw(c, c->count), width = draw(c, c->count);
    const int64_t lo = remainder_of(c->values[left], 8);
    const int64_t more = remainder_of(c->values[width], 8);
    (void)snprintf(line, sizeof line,
                   "a%d = Mod-13 (n%d, eight)\nb%d = Mod-13 (n%d, eight)\n"
                   "e%d = Add-14 (a%d, b%d)\ns%d = Slice-13 (x, a%d, e%d)\n"
                   "y%d = Neg-13 (s%d)\noutput y%d\n",
                   number, left, number, width, number, number, number, number, number, number,
                   number, number, number);
    write(c, line);
    *first = (int)lo;
    *count = (int)more;
}

/* Of the first numbers not all are known at once: they come from inputs, or from kernels. */
static void begin_chain(chain *c, uint64_t seed, int64_t *given) {
    static const int64_t odd[] = {0, -1, 1, INT64_MIN, INT64_MAX, 7, -3};
    *c = (chain){.state = seed};
    write(c, "input x f32[16]\ninput n0 i64[1]\ninput n1 i64[1]\ninput n2 i64[1]\n"
             "const n3 i64[1] = 3\nconst eight i64[1] = 8\n");
    for (int i = 0; i < INPUTS; i++) {
        given[i] = draw(c, 3) == 0 ? odd[draw(c, 7)] : (int64_t)draw(c, 100) - 30;
        c->values[i] = given[i];
    }
    c->values[INPUTS] = 3;
    c->count = INPUTS + 1;
}

/* Numbers, Slices among them, the last number as a result, and one that a kernel reads. */
DEVICE_TEST(asking_of_chains_at_random) {
    const mp_tensor one = list(MP_I64, 1);
    const mp_tensor tensors[] = {row, one, one, one};
    float x[COUNT], got[COUNT], sums[COUNT];
    fill(x);
    for (uint64_t seed = 0; seed < 40; seed++) {
        int first[3], count[3], slices = 0;
        int64_t given[INPUTS], last = 0;
        char line[256];
        chain c;
        mp_graph *graph = NULL;
        segment_outcome result;
        segment_bench b;
        begin_chain(&c, seed, given);
        while (c.count < NUMBERS) {
            add_number(&c);
            if (c.count % 7 == 0) {
                add_slice(&c, slices, &first[slices], &count[slices]);
                slices++;
            }
        }
        const int read = draw(&c, c.count);
        (void)snprintf(line, sizeof line,
                       "f = Mod-13 (n%d, eight)\ng = Cast-13 (f) to=1\nz = Add-14 (x, g)\n"
                       "output z\noutput n%d\n",
                       read, c.count - 1);
        write(&c, line);
        segments_open(&b, device);
        read_graph(c.text, &graph);
        const mp_addr in[] = {segments_take(&b, x, sizeof x), segments_take(&b, &given[0], 8),
                              segments_take(&b, &given[1], 8), segments_take(&b, &given[2], 8)};
        segments_run(&b, graph, tensors, in, &result);
        CHECK(result.segments <= 2);
        CHECK(result.read_bytes <= sizeof given);
        for (int s = 0; s < slices; s++) {
            CHECK_EQ_INT(result.out[s].shape.dim[0], count[s]);
            segments_fetch(&b, &result, s, got);
            for (int i = 0; i < count[s]; i++) {
                CHECK(got[i] == -x[first[s] + i]);
            }
        }
        segments_fetch(&b, &result, slices, sums);
        for (int i = 0; i < COUNT; i++) {
            CHECK(sums[i] == x[i] + (float)remainder_of(c.values[read], 8));
        }
        segments_fetch(&b, &result, slices + 1, &last);
        CHECK(last == c.values[c.count - 1]);
        mp_graph_destroy(graph);
        segments_close(&b);
    }
}
