/* kernel.c - one node of a session as ONNX Runtime sees it.
 *
 * Compute looks the inputs' shapes up among the plans made so far; on a hit the only work left is
 * to ask for the outputs and to queue the plan's steps.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/nvtx.h"
#include "ep/abi/bridge.h"
#include "ep/abi/node_attrs.h"
#include "ep/capture/session_graph.h"
#include "ep/run/call.h"
#include "ep/run/node_label.h"
#include "ep/run/plan_cache.h"
#include "ep/run/prepared.h"
#include "ep/session/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kernel {
    OrtKernelImpl base; /* first */
    mp_provider *provider;
    mp_node node;
    mp_attr_store *attrs; /* owned; what node.attrs points into */
    char *name;           /* owned */
    char *label;          /* owned; operator and name, on a profiler's timeline */
    int in_count, out_count;
    mp_plan_cache *plans;  /* owned */
    mp_prepared *prepared; /* owned; a list */
    mp_node_labels labels; /* owned; for the pool's trace */
} kernel;

/* ---- inputs ---- */

/* ONNX Runtime brings what a kernel says into host memory, for the inputs that the schema has. */
static mp_status check_host(const OrtValue *value, int i) {
    const OrtMemoryDevice *where = ORT_EP->Value_GetMemoryDevice(value);
    return ORT_EP->MemoryDevice_GetDeviceType(where) == OrtMemoryInfoDeviceType_CPU ||
                   ORT_EP->MemoryDevice_GetMemoryType(where) == OrtDeviceMemoryType_HOST_ACCESSIBLE
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "input %d is needed in host memory to plan the node, and lies on the "
                         "device",
                         i);
}

static mp_status read_input(const kernel *k, const OrtKernelContext *context, int i, mp_call *c) {
    const OrtValue *value = NULL;
    mp_tensor *tensor = &c->in[i];
    if (mp_node_prepared(&k->node, i)) {
        const mp_prepared *prepared = mp__prepared_input(k->prepared, i);
        *tensor = prepared->given;
        c->in_addr[i] = prepared->addr;
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->KernelContext_GetInput(context, (size_t)i, &value)));
    c->in_addr[i] = 0;
    tensor->data = 0;
    tensor->pitch = 0;
    tensor->is_there = false;
    if (value == NULL) {
        tensor->type = MP_NONE;
        tensor->shape.rank = 0;
        return MP_OK;
    }
    MP_TRY(mp__call_read(value, (mp_port){"input", i, NULL}, tensor, &c->in_addr[i]));
    if (mp_op_host_in(k->node.op, (size_t)i)) {
        MP_TRY(check_host(value, i));
        tensor->data = c->in_addr[i];
    }
    return MP_OK;
}

/* ---- outputs ---- */

static mp_status make_outputs(const kernel *k, OrtKernelContext *context, const mp_plan *plan,
                              mp_call *c) {
    const int count = mp_plan_output_count(plan);
    for (int i = 0; i < count; i++) {
        const mp_tensor *out = mp_plan_output_at(plan, i);
        OrtValue *value = NULL;
        void *data = NULL;
        (void)mp_label_set(i < k->out_count ? k->labels.out[i] : k->labels.work);
        MP_TRY(mp__from_ort(ORT->KernelContext_GetOutput(context, (size_t)i, out->shape.dim,
                                                         (size_t)out->shape.rank, &value)));
        if (value != NULL) {
            MP_TRY(mp__from_ort(ORT->GetTensorMutableData(value, &data)));
            MP_TRY(mp__call_check_memory(out, data, (mp_port){"output", i, NULL}));
        }
        c->out_addr[i] = (mp_addr)data;
    }
    (void)mp_label_set(k->labels.work);
    return MP_OK;
}

/* ---- running ---- */

/* Scratch memory of one run; none where `size` is 0. */
static mp_status scratch_take(const kernel *k, size_t size, mp_stream *stream, mp_addr *out) {
    mp_device *device = k->provider->unit->device;
    *out = 0;
    return size > 0
               ? mp__lend(k->provider->pool, size, device->ops->stream_native(device, stream), out)
               : MP_OK;
}

static mp_status run_plan(const kernel *k, const OrtKernelContext *context, const mp_plan *plan,
                          const mp_call *c) {
    mp_stream *stream = NULL;
    bool own = false;
    mp_addr scratch = 0;
    MP_TRY(mp__run_saw(c->in_addr, k->in_count, c->out_addr, k->out_count));
    MP_TRY(mp__stream_of_context(k->provider, context, &stream, &own));
    const mp_run *recorded = mp__recorded_run();
    MP_TRY(scratch_take(k, mp_plan_scratch_bytes(plan), stream, &scratch));
    mp_status status = MP_OK;
    if (recorded != mp__recorded_run()) { /* there was no memory for a graph */
        status = mp__stream_of_context(k->provider, context, &stream, &own);
    }
    if (status == MP_OK) {
        status = mp_plan_run(plan, stream, c->in_addr, c->out_addr, scratch);
    }
    /* The stream's order keeps users apart. */
    const mp_status freed = mp__give_back(k->provider->pool, scratch);
    MP_TRY(status);
    MP_TRY(freed);
    return mp__stream_done(k->provider, stream, own);
}

