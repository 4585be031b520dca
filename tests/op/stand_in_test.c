/* stand_in_test.c - what stands in for a fused kernel gives its bits, until that is ready, and for
 * good where it cannot be made ready.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_device.h"
#include "device/profile.h"
#include "op/core/kernel_cache.h"
#include "op/core/pieces.h"
#include "op/fused/fused_kernel.h"
#include "op/fused/stand_in.h"
#include "op/op_value.h"
#include "op/stand_in_rig.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1500, ELEMENT_MAX = 8, BYTES = COUNT * ELEMENT_MAX };

static const char *const words[] = {
#define K_POINTWISE(word, ...) #word,
#include "kernel/pointwise/pointwise.def"
#undef K_POINTWISE
};

/* ---- bits ---- */

/* Any bits at all, small numbers, and what is at the ends. */
static void fill(mp_dtype type, unsigned char *data, uint64_t seed) {
    static const double ends[] = {0.0,       -0.0,        1,     -1,   HUGE_VAL,
                                  -HUGE_VAL, (double)NAN, 65504, 1e-7, -1e-40};
    const size_t size = mp_dtype_size(type);
    uint64_t state = seed * 2654435761u + 1;
    for (int64_t i = 0; i < COUNT; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t bits = state ^ state >> 29;
        if (i % 3 == 0) {
            memcpy(data + (size_t)i * size, &bits, size);
        } else if (i % 3 == 1 || !op_is_float(type)) {
            op_store_real(type, data, i,
                          (double)((int64_t)(bits % 97) - 48) / (i % 2 == 0 ? 8 : 1));
        } else {
            op_store_real(type, data, i, ends[bits % MP_COUNT_OF(ends)]);
        }
    }
}

static void set_inputs(const stand_in_rig *r, const mp_expression *e) {
    static unsigned char data[BYTES];
    for (int i = 0; i < e->input_count; i++) {
        fill(e->inputs[i], data, (uint64_t)i + 1);
        stand_in_rig_set(r, i, data);
    }
}

/* The emulated device computes GELU of 16 bits as that of floats, so that bits of it differ. */
static bool is_exact(const stand_in_rig *r, const mp_expression *e) {
    bool exact = true;
    for (int t = 0; t < e->term_count; t++) {
        const mp_term *term = &e->terms[t];
        const bool gelu = term->function != NULL && strstr(term->function->word, "gelu") != NULL;
        exact = exact && !(gelu && mp_dtype_size(term->from) == 2);
    }
    return exact || r->device->info.kind != MP_DEVICE_HOST;
}

static void check_same(const stand_in_rig *r, const mp_expression *e, const char *what) {
    static unsigned char data[STAND_IN_BOTH][BYTES];
    const bool exact = is_exact(r, e);
    for (int o = 0; o < e->output_count; o++) {
        const mp_dtype type = mp_expression_type(e, e->outputs[o]);
        for (int whose = 0; whose < STAND_IN_BOTH; whose++) {
            stand_in_rig_get(r, whose, o, 0, data[whose], BYTES);
        }
        for (int64_t i = 0; i < COUNT; i++) {
            const double got = op_real(type, data[STAND_IN_OTHER], i);
            const double own = op_real(type, data[STAND_IN_OWN], i);
            if (!exact) {
                op_check_close(got, own, op_precision(type), what, i);
            } else if (!stand_in_is_same(type, data[STAND_IN_OWN], data[STAND_IN_OTHER], i)) {
                test_fail(__FILE__, __LINE__,
                          "%s, output %d of type %s: element %lld is %g, not %g", what, o,
                          mp_dtype_name(type), (long long)i, got, own);
            }
        }
    }
}

/* The expression over [30, 50], by its own kernel and by the other one; over [23, 56] in rows of 64
 * where these lie apart. */
