/* branch_test.c - programs with both branches of an If, walked through and captured, against
 * segments.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_device.h"
#include "graph/device_bytes.h"
#include "graph/program.h"
#include "graph/text.h"
#include "op/core/kernel_cache.h"
#include "unit/test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 24, BYTES = COUNT * 4, CONDITIONS = 2, OUTPUTS_MOST = 8, TEXT_MOST = 1 << 14 };

/* ---- a graph of x f32[24], c0 bool[], c1 bool[] and outputs f32[24] ---- */

#define INPUTS "input x f32[24]\ninput c0 bool[]\ninput c1 bool[]\n"

static const mp_tensor tensors[] = {
    {.type = MP_F32, .shape = {.rank = 1, .dim = {COUNT}}}, {.type = MP_BOOL}, {.type = MP_BOOL}};

typedef struct bench {
    mp_device *device;
    mp_stream *stream;
    mp_graph *graph;
    memory in[1 + CONDITIONS], out[OUTPUTS_MOST];
    mp_addr in_addr[1 + CONDITIONS], out_addr[OUTPUTS_MOST];
    mp_addr pinned;
} bench;

static void open_bench(bench *b, mp_device *device, const char *text) {
    float x[COUNT];
    const bool holds = false;
    *b = (bench){.device = device};
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(i * 7 % 11) / 4 - 1;
    }
    CHECK_OK(device->ops->stream_create(device, &b->stream));
    CHECK_OK(device->ops->alloc_pinned(device, 1, &b->pinned));
    CHECK_OK(mp_graph_read(text, &b->graph));
    CHECK(b->graph->output_count <= OUTPUTS_MOST);
    for (int i = 0; i <= CONDITIONS; i++) {
        b->in[i] = i == 0 ? memory_take(device, x, sizeof x) : memory_take(device, &holds, 1);
        b->in_addr[i] = b->in[i].addr;
    }
    for (int i = 0; i < b->graph->output_count; i++) {
        b->out[i] = memory_take(device, NULL, BYTES);
        b->out_addr[i] = b->out[i].addr;
    }
}

static void close_bench(bench *b) {
    CHECK_OK(b->device->ops->stream_synchronize(b->device, b->stream));
    b->device->ops->stream_destroy(b->device, b->stream);
    b->device->ops->free_pinned(b->device, b->pinned, 1);
    for (int i = 0; i <= CONDITIONS; i++) {
        memory_drop(b->device, b->in[i]);
    }
    for (int i = 0; i < b->graph->output_count; i++) {
        memory_drop(b->device, b->out[i]);
    }
    mp_graph_destroy(b->graph);
    mp_kernel_cache_drop(b->device);
}

static void set_conditions(const bench *b, int which) {
    for (int i = 0; i < CONDITIONS; i++) {
        const bool holds = (which >> i & 1) != 0;
        CHECK_OK(b->device->ops->copy(b->device, NULL, b->in_addr[1 + i], (mp_addr)&holds, 1));
    }
}

static void spoil_outputs(const bench *b) {
    for (int i = 0; i < b->graph->output_count; i++) {
        CHECK_OK(b->device->ops->fill(b->device, NULL, b->out_addr[i], 0x7fc00000, 4, COUNT));
    }
}

typedef float results[OUTPUTS_MOST][COUNT];

static void fetch(const bench *b, results *out) {
    memset(out, 0, sizeof *out);
    CHECK_OK(b->device->ops->stream_synchronize(b->device, b->stream));
    for (int i = 0; i < b->graph->output_count; i++) {
        CHECK_OK(b->device->ops->copy(b->device, NULL, (mp_addr)(*out)[i], b->out_addr[i], BYTES));
    }
}

/* ---- segments ---- */

enum { BASES_MOST = 32 };

typedef struct segment {
    mp_program *program;
    memory block, literals;
} segment;