static mp_status find_plan(const kernel *k, const mp_call *c, int32_t align, mp_plan **out) {
    if (mp__recorded_run() != NULL && !mp_plan_cache_has(k->plans, c->in, k->in_count, align)) {
        MP_TRY(mp__run_stop_recording("a node has new shapes, for which kernels may be loaded"));
    }
    return mp_plan_cache_get(k->plans, k->provider->unit->device, &k->node, c->in, k->in_count,
                             k->out_count, align, out);
}

static mp_status compute_with(const kernel *k, OrtKernelContext *context, mp_call *c) {
    for (int i = 0; i < k->in_count; i++) {
        MP_TRY(read_input(k, context, i, c));
    }
    mp_plan *plan = NULL;
    const bool in_aligned = mp__all_aligned(c->in_addr, k->in_count);
    MP_TRY(find_plan(k, c, in_aligned ? MP_CALL_ALIGNED : 1, &plan));
    mp_status status = make_outputs(k, context, plan, c);
    if (status == MP_OK && in_aligned && !mp__all_aligned(c->out_addr, k->out_count)) {
        mp_plan_release(plan); /* the caller bound an output at an odd address */
        plan = NULL;
        status = find_plan(k, c, 1, &plan);
    }
    if (status == MP_OK) {
        status = run_plan(k, context, plan, c);
    }
    mp_plan_release(plan);
    return status;
}

/* ---- outputs whose sizes depend on data ---- */

static mp_status find_finish(const kernel *k, const mp_call *c, const int64_t *found, int32_t align,
                             mp_plan **out) {
    return mp_plan_finish(k->provider->unit->device, &k->node, c->in, k->in_count, k->out_count,
                          align, found, out);
}

/* The second plan, now that the values are known. */
static mp_status finish(const kernel *k, OrtKernelContext *context, mp_call *c, mp_stream *stream,
                        const int64_t *found, mp_addr kept) {
    mp_plan *plan = NULL;
    mp_addr scratch = 0;
    const bool in_aligned = mp__all_aligned(c->in_addr, k->in_count);
    MP_TRY(find_finish(k, c, found, in_aligned ? MP_CALL_ALIGNED : 1, &plan));
    mp_status status = make_outputs(k, context, plan, c);
    if (status == MP_OK && in_aligned && !mp__all_aligned(c->out_addr, k->out_count)) {
        mp_plan_release(plan);
        plan = NULL;
        status = find_finish(k, c, found, 1, &plan);
    }
    if (status == MP_OK) {
        status = scratch_take(k, mp_plan_scratch_bytes(plan), stream, &scratch);
    }
    if (status == MP_OK) {
        status = mp_plan_run_finish(plan, stream, c->in_addr, c->out_addr, scratch, kept);
    }
    const mp_status freed = mp__give_back(k->provider->pool, scratch);
    mp_plan_release(plan);
    return status != MP_OK ? status : freed;
}

static mp_status compute_counted(const kernel *k, OrtKernelContext *context, mp_call *c) {
    mp_plan *plan = NULL;
    mp_stream *stream = NULL;
    mp_addr kept = 0;
    bool own = false;
    int64_t found[MP_FOUND_MAX] = {0};
    MP_TRY(mp__run_unfit("the size of a node's output depends on values on the device"));
    for (int i = 0; i < k->in_count; i++) {
        MP_TRY(read_input(k, context, i, c));
    }
    MP_TRY(mp__stream_of_context(k->provider, context, &stream, &own));
    MP_TRY(find_plan(k, c, mp__all_aligned(c->in_addr, k->in_count) ? MP_CALL_ALIGNED : 1, &plan));
    mp_status status = scratch_take(k, mp_plan_scratch_bytes(plan), stream, &kept);
    if (status == MP_OK) {
        status = mp_plan_run_count(plan, stream, c->in_addr, kept, found);
    }
    if (status == MP_OK) {
        status = finish(k, context, c, stream, found, kept);
    }
    const mp_status freed = mp__give_back(k->provider->pool, kept);
    mp_plan_release(plan);
    MP_TRY(status);
    MP_TRY(freed);
    return mp__stream_done(k->provider, stream, own);
}

static OrtStatus *compute(OrtKernelImpl *self, OrtKernelContext *context) {
    const kernel *k = (const kernel *)self;
    mp_call c;
    MP_TRY_ORT(mp__call_open(&c, k->in_count, k->out_count));
    mp__nvtx_push(k->label);
    const mp_label before = mp_label_set(k->labels.work);
    const mp_status status =
        k->node.op->finish != NULL ? compute_counted(k, context, &c) : compute_with(k, context, &c);
    (void)mp_label_set(before);
    mp__nvtx_pop();
    mp__call_close(&c);
    mp__run_nodes_ended(k->provider, 1, status);
    return mp__to_ort(status);
}

