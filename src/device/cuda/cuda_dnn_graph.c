/* cuda_dnn_graph.c - see cuda_dnn_graph.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_dnn_graph.h"

enum { CONFIGS_MAX = 24, NOTES_MAX = 16, ALIGNED = 16 };

/* ---- building ---- */

static bool failed(const dnn_builder *b) {
    return b->status != CUDNN_STATUS_SUCCESS;
}

static void note(dnn_builder *b, cudnnStatus_t status, const char *call) {
    if (!failed(b) && status != CUDNN_STATUS_SUCCESS) {
        b->status = status;
        b->call = call;
    }
}

dnn_descriptor mp__dnn_make(dnn_builder *b, cudnnBackendDescriptorType_t type) {
    dnn_descriptor made = NULL;
    if (failed(b)) {
        return NULL;
    }
    if (b->count == DNN_DESCRIPTORS_MAX) {
        note(b, CUDNN_STATUS_INTERNAL_ERROR, "a graph of too many descriptors");
        return NULL;
    }
    note(b, mp__dnn.graph_create(type, &made), "cudnnBackendCreateDescriptor");
    if (failed(b)) {
        return NULL;
    }
    b->all[b->count++] = made;
    return made;
}

void mp__dnn_set(dnn_builder *b, dnn_descriptor d, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (!failed(b)) {
        note(b, mp__dnn.graph_set(d, name, type, count, values), "cudnnBackendSetAttribute");
    }
}

void mp__dnn_set_int(dnn_builder *b, dnn_descriptor d, cudnnBackendAttributeName_t name,
                     int64_t value) {
    mp__dnn_set(b, d, name, CUDNN_TYPE_INT64, 1, &value);
}

void mp__dnn_set_child(dnn_builder *b, dnn_descriptor d, cudnnBackendAttributeName_t name,
                       dnn_descriptor child) {
    mp__dnn_set(b, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&child);
}

void mp__dnn_finish(dnn_builder *b, dnn_descriptor d) {
    if (!failed(b)) {
        note(b, mp__dnn.graph_finalize(d), "cudnnBackendFinalize");
    }
}

void mp__dnn_builder_close(dnn_builder *b) {
    while (b->count > 0) { /* those that refer to others were made after them */
        (void)mp__dnn.graph_destroy(b->all[--b->count]);
    }
}