static void run_segment(const bench *b, segment *s, mp_addr *bases, memory *kept) {
    size_t size = 0;
    const void *literals = mp_program_literals(s->program, &size);
    s->literals = memory_take(b->device, literals, size);
    s->block = memory_take(b->device, NULL, mp_program_block_bytes(s->program));
    *kept = memory_take(b->device, NULL, mp_program_kept_bytes(s->program));
    if (!mp_program_is_last(s->program)) {
        bases[mp_program_base_own(s->program)] = kept->addr;
    }
    const mp_program_call call = {.in = b->in_addr,
                                  .out = b->out_addr,
                                  .block = s->block.addr,
                                  .literals = s->literals.addr,
                                  .bases = bases};
    CHECK_OK(mp_program_run(s->program, b->stream, &call));
    CHECK_OK(b->device->ops->stream_synchronize(b->device, b->stream));
    memory_drop(b->device, s->block);
    memory_drop(b->device, s->literals);
}

static mp_program *next_of(const bench *b, mp_program *p, const mp_addr *bases) {
    unsigned char *found = calloc(1, mp_program_found_bytes(p) + 1);
    const mp_program_call call = {.in = b->in_addr, .out = b->out_addr, .bases = bases};
    mp_program *next = NULL;
    CHECK(found != NULL);
    for (int i = 0; i < mp_program_read_count(p); i++) {
        const mp_program_span span = mp_program_read_at(p, i, &call);
        CHECK_OK(b->device->ops->copy(b->device, NULL, (mp_addr)(found + span.offset), span.from,
                                      span.bytes));
    }
    CHECK_OK(mp_program_continue(p, found, NULL, &next));
    free(found);
    mp_program_release(p);
    return next;
}

static void run_segments(const bench *b, results *out) {
    mp_addr bases[BASES_MOST] = {0};
    memory kept[BASES_MOST];
    int count = 0;
    segment s = {.program = NULL};
    spoil_outputs(b);
    CHECK_OK(mp_program_make(b->device, b->graph, tensors, 16, NULL, &s.program));
    run_segment(b, &s, bases, &kept[count++]);
    while (!mp_program_is_last(s.program)) {
        CHECK(count < BASES_MOST);
        s.program = next_of(b, s.program, bases);
        run_segment(b, &s, bases, &kept[count++]);
    }
    mp_program_release(s.program);
    fetch(b, out);
    while (count > 0) {
        memory_drop(b->device, kept[--count]);
    }
}

/* ---- the same as one program ---- */

typedef struct joined {
    mp_program *program;
    memory block, literals;
    mp_program_call call;
} joined;

static void open_joined(const bench *b, joined *j) {
    size_t size = 0;
    *j = (joined){.program = NULL};
    CHECK_OK(mp_program_join(b->device, b->graph, tensors, 16, &j->program));
    CHECK(j->program != NULL);
    CHECK(mp_program_is_last(j->program));
    CHECK(mp_program_has_branches(j->program));
    const void *literals = mp_program_literals(j->program, &size);
    j->literals = memory_take(b->device, literals, size);
    j->block = memory_take(b->device, NULL, mp_program_block_bytes(j->program));
    j->call = (mp_program_call){.in = b->in_addr,
                                .out = b->out_addr,
                                .block = j->block.addr,
                                .literals = j->literals.addr,
                                .pinned = b->pinned};
}

static void close_joined(const bench *b, joined *j) {
    CHECK_OK(b->device->ops->stream_synchronize(b->device, b->stream));
    memory_drop(b->device, j->block);
    memory_drop(b->device, j->literals);
    mp_program_release(j->program);
}

static mp_graph_exec *capture(const bench *b, const joined *j) {
    mp_graph_exec *graph = NULL;
    CHECK_OK(b->device->ops->capture_begin(b->device, b->stream));
    CHECK_OK(mp_program_run(j->program, b->stream, &j->call));
    CHECK_OK(b->device->ops->capture_end(b->device, b->stream, &graph));
    return graph;
}

/* Whether the device can; a GPU's driver may be too old. */
static bool has_branches(mp_device *device) {
    return device->ops->branch_prepare(device) == MP_OK;
}

/* Results, to the bit. */
static bool are_same(const void *want, const void *got) {
    return memcmp(want, got, sizeof(results)) == 0;
}

