/* row.h - the row of the operator table that a node of a model is run by.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ROW_H
#define MP_EP_ROW_H

#include "ep/session/plugin.h"

typedef struct mp_row {
    const mp_op *op; /* NULL: none of ours */
    int version;
    bool controls; /* If, Loop, Scan: its bodies have not been looked at */
    bool copies;   /* between providers, in a model that ONNX Runtime saved */
    bool assigned; /* to a provider, before */
    bool missing;  /* no provider of ours has a kernel for it */
} mp_row;

/* Whether a kernel of ours can run the node, and which: it has one, nothing speaks against it
 * (refusal.h), and it is one that the kernel can run. */
mp_status mp__row_of(mp_provider *provider, OrtEpGraphSupportInfo *support, const OrtNode *node,
                     mp_row *out);

#endif
