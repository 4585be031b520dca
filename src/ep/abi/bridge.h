/* bridge.h - between our status codes and log lines and ONNX Runtime's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_BRIDGE_H
#define MP_EP_BRIDGE_H

#include "ep/abi/ort.h"

#include "base/status.h"

/* NULL for MP_OK, otherwise an OrtStatus with the thread's sentence. */
OrtStatus *mp__to_ort(mp_status status);

/* MP_OK for NULL; otherwise takes and releases `status` and keeps its sentence for the thread. */
mp_status mp__from_ort(OrtStatus *status);

#define ORT_TRY(expr)                   \
    do {                                \
        OrtStatus *try_status = (expr); \
        if (try_status != NULL) {       \
            return try_status;          \
        }                               \
    } while (0)

#define MP_TRY_ORT(expr) ORT_TRY(mp__to_ort(expr))

/* Sends log lines to ONNX Runtime's logger from now on; counted, so that each attach is undone by
 * one detach. `logger` must outlive the last detach. */
void mp__log_attach(const OrtLogger *logger);
void mp__log_detach(void);

#endif
