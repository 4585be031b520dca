/* signature.h - what a node must look like to be one of its operator: how many inputs and outputs,
 * of which types, which attributes.
 *
 * Of a model's nodes ONNX Runtime has checked that before we see them. What comes from elsewhere
 * (ep/context) is checked here, by a table of ONNX Runtime's own schemas.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SIGNATURE_H
#define MP_OP_SIGNATURE_H

#include "op/core/op.h"

/* `in` and `out` have types and shapes, as far as these are known; MP_NONE for one that is left
 * out. Fails: INVALID_ARGUMENT for a node that ONNX Runtime would not take, or its kernel not;
 * UNSUPPORTED where the operator's `accept` refuses it. Threads: any. */
mp_status mp_signature_check(const mp_node *node, const mp_tensor *in, int in_count,
                             const mp_tensor *out, int out_count);

#endif
