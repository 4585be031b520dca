/* cuda_conv_graph.c - convolutions, transposed ones too, as operation graphs of cuDNN: convolution,
 * bias, residual and activation in one kernel where cuDNN has one, and its newer kernels for the
 * convolution alone.
 *
 * Of the plans that cuDNN proposes for the whole graph and for the bare convolution the fastest is
 * kept; after a bare one a kernel of ours adds the bias. Residual and activation are left to the
 * caller where a plan with them is no faster than a step behind one without.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_choice.h"
#include "device/cuda/cuda_conv_describe.h"
#include "device/cuda/cuda_glue.h"

#include <limits.h>
#include <stdlib.h>

enum {
    WORKSPACE_LIMIT = 32 << 20,
    WORKSPACE_GREEDY = 512 << 20,
    PLANS_MAX = 8, /* of each graph, that are timed */
    ROUNDS = 3,
    ALIGNED = 16,
};

/* What another launch costs at least, beside the kernel's own time, and what memory gives. */
static const float launch_ms = 0.003F;
static const float bytes_a_ms = 2.5e9F;

typedef struct conv_graph {
    cuda_math base;
    mp_conv shape;
    dnn_plan plan;        /* owned */
    graph_extent extent;  /* of the plan */
    mp_kernel *tail;      /* owned; adds it otherwise */
    pthread_mutex_t lock; /* a plan is run by one thread at a time */
} conv_graph;

/* ---- choosing a plan ---- */

/* Memory to time plans in: workspace as much as one of them has asked for, since all that they may
 * ask for would often be the most that the whole process needs. */
typedef struct trial {
    mp_addr memory; /* owned, of `size` bytes */
    size_t size;
    mp_addr operands[MP_CONV_OPERANDS];
    mp_addr workspace; /* owned; 0 for none yet */
    size_t workspace_size;
} trial;

static size_t product(const int64_t *size, int count, size_t bytes) {
    for (int i = 0; i < count; i++) {
        if (__builtin_mul_overflow(bytes, (size_t)size[i], &bytes)) {
            return SIZE_MAX / 8;
        }
    }
    return MP_ALIGN_UP(bytes, MP_ALIGNMENT);
}

static mp_status trial_open(cuda_device *device, const mp_conv *shape, trial *out) {
    conv_sizes s;
    mp__conv_sizes_make(shape, &s);
    const size_t bytes = mp_dtype_size(shape->type);
    const size_t parts[MP_CONV_OPERANDS] = {
        [MP_CONV_X] = product(s.x, s.dims, bytes),
        [MP_CONV_W] = product(s.w, s.dims, bytes),
        [MP_CONV_Y] = product(s.y, s.dims, bytes),
        [MP_CONV_BIAS] = product(s.bias, s.dims, bytes),
        [MP_CONV_RESIDUAL] = shape->residual ? product(s.y, s.dims, bytes) : 0,
    };
    *out = (trial){.size = 0};
    for (size_t i = 0; i < MP_COUNT_OF(parts); i++) {
        out->size += parts[i];
    }
    MP_TRY(device->base.ops->alloc(&device->base, out->size, &out->memory));
    mp_addr at = out->memory;
    for (size_t i = 0; i < MP_COUNT_OF(parts); i++) {
        out->operands[i] = at;
        at += parts[i];
    }
    return MP_OK;
}

/* Room for the workspace of a plan. Fails: OUT_OF_MEMORY. */
static mp_status trial_reach(cuda_device *device, trial *t, size_t size) {
    const mp_device_ops *ops = device->base.ops;
    mp_addr fresh = 0;
    if (size <= t->workspace_size) {
        return MP_OK;
    }
    MP_TRY(ops->alloc(&device->base, size, &fresh));
    if (t->workspace != 0) {
        ops->free(&device->base, t->workspace, t->workspace_size);
    }
    t->workspace = fresh;
    t->workspace_size = size;
    return MP_OK;
}

static void trial_close(cuda_device *device, const trial *t) {
    const mp_device_ops *ops = device->base.ops;
    if (t->workspace != 0) {
        ops->free(&device->base, t->workspace, t->workspace_size);
    }
    ops->free(&device->base, t->memory, t->size);
}

