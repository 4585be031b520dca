/* cuda_conv_graph.c - forward convolutions as operation graphs of cuDNN: convolution and bias in
 * one kernel where cuDNN has one, and its newer kernels for the convolution alone.
 *
 * Of the plans that cuDNN proposes for the whole graph and for the bare convolution the fastest is
 * kept; after a bare one a kernel of ours adds the bias. A line is seen as a plane of height 1.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_dnn_graph.h"
#include "device/cuda/cuda_glue.h"

#include <stdlib.h>

enum {
    DIMS_MAX = 2 + MP_CONV_SPATIAL_MAX,
    WORKSPACE_LIMIT = 32 << 20,
    WORKSPACE_GREEDY = 512 << 20,
    PLANS_MAX = 8, /* of each graph, that are timed */
    ROUNDS = 3,
    ALIGNED = 16,
};

/* What another launch costs at least, beside the kernel's own time. */
static const float launch_ms = 0.003F;

/* Names of the graph's tensors. */
enum { UID_X = 1, UID_W, UID_Y, UID_BIAS, UID_CONV };

typedef struct conv_graph {
    cuda_math base;
    mp_conv shape;
    dnn_plan plan;        /* owned */
    bool fused;           /* the plan has the bias in it */
    mp_kernel *tail;      /* owned; adds it otherwise */
    pthread_mutex_t lock; /* a plan is run by one thread at a time */
} conv_graph;

/* ---- the graph ---- */

typedef struct sizes {
    int dims;
    bool channels_last;
    int64_t x[DIMS_MAX], w[DIMS_MAX], y[DIMS_MAX], bias[DIMS_MAX];
    int64_t pad_begin[MP_CONV_SPATIAL_MAX], pad_end[MP_CONV_SPATIAL_MAX];
    int64_t stride[MP_CONV_SPATIAL_MAX], dilation[MP_CONV_SPATIAL_MAX];
} sizes;

static void sizes_make(const mp_conv *shape, sizes *out) {
    const int shift = shape->spatial == 1 ? 1 : 0; /* room for the height of 1 */
    *out = (sizes){.dims = 2 + shape->spatial + shift, .channels_last = shape->channels_last};
    for (int i = 0; i < DIMS_MAX; i++) {
        out->x[i] = out->w[i] = out->y[i] = out->bias[i] = 1;
    }
    for (int i = 0; i < MP_CONV_SPATIAL_MAX; i++) {
        out->stride[i] = out->dilation[i] = 1;
    }
    out->x[0] = out->y[0] = shape->batch;
    out->x[1] = shape->in_channels;
    out->y[1] = out->w[0] = out->bias[1] = shape->out_channels;
    out->w[1] = shape->in_channels / shape->groups;
    for (int i = 0; i < shape->spatial; i++) {
        const int at = i + shift;
        out->x[2 + at] = shape->in[i];
        out->y[2 + at] = shape->out[i];
        out->w[2 + at] = shape->kernel[i];
        out->stride[at] = shape->stride[i];
        out->dilation[at] = shape->dilation[i];
        out->pad_begin[at] = shape->pad_begin[i];
        out->pad_end[at] = shape->pad_end[i];
    }
}

static dnn_descriptor tensor(dnn_builder *b, int64_t uid, cudnnDataType_t type, const sizes *s,
                             const int64_t *size, bool is_virtual) {
    int64_t stride[DIMS_MAX];
    int64_t step = s->channels_last ? size[1] : 1;
    for (int i = s->dims - 1; i >= 0; i--) {
        if (i == 1 && s->channels_last) {
            stride[i] = 1;
        } else {
            stride[i] = step;
            step *= size[i];
        }
    }
    return mp__dnn_tensor(b, uid, type, s->dims, size, stride, is_virtual);
}

static dnn_descriptor convolution(dnn_builder *b, const sizes *s, cudnnDataType_t compute) {
    const dnn_descriptor d = mp__dnn_make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int spatial = s->dims - 2;
    mp__dnn_set_int(b, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, spatial);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, spatial, s->pad_begin);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, spatial, s->pad_end);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, spatial, s->dilation);
    mp__dnn_set(b, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, spatial, s->stride);
    mp__dnn_finish(b, d);
    return d;
}