/* Each choice of conditions, walked through and launched, in turn from the same addresses. */
static void check_all(const bench *b) {
    results want, got;
    joined j;
    open_joined(b, &j);
    mp_graph_exec *graph = has_branches(b->device) ? capture(b, &j) : NULL;
    for (int round = 0; round < 2 << CONDITIONS; round++) {
        set_conditions(b, round * 3 + 1);
        run_segments(b, &want);
        spoil_outputs(b);
        CHECK_OK(mp_program_run(j.program, b->stream, &j.call));
        fetch(b, &got);
        CHECK(are_same(want, got));
        spoil_outputs(b);
        if (graph != NULL) {
            CHECK_OK(b->device->ops->graph_launch(b->device, graph, b->stream));
            fetch(b, &got);
            CHECK(are_same(want, got));
        }
    }
    if (graph != NULL) {
        b->device->ops->graph_destroy(b->device, graph);
    }
    close_joined(b, &j);
}

static int steps_of(const bench *b) {
    joined j;
    open_joined(b, &j);
    const int steps = mp_program_step_count(j.program);
    close_joined(b, &j);
    return steps;
}

/* `steps`: of the joined program. */
/* A GPU has them where its driver does and MILLPOND_BRANCHES=on allows it. */
static void needs_branches(mp_device *device) {
    if (device->ops->branch_prepare(device) == MP_UNSUPPORTED) {
        SKIP("%s", mp_error_message());
    }
}

static void check_text(mp_device *device, const char *text, int steps) {
    bench b;
    needs_branches(device);
    open_bench(&b, device, text);
    CHECK_EQ_INT(steps_of(&b), steps);
    check_all(&b);
    close_bench(&b);
}

/* ---- tests ---- */

/* Both results are made where the Choose's is: no step copies. */
DEVICE_TEST(joined_branches_write_one_place) {
    check_text(device,
               INPUTS "when c0\na = Softmax-13 (x)\nend\nunless c0\nb = Neg-13 (x)\nend\n"
                      "y = millpond.Choose-1 (c0, a, b)\nz = Softmax-13 (y)\noutput z\n",
               3);
}

/* An input, a value from outside that is read later, and one value for two results are copied: each
 * Choose but the first half of the last has both of its steps. */
DEVICE_TEST(joined_branches_leave_what_others_read) {
    check_text(device,
               INPUTS "o = Softmax-13 (x)\nwhen c0\na = Neg-13 (o)\nend\n"
                      "y = millpond.Choose-1 (c0, a, o)\nv = millpond.Choose-1 (c0, x, o)\n"
                      "w = millpond.Choose-1 (c0, a, x)\nu = Add-14 (o, y)\n"
                      "output y\noutput v\noutput w\noutput u\n",
               8);
}

/* Both results of one step could lie where its input does: the one that a branch could read, which
 * has nothing to do, ends there. */
DEVICE_TEST(joined_branches_that_do_nothing) {
    check_text(device,
               INPUTS "q = Softmax-13 (x)\ns = Neg-13 (q)\ny = Add-14 (s, x)\n"
                      "when c0\nm = Abs-13 (s)\nend\nr = Softmax-13 (x)\n"
                      "v = millpond.Choose-1 (c0, x, r)\noutput y\noutput v\n",
               5);
}

/* The inner condition is computed within the outer branch. */
DEVICE_TEST(joined_branches_within_branches) {
    check_text(device,
               INPUTS "when c0\ni = Xor-7 (c0, c1)\na = Softmax-13 (x)\nwhen i\n"
                      "p = Neg-13 (a)\nend\nunless i\nq = Softmax-13 (a)\nend\n"
                      "r = millpond.Choose-1 (i, p, q)\nd = Add-14 (r, a)\nend\n"
                      "unless c0\nb = Abs-13 (x)\nend\n"
                      "y = millpond.Choose-1 (c0, d, b)\noutput y\n",
               6);
}