static void compare(const stand_in_rig *r, const mp_expression *e, const mp_reading *readings,
                    const char *what) {
    static const mp_shape shapes[] = {{2, {30, 50}}, {2, {23, 56}}};
    static const mp_shape view_shapes[] = {{1, {50}}, {2, {30, 1}}};
    static const int64_t rows[MP_RANK_MAX] = {64, 1};
    const mp_shape out = shapes[e->is_apart];
    int64_t views[K_WALK_VIEWS][MP_RANK_MAX];
    mp_stand_in_table table;
    mp_fused_kernel own;
    mp_piece piece;
    int view_count = 0;
    for (int i = 0; i < e->input_count; i++) {
        if (readings[i] == MP_READ_VIEW && e->is_apart) {
            memcpy(views[view_count++], rows, sizeof rows);
        } else if (readings[i] == MP_READ_VIEW) {
            mp_shape_broadcast_strides(&view_shapes[view_count % 2], &out, views[view_count]);
            view_count++;
        }
    }
    if (e->is_apart) {
        memcpy(views[view_count++], rows, sizeof rows);
    }
    const size_t size = mp_stand_in_write(e, readings, &table);
    CHECK(size > 0);
    CHECK_OK(mp_piece_strided(&out, views, view_count, 0, &piece));
    CHECK_EQ_INT(piece.walk.count, mp_shape_count(&out));
    CHECK_OK(mp_fused_kernel_get(r->device, e, readings, &own));
    CHECK(own.stand_in == 0);
    set_inputs(r, e);
    CHECK_OK(r->device->ops->copy(r->device, r->stream, r->table, (mp_addr)&table, size));
    mp_fused_args args = {
        .program = own.program, .stand_in = (const void *)r->table, .walk = piece.walk};
    for (int i = 0; i < e->input_count; i++) {
        args.in[i] = (const void *)r->in[i];
    }
    for (int i = 0; i < e->number_count; i++) {
        args.numbers[i] = e->numbers[i].value;
    }
    const mp_grid grid = {.blocks = 3, .lanes = 64};
    stand_in_rig_launch(r, own.kernel, STAND_IN_OWN, grid, args, 0);
    stand_in_rig_launch(r, r->stand_in, STAND_IN_OTHER, grid, args, 0);
    check_same(r, e, what);
}

static const mp_reading whole[] = {MP_READ_WHOLE, MP_READ_WHOLE, MP_READ_WHOLE, MP_READ_WHOLE};

/* Functions from `from` on, as many as an expression has outputs; where the next ones begin. */
static size_t some_functions(mp_dtype type, size_t from, float a, float b, mp_expression *e,
                             char *what, size_t room) {
    memset(e, 0, sizeof *e);
    const int x = mp_expression_input(e, type);
    const int y = mp_expression_input(e, type);
    (void)snprintf(what, room, "%s:", mp_dtype_name(type));
    while (from < MP_COUNT_OF(words) && e->output_count < K_FUSED_OUT) {
        const int second = mp_function_find(words[from])->arity == 2 ? y : MP_NO_REGISTER;
        const int made = mp_expression_function(e, words[from], x, second, a, b);
        if (made != MP_NO_REGISTER) {
            CHECK(mp_expression_output(e, made));
            (void)snprintf(what + strlen(what), room - strlen(what), " %s", words[from]);
        }
        from++;
    }
    return from;
}

/* Functions of a type with the numbers from the `first` ones on, every `step`. */
static void compare_functions(const stand_in_rig *r, mp_dtype type, size_t first, size_t step) {
    static const float numbers[][2] = {{0.5f, 2}, {0, 0}, {1, 0.25f}, {2, 1}};
    for (size_t k = 0; k < MP_COUNT_OF(numbers); k += step) {
        const float *pair = numbers[(first + k) % MP_COUNT_OF(numbers)];
        for (size_t from = 0; from < MP_COUNT_OF(words);) {
            mp_expression e;
            char what[200];
            from = some_functions(type, from, pair[0], pair[1], &e, what, sizeof what);
            if (e.output_count > 0) {
                compare(r, &e, whole, what);
            }
        }
    }
}