static cudnnStatus_t plan_run(cudnnHandle_t handle, const dnn_plan *plan, const mp_conv *shape,
                              graph_extent extent, const mp_addr *operands, mp_addr workspace) {
    int64_t uids[MP_CONV_OPERANDS] = {UID_X, UID_W, UID_Y};
    void *addresses[MP_CONV_OPERANDS] = {(void *)operands[MP_CONV_X], (void *)operands[MP_CONV_W],
                                         (void *)operands[MP_CONV_Y]};
    int count = 3;
    if (extent != EXTENT_BARE && shape->bias) {
        uids[count] = UID_BIAS;
        addresses[count++] = (void *)operands[MP_CONV_BIAS];
    }
    if (extent == EXTENT_WHOLE && shape->residual) {
        uids[count] = UID_RESIDUAL;
        addresses[count++] = (void *)operands[MP_CONV_RESIDUAL];
    }
    return mp__dnn_plan_run(handle, plan, count, uids, addresses, (void *)workspace);
}

/* The plan chosen so far. */
typedef struct choice {
    dnn_plan plan; /* owned */
    graph_extent extent;
    float ms;
    bool is_timed;
} choice;

/* Milliseconds of a run; a negative number where it does not work. */
static float time_plan(cuda_device *device, cudnnHandle_t handle, const mp_conv *shape,
                       const choice *c, trial *t) {
    const dnn_plan *plan = &c->plan;
    CUevent start = NULL, end = NULL;
    float ms = -1;
    bool works = trial_reach(device, t, plan->workspace) == MP_OK &&
                 mp__cu.event_create(&start, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
                 mp__cu.event_create(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
                 plan_run(handle, plan, shape, c->extent, t->operands, t->workspace) ==
                     CUDNN_STATUS_SUCCESS &&
                 mp__cu.event_record(start, device->copies) == CUDA_SUCCESS;
    for (int i = 0; works && i < ROUNDS; i++) {
        works = plan_run(handle, plan, shape, c->extent, t->operands, t->workspace) ==
                CUDNN_STATUS_SUCCESS;
    }
    if (!works || mp__cu.event_record(end, device->copies) != CUDA_SUCCESS ||
        mp__cu.event_synchronize(end) != CUDA_SUCCESS ||
        mp__cu.event_elapsed(&ms, start, end) != CUDA_SUCCESS) {
        ms = -1;
    }
    if (start != NULL) {
        (void)mp__cu.event_destroy(start);
    }
    if (end != NULL) {
        (void)mp__cu.event_destroy(end);
    }
    return ms < 0 ? ms : ms / ROUNDS;
}

/* Keeps the better of the two and destroys the other. One that sums in a fixed order goes before
 * one that does not. */
static void compare(choice *best, const choice *other) {
    const bool better = best->plan.plan == NULL ||
                        (other->plan.repeatable == best->plan.repeatable ? other->ms < best->ms
                                                                         : other->plan.repeatable);
    mp__dnn_plan_destroy(better ? &best->plan : &other->plan);
    if (better) {
        *best = *other;
    }
}

/* What the steps behind the plan take, at least: a launch each, and what they read and write. */
static float tail_ms(const mp_conv *shape, graph_extent extent) {
    const bool bias = extent == EXTENT_BARE && shape->bias;
    const bool rest = extent != EXTENT_WHOLE && mp_conv_has_epilogue(shape);
    conv_sizes s;
    mp__conv_sizes_make(shape, &s);
    const float bytes = (float)product(s.y, s.dims, mp_dtype_size(shape->type));
    const float passes =
        (bias ? 2.0F : 0.0F) + (rest ? 2.0F : 0.0F) + (rest && shape->residual ? 1.0F : 0.0F);
    return launch_ms * (float)(bias + rest) + bytes * passes / bytes_a_ms;
}

typedef struct asked {
    cuda_device *device;
    cudnnHandle_t handle;
    const mp_conv *shape;
    trial *trial; /* NULL: nothing is timed */
    int only;     /* dnn_rules.only */
} asked;

/* Compares the plans of one graph with the best so far. Without a trial the first plan counts. */
static void try_graph(const asked *a, graph_extent extent, choice *best) {
    const mp_conv *shape = a->shape;
    const dnn_rules rules = {
        .workspace_max = shape->workspace_max ? WORKSPACE_GREEDY : WORKSPACE_LIMIT,
        .strict = shape->type == MP_F32 && !shape->tf32,
        .plans_max = a->trial != NULL ? PLANS_MAX : 1,
        .only = a->only,
    };
    dnn_plan plans[PLANS_MAX];
    dnn_builder b = {.count = 0};
    const dnn_descriptor graph = mp__conv_graph_build(&b, a->handle, shape, extent);
    const int count =
        b.status == CUDNN_STATUS_SUCCESS ? mp__dnn_plans(a->handle, graph, &rules, plans) : 0;
    for (int i = 0; i < count; i++) {
        choice next = {.plan = plans[i], .extent = extent, .ms = tail_ms(shape, extent)};
        if (a->trial != NULL) {
            const float ms = time_plan(a->device, a->handle, shape, &next, a->trial);
            if (ms < 0) {
                mp__dnn_plan_destroy(&plans[i]);
                continue;
            }
            next.ms += ms;
            next.is_timed = true;
        }
        compare(best, &next);
    }
    mp__dnn_builder_close(&b);
}

static void time_all(const asked *a, choice *best) {
    const mp_conv *shape = a->shape;
    trial t;
    asked all = *a;
    /* A device too full for a trial still gets an answer. */
    const bool timed = shape->search == 0 && trial_open(a->device, shape, &t) == MP_OK;
    all.trial = timed ? &t : NULL;
    for (int extent = EXTENT_WHOLE; extent >= EXTENT_BARE; extent--) {
        if (mp__conv_graph_is_possible(shape, extent)) {
            try_graph(&all, (graph_extent)extent, best);
        }
    }
    if (timed) {
        trial_close(a->device, &t);
    }
}

static void choose(cuda_device *device, cudnnHandle_t handle, const mp_conv *shape, choice *best) {
    enum { EXTENT, NUMBER, ANSWER };
    int64_t numbers[CUDA_CONV_NUMBERS];
    int64_t answer[ANSWER] = {0};
    const cuda_question question = {.device = &device->base,
                                    .kind = "graph of a convolution",
                                    .version = mp__dnn.version(),
                                    .numbers = numbers,
                                    .count = mp__cuda_conv_numbers(shape, numbers)};
    asked a = {.device = device, .handle = handle, .shape = shape, .only = DNN_ANY};
    if (shape->search == 0 && mp__cuda_choice_recall(&question, answer, ANSWER) &&
        mp__conv_graph_is_possible(shape, answer[EXTENT]) && answer[NUMBER] >= 0 &&
        answer[NUMBER] < INT_MAX) {
        a.only = (int)answer[NUMBER];
        try_graph(&a, (graph_extent)answer[EXTENT], best);
        a.only = DNN_ANY;
    }
    if (best->plan.plan != NULL) {
        return;
    }
    time_all(&a, best);
    if (shape->search == 0 && best->plan.plan != NULL && best->is_timed) {
        answer[EXTENT] = best->extent;
        answer[NUMBER] = best->plan.number;
        mp__cuda_choice_keep(&question, answer, ANSWER);
    }
}

/* ---- running ---- */

static mp_status tail_run(cuda_device *device, mp_stream *stream, const conv_graph *g,
                          const mp_addr *operands) {
    const mp_conv *shape = &g->shape;
    glue_window_args args = {.y = operands[MP_CONV_Y],
                             .bias = shape->bias ? operands[MP_CONV_BIAS] : 0,
                             .planes = shape->batch * shape->out_channels,
                             .channels = shape->out_channels,
                             .y_size = {1, 1, 1},
                             .in_place = 1};
    for (int i = 0; i < shape->spatial; i++) {
        args.y_size[MP_CONV_SPATIAL_MAX - shape->spatial + i] = shape->out[i];
    }
    if (shape->channels_last) {
        args.planes = shape->batch;
        args.y_size[MP_CONV_SPATIAL_MAX - 1] *= shape->out_channels;
        args.channels_last = 1;
    }
    return mp__cuda_glue_window(device, stream, g->tail, &args);
}

static mp_status graph_run(cuda_device *device, mp_stream *stream, cuda_math *math,
                           const mp_addr *operands, mp_addr workspace) {
    conv_graph *g = (conv_graph *)(void *)math;
    cudnnHandle_t handle = NULL;
    MP_TRY(mp__cuda_stream_dnn(device, stream, &handle));
    (void)pthread_mutex_lock(&g->lock);
    const cudnnStatus_t result =
        plan_run(handle, &g->plan, &g->shape, g->extent, operands, workspace);
    (void)pthread_mutex_unlock(&g->lock);
    if (result != CUDNN_STATUS_SUCCESS) {
        return mp__cuda_dnn_fail(result, "the convolution");
    }
    return g->tail != NULL ? tail_run(device, stream, g, operands) : MP_OK;
}

static void graph_release(cuda_device *device, cuda_math *math) {
    conv_graph *g = (conv_graph *)(void *)math;
    mp__dnn_plan_destroy(&g->plan);
    if (g->tail != NULL) {
        mp__cuda_kernel_unload(&device->base, g->tail);
    }
    (void)pthread_mutex_destroy(&g->lock);
    free(g);
}

static const cuda_math_ops graph_ops = {.run = graph_run, .release = graph_release};

/* Whether cuDNN can be asked for it in this form. */
static bool is_expressible(const mp_conv *shape) {
    const int64_t *wide = shape->transposed ? shape->out : shape->in;
    const int64_t *narrow = shape->transposed ? shape->in : shape->out;
    bool fits =
        shape->type != MP_F64 && shape->align >= ALIGNED && mp__cuda_type_find(shape->type) != NULL;
    for (int i = 0; i < shape->spatial; i++) {
        const int64_t reach = (shape->kernel[i] - 1) * shape->dilation[i] + 1;
        const int64_t padded = wide[i] + shape->pad_begin[i] + shape->pad_end[i];
        fits = fits && shape->pad_begin[i] >= 0 && shape->pad_end[i] >= 0 && padded >= reach &&
               (padded - reach) / shape->stride[i] + 1 == narrow[i];
    }
    return fits;
}

static mp_status graph_fill(cuda_device *device, conv_graph *g) {
    cudnnHandle_t handle = NULL;
    choice best = {.plan = {.plan = NULL}};
    MP_TRY(mp__cuda_dnn_take(device, &handle));
    choose(device, handle, &g->shape, &best);
    mp__cuda_dnn_give(device, handle);
    if (best.plan.plan == NULL) {
        return MP_FAIL(UNSUPPORTED, "cuDNN has no engine for the graph of it");
    }
    g->plan = best.plan;
    g->extent = best.extent;
    g->base.workspace = best.plan.workspace;
    return best.extent != EXTENT_BARE || !g->shape.bias
               ? MP_OK
               : mp__cuda_glue_load(device, GLUE_WINDOW, g->shape.type, &g->tail);
}

mp_status mp__cuda_conv_graph_prepare(cuda_device *device, const mp_conv *shape, cuda_math **out,
                                      bool *whole) {
    if (!is_expressible(shape)) {
        return MP_FAIL(UNSUPPORTED, "the graph of it cannot be expressed in cuDNN's terms");
    }
    conv_graph *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of a convolution");
    }
    (void)pthread_mutex_init(&g->lock, NULL);
    g->base.ops = &graph_ops;
    g->shape = *shape;
    const mp_status status = graph_fill(device, g);
    if (status != MP_OK) {
        graph_release(device, &g->base);
        return status;
    }
    *out = &g->base;
    *whole = !mp_conv_has_epilogue(shape) || g->extent == EXTENT_WHOLE;
    return MP_OK;
}
