/* cuda_dnn_graph.h - cuDNN's operation graphs: descriptors with attributes, and what can run them.
 *
 * A builder keeps every descriptor that is made through it until mp__dnn_builder_close. The first
 * call that fails is remembered; those after it do nothing, so only the end has to be looked at.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_DNN_GRAPH_H
#define MP_DEVICE_CUDA_DNN_GRAPH_H

#include "device/cuda/cuda_private.h"

enum { DNN_DESCRIPTORS_MAX = 96, DNN_ANY = -1 };

typedef cudnnBackendDescriptor_t dnn_descriptor;

typedef struct dnn_builder {
    dnn_descriptor all[DNN_DESCRIPTORS_MAX]; /* owned */
    int count;
    cudnnStatus_t status;
    const char *call; /* that failed */
} dnn_builder;

/* NULL once a call has failed. */
dnn_descriptor mp__dnn_make(dnn_builder *b, cudnnBackendDescriptorType_t type);
void mp__dnn_set(dnn_builder *b, dnn_descriptor d, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t count, const void *values);
void mp__dnn_set_int(dnn_builder *b, dnn_descriptor d, cudnnBackendAttributeName_t name,
                     int64_t value);
void mp__dnn_set_child(dnn_builder *b, dnn_descriptor d, cudnnBackendAttributeName_t name,
                       dnn_descriptor child);
void mp__dnn_finish(dnn_builder *b, dnn_descriptor d);
void mp__dnn_builder_close(dnn_builder *b);

/* A tensor of `dims` dimensions whose addresses are multiples of 16; `is_virtual` for one that only
 * lives within the graph. `uid` names it among the graph's tensors. */
dnn_descriptor mp__dnn_tensor(dnn_builder *b, int64_t uid, cudnnDataType_t type, int dims,
                              const int64_t *size, const int64_t *stride, bool is_virtual);

/* y = kind(x, second), of a finished pointwise descriptor; `second` NULL for functions of one
 * operand. */
dnn_descriptor mp__dnn_operate(dnn_builder *b, dnn_descriptor kind, dnn_descriptor x,
                               dnn_descriptor second, dnn_descriptor y);

/* y = mode(x, second). */
dnn_descriptor mp__dnn_pointwise(dnn_builder *b, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                                 dnn_descriptor x, dnn_descriptor second, dnn_descriptor y);

dnn_descriptor mp__dnn_operation_graph(dnn_builder *b, cudnnHandle_t handle, int count,
                                       const dnn_descriptor *operations);

/* ---- engines ---- */

/* A way to run a graph. */
typedef struct dnn_plan {
    dnn_descriptor plan; /* owned */
    size_t workspace;
    bool repeatable; /* sums in the same order every time */
    int number;      /* among those that cuDNN proposes for the graph */
} dnn_plan;

typedef struct dnn_rules {
    size_t workspace_max;
    bool strict;   /* no input may lose bits on the way */
    int plans_max; /* at most this many, the likely fastest first */
    int only;      /* the plan of that number; DNN_ANY */
} dnn_rules;

/* Gives: up to `rules->plans_max` plans, each until mp__dnn_plan_destroy; none of them compiles at
 * run time, which takes a second, nor works by Fourier transforms, where what should be an exact
 * zero comes out as the rounding of the largest value. Returns how many. */
int mp__dnn_plans(cudnnHandle_t handle, dnn_descriptor graph, const dnn_rules *rules,
                  dnn_plan *out);
void mp__dnn_plan_destroy(const dnn_plan *plan);

/* Queues the plan. A plan must not be run by two threads at a time. */
cudnnStatus_t mp__dnn_plan_run(cudnnHandle_t handle, const dnn_plan *plan, int count,
                               const int64_t *uids, void *const *addresses, void *workspace);

#endif
