/* island_walk_test.c - segments and loops of an island on a device whose n-th call fails, for each
 * n: the fault is passed on, what succeeds is right, and nothing is left.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/graph_rig.h"
#include "ep/island/island.h"
#include "ep/island/island_note.h"
#include "graph/text.h"
#include "op/core/kernel_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 24, PROGRAMS = 32 };

/* The sum grows by x. The condition holds, but is known on the device alone. */
static const char body_text[] = "input i i64[]\ninput c bool[]\ninput v f32[24]\ninput x f32[24]\n"
                                "n = Add-14 (v, x)\n"
                                "m = ReduceMax-13 (n) keepdims=0\n"
                                "l = Sub-14 (m, m)\n"
                                "d = Cast-13 (i) to=1\n"
                                "e = Add-14 (l, d)\n"
                                "o = Cast-13 (e) to=7\n"
                                "go = Equal-13 (o, i)\n"
                                "s = Neg-13 (n)\n"
                                "output go\noutput n\noutput s\n";

typedef struct isle {
    mp_island island, body;
    mp_island_body list;
    mp_loop loop;
} isle;

typedef struct results {
    mp_addr out[2];
    size_t bytes[2];
    mp_tensor tensors[2];
} results;

/* The walk is the first member, as in island_run.c. */
typedef struct isle_walk {
    mp_walk walk;
    results *of;
} isle_walk;

static mp_status lend_output(mp_walk *walk, const mp_program *program, int i) {
    results *of = ((isle_walk *)walk)->of;
    of->tensors[i] = *mp_program_output_at(program, i);
    of->bytes[i] = mp_program_output_bytes(program, i);
    MP_TRY(mp__lend(walk->island->provider->pool, of->bytes[i] + 1, walk->native, &of->out[i]));
    walk->out[i] = of->out[i];
    return MP_OK;
}

static int32_t value_of(mp_graph *graph, const char *name) {
    const mp_tensor any = {.type = MP_NONE, .shape = {.rank = MP_DIM_UNKNOWN}};
    int32_t value = MP_NO_VALUE;
    CHECK_OK(mp_graph_add_value(graph, name, &any, &value));
    return value;
}

static void node_of(mp_graph *graph, const char *op, const int32_t *in, int count, int32_t out) {
    const mp_node node = {.op = mp_op_find("", op, 13), .version = 13, .name = ""};
    CHECK_OK(mp_graph_add_node(graph, &node, in, count, &out, 1));
}

/* y: what NonZero finds in the last sum; all: the sums of the iterations. */
static mp_graph *graph_of(mp_loop *loop) {
    const mp_node node = {.name = "the loop"};
    mp_graph *graph = NULL;
    CHECK_OK(mp_graph_read("input x f32[24]\nconst most i64[] = 4\n", &graph));
    *loop = (mp_loop){.carried = 1, .stacked = 1};
    CHECK_OK(mp_graph_read(body_text, &loop->body));
    const int32_t x = mp_graph_find_value(graph, "x");
    const int32_t in[] = {mp_graph_find_value(graph, "most"), MP_NO_VALUE, x, x};
    const int32_t out[] = {value_of(graph, "sum"), value_of(graph, "all")};
    const int32_t relu = value_of(graph, "relu");
    const int32_t y = value_of(graph, "y");
    CHECK_OK(mp_graph_add_loop(graph, &node, loop, in, 4, out, 2));
    node_of(graph, "Relu", &out[0], 1, relu);
    node_of(graph, "NonZero", &relu, 1, y);
    CHECK_OK(mp_graph_add_output(graph, y));
    CHECK_OK(mp_graph_add_output(graph, out[1]));
    return graph;
}

static void open_one(mp_island *island, mp_provider *provider, mp_graph *graph) {
    island->provider = provider;
    island->graph = graph;
    island->programs.most = PROGRAMS;
    island->name = (char *)(uintptr_t) "isle";
    pthread_mutex_init(&island->lock, NULL);
    mp__island_list_add(island);
}

