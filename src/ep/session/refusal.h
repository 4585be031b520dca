/* refusal.h - nodes that have a kernel of ours and are left to other providers all the same.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_REFUSAL_H
#define MP_EP_REFUSAL_H

#include "ep/session/plugin.h"

/* Whether the session's options, the device, or what the operator says of this node (mp_op.accept)
 * speak against running it; `version` is that of its schema. Called while a session is made, by one
 * thread. */
mp_status mp__refused(mp_provider *provider, const mp_op *op, const OrtNode *node, int version,
                      bool *out);

/* Whether it is a convolution and the session has none: forbidden, or without a library. */
bool mp__lacks_conv(mp_provider *provider, const mp_op *op);

#endif
