/* refusal.h - nodes that have a kernel of ours and are left to other providers all the same.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_REFUSAL_H
#define MP_EP_REFUSAL_H

#include "ep/plugin.h"

/* Whether the session's options or the device speak against running `op`. Called while a session
 * is made, by one thread. */
bool mp__refused(mp_provider *provider, const mp_op *op);

#endif