/* On a GPU each kernel is compiled, so the types share the numbers. */
DEVICE_TEST(stand_in_gives_the_bits_of_every_function) {
    const size_t step = device->info.kind == MP_DEVICE_HOST ? 1 : 4;
    stand_in_rig r = stand_in_rig_open(device, "fused_stand_in", BYTES, sizeof(mp_stand_in_table));
    for (size_t t = 0; op_types[t] != MP_NONE; t++) {
        if (op_types[t] != MP_F64) {
            compare_functions(&r, op_types[t], t, step);
        }
    }
    stand_in_rig_close(&r);
}

DEVICE_TEST(stand_in_gives_the_bits_of_every_cast) {
    stand_in_rig r = stand_in_rig_open(device, "fused_stand_in", BYTES, sizeof(mp_stand_in_table));
    for (size_t from = 0; op_types[from] != MP_NONE; from++) {
        for (size_t to = 0; op_types[to] != MP_NONE;) {
            mp_expression e = {.input_count = 0};
            const int x = mp_expression_input(&e, op_types[from]);
            while (op_types[to] != MP_NONE && e.output_count < K_FUSED_OUT) {
                const int made = mp_expression_cast(&e, x, op_types[to]);
                if (op_types[to] != MP_F64 && made != x) {
                    CHECK(mp_expression_output(&e, made));
                } else if (made != x) {
                    e.term_count--;
                }
                to++;
            }
            if (op_types[from] != MP_F64 && e.output_count > 0) {
                compare(&r, &e, whole, mp_dtype_name(op_types[from]));
            }
        }
    }
    stand_in_rig_close(&r);
}

/* Numbers, views, one element for all, where; values that are rounded between terms, and not. */
DEVICE_TEST(stand_in_gives_the_bits_of_chains) {
    static const char *const texts[] = {
        "x0=f32 x1=f32 x2=f32 n0=f32:3fc00000 t0=add(x0,x1) t1=mul(t0,n0) t2=relu(t1) "
        "t3=sub(t2,x2) t4=mean_step(t3,t0;3f000000;3e800000) -> t0 t4",
        "x0=f16 x1=f16 x2=bool t0=mul(x0,x1) t1=sigmoid(t0) t2=where(x2,t1,x0) t3=cast.f32(t2) "
        "t4=cast.bf16(t3) t5=gelu(t4) -> t2 t5",
        "x0=i32 x1=i32 x2=i64 t0=add(x0,x1) t1=mul(t0,x0) t2=cast.i64(t1) t3=sub(t2,x2) "
        "t4=less(t3,x2) t5=cast.u8(t3) t6=not(t4) -> t1 t5 t6",
        "x0=u8 x1=u8 x2=bf16 n0=bf16:40490fdb t0=sub(x0,x1) t1=cast.bf16(t0) t2=mul(t1,n0) "
        "t3=max(t2,x2) t4=neg(t3) -> t4",
        "x0=bf16 x1=f16 x2=f16 t0=mul(x1,x2) t1=cast.f16(t0) t2=mul(t1,x2) t3=cast.f16(t2) "
        "t4=neg(x0) "
        "t5=cast.bf16(t4) t6=mul(t5,x0) -> t3 t6",
        "x0=f16 x1=f16 x2=f32 t0=add(x0,x1) t1=swish(t0;3f800000;00000000) t2=cast.f32(t1) "
        "t3=add(t2,x2) -> t3:apart",
        "x0=f16 x1=f16 x2=bf16 t0=add(x0,x1) t1=relu(t0) t2=cast.bf16(t1) t3=mul(t2,x2) -> "
        "t3:apart",
    };
    static const mp_reading readings[][3] = {
        {MP_READ_WHOLE, MP_READ_WHOLE, MP_READ_WHOLE},
        {MP_READ_WHOLE, MP_READ_VIEW, MP_READ_VIEW},
        {MP_READ_VIEW, MP_READ_ONE, MP_READ_WHOLE},
        {MP_READ_ONE, MP_READ_WHOLE, MP_READ_VIEW},
    };
    stand_in_rig r = stand_in_rig_open(device, "fused_stand_in", BYTES, sizeof(mp_stand_in_table));
    for (size_t i = 0; i < MP_COUNT_OF(texts); i++) {
        for (size_t k = 0; k < MP_COUNT_OF(readings); k++) {
            mp_expression e;
            CHECK_OK(mp_expression_read(texts[i], &e));
            compare(&r, &e, readings[k], texts[i]);
        }
    }
    stand_in_rig_close(&r);
}

