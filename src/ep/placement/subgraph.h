/* subgraph.h - what the placement of nodes must know of graphs within nodes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_SUBGRAPH_H
#define MP_EP_SUBGRAPH_H

#include "base/status.h"
#include "ep/abi/ort.h"

/* Whether `node`, an If, Loop or Scan, should be this provider's. All its values must be tensors
 * that a device can hold, those too that its bodies take from around it: ONNX Runtime looks at the
 * first of a list of values only. And a node within the bodies, at any depth, must be this
 * provider's: without one, all values in there are in host memory, so the node should be there
 * too. ONNX Runtime places the nodes of bodies before those around them. */
mp_status mp__subgraph_is_for_us(const char *provider, const OrtNode *node, bool *out);

/* The first half of that: whether a device can hold all its values. */
mp_status mp__subgraph_values_fit(const OrtNode *node, bool *out);

/* The values of `graph` that are in host memory whoever uses them: if it is the body of a Loop, the
 * number of the iteration and the condition. At most MP_HOST_INPUTS_MAX. */
enum { MP_HOST_INPUTS_MAX = 2 };
mp_status mp__subgraph_host_inputs(const OrtGraph *graph,
                                   const OrtValueInfo *out[MP_HOST_INPUTS_MAX], size_t *count);

#endif