static void open_isle(isle *of, mp_provider *provider) {
    memset(of, 0, sizeof *of);
    provider->options.fusion_programs = PROGRAMS;
    mp__island_list_open(provider);
    CHECK_OK(mp__island_keep_open(provider));
    open_one(&of->island, provider, graph_of(&of->loop));
    open_one(&of->body, provider, of->island.graph->bodies[0]);
    of->list = (mp_island_body){.loop = of->island.graph->nodes[0].loop, .island = &of->body};
    of->island.bodies = &of->list;
    of->island.body_count = 1;
}

static void close_isle(isle *of) {
    mp_provider *provider = of->island.provider;
    mp__island_list_remove(&of->body);
    mp__island_list_remove(&of->island);
    mp__island_programs_close(&of->body);
    mp__island_programs_close(&of->island);
    mp_graph_destroy(of->island.graph);
    pthread_mutex_destroy(&of->island.lock);
    pthread_mutex_destroy(&of->body.lock);
    mp__island_keep_close(provider);
    mp__island_list_close(provider);
}

static mp_status walk_with(isle *of, mp_stream *stream, mp_addr x, results *got) {
    const mp_tensor tensor = {.type = MP_F32, .shape = {.rank = 1, .dim = {COUNT}}};
    mp_device *device = of->island.provider->unit->device;
    mp_island_program *p = NULL;
    mp_addr out[2] = {0};
    isle_walk w = {.walk = {.island = &of->island,
                            .stream = stream,
                            .native = device->ops->stream_native(device, stream),
                            .in = &x,
                            .out = out,
                            .output = lend_output},
                   .of = got};
    MP_TRY(mp__island_program_get(&of->island, &tensor, 16, &p));
    mp_status status = mp__walk_outputs(&w.walk, p->program);
    if (status == MP_OK) {
        status = mp__walk(&w.walk, p);
    }
    const mp_status closed = mp__walk_close(&w.walk);
    mp__island_program_drop(&of->island, p);
    return status != MP_OK ? status : closed;
}

/* Whether the results are those of loops; `x` has ones and minus ones by turns. */
static mp_status check_results(const results *of, mp_device *device) {
    int64_t found[COUNT] = {0};
    float all[4 * COUNT];
    CHECK_EQ_INT(of->tensors[0].shape.dim[1], COUNT / 2);
    CHECK_EQ_INT(of->tensors[1].shape.dim[0], 4);
    MP_TRY(device->ops->copy(device, NULL, (mp_addr)found, of->out[0], of->bytes[0]));
    MP_TRY(device->ops->copy(device, NULL, (mp_addr)all, of->out[1], of->bytes[1]));
    for (int i = 0; i < COUNT / 2; i++) {
        CHECK_EQ_INT(found[i], 2 * i);
    }
    for (int i = 0; i < 4 * COUNT; i++) {
        const float x = i % 2 == 0 ? 1 : -1;
        const int times = i / COUNT + 2;
        CHECK(fabsf(all[i] + x * (float)times) < 1e-5f);
    }
    return MP_OK;
}

static mp_status run_once(isle *of, mp_stream *stream) {
    mp_provider *provider = of->island.provider;
    mp_device *device = provider->unit->device;
    float x[COUNT];
    mp_addr in = 0;
    for (int i = 0; i < COUNT; i++) {
        x[i] = i % 2 == 0 ? 1 : -1;
    }
    results got = {.out = {0, 0}};
    MP_TRY(mp__lend(provider->pool, sizeof x, device->ops->stream_native(device, stream), &in));
    mp_status status = device->ops->copy(device, stream, in, (mp_addr)x, sizeof x);
    if (status == MP_OK) {
        status = walk_with(of, stream, in, &got);
    }
    const mp_status waited = device->ops->stream_synchronize(device, stream);
    if (status == MP_OK && waited == MP_OK) {
        status = check_results(&got, device);
    }
    (void)mp__give_back(provider->pool, got.out[0]);
    (void)mp__give_back(provider->pool, got.out[1]);
    (void)mp__give_back(provider->pool, in);
    return status != MP_OK ? status : waited;
}