/* Conditions that are known leave one branch, as ever. */
DEVICE_TEST(joined_branches_of_known_conditions) {
    static const bool holds = true;
    const mp_tensor known[] = {tensors[0], {.type = MP_BOOL, .data = (mp_addr)&holds}, tensors[2]};
    mp_program *p = NULL;
    bench b;
    open_bench(&b, device,
               INPUTS "when c0\na = Softmax-13 (x)\nend\nunless c0\nb = Neg-13 (x)\nend\n"
                      "y = millpond.Choose-1 (c0, a, b)\noutput y\n");
    CHECK_OK(mp_program_join(device, b.graph, known, 16, &p));
    CHECK(p != NULL && !mp_program_has_branches(p));
    CHECK_EQ_INT(mp_program_step_count(p), 2); /* and a Choose that does nothing */
    mp_program_release(p);
    close_bench(&b);
}

static void check_not_joined(mp_device *device, const char *text) {
    mp_program *p = NULL;
    bench b;
    open_bench(&b, device, text);
    CHECK_OK(mp_program_join(device, b.graph, tensors, 16, &p));
    CHECK(p == NULL);
    close_bench(&b);
}

DEVICE_TEST(branches_that_are_not_joined) {
    check_not_joined(device, /* other shapes */
                     INPUTS "const s i64[2] = 2 12\nwhen c0\na = Neg-13 (x)\nend\nunless c0\n"
                            "b = Reshape-14 (x, s)\nend\n"
                            "y = millpond.Choose-1 (c0, a, b)\noutput y\n");
    check_not_joined(device, /* a size that depends on data */
                     INPUTS "when c0\na = Neg-13 (x)\nend\ny = millpond.Choose-1 (c0, a, x)\n"
                            "n = NonZero-13 (y)\noutput n\n");
}

/* ---- at random ---- */

typedef struct writer {
    char text[TEXT_MOST];
    size_t at;
    uint64_t random;
    int values, conditions; /* so far */
} writer;

static void put(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(w->text + w->at, sizeof w->text - w->at, format, args);
    va_end(args);
    CHECK(length >= 0 && (size_t)length < sizeof w->text - w->at);
    w->at += (size_t)length;
}

static int below(writer *w, int most) {
    return (int)(test_random(&w->random) % (uint64_t)most);
}

enum { SCOPE_MOST = 256, DEPTH_MOST = 3 };

typedef struct scope { /* numbers of what may be read */
    int values[SCOPE_MOST], conditions[SCOPE_MOST];
    int value_count, condition_count;
} scope;

static int any_value(writer *w, const scope *s) { /* rather a late one */
    const int last = MP_MIN(s->value_count, 1 + below(w, s->value_count));
    return s->values[s->value_count - 1 - below(w, last)];
}

static int any_condition(writer *w, const scope *s) {
    return s->conditions[below(w, s->condition_count)];
}

static int put_node(writer *w, scope *s) {
    static const char *const unary[] = {"Softmax-13", "Neg-13", "Abs-13", "Identity-14"};
    static const char *const binary[] = {"Add-14", "Sub-14", "Max-13"};
    const int made = w->values++;
    if (below(w, 2) == 0) {
        put(w, "v%d = %s (v%d)\n", made, unary[below(w, 4)], any_value(w, s));
    } else {
        const int left = any_value(w, s);
        put(w, "v%d = %s (v%d, v%d)\n", made, binary[below(w, 3)], left, any_value(w, s));
    }
    s->values[s->value_count++] = made;
    return made;
}

static void put_condition(writer *w, scope *s) {
    static const char *const ops[] = {"And-7", "Or-7", "Xor-7"};
    const int made = w->conditions++;
    const int left = any_condition(w, s);
    put(w, "c%d = %s (c%d, c%d)\n", made, ops[below(w, 3)], left, any_condition(w, s));
    s->conditions[s->condition_count++] = made;
}

static void put_body(writer *w, scope *s, int depth);

static void put_if(writer *w, scope *s, int depth) {
    scope branches[2] = {*s, *s};
    int made[2] = {0, 0};
    const int condition = any_condition(w, s);
    const int count = 1 + below(w, 2);
    for (int i = 0; i < 2; i++) {
        put(w, "%s c%d\n", i == 0 ? "when" : "unless", condition);
        put_body(w, &branches[i], depth + 1);
        put(w, "end\n");
    }
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < 2; i++) {
            made[i] = any_value(w, &branches[i]);
        }
        put(w, "v%d = millpond.Choose-1 (c%d, v%d, v%d)\n", w->values, condition, made[0], made[1]);
        s->values[s->value_count++] = w->values++;
    }
}

