/* node_values.h - what a node of a graph reads and makes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_NODE_VALUES_H
#define MP_EP_NODE_VALUES_H

#include "ep/abi/ort.h"

#include "base/status.h"

typedef enum mp_side {
    MP_SIDE_IN,
    MP_SIDE_IMPLICIT, /* what the bodies of If, Loop and Scan take from around the node */
    MP_SIDE_OUT,
} mp_side;

typedef struct mp_values {
    const OrtValueInfo **list; /* owned; entries, which are the graph's, may be NULL */
    size_t count;
} mp_values;

/* Gives: `*out`, until release; nothing where it fails. */
mp_status mp__values_of(const OrtNode *node, mp_side side, mp_values *out);
void mp__values_release(const mp_values *values);

/* "" for a value that is left out, of which ONNX Runtime says so with NULL or an empty name. */
mp_status mp__value_name(const OrtValueInfo *value, const char **out);

#endif
