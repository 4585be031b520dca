/* budget.c - the accounting that ONNX Runtime does for its own CUDA provider alone
 * (session.resource_cuda_partitioning_settings).
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/placement/budget.h"

#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/abi/node_values.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a tensor as far as its shape is known; 0 for anything but a tensor. */
static mp_status bytes_of(const OrtValueInfo *value, uint64_t *out) {
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    *out = 0;
    MP_TRY(mp__value_tensor(value, &tensor, &type, &rank));
    if (tensor == NULL) {
        return MP_OK;
    }
    int64_t *dims = calloc(rank + 1, sizeof *dims);
    if (dims == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to partition the graph");
    }
    const mp_status status = mp__from_ort(ORT->GetDimensions(tensor, dims, rank));
    uint64_t bits = mp_dtype_bits((mp_dtype)type);
    for (size_t d = 0; d < rank; d++) {
        const uint64_t dim = dims[d] >= 0 ? (uint64_t)dims[d] : 1;
        if (__builtin_mul_overflow(bits, dim, &bits)) {
            bits = UINT64_MAX / 16;
        }
    }
    free(dims);
    *out = bits / 8 + (bits % 8 != 0);
    return status;
}

/* What one node adds to what is counted. */
typedef struct bill {
    const mp_budget *budget;
    const char **names; /* owned; borrowed names */
    size_t count;
    uint64_t bytes;
} bill;

static mp_status add_value(bill *b, const OrtValueInfo *value) {
    const char *name = "";
    uint64_t bytes = 0;
    MP_TRY(mp__value_name(value, &name));
    bool known = mp__name_set_has(&b->budget->counted, name);
    for (size_t i = 0; i < b->count && !known; i++) {
        known = strcmp(b->names[i], name) == 0;
    }
    if (known || name[0] == '\0') {
        return MP_OK;
    }
    MP_TRY(bytes_of(value, &bytes));
    b->names[b->count++] = name;
    b->bytes = b->bytes > UINT64_MAX - bytes ? UINT64_MAX : b->bytes + bytes;
    return MP_OK;
}

static mp_status add_weights(bill *b, const mp_op *op, const OrtValueInfo *const *in,
                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        bool constant = false;
        if (in[i] == NULL || mp_op_host_in(op, i)) {
            continue;
        }
        MP_TRY(mp__from_ort(ORT->ValueInfo_IsConstantInitializer(in[i], &constant)));
        if (constant) {
            MP_TRY(add_value(b, in[i]));
        }
    }
    return MP_OK;
}

static mp_status add_outputs(bill *b, const mp_op *op, const OrtValueInfo *const *out,
                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        const bool view = i == 0 && op->view_of > 0; /* its input's memory */
        if (out[i] != NULL && !view && !mp_op_host_out(op, i)) {
            MP_TRY(add_value(b, out[i]));
        }
    }
    return MP_OK;
}

static mp_status fill_bill(bill *b, const mp_op *op, const mp_values *in, const mp_values *out) {
    b->names = calloc(in->count + out->count + 1, sizeof *b->names);
    if (b->names == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to partition the graph");
    }
    MP_TRY(add_weights(b, op, in->list, in->count));
    return add_outputs(b, op, out->list, out->count);
}

static mp_status settle(mp_budget *budget, const bill *b) {
    for (size_t i = 0; i < b->count; i++) {
        MP_TRY(mp__name_set_add(&budget->counted, b->names[i], NULL));
    }
    budget->used = budget->used > UINT64_MAX - b->bytes ? UINT64_MAX : budget->used + b->bytes;
    return MP_OK;
}

void mp__budget_release(mp_budget *budget) {
    if (budget != NULL) {
        mp__name_set_clear(&budget->counted);
        free(budget);
    }
}

mp_status mp__budget_take(mp_budget *budget, uint64_t limit, const mp_op *op, const OrtNode *node,
                          bool must, bool *fits) {
    mp_values in = {NULL, 0};
    mp_values out = {NULL, 0};
    bill b = {.budget = budget};
    mp_status status = mp__values_of(node, MP_SIDE_IN, &in);
    if (status == MP_OK) {
        status = mp__values_of(node, MP_SIDE_OUT, &out);
    }
    if (status == MP_OK) {
        status = fill_bill(&b, op, &in, &out);
    }
    if (status == MP_OK) {
        *fits = must || (budget->used <= limit && b.bytes <= limit - budget->used);
        status = *fits ? settle(budget, &b) : MP_OK;
    }
    free(b.names);
    mp__values_release(&in);
    mp__values_release(&out);
    return status;
}
