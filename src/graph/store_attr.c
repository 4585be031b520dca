/* store_attr.c - tensors and attributes from bytes, see store.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/store_private.h"

enum { ATTRS_MAX = 256 }; /* of a node */

/* ---- tensors ---- */

mp_status mp__store_take_tensor(mp_store_reader *r, mp_tensor *out) {
    uint32_t type = 0;
    *out = (mp_tensor){.type = MP_NONE};
    MP_TRY(mp__store_take_number(r, &type));
    MP_TRY(mp__store_take(r, &out->shape.rank, sizeof out->shape.rank));
    if (mp_dtype_bits((mp_dtype)type) == 0 || out->shape.rank < MP_DIM_UNKNOWN ||
        out->shape.rank > MP_RANK_MAX) {
        return mp__store_damaged("a value has no such type or shape");
    }
    out->type = (mp_dtype)type;
    const int32_t rank = MP_MAX(out->shape.rank, 0);
    MP_TRY(mp__store_take(r, out->shape.dim, (size_t)rank * sizeof *out->shape.dim));
    for (int d = 0; d < rank; d++) {
        if (out->shape.dim[d] < INT32_MIN || out->shape.dim[d] > INT64_MAX / 2) {
            return mp__store_damaged("a dimension is out of bounds");
        }
    }
    return MP_OK;
}

mp_status mp__store_take_bytes(mp_store_reader *r, mp_tensor *tensor) {
    size_t bytes = 0;
    void *data = NULL;
    if (tensor->shape.rank < 0) {
        return mp__store_damaged("a constant has no shape");
    }
    MP_TRY(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
    if (bytes > (size_t)(r->end - r->at)) {
        return mp__store_damaged("a constant is larger than the rest");
    }
    MP_TRY(mp_graph_keep(r->graph, bytes + 1, &data));
    tensor->data = (mp_addr)data;
    return mp__store_take(r, data, bytes);
}

/* ---- attributes ---- */

static mp_status take_texts(mp_store_reader *r, mp_attr *attr) {
    void *texts = NULL;
    size_t bytes = 0;
    MP_TRY(mp__store_take_list(r, 1, &texts, &bytes));
    attr->s = texts;
    for (size_t i = 0; i < bytes; i++) {
        attr->count += attr->s[i] == '\0';
    }
    return bytes == 0 || attr->s[bytes - 1] == '\0' ? MP_OK
                                                    : mp__store_damaged("a text has no end");
}

static mp_status take_content(mp_store_reader *r, mp_attr *attr) {
    void *list = NULL;
    switch (attr->kind) {
    case MP_ATTR_INT:
        return mp__store_take(r, &attr->i, sizeof attr->i);
    case MP_ATTR_FLOAT:
        return mp__store_take(r, &attr->f, sizeof attr->f);
    case MP_ATTR_STRING:
        return mp__store_take_text(r, &attr->s);
    case MP_ATTR_INTS:
        MP_TRY(mp__store_take_list(r, sizeof *attr->ints, &list, &attr->count));
        attr->ints = list;
        return MP_OK;
    case MP_ATTR_FLOATS:
        MP_TRY(mp__store_take_list(r, sizeof *attr->floats, &list, &attr->count));
        attr->floats = list;
        return MP_OK;
    case MP_ATTR_STRINGS:
        return take_texts(r, attr);
    case MP_ATTR_TENSOR:
        MP_TRY(mp__store_take_tensor(r, &attr->tensor));
        return mp__store_take_bytes(r, &attr->tensor);
    }
    return mp__store_damaged("an attribute is of no kind");
}

/* Attributes are those of the operator's row, of its kinds. */
static mp_status take_attr(mp_store_reader *r, const mp_op *op, mp_attr *out) {
    const char *name = NULL;
    uint32_t kind = 0;
    MP_TRY(mp__store_take_text(r, &name));
    MP_TRY(mp__store_take_number(r, &kind));
    for (const mp_attr_def *def = op->attrs; def != NULL && def->name != NULL; def++) {
        if (strcmp(def->name, name) == 0 && def->kind == (mp_attr_kind)kind) {
            *out = (mp_attr){.name = def->name, .kind = def->kind};
            return take_content(r, out);
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "the operator %s has no attribute '%s' of that kind", op->name,
                   name);
}

mp_status mp__store_take_attrs(mp_store_reader *r, mp_node *node) {
    enum { LEAST = 2 * sizeof(uint32_t) };
    size_t count = 0;
    void *attrs = NULL;
    MP_TRY(mp__store_take_count(r, LEAST, &count));
    if (count > ATTRS_MAX) {
        return mp__store_damaged("a node has too many attributes");
    }
    MP_TRY(mp_graph_keep(r->graph, (count + 1) * sizeof(mp_attr), &attrs));
    mp_attr *list = attrs;
    for (; node->attr_count < count; node->attr_count++) {
        MP_TRY(take_attr(r, node->op, &list[node->attr_count]));
    }
    node->attrs = list;
    return MP_OK;
}