TEST(stand_in_has_no_doubles) {
    mp_expression e;
    mp_stand_in_table table;
    CHECK_OK(mp_expression_read("x0=f32 t0=cast.f64(x0) t1=exp(t0) t2=cast.f32(t1) -> t2", &e));
    CHECK_EQ_INT((int64_t)mp_stand_in_write(&e, whole, &table), 0);
}

/* ---- in a plan, while a compiler runs ---- */

typedef struct scene {
    mp_device *device;
    mp_stream *stream;
    mp_plan *plan;
    mp_addr x, y, scratch;
} scene;

enum { SCENE = 300 };

/* Values and a plan on a device that there is. */
static void open_plan(scene *s) {
    float x[SCENE] = {0};
    const mp_attr expression = OP_TEXT("expression", "x0=f32 t0=mul(x0,x0) t1=add(t0,x0) -> t1");
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "Fused",
                 .version = 1,
                 .attrs = &expression,
                 .attr_count = 1,
                 .in_count = 1,
                 .out_count = 1,
                 .in = {op_f32(x, SCENE)}};
    const mp_device_ops *ops = s->device->ops;
    for (int i = 0; i < SCENE; i++) {
        x[i] = (float)i;
    }
    CHECK_OK(ops->stream_create(s->device, &s->stream));
    CHECK_OK(ops->alloc(s->device, sizeof x, &s->x));
    CHECK_OK(ops->alloc(s->device, sizeof x, &s->y));
    CHECK_OK(ops->copy(s->device, s->stream, s->x, (mp_addr)x, sizeof x));
    CHECK_OK(ops->stream_synchronize(s->device, s->stream));
    CHECK_OK(op_plan(s->device, &c, &s->plan));
}

static void close_plan(const scene *s) {
    const mp_device_ops *ops = s->device->ops;
    mp_plan_release(s->plan);
    ops->free(s->device, s->x, SCENE * sizeof(float));
    ops->free(s->device, s->y, SCENE * sizeof(float));
    ops->stream_destroy(s->device, s->stream);
}

static mp_device *open_device(int64_t compile_ms) {
    const mp_host_config config = {.memory_bytes = 64 << 20, .compile_ms = compile_ms};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    return device;
}

static void close_device(mp_device *device) {
    mp_kernel_cache_drop(device);
    CHECK_EQ_INT((int64_t)mp__host_device_destroy(device), 0);
}

static scene open_scene(int64_t compile_ms, const char *wanted) {
    scene s = {.device = open_device(compile_ms)};
    CHECK(setenv("MILLPOND_STAND_IN", wanted, 1) == 0);
    open_plan(&s);
    CHECK(setenv("MILLPOND_STAND_IN", "off", 1) == 0); /* as other tests have it */
    return s;
}

static void close_scene(const scene *s) {
    close_plan(s);
    close_device(s->device);
}

static void queue_plan(const scene *s) {
    CHECK_OK(mp_plan_run(s->plan, s->stream, &s->x, &s->y, 0));
}

static void check_result(const scene *s) {
    float y[SCENE];
    const mp_device_ops *ops = s->device->ops;
    CHECK_OK(ops->copy(s->device, s->stream, (mp_addr)y, s->y, sizeof y));
    CHECK_OK(ops->stream_synchronize(s->device, s->stream));
    for (int i = 0; i < SCENE; i++) {
        CHECK(y[i] == (float)i * (float)i + (float)i);
    }
    CHECK_OK(ops->fill(s->device, s->stream, s->y, 0, 4, SCENE));
}

typedef struct launches {
    int all, stand_ins;
} launches;

