/* hold.h - If, Loop and Scan that are in an island with their bodies, instead of being walked by
 * ONNX Runtime.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_HOLD_H
#define MP_EP_HOLD_H

#include "ep/session/plugin.h"

/* Whether an island holds `node`: all nodes of its bodies, at any depth, can be in one. Answers the
 * same whenever it is asked, for ONNX Runtime asks for bodies before the nodes around them: those
 * of a node that is held are left alone. `support` may be that of a body of the node. */
mp_status mp__island_holds(mp_provider *provider, OrtEpGraphSupportInfo *support,
                           const OrtNode *node, bool *out);

/* Whether the graph is the body of a node that is held. */
mp_status mp__island_holds_around(mp_provider *provider, OrtEpGraphSupportInfo *support,
                                  const OrtGraph *graph, bool *out);

#endif
