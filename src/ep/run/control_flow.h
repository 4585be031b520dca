/* control_flow.h - If, Loop and Scan: rows without a plan, since ONNX Runtime itself runs them.
 *
 * It walks the branches and iterations and runs the nodes of the bodies, each where it was placed;
 * of a device it needs only two things: results of iterations put one behind the other (Loop), and
 * a transpose (Scan).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_CONTROL_FLOW_H
#define MP_EP_CONTROL_FLOW_H

#include "ep/session/plugin.h"

typedef struct mp_control {
    mp_op op; /* its `plan` is NULL */
    OrtKernelCreateFunc create;
} mp_control;

extern const mp_control mp__controls[];
extern const size_t mp__control_count;

/* The row for an operator of schema version `version`, or NULL. */
const mp_op *mp__control_find(const char *domain, const char *name, int version);

/* What makes the kernels of a row, of whatever kind the row is. */
OrtKernelCreateFunc mp__kernel_create_of(const mp_op *op);

#endif
