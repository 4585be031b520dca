/* bridge.c - status and log between the two sides.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/abi/bridge.h"

#include "base/log.h"
#include "base/shortage.h"
#include "ep/session/plugin.h"

/* Never ORT_EP_FAIL: Python's InferenceSession takes it as a reason to move the whole session to
 * the CPU, for good, and one run that did not fit would do that. */
static OrtErrorCode code_of(mp_status status) {
    switch (status) {
    case MP_OK:
        return ORT_OK;
    case MP_INVALID_ARGUMENT:
        return ORT_INVALID_ARGUMENT;
    case MP_UNSUPPORTED:
        return ORT_NOT_IMPLEMENTED;
    case MP_NOT_FOUND:
        return ORT_NOT_FOUND;
    case MP_OUT_OF_MEMORY:
    case MP_DEVICE:
    case MP_BUSY:
    case MP_INTERNAL:
        break;
    }
    return ORT_FAIL;
}

OrtStatus *mp__to_ort(mp_status status) {
    if (status == MP_OK) {
        return NULL;
    }
    mp_shortage_keep(status);
    return ORT->CreateStatus(code_of(status), mp_error_message());
}

mp_status mp__from_ort(OrtStatus *status) {
    if (status == NULL) {
        return MP_OK;
    }
    const mp_status failed = MP_FAIL(INTERNAL, "ONNX Runtime: %s", ORT->GetErrorMessage(status));
    ORT->ReleaseStatus(status);
    return failed;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int attached;

static void to_logger(void *context, mp_log_level level, const char *file, int line,
                      const char *text) {
    static const OrtLoggingLevel levels[] = {
        [MP_LOG_ERROR] = ORT_LOGGING_LEVEL_ERROR,
        [MP_LOG_WARNING] = ORT_LOGGING_LEVEL_WARNING,
        [MP_LOG_INFO] = ORT_LOGGING_LEVEL_INFO,
        [MP_LOG_DEBUG] = ORT_LOGGING_LEVEL_VERBOSE,
    };
    OrtStatus *status = ORT->Logger_LogMessage(context, levels[level], text, file, line, "");
    if (status != NULL) {
        ORT->ReleaseStatus(status);
    }
}

void mp__log_attach(const OrtLogger *logger) {
    (void)pthread_mutex_lock(&lock);
    if (attached++ == 0 && logger != NULL) {
        mp_log_set_sink(to_logger, (void *)(uintptr_t)logger);
    }
    (void)pthread_mutex_unlock(&lock);
}

void mp__log_detach(void) {
    (void)pthread_mutex_lock(&lock);
    if (--attached == 0) {
        mp_log_set_sink(NULL, NULL);
    }
    (void)pthread_mutex_unlock(&lock);
}