static void see(void *context, const mp_profile_record *record) {
    launches *seen = context;
    if (record->kind == MP_PROFILE_KERNEL) {
        seen->all++;
        seen->stand_ins += strcmp(record->name, "mp_k_fused_stand_in") == 0;
    }
}

/* Whether what `queue` launches is what stands in. */
static bool stands_in(const scene *s, void (*queue)(const scene *s)) {
    mp_profile *profile = NULL;
    launches seen = {0, 0};
    CHECK_OK(mp_profile_open(s->device, &profile));
    mp_profile_push(profile, 1);
    queue(s);
    CHECK_OK(s->device->ops->stream_synchronize(s->device, s->stream));
    (void)mp_profile_pop(profile, 1);
    CHECK_EQ_INT((int64_t)mp_profile_close(profile, see, &seen), 0);
    CHECK_EQ_INT(seen.all, 1);
    check_result(s);
    return seen.stand_ins == 1;
}

enum { SOON_MS = 200, NEVER_MS = 60000 };

TEST(stand_in_is_launched_until_the_kernel_is_ready) {
    scene s = open_scene(SOON_MS, "on");
    CHECK(!s.device->ops->kernels_settled(s.device, false));
    CHECK(stands_in(&s, queue_plan));
    CHECK(s.device->ops->kernels_settled(s.device, true));
    CHECK(!stands_in(&s, queue_plan));
    close_scene(&s);
}

TEST(stand_in_stays_where_the_kernel_cannot_be_made_ready) {
    scene s = open_scene(SOON_MS, "on");
    (void)mp__host_device_fail(s.device, 1, MP_INTERNAL);
    CHECK(s.device->ops->kernels_settled(s.device, true));
    CHECK(!mp__host_device_fail(s.device, 0, MP_OK));
    CHECK(stands_in(&s, queue_plan));
    CHECK(stands_in(&s, queue_plan));
    close_scene(&s);
}

static void queue_captured(const scene *s) {
    mp_graph_exec *graph = NULL;
    const mp_device_ops *ops = s->device->ops;
    CHECK_OK(ops->capture_begin(s->device, s->stream));
    queue_plan(s);
    CHECK_OK(ops->capture_end(s->device, s->stream, &graph));
    CHECK_OK(ops->graph_launch(s->device, graph, s->stream));
    CHECK_OK(ops->stream_synchronize(s->device, s->stream));
    ops->graph_destroy(s->device, graph);
}

TEST(stand_in_is_in_no_graph) {
    scene s = open_scene(SOON_MS, "on");
    CHECK(!stands_in(&s, queue_captured));
    CHECK(s.device->ops->kernels_settled(s.device, false));
    close_scene(&s);
}

/* What has not begun does not, and what runs is waited for. */
TEST(stand_in_kernels_that_nobody_wants_any_more_are_not_waited_for) {
    scene s = open_scene(NEVER_MS, "on");
    CHECK(stands_in(&s, queue_plan));
    close_scene(&s);
}

TEST(stand_in_can_be_switched_off) {
    scene s = open_scene(NEVER_MS, "off");
    CHECK(s.device->ops->kernels_settled(s.device, false));
    CHECK(!stands_in(&s, queue_plan));
    close_scene(&s);
}

/* All plan the same, and run it before and after the kernel is ready. */
static void *plan_and_run(void *device) {
    scene s = {.device = device};
    open_plan(&s);
    for (bool settled = false; !settled;) {
        settled = s.device->ops->kernels_settled(device, false);
        queue_plan(&s);
        check_result(&s);
    }
    close_plan(&s);
    return NULL;
}

TEST(stand_in_of_many_threads) {
    enum { THREADS = 6, SHORT_MS = 20 };
    pthread_t threads[THREADS];
    mp_device *device = open_device(SHORT_MS);
    CHECK(setenv("MILLPOND_STAND_IN", "on", 1) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_create(&threads[i], NULL, plan_and_run, device), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_join(threads[i], NULL), 0);
    }
    CHECK(setenv("MILLPOND_STAND_IN", "off", 1) == 0);
    close_device(device);
}