static void put_body(writer *w, scope *s, int depth) {
    const int count = below(w, 5) + (depth == 0 ? 2 : 0);
    for (int i = 0; i < count; i++) {
        const int kind = below(w, 6);
        if (kind == 0 || (depth == 0 && i == 0)) {
            put_condition(w, s);
        }
        if (kind >= 4 && depth < DEPTH_MOST) {
            put_if(w, s, depth);
        }
        (void)put_node(w, s);
    }
}

static void write_random(writer *w, uint64_t seed) {
    scope s = {.values = {0}, .conditions = {0, 1}, .value_count = 1, .condition_count = 2};
    w->random = seed;
    w->at = 0;
    w->values = 1;
    w->conditions = 2;
    put(w, "input v0 f32[24]\ninput c0 bool[]\ninput c1 bool[]\n");
    put_body(w, &s, 0);
    put_if(w, &s, 0);
    put_body(w, &s, 0);
    for (int i = 0; i < 4; i++) {
        put(w, "v%d = Add-14 (v%d, v%d)\noutput v%d\n", w->values, any_value(w, &s),
            s.values[s.value_count - 1], w->values);
        w->values++;
    }
}

DEVICE_TEST(joined_branches_at_random) {
    enum { GRAPHS = 6 };
    needs_branches(device);
    writer *w = malloc(sizeof *w);
    CHECK(w != NULL);
    for (uint64_t i = 0; i < GRAPHS; i++) {
        bench b;
        write_random(w, test_seed() * GRAPHS + i);
        open_bench(&b, device, w->text);
        check_all(&b);
        close_bench(&b);
    }
    free(w);
}

/* ---- faults ---- */

/* A capture with a call that fails gives no graph, leaves nothing behind, and disturbs no later
 * one. Returns whether it went through. */
static bool capture_once(const bench *b, const joined *j) {
    const mp_device_ops *ops = b->device->ops;
    mp_graph_exec *graph = NULL;
    if (ops->capture_begin(b->device, b->stream) != MP_OK) {
        return false;
    }
    const mp_status ran = mp_program_run(j->program, b->stream, &j->call);
    bool active = true;
    mp_status ended = ops->capture_end(b->device, b->stream, &graph);
    while (ended != MP_OK && ops->capture_active(b->device, b->stream, &active) == MP_OK &&
           active) { /* it was the end that failed */
        ended = ops->capture_end(b->device, b->stream, &graph);
    }
    if (ended == MP_OK) {
        ops->graph_destroy(b->device, graph);
    }
    return ran == MP_OK && ended == MP_OK;
}

static void check_faults(bool captured) {
    static const char text[] =
        INPUTS "when c0\ni = Xor-7 (c0, c1)\na = Softmax-13 (x)\nwhen i\np = Neg-13 (a)\nend\n"
               "unless i\nq = Softmax-13 (a)\nend\nr = millpond.Choose-1 (i, p, q)\nend\n"
               "y = millpond.Choose-1 (c0, r, x)\noutput y\n";
    static const mp_host_config config = {.mode = MP_HOST_THREADED,
                                          .memory_bytes = (size_t)16 << 20};
    mp_device *device = NULL;
    joined j;
    bench b;
    CHECK_OK(mp__host_device_create(&config, &device));
    open_bench(&b, device, text);
    open_joined(&b, &j);
    set_conditions(&b, 1);
    bool reached = true;
    int failed = 0;
    for (uint64_t nth = 1; reached; nth++) {
        (void)mp__host_device_fail(device, nth, MP_DEVICE);
        const bool whole =
            captured ? capture_once(&b, &j) : mp_program_run(j.program, b.stream, &j.call) == MP_OK;
        reached = !mp__host_device_fail(device, 0, MP_OK);
        CHECK(whole == !reached || (captured && whole));
        failed += !whole;
    }
    CHECK(failed > 4);
    check_all(&b);
    close_joined(&b, &j);
    close_bench(&b);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

TEST(joined_branches_each_call_fails_walked_through) {
    check_faults(false);
}

TEST(joined_branches_each_call_fails_captured) {
    check_faults(true);
}
