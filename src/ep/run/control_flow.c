/* control_flow.c - the kernels of If, Loop and Scan, and what they need of a device.
 *
 * The helpers belong to ONNX Runtime once a kernel has been made with them, and go with it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/run/control_flow.h"

#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 16 };

typedef struct loop_helper {
    OrtLoopKernelHelper base; /* first */
    mp_provider *provider;    /* borrowed; it outlives its kernels */
} loop_helper;

typedef struct scan_helper {
    OrtScanKernelHelper base; /* first */
    mp_provider *provider;    /* borrowed; it outlives its kernels */
} scan_helper;

/* ---- Loop: the results of the iterations, one behind the other ---- */

/* What the results are copied to, and how. */
typedef struct joined {
    mp_provider *provider;
    void *native;      /* of the stream; NULL: copies end before their calls return */
    mp_stream *stream; /* owned; a wrap of it */
    mp_addr target;
    size_t size; /* of each result */
} joined;

/* ONNX Runtime asks for no stream when it takes memory for a result that a node on the CPU made, so
 * the pool would lend it out again, to any stream, before the copy has read it. */
static void keep_until_read(const joined *j, mp_addr part) {
    if (j->native != NULL) {
        (void)mp_pool_record_use(j->provider->pool, part, j->native); /* it may be none of ours */
    }
}

static mp_status append(const joined *j, const OrtValue *part, size_t index) {
    mp_device *device = j->provider->unit->device;
    const void *data = NULL;
    size_t size = 0;
    MP_TRY(mp__from_ort(ORT->GetTensorSizeInBytes(part, &size)));
    if (size != j->size) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "an iteration of Loop gave %zu bytes where the first gave %zu; results that "
                       "are put together must have one shape",
                       size, j->size);
    }
    if (size == 0) {
        return MP_OK;
    }
    MP_TRY(mp__from_ort(ORT->GetTensorData(part, &data)));
    keep_until_read(j, (mp_addr)data);
    return device->ops->copy(device, j->stream, j->target + index * size, (mp_addr)data, size);
}

static mp_status append_all(joined *j, const OrtValue *const *parts, size_t count, size_t room) {
    MP_TRY(mp__from_ort(ORT->GetTensorSizeInBytes(parts[0], &j->size)));
    if (j->size != room / count || room % count != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%zu iterations of Loop, the first of %zu bytes, do not fill the %zu bytes "
                       "of its output",
                       count, j->size, room);
    }
    for (size_t i = 0; i < count; i++) {
        MP_TRY(append(j, parts[i], i));
    }
    return MP_OK;
}

static OrtStatus *concat_output(OrtLoopKernelHelper *self, void *native,
                                const OrtValue *const *parts, size_t count, void *output,
                                size_t room) {
    joined j = {.provider = ((const loop_helper *)self)->provider,
                .native = native,
                .target = (mp_addr)output};
    mp_device *device = j.provider->unit->device;
    if (count == 0) {
        return NULL;
    }
    if (native != NULL) {
        MP_TRY_ORT(device->ops->stream_wrap(device, native, &j.stream));
    }
    const mp_status status = append_all(&j, parts, count, room);
    if (j.stream != NULL) {
        device->ops->stream_destroy(device, j.stream);
    }
    return mp__to_ort(status);
}

static void loop_release(OrtLoopKernelHelper *self) {
    free(self);
}

/* ---- Scan: a transpose ---- */

/* Elements are moved and not looked at, so types of one size are one type. */
static mp_dtype moved_as(size_t size) {
    switch (size) {
    case 1:
        return MP_U8;
    case 2:
        return MP_U16;
    case 4:
        return MP_U32;
    default:
        return size == 8 ? MP_U64 : MP_NONE;
    }
}

