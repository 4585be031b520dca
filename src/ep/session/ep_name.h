/* ep_name.h - what the provider is called, which is for each registration to say: by its own name,
 * or by that of ONNX Runtime's CUDA provider, so that programs written for that one run on this
 * one. ONNX Runtime then fuses what it fuses for CUDA.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_EP_NAME_H
#define MP_EP_EP_NAME_H

#include <stdbool.h>

typedef struct mp_ep_name {
    const char *provider;           /* for sessions */
    const char *option_prefix;      /* of a session's entries, in any case */
    const char *environment_prefix; /* of the environment's entries, whose case counts */
    bool is_family; /* entries of its family, "ep.cuda.", are its own: ONNX Runtime writes it so */
} mp_ep_name;

/* By the name of a registration, NULL for none: the provider's own name unless it is another that
 * it goes by. */
const mp_ep_name *mp__ep_name_of(const char *registration);
/* Whether the provider goes by this name in some registration. */
bool mp__ep_name_is_known(const char *name);

#endif
