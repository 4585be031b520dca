/* brought.c - see brought.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/placement/brought.h"

#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct brought {
    OrtCustomOp base; /* first */
    const char *name;
    bool gathers; /* the output is longer by the group along an axis; else it is like the input */
} brought;

/* ---- a custom operator of one input and one output of any one type ---- */

static const char *get_name(const OrtCustomOp *self) {
    return ((const brought *)self)->name;
}

static const char *of_no_provider(const OrtCustomOp *self) {
    (void)self;
    return NULL; /* which ONNX Runtime takes for the CPU's */
}

static ONNXTensorElementDataType any_type(const OrtCustomOp *self, size_t i) {
    (void)self;
    (void)i;
    return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

static size_t one(const OrtCustomOp *self) {
    (void)self;
    return 1;
}

static OrtCustomOpInputOutputCharacteristic required(const OrtCustomOp *self, size_t i) {
    (void)self;
    (void)i;
    return INPUT_OUTPUT_REQUIRED;
}

static OrtMemType in_plain_memory(const OrtCustomOp *self, size_t i) {
    (void)self;
    (void)i;
    return OrtMemTypeDefault;
}

static int since(const OrtCustomOp *self) {
    (void)self;
    return 1;
}

static OrtStatus *refuse_kernel(const OrtCustomOp *self, const OrtApi *api,
                                const OrtKernelInfo *info, void **out) {
    (void)api;
    (void)info;
    *out = NULL;
    return mp__to_ort(
        MP_FAIL(UNSUPPORTED,
                "%s runs between devices and was left to the CPU provider: its "
                "element type is not one of the operator's, or the session does not give it to "
                "Millpond's provider",
                ((const brought *)self)->name));
}

static OrtStatus *compute_nothing(void *kernel, OrtKernelContext *context) {
    (void)kernel;
    (void)context;
    return NULL;
}

static void destroy_nothing(void *kernel) {
    (void)kernel;
}

/* ---- shapes ---- */

/* `fallback` where the model leaves the attribute out. */
static OrtStatus *read_int(const OrtShapeInferContext *context, const char *name, int64_t fallback,
                           int64_t *out) {
    const OrtOpAttr *attr = NULL;
    size_t size = 0;
    *out = fallback;
    OrtStatus *absent = ORT->ShapeInferContext_GetAttribute(context, name, &attr);
    if (absent != NULL) {
        ORT->ReleaseStatus(absent);
        return NULL;
    }
    return ORT->ReadOpAttr(attr, ORT_OP_ATTR_INT, out, sizeof *out, &size);
}

/* `*changed`: the dimension. Where attributes make no sense all stay: the plan says what is wrong.
 */
static OrtStatus *lengthen(const OrtShapeInferContext *context, OrtTensorTypeAndShapeInfo *info,
                           size_t *changed) {
    int64_t axis = 0, group = 1;
    int64_t dims[MP_RANK_MAX];
    size_t rank = 0;
    ORT_TRY(read_int(context, "axis", 0, &axis));
    ORT_TRY(read_int(context, "group_size", 1, &group));
    ORT_TRY(ORT->GetDimensionsCount(info, &rank));
    axis += axis < 0 ? (int64_t)rank : 0;
    if (rank > MP_RANK_MAX || axis < 0 || axis >= (int64_t)rank) {
        return NULL;
    }
    ORT_TRY(ORT->GetDimensions(info, dims, rank));
    *changed = (size_t)axis;
    dims[axis] = dims[axis] > 0 && group > 0 && dims[axis] <= INT64_MAX / group ? dims[axis] * group
                                                                                : dims[axis];
    return ORT->SetDimensions(info, dims, rank);
}

/* ONNX Runtime takes a dimension that is not known, and has no name, for one of -1. So each gets a
 * name, and none twice, since what has one name has one size; so does the one that has `changed`.
 */
static OrtStatus *name_unknown(OrtTensorTypeAndShapeInfo *info, size_t changed) {
    static atomic_uint count;
    int64_t dims[MP_RANK_MAX];
    const char *names[MP_RANK_MAX];
    char fresh[MP_RANK_MAX][40];
    size_t rank = 0;
    ORT_TRY(ORT->GetDimensionsCount(info, &rank));
    if (rank == 0 || rank > MP_RANK_MAX) {
        return NULL;
    }
    ORT_TRY(ORT->GetDimensions(info, dims, rank));
    ORT_TRY(ORT->GetSymbolicDimensions(info, names, rank));
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0 && (i == changed || names[i] == NULL || names[i][0] == '\0')) {
            (void)snprintf(fresh[i], sizeof fresh[i], "between_ranks_%u",
                           atomic_fetch_add_explicit(&count, 1, memory_order_relaxed));
            names[i] = fresh[i];
        }
    }
    return ORT->SetSymbolicDimensions(info, names, rank);
}

