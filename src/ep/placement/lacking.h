/* lacking.h - a word on nodes that no provider can run.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_LACKING_H
#define MP_EP_LACKING_H

#include "ep/abi/bridge.h"

#include <stdbool.h>

/* Whether `name`, of com.microsoft, is an operator that ONNX Runtime's CPU provider has no kernel
 * for, in none of the versions that the plugin works with. */
bool mp__lacks_cpu_kernel(const char *domain, const char *name);

/* A warning that names the node and its operator where that is so. `told` has a bit for each such
 * operator: one warning is enough for all nodes of one. For nodes without a kernel of ours. */
mp_status mp__lacking_note(const OrtNode *node, uint64_t *told);

#endif
