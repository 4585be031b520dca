/* node_attrs.c - reads attributes into one list.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/node_attrs.h"

#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"

#include <stdlib.h>
#include <string.h>

enum { ATTR_ELEMENTS_MAX = 1 << 24 };

struct mp_attr_store {
    size_t count;
    mp_attr *attrs; /* owned, and so are the strings and arrays they point to */
};

/* ORT answers with an error for an attribute that the node does not have. */
static bool succeeded(OrtStatus *status) {
    if (status != NULL) {
        ORT->ReleaseStatus(status);
    }
    return status == NULL;
}

static mp_status room(size_t count, size_t width, void **out) {
    if (count > ATTR_ELEMENTS_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "an attribute of %zu elements is too long", count);
    }
    *out = calloc(count + 1, width);
    return *out != NULL ? MP_OK
                        : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an attribute");
}

/* Each reader sets `*given` where the node has the attribute. ORT gives the size of strings and
 * arrays when asked with no buffer. */

static mp_status read_string(const OrtKernelInfo *info, mp_attr *attr, bool *given) {
    size_t size = 0;
    void *text = NULL;
    (void)succeeded(ORT->KernelInfoGetAttribute_string(info, attr->name, NULL, &size));
    if (size == 0) {
        return MP_OK;
    }
    MP_TRY(room(size, 1, &text));
    *given = succeeded(ORT->KernelInfoGetAttribute_string(info, attr->name, text, &size));
    attr->s = text;
    return MP_OK;
}

static mp_status read_ints(const OrtKernelInfo *info, mp_attr *attr, bool *given) {
    void *values = NULL;
    if (!succeeded(ORT->KernelInfoGetAttributeArray_int64(info, attr->name, NULL, &attr->count))) {
        return MP_OK;
    }
    MP_TRY(room(attr->count, sizeof(int64_t), &values));
    *given =
        succeeded(ORT->KernelInfoGetAttributeArray_int64(info, attr->name, values, &attr->count));
    attr->ints = values;
    return MP_OK;
}

static mp_status read_floats(const OrtKernelInfo *info, mp_attr *attr, bool *given) {
    void *values = NULL;
    if (!succeeded(ORT->KernelInfoGetAttributeArray_float(info, attr->name, NULL, &attr->count))) {
        return MP_OK;
    }
    MP_TRY(room(attr->count, sizeof(float), &values));
    *given =
        succeeded(ORT->KernelInfoGetAttributeArray_float(info, attr->name, values, &attr->count));
    attr->floats = values;
    return MP_OK;
}

/* Takes: `list`, memory of `allocator`. Copies the strings into one block. */
static mp_status join_strings(OrtAllocator *allocator, char **list, mp_attr *attr) {
    size_t size = 0;
    void *text = NULL;
    for (size_t i = 0; i < attr->count; i++) {
        size += strlen(list[i]) + 1;
    }
    const mp_status status = room(size, 1, &text);
    char *at = text;
    for (size_t i = 0; i < attr->count; i++) {
        const size_t length_here = strlen(list[i]) + 1;
        if (status == MP_OK) {
            memcpy(at, list[i], length_here);
            at += length_here;
        }
        allocator->Free(allocator, list[i]);
    }
    allocator->Free(allocator, list);
    attr->s = text;
    return status;
}

static mp_status read_strings(const OrtKernelInfo *info, mp_attr *attr, bool *given) {
    OrtAllocator *allocator = NULL;
    char **list = NULL;
    MP_TRY(mp__from_ort(ORT->GetAllocatorWithDefaultOptions(&allocator)));
    *given = succeeded(
        ORT->KernelInfoGetAttributeArray_string(info, attr->name, allocator, &list, &attr->count));
    return *given ? join_strings(allocator, list, attr) : MP_OK;
}