/* ---- constants ---- */

/* What a cache for several sessions would keep is left as it is. */
static OrtStatus *prepack(OrtKernelImpl *self, const OrtValue *value, int i,
                          OrtAllocator *allocator, OrtSharedPrePackedWeightCache *cache,
                          bool *done) {
    kernel *k = (kernel *)self;
    mp_tensor given = {.type = MP_NONE};
    mp_addr addr = 0;
    (void)allocator;
    *done = false;
    if (cache != NULL) {
        return NULL;
    }
    MP_TRY_ORT(mp__call_read(value, (mp_port){"input", i, NULL}, &given, &addr));
    MP_TRY_ORT(mp__prepare(k->provider, &k->node, i, &given, addr, &k->prepared, done));
    if (*done) {
        mp__node_label_drop(k->provider, &k->labels, i);
    }
    return NULL;
}

/* ---- life ---- */

static void release(OrtKernelImpl *self) {
    kernel *k = (kernel *)self;
    mp_plan_cache_destroy(k->plans);
    mp__prepared_release(k->provider, k->prepared);
    mp__node_labels_release(k->provider, &k->labels);
    mp__attrs_release(k->attrs);
    free(k->name);
    free(k->label);
    free(k);
}

static mp_status read_name(const OrtKernelInfo *info, char **out) {
    size_t size = 0;
    OrtStatus *status = ORT->KernelInfo_GetNodeName(info, NULL, &size);
    if (status != NULL) {
        ORT->ReleaseStatus(status); /* says only that NULL is too small */
    }
    char *name = calloc(1, size + 1);
    if (name == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a name of %zu bytes", size);
    }
    const mp_status read = mp__from_ort(ORT->KernelInfo_GetNodeName(info, name, &size));
    if (read != MP_OK) {
        free(name);
        return read;
    }
    *out = name;
    return MP_OK;
}

/* An output that the model leaves out has a name of no characters. */
static mp_status read_absent(const OrtKernelInfo *info, size_t outputs, uint32_t *out) {
    for (size_t i = 0; i < outputs && i < 32; i++) {
        size_t size = 0;
        MP_TRY(mp__from_ort(ORT->KernelInfo_GetOutputName(info, i, NULL, &size)));
        *out |= size <= 1 ? 1u << i : 0;
    }
    return MP_OK;
}

static mp_status fill(kernel *k, const mp_op *op, const OrtKernelInfo *info) {
    const OrtEp *ep = NULL;
    size_t inputs = 0;
    size_t outputs = 0;
    MP_TRY(mp__from_ort(ORT_EP->KernelInfo_GetEp(info, &ep)));
    MP_TRY(mp__from_ort(ORT->KernelInfo_GetInputCount(info, &inputs)));
    MP_TRY(mp__from_ort(ORT->KernelInfo_GetOutputCount(info, &outputs)));
    MP_TRY(mp__from_ort(ORT->KernelInfo_GetOperatorSinceVersion(info, &k->node.version)));
    if (inputs > INT32_MAX / 2 || outputs > INT32_MAX / 2) {
        return MP_FAIL(INVALID_ARGUMENT, "a node with %zu inputs is too large", inputs);
    }
    k->provider = (mp_provider *)(uintptr_t)ep;
    k->in_count = (int)inputs;
    k->out_count = (int)outputs;
    MP_TRY(read_absent(info, outputs, &k->node.out_absent));
    MP_TRY(read_name(info, &k->name));
    if (asprintf(&k->label, "%s %s", op->name, k->name) < 0) {
        k->label = NULL;
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a node's label");
    }
    MP_TRY(mp__node_labels_make(k->provider, info, k->name[0] != '\0' ? k->name : op->name, inputs,
                                outputs, &k->labels));
    MP_TRY(mp__attrs_read(op, info, &k->attrs));
    MP_TRY(mp_plan_cache_create(&k->plans));
    k->node.op = op;
    k->node.name = k->name;
    k->node.attrs = mp__attrs_list(k->attrs, &k->node.attr_count);
    k->node.options = k->provider->op_options;
    return MP_OK;
}

OrtStatus *mp__kernel_create(void *op, const OrtKernelInfo *info, OrtKernelImpl **out) {
    *out = NULL;
    kernel *k = calloc(1, sizeof *k);
    if (k == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a kernel"));
    }
    const mp_op *row = op;
    k->base = (OrtKernelImpl){.ort_version_supported = mp_the_plugin.version,
                              .Compute = compute,
                              .Release = release,
                              .PrePackWeight = row->prepare != NULL ? prepack : NULL};
    const mp_status status = fill(k, op, info);
    if (status != MP_OK) {
        OrtStatus *failed = mp__to_ort(status);
        release(&k->base);
        return failed;
    }
    atomic_fetch_add(&k->provider->kernel_count, 1);
    if (mp_node_runs_once(&k->node)) {
        atomic_store(&k->provider->runs_once, true);
    }
    *out = &k->base;
    return NULL;
}
