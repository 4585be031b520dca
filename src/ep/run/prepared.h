/* prepared.h - constant inputs of a node, brought once into the form that its operator wants them
 * in. ONNX Runtime then drops its own copy.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_PREPARED_H
#define MP_EP_PREPARED_H

#include "ep/session/plugin.h"

typedef struct mp_prepared {
    struct mp_prepared *next;
    int input;
    mp_tensor given; /* type and shape as the model has them */
    mp_addr addr;    /* owned; the session's pool has allocated it */
} mp_prepared;

/* Runs a plan of mp_plan_prepare for input `i`, below 32, from one address of the device to
 * another, on a stream of its own. Blocks: until that is done. */
mp_status mp__prepare_run(const mp_provider *provider, const mp_plan *plan, int i, mp_addr from,
                          mp_addr to);

/* Prepares input `i` of `node`, which is `given` at `addr`, and notes it in `node` and `*list`,
 * where its operator wants that and there is memory for it. Gives: `*done`, whether it has.
 * Blocks: until the device has. */
mp_status mp__prepare(const mp_provider *provider, mp_node *node, int i, const mp_tensor *given,
                      mp_addr addr, mp_prepared **list, bool *done);

/* Of a node whose input `i` is prepared. */
const mp_prepared *mp__prepared_input(const mp_prepared *list, int i);

/* Nothing queued may still use them. NULL is no harm. */
void mp__prepared_release(const mp_provider *provider, mp_prepared *list);

#endif