dnn_descriptor mp__dnn_tensor(dnn_builder *b, int64_t uid, cudnnDataType_t type, int dims,
                              const int64_t *size, const int64_t *stride, bool is_virtual) {
    const dnn_descriptor d = mp__dnn_make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    mp__dnn_set_int(b, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
    mp__dnn_set(b, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    mp__dnn_set(b, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims, size);
    mp__dnn_set(b, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, dims, stride);
    mp__dnn_set_int(b, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNED);
    mp__dnn_set(b, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    mp__dnn_finish(b, d);
    return d;
}

dnn_descriptor mp__dnn_operate(dnn_builder *b, dnn_descriptor kind, dnn_descriptor x,
                               dnn_descriptor second, dnn_descriptor y) {
    const dnn_descriptor d = mp__dnn_make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    mp__dnn_set_child(b, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    mp__dnn_set_child(b, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (second != NULL) {
        mp__dnn_set_child(b, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, second);
    }
    mp__dnn_set_child(b, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    mp__dnn_finish(b, d);
    return d;
}

dnn_descriptor mp__dnn_pointwise(dnn_builder *b, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                                 dnn_descriptor x, dnn_descriptor second, dnn_descriptor y) {
    const dnn_descriptor kind = mp__dnn_make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    mp__dnn_set(b, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    mp__dnn_set(b, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    mp__dnn_finish(b, kind);
    return mp__dnn_operate(b, kind, x, second, y);
}

dnn_descriptor mp__dnn_operation_graph(dnn_builder *b, cudnnHandle_t handle, int count,
                                       const dnn_descriptor *operations) {
    const dnn_descriptor d = mp__dnn_make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    mp__dnn_set(b, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                (const void *)&handle);
    mp__dnn_set(b, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                (const void *)operations);
    mp__dnn_finish(b, d);
    return d;
}

/* ---- engines ---- */

static bool has(const int *notes, int64_t count, int wanted) {
    for (int64_t i = 0; i < count; i++) {
        if (notes[i] == wanted) {
            return true;
        }
    }
    return false;
}

static int64_t notes_of(dnn_descriptor engine, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int *out) {
    int64_t count = 0;
    const cudnnStatus_t status =
        mp__dnn.graph_get(engine, name, type, NOTES_MAX, &count, (void *)out);
    return status == CUDNN_STATUS_SUCCESS && count <= NOTES_MAX ? count : 0;
}

/* Whether the rules allow the engine behind a configuration. */
static bool is_allowed(dnn_builder *b, dnn_descriptor config, const dnn_rules *rules,
                       bool *repeatable) {
    dnn_descriptor engine = mp__dnn_make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count = 0;
    if (engine == NULL ||
        mp__dnn.graph_get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                          &count, (void *)&engine) != CUDNN_STATUS_SUCCESS) {
        return false;
    }
    int notes[NOTES_MAX];
    count = notes_of(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, notes);
    if (has(notes, count, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)) {
        return false;
    }
    count = notes_of(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes);
    *repeatable = !has(notes, count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    const bool loses_bits = has(notes, count, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ||
                            has(notes, count, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    return !has(notes, count, CUDNN_NUMERICAL_NOTE_FFT) &&
           !has(notes, count, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
           !(rules->strict && loses_bits);
}

static bool plan_make(cudnnHandle_t handle, dnn_descriptor config, size_t workspace_max,
                      dnn_plan *out) {
    dnn_builder b = {.count = 0};
    const dnn_descriptor plan = mp__dnn_make(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t workspace = 0, count = 0;
    mp__dnn_set(&b, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                (const void *)&handle);
    mp__dnn_set_child(&b, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    mp__dnn_finish(&b, plan);
    if (failed(&b) ||
        mp__dnn.graph_get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                          &count, &workspace) != CUDNN_STATUS_SUCCESS ||
        workspace < 0 || (uint64_t)workspace > workspace_max) {
        mp__dnn_builder_close(&b);
        return false;
    }
    out->plan = plan;
    out->workspace = (size_t)workspace;
    return true;
}

/* The plans of one heuristic, added to `out`. */
static int plans_of(cudnnHandle_t handle, dnn_descriptor graph, cudnnBackendHeurMode_t mode,
                    const dnn_rules *rules, dnn_plan *out, int made) {
    dnn_builder b = {.count = 0};
    dnn_descriptor configs[CONFIGS_MAX];
    int64_t count = 0;
    const dnn_descriptor heuristic = mp__dnn_make(&b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    mp__dnn_set_child(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    mp__dnn_set(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    mp__dnn_finish(&b, heuristic);
    for (int i = 0; i < CONFIGS_MAX; i++) {
        configs[i] = mp__dnn_make(&b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    if (failed(&b) ||
        mp__dnn.graph_get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                          CONFIGS_MAX, &count, (void *)configs) != CUDNN_STATUS_SUCCESS) {
        count = 0;
    }
    const int first = mode == CUDNN_HEUR_MODE_A ? 0 : CONFIGS_MAX;
    for (int i = 0; i < count && i < CONFIGS_MAX && made < rules->plans_max; i++) {
        out[made].number = first + i;
        if (rules->only != DNN_ANY && rules->only != first + i) {
            continue;
        }
        if (is_allowed(&b, configs[i], rules, &out[made].repeatable) &&
            plan_make(handle, configs[i], rules->workspace_max, &out[made])) {
            made++;
        }
    }
    mp__dnn_builder_close(&b);
    return made;
}

int mp__dnn_plans(cudnnHandle_t handle, dnn_descriptor graph, const dnn_rules *rules,
                  dnn_plan *out) {
    int made = plans_of(handle, graph, CUDNN_HEUR_MODE_A, rules, out, 0);
    if (made == 0) {
        made = plans_of(handle, graph, CUDNN_HEUR_MODE_FALLBACK, rules, out, 0);
    }
    return made;
}

void mp__dnn_plan_destroy(const dnn_plan *plan) {
    if (plan->plan != NULL) {
        (void)mp__dnn.graph_destroy(plan->plan);
    }
}

cudnnStatus_t mp__dnn_plan_run(cudnnHandle_t handle, const dnn_plan *plan, int count,
                               const int64_t *uids, void *const *addresses, void *workspace) {
    dnn_builder b = {.count = 0};
    const dnn_descriptor pack = mp__dnn_make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    mp__dnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids);
    mp__dnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
                (const void *)addresses);
    mp__dnn_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                (const void *)&workspace);
    mp__dnn_finish(&b, pack);
    if (!failed(&b)) {
        note(&b, mp__dnn.graph_execute(handle, plan->plan, pack), "cudnnBackendExecute");
    }
    mp__dnn_builder_close(&b);
    return b.status;
}
