/* node_attrs.h - a node's attributes, read from ONNX Runtime when its kernel is made, and before
 * that when nodes are given to providers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_NODE_ATTRS_H
#define MP_EP_NODE_ATTRS_H

#include "ep/abi/ort.h"

#include "op/core/op.h"

typedef struct mp_attr_store mp_attr_store;

/* Reads those attributes of `op`'s list that the node has. Gives: `*out`, until release. */
mp_status mp__attrs_read(const mp_op *op, const OrtKernelInfo *info, mp_attr_store **out);
/* The same from a node of a graph. */
mp_status mp__attrs_of_node(const mp_op *op, const OrtNode *node, mp_attr_store **out);
void mp__attrs_release(mp_attr_store *store);

/* Borrowed from the store. */
const mp_attr *mp__attrs_list(const mp_attr_store *store, size_t *count);

#endif
