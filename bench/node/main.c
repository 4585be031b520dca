/* main.c - node_bench: what the parts of a small node's run cost, in ns a node.
 *
 *     node_bench [host|cuda] [NODES]
 *
 * The node is an Add of 1,024 floats. Prints one line a part, "name ns": the best of the repeats,
 * since what disturbs a loop only makes it longer. bench/bench_runtime.py reads it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"
#include "ep/run/plan_cache.h"
#include "op/core/op.h"
#include "pool/pool_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COUNT = 1024, REPEATS = 15, NODES = 200 };

typedef struct scene {
    mp_device *device;
    mp_stream *stream;
    mp_plan_cache *cache;
    mp_plan *plan;
    mp_graph_exec *graph;
    mp_node node;
    mp_tensor in[2];
    mp_addr memory;
    mp_addr in_addr[2], out_addr[1];
    int nodes;
} scene;

static double now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static mp_status find_plans(scene *s) {
    for (int i = 0; i < s->nodes; i++) {
        mp_plan *plan = NULL;
        MP_TRY(mp_plan_cache_get(s->cache, s->device, &s->node, s->in, 2, 1, 16, &plan));
        mp_plan_release(plan);
    }
    return MP_OK;
}

static mp_status queue_plans(scene *s) {
    for (int i = 0; i < s->nodes; i++) {
        MP_TRY(mp_plan_run(s->plan, s->stream, s->in_addr, s->out_addr, 0));
    }
    return MP_OK;
}

static mp_status run_plans(scene *s) {
    MP_TRY(queue_plans(s));
    return s->device->ops->stream_synchronize(s->device, s->stream);
}

static mp_status run_graph(scene *s) {
    MP_TRY(s->device->ops->graph_launch(s->device, s->graph, s->stream));
    return s->device->ops->stream_synchronize(s->device, s->stream);
}

static mp_status wait_only(scene *s) {
    for (int i = 0; i < s->nodes; i++) {
        MP_TRY(s->device->ops->stream_synchronize(s->device, s->stream));
    }
    return MP_OK;
}

static mp_status open(scene *s, mp_device_kind kind) {
    const mp_shape shape = {.rank = 1, .dim = {COUNT}};
    MP_TRY(mp_device_get(kind, 0, &s->device));
    const mp_device_ops *ops = s->device->ops;
    MP_TRY(ops->stream_create(s->device, &s->stream));
    MP_TRY(ops->alloc(s->device, COUNT * sizeof(float) * 3, &s->memory));
    MP_TRY(ops->fill(s->device, NULL, s->memory, 0, 4, (size_t)COUNT * 3));
    s->in_addr[0] = s->memory;
    s->in_addr[1] = s->memory + COUNT * sizeof(float);
    s->out_addr[0] = s->memory + 2 * COUNT * sizeof(float);
    s->in[0] = s->in[1] = (mp_tensor){.type = MP_F32, .shape = shape};
    s->node = (mp_node){.op = mp_op_find("", "Add", 14), .version = 14, .name = ""};
    MP_TRY(mp_plan_cache_create(&s->cache));
    MP_TRY(mp_plan_cache_get(s->cache, s->device, &s->node, s->in, 2, 1, 16, &s->plan));
    MP_TRY(run_plans(s));
    MP_TRY(ops->capture_begin(s->device, s->stream));
    MP_TRY(queue_plans(s));
    MP_TRY(ops->capture_end(s->device, s->stream, &s->graph));
    return run_graph(s);
}

static void close_scene(scene *s) {
    const mp_device_ops *ops = s->device->ops;
    ops->graph_destroy(s->device, s->graph);
    mp_plan_release(s->plan);
    mp_plan_cache_destroy(s->cache);
    ops->free(s->device, s->memory, COUNT * sizeof(float) * 3);
    ops->stream_destroy(s->device, s->stream);
}

static mp_status measure(scene *s, const char *name, mp_status (*work)(scene *)) {
    double best = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        const double start = now_ns();
        MP_TRY(work(s));
        const double each = (now_ns() - start) / s->nodes;
        best = repeat == 0 || each < best ? each : best;
        MP_TRY(s->device->ops->stream_synchronize(s->device, s->stream));
    }
    (void)printf("%s %.1f\n", name, best);
    return MP_OK;
}

static mp_status measure_all(scene *s) {
    MP_TRY(measure(s, "plan_lookup", find_plans));
    MP_TRY(measure(s, "plan_queue", queue_plans));
    MP_TRY(measure(s, "plan_run", run_plans));
    MP_TRY(measure(s, "graph_run", run_graph));
    return measure(s, "idle_wait", wait_only);
}

int main(int argc, char **argv) {
    scene s = {.nodes = argc > 2 ? atoi(argv[2]) : NODES};
    const bool cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
    if (s.nodes < 1) {
        (void)fprintf(stderr, "usage: node_bench [host|cuda] [NODES]\n");
        return 2;
    }
    mp_status status = open(&s, cuda ? MP_DEVICE_CUDA : MP_DEVICE_HOST);
    if (status == MP_OK) {
        status = measure_all(&s);
        close_scene(&s);
    }
    if (status != MP_OK) {
        (void)fprintf(stderr, "node_bench: %s\n", mp_error_message());
        return 1;
    }
    return 0;
}
