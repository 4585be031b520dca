/* op_registry.c - the table of operators, expanded from op_list.def, and nodes' attributes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"

#include <string.h>

/* ISO C has no constant copies of structs, so the list holds pointers. */
const mp_op_family *const mp_op_families[] = {
#define MP_OP_FAMILY(name) &mp__family_##name,
#include "op/op_list.def"
#undef MP_OP_FAMILY
};
const size_t mp_op_family_count = MP_COUNT_OF(mp_op_families);

static const mp_op *find_in(const mp_op_family *family, const char *domain, const char *name,
                            int version) {
    for (size_t i = 0; i < family->count; i++) {
        const mp_op *op = &family->ops[i];
        if (op->since <= version && version <= op->until && strcmp(op->name, name) == 0 &&
            strcmp(op->domain, domain) == 0) {
            return op;
        }
    }
    return NULL;
}

const mp_op *mp_op_find(const char *domain, const char *name, int version) {
    for (size_t f = 0; f < mp_op_family_count; f++) {
        const mp_op *op = find_in(mp_op_families[f], domain, name, version);
        if (op != NULL) {
            return op;
        }
    }
    return NULL;
}

const mp_attr *mp_node_attr(const mp_node *node, const char *name) {
    for (size_t i = 0; i < node->attr_count; i++) {
        if (strcmp(node->attrs[i].name, name) == 0) {
            return &node->attrs[i];
        }
    }
    return NULL;
}

int64_t mp_node_int(const mp_node *node, const char *name, int64_t fallback) {
    const mp_attr *attr = mp_node_attr(node, name);
    return attr != NULL && attr->kind == MP_ATTR_INT ? attr->i : fallback;
}

bool mp_node_runs_once(const mp_node *node) {
    return node->op->once != NULL && mp_node_int(node, node->op->once, 0) != 0;
}

bool mp_node_flag(const mp_node *node, const char *name, bool fallback) {
    return mp_node_int(node, name, fallback) == 1;
}

float mp_node_float(const mp_node *node, const char *name, float fallback) {
    const mp_attr *attr = mp_node_attr(node, name);
    return attr != NULL && attr->kind == MP_ATTR_FLOAT ? attr->f : fallback;
}

bool mp_node_ints_are(const mp_node *node, const char *name, int64_t wanted) {
    const mp_attr *list = mp_node_attr(node, name);
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        if (list->ints[i] != wanted) {
            return false;
        }
    }
    return true;
}

const char *mp_node_string(const mp_node *node, const char *name, const char *fallback) {
    const mp_attr *attr = mp_node_attr(node, name);
    return attr != NULL && attr->kind == MP_ATTR_STRING ? attr->s : fallback;
}
