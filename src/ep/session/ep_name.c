/* ep_name.c - see ep_name.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/session/ep_name.h"

#include "base/macros.h"

#include <string.h>

#define NAME(name, lower, is_family) \
    { (name), "ep." lower ".", "ep_factory." name ".", (is_family) }

/* Its own first. ONNX Runtime writes a session's options in lower case. */
static const mp_ep_name names[] = {
    NAME("CudaPluginExecutionProvider", "cudapluginexecutionprovider", false),
    NAME("CUDAExecutionProvider", "cudaexecutionprovider", true),
};

static const mp_ep_name *find(const char *name) {
    for (size_t i = 0; name != NULL && i < MP_COUNT_OF(names); i++) {
        if (strcmp(name, names[i].provider) == 0) {
            return &names[i];
        }
    }
    return NULL;
}

const mp_ep_name *mp__ep_name_of(const char *registration) {
    const mp_ep_name *found = find(registration);
    return found != NULL ? found : &names[0];
}

bool mp__ep_name_is_known(const char *name) {
    return find(name) != NULL;
}
