/* label_encoder.c - LabelEncoder of ai.onnx.ml, without strings. The table is sorted while planning
 * and looked through by halves.
 * Kernel: pointwise/label.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"
#include "op/core/upload_steps.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRIES_MAX = 1 << 20, TENSORS_SINCE = 4 };

/* What lists can hold, and tensors. */
enum {
    LISTS = 1u << MP_F32 | 1u << MP_I64,
    TENSORS = LISTS | 1u << MP_F64 | 1u << MP_I32 | 1u << MP_I16
};

typedef struct entry {
    uint64_t key, value;
    int64_t place;
} entry;

/* A list of numbers that a model gives in one of three ways. */
typedef struct listed {
    mp_dtype type; /* MP_NONE: not given */
    int64_t count;
    const void *data;
} listed;

static listed read_list(const mp_node *node, const char *ints, const char *floats,
                        const char *tensor) {
    const mp_attr *attr = mp_node_attr(node, tensor);
    if (attr != NULL) {
        return (listed){attr->tensor.type, mp_shape_count(&attr->tensor.shape),
                        (const void *)attr->tensor.data};
    }
    attr = mp_node_attr(node, ints);
    if (attr != NULL) {
        return (listed){MP_I64, (int64_t)attr->count, attr->ints};
    }
    attr = mp_node_attr(node, floats);
    return attr != NULL ? (listed){MP_F32, (int64_t)attr->count, attr->floats}
                        : (listed){MP_NONE, 0, NULL};
}

/* The bits of element i, of which there are 2, 4 or 8 bytes. */
static uint64_t bits_at(const listed *list, int64_t i) {
    const size_t size = mp_dtype_size(list->type);
    const char *at = (const char *)list->data + (size_t)i * size;
    uint16_t half = 0;
    uint32_t single = 0;
    uint64_t whole = 0;
    switch (size) {
    case sizeof half:
        memcpy(&half, at, size);
        return half;
    case sizeof single:
        memcpy(&single, at, size);
        return single;
    default:
        memcpy(&whole, at, size);
        return whole;
    }
}

static int32_t kind_of(mp_dtype type) {
    static const int32_t kinds[MP_DTYPE_END] = {[MP_I64] = K_LABEL_INT64,
                                                [MP_I32] = K_LABEL_INT32,
                                                [MP_I16] = K_LABEL_INT16,
                                                [MP_F32] = K_LABEL_FLOAT,
                                                [MP_F64] = K_LABEL_DOUBLE};
    return kinds[type];
}

static bool is_nan(uint64_t bits, mp_dtype type) {
    return type == MP_F32   ? (bits & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000)
           : type == MP_F64 ? (bits & INT64_MAX) > UINT64_C(0x7ff0000000000000)
                            : false;
}

/* As label.cu writes it. */
static uint64_t key_at(const listed *keys, int64_t i) {
    const uint64_t bits = bits_at(keys, i);
    if (is_nan(bits, keys->type)) {
        return keys->type == MP_F32 ? UINT64_C(0x7fc00000) : UINT64_C(0x7ff8000000000000);
    }
    const bool minus_zero = (keys->type == MP_F32 && bits == UINT64_C(0x80000000)) ||
                            (keys->type == MP_F64 && bits == UINT64_C(0x8000000000000000));
    return minus_zero ? 0 : bits;
}

static int by_key(const void *a, const void *b) {
    const entry *x = a;
    const entry *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->place > y->place) - (x->place < y->place);
}

/* Fills `sorted` and gives the number of distinct keys. Of equal keys the first counts, as in ONNX
 * Runtime; before version 4 what is not a number equals nothing. */
static int64_t sort_entries(const mp_node *node, const listed *keys, const listed *values,
                            entry *sorted) {
    int64_t count = 0, kept = 0;
    for (int64_t i = 0; i < keys->count; i++) {
        if (node->version >= TENSORS_SINCE || !is_nan(bits_at(keys, i), keys->type)) {
            sorted[count++] = (entry){key_at(keys, i), bits_at(values, i), i};
        }
    }
    qsort(sorted, (size_t)count, sizeof *sorted, by_key);
    for (int64_t i = 0; i < count; i++) {
        if (kept == 0 || sorted[kept - 1].key != sorted[i].key) {
            sorted[kept++] = sorted[i];
        }
    }
    return kept;
}

static mp_status upload_table(mp_planner *p, const listed *keys, const listed *values, mp_ref *out,
                              int64_t *entries) {
    entry *sorted = calloc((size_t)keys->count + 1, sizeof *sorted);
    uint64_t *table = calloc((size_t)keys->count + 1, 2 * sizeof *table);
    mp_status status = MP_OK;
    if (sorted == NULL || table == NULL) {
        status = MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %lld labels",
                         (long long)keys->count);
    } else {
        *entries = sort_entries(p->node, keys, values, sorted);
        for (int64_t i = 0; i < *entries; i++) {
            table[i] = sorted[i].key;
            table[*entries + i] = sorted[i].value;
        }
        status = mp_plan_upload(p, table, 2 * *entries, out);
    }
    free(sorted);
    free(table);
    return status;
}