static OrtStatus *infer_shape(const OrtCustomOp *self, OrtShapeInferContext *context) {
    OrtTensorTypeAndShapeInfo *info = NULL; /* the context's */
    size_t changed = SIZE_MAX;
    ORT_TRY(ORT->ShapeInferContext_GetInputTypeShape(context, 0, &info));
    if (((const brought *)self)->gathers) {
        ORT_TRY(lengthen(context, info, &changed));
    }
    ORT_TRY(name_unknown(info, changed));
    return ORT->ShapeInferContext_SetOutputTypeShape(context, 0, info);
}

/* ---- the domains ---- */

static brought all[] = {
    {.name = "AllReduce"}, {.name = "AllGather", .gathers = true}, {.name = "AllToAll"}};

static struct {
    const char *name;
    OrtCustomOpDomain *made; /* under lock; NULL before it is first asked for */
} domains[] = {{.name = MP_BROUGHT_DOMAIN}, {.name = "com.microsoft"}};
enum { OURS /* the first */ };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool mp__is_brought(const mp_op *op) {
    bool named = false, is = false;
    for (size_t i = 0; i < MP_COUNT_OF(all) && !named; i++) {
        named = strcmp(op->name, all[i].name) == 0;
    }
    for (size_t i = 0; i < MP_COUNT_OF(domains) && named && !is; i++) {
        is = strcmp(op->domain, domains[i].name) == 0;
    }
    return is;
}

static OrtStatus *lacks(const char *domain, const char *name, bool *out) {
    OrtOpSchema *schema = NULL;
    *out = strcmp(domain, MP_BROUGHT_DOMAIN) == 0;
    if (*out) {
        return NULL;
    }
    ORT_TRY(ORT_EP->GetOpSchema(name, 1, domain, &schema));
    *out = schema == NULL;
    if (schema != NULL) {
        ORT_EP->ReleaseOpSchema(schema);
    }
    return NULL;
}

OrtStatus *mp__lacks_schema(const mp_op *op, bool *out) {
    *out = false;
    return mp__is_brought(op) ? lacks(op->domain, op->name, out) : NULL;
}

/* Once, for both domains. */
static void fill(brought *op) {
    if (op->base.GetName != NULL) {
        return;
    }
    op->base = (OrtCustomOp){
        .version = mp_the_plugin.version,
        .GetName = get_name,
        .GetExecutionProviderType = of_no_provider,
        .GetInputType = any_type,
        .GetInputTypeCount = one,
        .GetOutputType = any_type,
        .GetOutputTypeCount = one,
        .KernelDestroy = destroy_nothing,
        .GetInputCharacteristic = required,
        .GetOutputCharacteristic = required,
        .GetInputMemoryType = in_plain_memory,
        .CreateKernelV2 = refuse_kernel,
        .KernelComputeV2 = compute_nothing,
        .InferOutputShapeFn = infer_shape,
        .GetStartVersion = since,
        .GetEndVersion = since,
    };
}

/* `*any`: whether it has any operator. */
static OrtStatus *fill_domain(const char *name, OrtCustomOpDomain *fresh, bool *any) {
    *any = false;
    for (size_t i = 0; i < MP_COUNT_OF(all); i++) {
        bool lacking = false;
        ORT_TRY(lacks(name, all[i].name, &lacking));
        if (lacking) {
            fill(&all[i]);
            ORT_TRY(ORT->CustomOpDomain_Add(fresh, &all[i].base));
            *any = true;
        }
    }
    return NULL;
}

/* Under lock. `*out`: NULL for a domain that ONNX Runtime lacks nothing of. */
static OrtStatus *get_domain(size_t i, OrtCustomOpDomain **out) {
    OrtCustomOpDomain *fresh = NULL;
    bool any = false;
    *out = domains[i].made;
    if (*out != NULL) {
        return NULL;
    }
    ORT_TRY(ORT->CreateCustomOpDomain(domains[i].name, &fresh));
    OrtStatus *status = fill_domain(domains[i].name, fresh, &any);
    if (status != NULL || !any) {
        ORT->ReleaseCustomOpDomain(fresh);
        return status;
    }
    *out = domains[i].made = fresh;
    return NULL;
}

static OrtStatus *find_domain(size_t i, OrtCustomOpDomain **out) {
    (void)pthread_mutex_lock(&lock);
    OrtStatus *status = get_domain(i, out);
    (void)pthread_mutex_unlock(&lock);
    return status;
}

OrtStatus *mp__brought_add(OrtSessionOptions *options) {
    for (size_t i = 0; i < MP_COUNT_OF(domains); i++) {
        OrtCustomOpDomain *found = NULL;
        ORT_TRY(find_domain(i, &found));
        if (found != NULL) {
            ORT_TRY(ORT->AddCustomOpDomain(options, found));
        }
    }
    return NULL;
}

OrtStatus *mp__brought_count(OrtEpFactory *self, size_t *out) {
    (void)self;
    *out = mp_collective_wanted() ? 1 : 0;
    return NULL;
}

OrtStatus *mp__brought_domains(OrtEpFactory *self, OrtCustomOpDomain **out, size_t count) {
    (void)self;
    return count > 0 ? find_domain(OURS, &out[0]) : NULL;
}