static mp_status read_source(const OrtValue *value, mp_tensor *tensor, mp_addr *addr) {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    const int64_t *dims = NULL;
    const void *data = NULL;
    size_t rank = 0;
    MP_TRY(
        mp__from_ort(ORT->GetTensorElementTypeAndShapeDataReference(value, &type, &dims, &rank)));
    *tensor =
        (mp_tensor){.type = moved_as(mp__element_size(type)), .shape = {.rank = (int32_t)rank}};
    if (tensor->type == MP_NONE) {
        return MP_FAIL(UNSUPPORTED, "Scan cannot transpose elements of ONNX's type %d on a device",
                       (int)type);
    }
    if (rank > MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED,
                       "Scan is to transpose a tensor of rank %zu; ranks up to %d are supported",
                       rank, MP_RANK_MAX);
    }
    memcpy(tensor->shape.dim, dims, rank * sizeof *dims);
    MP_TRY(mp__from_ort(ORT->GetTensorData(value, &data)));
    *addr = (mp_addr)data;
    return MP_OK;
}

/* Where the result goes; it must have room for all of it. */
static mp_status read_target(const mp_tensor *source, OrtValue *value, mp_addr *addr) {
    const size_t size = (size_t)mp_shape_count(&source->shape) * mp_dtype_size(source->type);
    void *data = NULL;
    size_t room = 0;
    MP_TRY(mp__from_ort(ORT->GetTensorSizeInBytes(value, &room)));
    if (room != size) {
        return MP_FAIL(INVALID_ARGUMENT, "Scan has %zu bytes for the transpose of a tensor of %zu",
                       room, size);
    }
    MP_TRY(mp__from_ort(ORT->GetTensorMutableData(value, &data)));
    *addr = (mp_addr)data;
    return MP_OK;
}

/* On the stream of this run, or at once where there is none. */
static mp_status run_now_or_queue(mp_device *device, const mp_plan *plan, void *native,
                                  mp_addr source, mp_addr target) {
    mp_stream *stream = NULL;
    MP_TRY(device->ops->stream_wrap(device, native, &stream));
    mp_status status = mp_plan_run(plan, stream, &source, &target, 0);
    if (status == MP_OK && native == NULL) {
        status = device->ops->stream_synchronize(device, stream);
    }
    device->ops->stream_destroy(device, stream);
    return status;
}

static mp_status transpose_with(mp_provider *provider, const int64_t *order, size_t rank,
                                const OrtValue *input, void *native, OrtValue *output) {
    mp_device *device = provider->unit->device;
    mp_tensor tensor;
    mp_addr source = 0;
    mp_addr target = 0;
    mp_plan *plan = NULL;
    MP_TRY(read_source(input, &tensor, &source));
    if ((size_t)tensor.shape.rank != rank) {
        return MP_FAIL(INVALID_ARGUMENT, "Scan names %zu axes for a tensor of rank %d", rank,
                       tensor.shape.rank);
    }
    MP_TRY(read_target(&tensor, output, &target));
    if (mp_shape_count(&tensor.shape) == 0) {
        return MP_OK;
    }
    const mp_attr perm = {.name = "perm", .kind = MP_ATTR_INTS, .ints = order, .count = rank};
    const mp_node node = {.op = mp_op_find("", "Transpose", 13),
                          .version = 13,
                          .name = "of a Scan",
                          .attrs = &perm,
                          .attr_count = 1,
                          .options = provider->op_options};
    const int32_t align = (source | target) % ALIGNED == 0 ? ALIGNED : 1;
    MP_TRY(mp_plan_make(device, &node, &tensor, 1, 1, align, &plan));
    const mp_status status = run_now_or_queue(device, plan, native, source, target);
    mp_plan_release(plan);
    return status;
}

static OrtStatus *transpose(OrtScanKernelHelper *self, const size_t *permutation, size_t rank,
                            const OrtValue *input, OrtSyncStream *stream, OrtValue *output) {
    mp_provider *provider = ((const scan_helper *)self)->provider;
    int64_t order[MP_RANK_MAX];
    if (rank > MP_RANK_MAX) {
        return mp__to_ort(MP_FAIL(
            UNSUPPORTED, "Scan is to transpose a tensor of rank %zu; ranks up to %d are supported",
            rank, MP_RANK_MAX));
    }
    for (size_t i = 0; i < rank; i++) { /* the operator checks the values */
        order[i] = permutation[i] < rank ? (int64_t)permutation[i] : INT64_MAX;
    }
    void *native = stream != NULL ? ORT->SyncStream_GetHandle(stream) : NULL;
    return mp__to_ort(transpose_with(provider, order, rank, input, native, output));
}