static dnn_descriptor convolve(dnn_builder *b, dnn_descriptor kind, dnn_descriptor x,
                               dnn_descriptor w, dnn_descriptor y) {
    static const float one = 1.0F, zero = 0.0F;
    const dnn_descriptor d =
        mp__dnn_make(b, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    mp__dnn_set_child(b, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kind);
    mp__dnn_set_child(b, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    mp__dnn_set_child(b, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    mp__dnn_set_child(b, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    mp__dnn_set(b, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    mp__dnn_set(b, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    mp__dnn_finish(b, d);
    return d;
}

/* conv -> [+ bias]; only the last result is memory. */
static dnn_descriptor graph_build(dnn_builder *b, cudnnHandle_t handle, const mp_conv *shape,
                                  bool fused) {
    const cuda_type *type = mp__cuda_type_find(shape->type);
    const bool bias = fused && shape->bias;
    sizes s;
    sizes_make(shape, &s);
    const dnn_descriptor x = tensor(b, UID_X, type->dnn, &s, s.x, false);
    const dnn_descriptor w = tensor(b, UID_W, type->dnn, &s, s.w, false);
    const dnn_descriptor y = tensor(b, UID_Y, type->dnn, &s, s.y, false);
    const dnn_descriptor sum = bias ? tensor(b, UID_CONV, type->dnn_compute, &s, s.y, true) : y;
    dnn_descriptor operations[2];
    int count = 0;
    operations[count++] = convolve(b, convolution(b, &s, type->dnn_compute), x, w, sum);
    if (bias) {
        const dnn_descriptor values = tensor(b, UID_BIAS, type->dnn, &s, s.bias, false);
        operations[count++] =
            mp__dnn_pointwise(b, CUDNN_POINTWISE_ADD, type->dnn_compute, sum, values, y);
    }
    return mp__dnn_operation_graph(b, handle, count, operations);
}

/* ---- choosing a plan ---- */

/* Memory to time plans in. */
typedef struct trial {
    mp_addr memory; /* owned */
    size_t size;
    mp_addr operands[MP_CONV_OPERANDS], workspace;
} trial;

static size_t product(const int64_t *size, int count, size_t bytes) {
    for (int i = 0; i < count; i++) {
        if (__builtin_mul_overflow(bytes, (size_t)size[i], &bytes)) {
            return SIZE_MAX / 8;
        }
    }
    return MP_ALIGN_UP(bytes, MP_ALIGNMENT);
}

static mp_status trial_open(cuda_device *device, const mp_conv *shape, size_t workspace,
                            trial *out) {
    sizes s;
    sizes_make(shape, &s);
    const size_t bytes = mp_dtype_size(shape->type);
    const size_t parts[MP_CONV_OPERANDS] = {
        [MP_CONV_X] = product(s.x, s.dims, bytes),
        [MP_CONV_W] = product(s.w, s.dims, bytes),
        [MP_CONV_Y] = product(s.y, s.dims, bytes),
        [MP_CONV_BIAS] = product(s.bias, s.dims, bytes),
    };
    out->size = workspace;
    for (size_t i = 0; i < MP_COUNT_OF(parts); i++) {
        out->size += parts[i];
    }
    MP_TRY(device->base.ops->alloc(&device->base, out->size, &out->memory));
    mp_addr at = out->memory;
    for (size_t i = 0; i < MP_COUNT_OF(parts); i++) {
        out->operands[i] = at;
        at += parts[i];
    }
    out->workspace = at;
    return MP_OK;
}

static cudnnStatus_t plan_run(cudnnHandle_t handle, const dnn_plan *plan, bool bias,
                              const mp_addr *operands, mp_addr workspace) {
    static const int64_t uids[] = {UID_X, UID_W, UID_Y, UID_BIAS};
    void *const addresses[] = {(void *)operands[MP_CONV_X], (void *)operands[MP_CONV_W],
                               (void *)operands[MP_CONV_Y], (void *)operands[MP_CONV_BIAS]};
    return mp__dnn_plan_run(handle, plan, bias ? 4 : 3, uids, addresses, (void *)workspace);
}

/* Milliseconds of a run; a negative number where it does not work. */
static float time_plan(cuda_device *device, cudnnHandle_t handle, const dnn_plan *plan, bool bias,
                       const trial *t) {
    CUevent start = NULL, end = NULL;
    float ms = -1;
    bool works = mp__cu.event_create(&start, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
                 mp__cu.event_create(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
                 plan_run(handle, plan, bias, t->operands, t->workspace) == CUDNN_STATUS_SUCCESS &&
                 mp__cu.event_record(start, device->copies) == CUDA_SUCCESS;
    for (int i = 0; works && i < ROUNDS; i++) {
        works = plan_run(handle, plan, bias, t->operands, t->workspace) == CUDNN_STATUS_SUCCESS;
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

/* The plan chosen so far. */
typedef struct choice {
    dnn_plan plan; /* owned */
    bool fused;
    float ms;
} choice;

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

/* Compares the plans of one graph with the best so far. Without a trial the first plan counts. */
static void try_graph(cuda_device *device, cudnnHandle_t handle, const mp_conv *shape, bool fused,
                      const trial *t, choice *best) {
    const dnn_rules rules = {
        .workspace_max = shape->workspace_max ? WORKSPACE_GREEDY : WORKSPACE_LIMIT,
        .strict = shape->type == MP_F32 && !shape->tf32,
        .plans_max = t != NULL ? PLANS_MAX : 1,
    };
    dnn_plan plans[PLANS_MAX];
    dnn_builder b = {.count = 0};
    const dnn_descriptor graph = graph_build(&b, handle, shape, fused);
    const int count =
        b.status == CUDNN_STATUS_SUCCESS ? mp__dnn_plans(handle, graph, &rules, plans) : 0;
    const float tail_ms = !fused && shape->bias ? launch_ms : 0;
    for (int i = 0; i < count; i++) {
        choice next = {.plan = plans[i], .fused = fused, .ms = tail_ms};
        if (t != NULL) {
            const float ms = time_plan(device, handle, &plans[i], fused && shape->bias, t);
            if (ms < 0) {
                mp__dnn_plan_destroy(&plans[i]);
                continue;
            }
            next.ms += ms;
        }
        compare(best, &next);
    }
    mp__dnn_builder_close(&b);
}

static void choose(cuda_device *device, cudnnHandle_t handle, const mp_conv *shape, choice *best) {
    const size_t limit = shape->workspace_max ? WORKSPACE_GREEDY : WORKSPACE_LIMIT;
    trial t = {.memory = 0};
    /* A device too full for a trial still gets an answer. */
    const bool timed = shape->search == 0 && trial_open(device, shape, limit, &t) == MP_OK;
    if (shape->bias) {
        try_graph(device, handle, shape, true, timed ? &t : NULL, best);
    }
    try_graph(device, handle, shape, false, timed ? &t : NULL, best);
    if (timed) {
        device->base.ops->free(&device->base, t.memory, t.size);
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
        plan_run(handle, &g->plan, g->fused && g->shape.bias, operands, workspace);
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
    bool fits = !shape->transposed && shape->type != MP_F64 && shape->align >= ALIGNED &&
                mp__cuda_type_find(shape->type) != NULL;
    for (int i = 0; i < shape->spatial; i++) {
        const int64_t reach = (shape->kernel[i] - 1) * shape->dilation[i] + 1;
        const int64_t padded = shape->in[i] + shape->pad_begin[i] + shape->pad_end[i];
        fits = fits && shape->pad_begin[i] >= 0 && shape->pad_end[i] >= 0 && padded >= reach &&
               (padded - reach) / shape->stride[i] + 1 == shape->out[i];
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
    g->fused = best.fused;
    g->base.workspace = best.plan.workspace;
    return best.fused || !g->shape.bias
               ? MP_OK
               : mp__cuda_glue_load(device, GLUE_WINDOW, g->shape.type, &g->tail);
}

mp_status mp__cuda_conv_graph_prepare(cuda_device *device, const mp_conv *shape, cuda_math **out) {
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
    return MP_OK;
}
