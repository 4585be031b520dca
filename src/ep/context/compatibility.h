/* compatibility.h - what ONNX Runtime asks before it loads a compiled model.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_COMPATIBILITY_H
#define MP_EP_COMPATIBILITY_H

#include "ep/session/plugin.h"

/* Set what answers: of a session that compiles a model, and of a factory. */
void mp__compatibility_install(OrtEp *ep);
void mp__compatibility_install_factory(OrtEpFactory *factory);

#endif