static void open_session(rig_session *s, mp_device *device) {
    static const mp_options wishes = {.fusion = 1};
    CHECK_OK(rig_open(s, device, NULL, &wishes));
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_PINNED, "session", NULL, &s->provider.pinned));
}

static void close_session(rig_session *s) {
    mp_pool_stats stats;
    CHECK_OK(mp_pool_get_stats(s->provider.pool, &stats, sizeof stats));
    CHECK_EQ_INT(stats.in_use, 0);
    CHECK_OK(mp_pool_get_stats(s->provider.pinned, &stats, sizeof stats));
    CHECK_EQ_INT(stats.in_use, 0);
    (void)mp_pool_close(s->provider.pinned);
    rig_close(s);
}

DEVICE_TEST(island_walk_of_loops_and_segments) {
    rig_session s;
    isle of;
    mp_stream *stream = NULL;
    open_session(&s, device);
    open_isle(&of, &s.provider);
    CHECK_OK(device->ops->stream_create(device, &stream));
    for (int i = 0; i < 6; i++) { /* walked through, captured, launched */
        CHECK_OK(run_once(&of, stream));
    }
    CHECK_EQ_INT(of.body.programs.count, 1);
    device->ops->stream_destroy(device, stream);
    close_isle(&of);
    close_session(&s);
    mp_kernel_cache_drop(device);
}

/* ---- several threads ---- */

enum { THREADS = 3, RUNS = 5 };

static void *run_often(void *context) {
    isle *of = context;
    mp_device *device = of->island.provider->unit->device;
    mp_stream *stream = NULL;
    CHECK_OK(device->ops->stream_create(device, &stream));
    for (int i = 0; i < RUNS; i++) {
        CHECK_OK(run_once(of, stream));
    }
    device->ops->stream_destroy(device, stream);
    return NULL;
}

DEVICE_TEST(island_walk_of_many_threads) {
    rig_session s;
    isle of;
    pthread_t threads[THREADS];
    open_session(&s, device);
    open_isle(&of, &s.provider);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_create(&threads[i], NULL, run_often, &of), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ_INT(pthread_join(threads[i], NULL), 0);
    }
    close_isle(&of);
    close_session(&s);
    mp_kernel_cache_drop(device);
}

/* ---- faults ---- */

static bool pass_with_fault(uint64_t nth, mp_status kind) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = 64 << 20};
    mp_device *device = NULL;
    mp_stream *stream = NULL;
    rig_session s;
    isle of;
    CHECK_OK(mp__host_device_create(&config, &device));
    open_session(&s, device);
    open_isle(&of, &s.provider);
    CHECK_OK(device->ops->stream_create(device, &stream));
    (void)mp__host_device_fail(device, nth, kind);
    for (int i = 0; i < 4; i++) {
        (void)run_once(&of, stream);
    }
    const bool waiting = mp__host_device_fail(device, 0, MP_OK);
    CHECK_OK(run_once(&of, stream));
    CHECK_OK(run_once(&of, stream));
    device->ops->stream_destroy(device, stream);
    close_isle(&of);
    close_session(&s);
    mp_kernel_cache_drop(device);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    return waiting;
}

TEST(island_walk_on_a_device_whose_calls_fail) {
    static const mp_status kinds[] = {MP_DEVICE, MP_OUT_OF_MEMORY};
    for (size_t i = 0; i < MP_COUNT_OF(kinds); i++) {
        uint64_t nth = 1;
        while (!pass_with_fault(nth, kinds[i])) {
            nth++;
        }
        CHECK(nth > 60);
    }
}
