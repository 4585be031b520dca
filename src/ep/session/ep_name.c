/* ep_name.c - see ep_name.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/session/ep_name.h"

#include "base/macros.h"

#include <string.h>

#define NAME(name, lower) \
    { (name), "ep." lower ".", "ep_factory." name "." }

/* Its own first. ONNX Runtime writes a session's options in lower case. */
static const mp_ep_name names[] = {
    NAME("CudaPluginExecutionProvider", "cudapluginexecutionprovider"),
    NAME("CUDAExecutionProvider", "cudaexecutionprovider"),
};

const mp_ep_name *mp__ep_name_of(const char *registration) {
    for (size_t i = 0; registration != NULL && i < MP_COUNT_OF(names); i++) {
        if (strcmp(registration, names[i].provider) == 0) {
            return &names[i];
        }
    }
    return &names[0];
}
