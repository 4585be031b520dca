/* saving.h - whether a session saves its optimised model.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_SAVING_H
#define MP_EP_SAVING_H

#include "ep/abi/ort.h"

#include <stdbool.h>

/* Whether the options have a path for it (SetOptimizedModelFilePath). False, too, where that cannot
 * be seen. Threads: any. */
bool mp__session_saves(const OrtSessionOptions *session);

#endif