/* What an element without a label becomes: as given, or by the schema -1 or -0. */
static mp_status read_fallback(const mp_node *node, mp_dtype type, uint64_t *out) {
    const mp_attr *attr = mp_node_attr(node, "default_tensor");
    const int64_t whole = type == MP_I64 ? mp_node_int(node, "default_int64", -1) : -1;
    const float single = mp_node_float(node, "default_float", -0.0F);
    const double wide = -0.0;         /* doubles have a default of their own only as a tensor */
    listed given = {type, 1, &whole}; /* narrower integers of all ones, too, are -1 */
    if (attr != NULL) {
        given = (listed){attr->tensor.type, mp_shape_count(&attr->tensor.shape),
                         (const void *)attr->tensor.data};
    } else if (type == MP_F32) {
        given.data = &single;
    } else if (type == MP_F64) {
        given.data = &wide;
    }
    if (given.type != type || given.count != 1) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "default_tensor has %lld elements of type %s; one of type %s is needed",
                       (long long)given.count, mp_dtype_name(given.type), mp_dtype_name(type));
    }
    *out = bits_at(&given, 0);
    return MP_OK;
}

static mp_status check_lists(const mp_planner *p, const listed *keys, const listed *values) {
    if (keys->type != p->in[0].type) {
        return MP_FAIL(INVALID_ARGUMENT, "keys of type %s for an input of type %s",
                       mp_dtype_name(keys->type), mp_dtype_name(p->in[0].type));
    }
    if ((MP_BIT(values->type) & TENSORS) == 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "values of type %s; give int16, int32, int64, float or double",
                       mp_dtype_name(values->type));
    }
    if (keys->count != values->count || keys->count > ENTRIES_MAX) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%lld keys and %lld values; as many of both, at most %d, are needed",
                       (long long)keys->count, (long long)values->count, ENTRIES_MAX);
    }
    return MP_OK;
}

static mp_status plan_label_encoder(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const listed keys = read_list(p->node, "keys_int64s", "keys_floats", "keys_tensor");
    const listed values = read_list(p->node, "values_int64s", "values_floats", "values_tensor");
    MP_TRY(check_lists(p, &keys, &values));
    mp_label_args args = {.count = mp_shape_count(&x->shape),
                          .kind = kind_of(x->type),
                          .size = (int32_t)mp_dtype_size(values.type)};
    mp_ref table = MP_NOWHERE;
    const mp_kernel *kernel = NULL;
    MP_TRY(read_fallback(p->node, values.type, &args.fallback));
    MP_TRY(mp_plan_output(p, 0, values.type, &x->shape));
    if (args.count == 0) {
        return MP_OK;
    }
    MP_TRY(upload_table(p, &keys, &values, &table, &args.entries));
    MP_TRY(mp_plan_kernel(p, &kernel, "label"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_label_args, x, MP_IN(0)), MP_BIND(mp_label_args, out, MP_OUT(0)),
                     MP_BIND(mp_label_args, table, table));
}

#define LIST_ATTRS                                                          \
    {"keys_int64s", MP_ATTR_INTS}, {"keys_floats", MP_ATTR_FLOATS},         \
        {"values_int64s", MP_ATTR_INTS}, {"values_floats", MP_ATTR_FLOATS}, \
        {"default_int64", MP_ATTR_INT}, {                                   \
        "default_float", MP_ATTR_FLOAT                                      \
    }

static const mp_attr_def list_attrs[] = {LIST_ATTRS, {NULL, 0}};
static const mp_attr_def tensor_attrs[] = {LIST_ATTRS,
                                           {"keys_tensor", MP_ATTR_TENSOR},
                                           {"values_tensor", MP_ATTR_TENSOR},
                                           {"default_tensor", MP_ATTR_TENSOR},
                                           {NULL, 0}};

#define ROW(version_, set, attrs_)                                                                \
    {                                                                                             \
        .domain = "ai.onnx.ml", .name = "LabelEncoder", .since = (version_), .until = (version_), \
        .types = {{"T1", (set)}, {"T2", (set)}}, .attrs = (attrs_), .plan = plan_label_encoder    \
    }

static const mp_op ops[] = {
    ROW(2, LISTS, list_attrs),
    ROW(4, TENSORS, tensor_attrs),
};

const mp_op_family mp__family_label_encoder = {"label_encoder", ops, MP_COUNT_OF(ops)};
