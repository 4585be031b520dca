/* nhwc.h - channels last: what ONNX Runtime asks before it rewrites a graph, and what is said when
 * a rewritten node finds no kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_NHWC_H
#define MP_EP_NHWC_H

#include "ep/session/plugin.h"

OrtStatus *mp__preferred_layout(OrtEp *self, OrtEpDataLayout *out);
OrtStatus *mp__should_convert(OrtEp *self, const char *domain, const char *name,
                              OrtEpDataLayout layout, int *out);

/* To be told of each node that is taken, of schema version `version`: one that could not be run
 * with channels last keeps its operator from being rewritten in this session. */
mp_status mp__nhwc_note_taken(mp_provider *provider, const mp_op *op, const OrtNode *node,
                              int version);

/* To be told of each node without a kernel of ours: one that was rewritten for us can run nowhere
 * else, so the log gets a warning that names its operator, version and types, and the
 * type constraints that its schema and our row have. */
mp_status mp__nhwc_note_missing(const OrtNode *node);

#endif