static void scan_release(OrtScanKernelHelper *self) {
    free(self);
}

/* ---- kernels ---- */

static OrtStatus *create_if(void *op, const OrtKernelInfo *info, OrtKernelImpl **out) {
    (void)op;
    *out = NULL;
    return ORT_EP->CreateIfKernel(info, out);
}

static OrtStatus *provider_of(const OrtKernelInfo *info, mp_provider **out) {
    const OrtEp *ep = NULL;
    ORT_TRY(ORT_EP->KernelInfo_GetEp(info, &ep));
    *out = (mp_provider *)(uintptr_t)ep;
    return NULL;
}

static OrtStatus *create_loop(void *op, const OrtKernelInfo *info, OrtKernelImpl **out) {
    (void)op;
    *out = NULL;
    mp_provider *provider = NULL;
    ORT_TRY(provider_of(info, &provider));
    loop_helper *helper = calloc(1, sizeof *helper);
    if (helper == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "no host memory for a kernel"));
    }
    helper->base = (OrtLoopKernelHelper){.ort_version_supported = mp_the_plugin.version,
                                         .Release = loop_release,
                                         .ConcatOutput = concat_output};
    helper->provider = provider;
    OrtStatus *status = ORT_EP->CreateLoopKernel(info, &helper->base, out);
    if (status != NULL) {
        free(helper);
    }
    return status;
}

static OrtStatus *create_scan(void *op, const OrtKernelInfo *info, OrtKernelImpl **out) {
    (void)op;
    *out = NULL;
    mp_provider *provider = NULL;
    ORT_TRY(provider_of(info, &provider));
    scan_helper *helper = calloc(1, sizeof *helper);
    if (helper == NULL) {
        return mp__to_ort(MP_FAIL(OUT_OF_MEMORY, "no host memory for a kernel"));
    }
    helper->base = (OrtScanKernelHelper){.ort_version_supported = mp_the_plugin.version,
                                         .Release = scan_release,
                                         .Transpose = transpose};
    helper->provider = provider;
    OrtStatus *status = ORT_EP->CreateScanKernel(info, &helper->base, out);
    if (status != NULL) {
        free(helper);
    }
    return status;
}

/* ---- the rows ---- */

#define ANY \
    { "V", MP_CARRIED_TYPES }
#define WHOLE /* results of iterations are put together by the byte */ \
    { "V", MP_CARRIED_TYPES & ~MP_PACKED }
#define INT \
    { "I", MP_BIT(MP_I64) }
#define BOOL \
    { "B", MP_BIT(MP_BOOL) }

#define CONTROL(op_name, from, to, host, function, ...) \
    {                                                   \
        .op = {.domain = "",                            \
               .name = (op_name),                       \
               .since = (from),                         \
               .until = (to),                           \
               .host_in = (host),                       \
               .types = {__VA_ARGS__}},                 \
        .create = (function)                            \
    }

const mp_control mp__controls[] = {
    CONTROL("If", 1, 25, 1u, create_if, BOOL, ANY),
    CONTROL("Loop", 1, 25, 3u, create_loop, INT, BOOL, WHOLE),
    CONTROL("Scan", 9, 25, 0u, create_scan,
            WHOLE), /* ONNX Runtime has no kernel of version 8 to offer */
};
const size_t mp__control_count = MP_COUNT_OF(mp__controls);

const mp_op *mp__control_find(const char *domain, const char *name, int version) {
    for (size_t i = 0; i < mp__control_count; i++) {
        const mp_op *op = &mp__controls[i].op;
        if (strcmp(op->domain, domain) == 0 && strcmp(op->name, name) == 0 &&
            version >= op->since && version <= op->until) {
            return op;
        }
    }
    return NULL;
}

OrtKernelCreateFunc mp__kernel_create_of(const mp_op *op) {
    for (size_t i = 0; i < mp__control_count; i++) {
        if (op == &mp__controls[i].op) {
            return mp__controls[i].create;
        }
    }
    return mp__kernel_create;
}
