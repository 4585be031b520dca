/* profiler.h - a session's profile: what the device did, added to what ONNX Runtime writes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_PROFILER_H
#define MP_EP_PROFILER_H

#include "ep/session/plugin.h"

/* OrtEp.CreateProfiler. ONNX Runtime asks every session for one; it does nothing, and costs nothing
 * in a run, until profiling is asked for. */
OrtStatus *mp__profiler_create(OrtEp *self, OrtEpProfilerImpl **out);

#endif