/* Takes: `value`. Copies what it holds. */
static mp_status copy_tensor(OrtValue *value, mp_attr *attr) {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    const int64_t *dims = NULL;
    const void *data = NULL;
    size_t rank = 0, bytes = 0;
    void *copy = NULL;
    mp_tensor *tensor = &attr->tensor;
    mp_status status =
        mp__from_ort(ORT->GetTensorElementTypeAndShapeDataReference(value, &type, &dims, &rank));
    if (status == MP_OK && (rank > MP_RANK_MAX || mp_dtype_bits((mp_dtype)type) == 0)) {
        status = MP_FAIL(UNSUPPORTED, "attribute '%s' is a tensor of rank %zu and ONNX type %d",
                         attr->name, rank, (int)type);
    }
    if (status == MP_OK) {
        tensor->type = (mp_dtype)type;
        tensor->shape.rank = (int32_t)rank;
        memcpy(tensor->shape.dim, dims, rank * sizeof *dims);
        status = mp_shape_bytes(&tensor->shape, tensor->type, &bytes);
    }
    if (status == MP_OK) {
        status = mp__from_ort(ORT->GetTensorData(value, &data));
    }
    if (status == MP_OK) {
        status = room(bytes, 1, &copy);
    }
    if (status == MP_OK && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    tensor->data = (mp_addr)copy;
    ORT->ReleaseValue(value);
    return status;
}

static mp_status read_tensor(const OrtKernelInfo *info, mp_attr *attr, bool *given) {
    OrtAllocator *allocator = NULL;
    OrtValue *value = NULL;
    MP_TRY(mp__from_ort(ORT->GetAllocatorWithDefaultOptions(&allocator)));
    *given = succeeded(ORT->KernelInfoGetAttribute_tensor(info, attr->name, allocator, &value));
    return *given ? copy_tensor(value, attr) : MP_OK;
}

static mp_status read_one(const OrtKernelInfo *info, mp_attr *attr, bool *given) {
    *given = false;
    switch (attr->kind) {
    case MP_ATTR_INT:
        *given = succeeded(ORT->KernelInfoGetAttribute_int64(info, attr->name, &attr->i));
        return MP_OK;
    case MP_ATTR_FLOAT:
        *given = succeeded(ORT->KernelInfoGetAttribute_float(info, attr->name, &attr->f));
        return MP_OK;
    case MP_ATTR_STRING:
        return read_string(info, attr, given);
    case MP_ATTR_INTS:
        return read_ints(info, attr, given);
    case MP_ATTR_FLOATS:
        return read_floats(info, attr, given);
    case MP_ATTR_TENSOR:
        return read_tensor(info, attr, given);
    case MP_ATTR_STRINGS:
        return read_strings(info, attr, given);
    }
    return MP_FAIL(INTERNAL, "attribute '%s' is of an unknown kind", attr->name);
}

static void attr_release(const mp_attr *attr) {
    free((void *)(uintptr_t)attr->s);
    free((void *)(uintptr_t)attr->ints);
    free((void *)(uintptr_t)attr->floats);
    free((void *)attr->tensor.data);
}

static size_t length(const mp_attr_def *defs) {
    size_t count = 0;
    while (defs != NULL && defs[count].name != NULL) {
        count++;
    }
    return count;
}

/* Room for all that `op` lists. */
static mp_status store_open(const mp_op *op, mp_attr_store **out) {
    const size_t count = length(op->attrs);
    mp_attr_store *store = calloc(1, sizeof *store);
    mp_attr *attrs = calloc(count + 1, sizeof *attrs);
    if (store == NULL || attrs == NULL) {
        free(store);
        free(attrs);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %zu attributes", count);
    }
    store->attrs = attrs;
    *out = store;
    return MP_OK;
}

/* ---- of a node of a graph ---- */

/* Sets `attr`, a number, to what the node has; false where it has none. */
static bool read_number(const OrtNode *node, mp_attr *attr) {
    const OrtOpAttr *found = NULL;
    size_t size = 0;
    const bool given = succeeded(ORT->Node_GetAttributeByName(node, attr->name, &found));
    if (!given || found == NULL) {
        return false;
    }
    return attr->kind == MP_ATTR_INT
               ? succeeded(ORT->ReadOpAttr(found, ORT_OP_ATTR_INT, &attr->i, sizeof attr->i, &size))
               : succeeded(
                     ORT->ReadOpAttr(found, ORT_OP_ATTR_FLOAT, &attr->f, sizeof attr->f, &size));
}

static const struct {
    OrtOpAttrType type;
    size_t width;
} kinds[] = {
    [MP_ATTR_INT] = {ORT_OP_ATTR_INT, sizeof(int64_t)},
    [MP_ATTR_FLOAT] = {ORT_OP_ATTR_FLOAT, sizeof(float)},
    [MP_ATTR_STRING] = {ORT_OP_ATTR_STRING, 1},
    [MP_ATTR_INTS] = {ORT_OP_ATTR_INTS, sizeof(int64_t)},
    [MP_ATTR_FLOATS] = {ORT_OP_ATTR_FLOATS, sizeof(float)},
    [MP_ATTR_STRINGS] = {ORT_OP_ATTR_STRINGS, 1},
};

/* Strings come one behind the other, each with its end. */
static size_t count_texts(const char *texts, size_t size) {
    size_t count = 0;
    for (size_t i = 0; i < size; i++) {
        count += texts[i] == '\0';
    }
    return count;
}

/* What the caller frees by the attribute. */
static void keep_list(mp_attr *attr, void *bytes, size_t size) {
    const size_t count = size / kinds[attr->kind].width;
    attr->count = attr->kind == MP_ATTR_STRINGS ? count_texts(bytes, size) : count;
    if (attr->kind == MP_ATTR_INTS) {
        attr->ints = bytes;
    } else if (attr->kind == MP_ATTR_FLOATS) {
        attr->floats = bytes;
    } else {
        attr->s = bytes;
    }
}

/* ORT gives the size in bytes when asked with too little room. */
static mp_status read_list(const OrtOpAttr *found, mp_attr *attr, bool *given) {
    const OrtOpAttrType type = kinds[attr->kind].type;
    size_t size = 0;
    void *bytes = NULL;
    (void)succeeded(ORT->ReadOpAttr(found, type, NULL, 0, &size));
    MP_TRY(room(size, 1, &bytes));
    *given = size == 0 || succeeded(ORT->ReadOpAttr(found, type, bytes, size, &size));
    keep_list(attr, bytes, size);
    return MP_OK;
}

static mp_status read_tensor_of(const OrtOpAttr *found, mp_attr *attr, bool *given) {
    OrtValue *value = NULL;
    *given = succeeded(ORT->OpAttr_GetTensorAttributeAsOrtValue(found, &value));
    return *given ? copy_tensor(value, attr) : MP_OK;
}

static mp_status read_any(const OrtNode *node, mp_attr *attr, bool *given) {
    const OrtOpAttr *found = NULL;
    OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
    *given = false;
    if (attr->kind == MP_ATTR_INT || attr->kind == MP_ATTR_FLOAT) {
        *given = read_number(node, attr);
        return MP_OK;
    }
    if (!succeeded(ORT->Node_GetAttributeByName(node, attr->name, &found)) || found == NULL) {
        return MP_OK;
    }
    if (attr->kind == MP_ATTR_TENSOR) {
        return read_tensor_of(found, attr, given);
    }
    MP_TRY(mp__from_ort(ORT->OpAttr_GetType(found, &type)));
    return type == kinds[attr->kind].type ? read_list(found, attr, given) : MP_OK;
}

/* ---- lists of attributes ---- */

typedef mp_status read_fn(const void *from, mp_attr *attr, bool *given);

static mp_status read_of_kernel(const void *info, mp_attr *attr, bool *given) {
    return read_one(info, attr, given);
}

static mp_status read_of_node(const void *node, mp_attr *attr, bool *given) {
    return read_any(node, attr, given);
}

static mp_status read_list_of(const mp_op *op, read_fn *read, const void *from,
                              mp_attr_store **out) {
    const size_t count = length(op->attrs);
    mp_attr_store *store = NULL;
    MP_TRY(store_open(op, &store));
    for (size_t i = 0; i < count; i++) {
        mp_attr *attr = &store->attrs[store->count];
        bool given = false;
        *attr = (mp_attr){.name = op->attrs[i].name, .kind = op->attrs[i].kind};
        const mp_status status = read(from, attr, &given);
        if (status != MP_OK || !given) {
            attr_release(attr);
        }
        if (status != MP_OK) {
            mp__attrs_release(store);
            return status;
        }
        store->count += given;
    }
    *out = store;
    return MP_OK;
}

mp_status mp__attrs_read(const mp_op *op, const OrtKernelInfo *info, mp_attr_store **out) {
    return read_list_of(op, read_of_kernel, info, out);
}

mp_status mp__attrs_of_node(const mp_op *op, const OrtNode *node, mp_attr_store **out) {
    return read_list_of(op, read_of_node, node, out);
}

void mp__attrs_release(mp_attr_store *store) {
    if (store == NULL) {
        return;
    }
    for (size_t i = 0; i < store->count; i++) {
        attr_release(&store->attrs[i]);
    }
    free(store->attrs);
    free(store);
}

const mp_attr *mp__attrs_list(const mp_attr_store *store, size_t *count) {
    *count = store->count;
    return store->attrs;
}
