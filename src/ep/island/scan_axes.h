/* scan_axes.h - a Scan that slices or stacks along other dimensions than the first. The loop of an
 * island does so along the first one: what goes in is turned before it, what comes out behind it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_SCAN_AXES_H
#define MP_EP_SCAN_AXES_H

#include "ep/island/import_private.h"

/* Whether enough is known to turn all that has to be: ranks, and axes within them. */
mp_status mp__scan_axes_fit(const OrtNode *node, bool *out);

/* Puts what is sliced, turned where it has to be, into `in`. To be called before the loop is added;
 * `node` is the Scan, whose inputs from `carried` on are sliced. */
mp_status mp__scan_turn_inputs(mp_import *im, const OrtNode *node, int32_t carried,
                               mp_value_list *in);
/* Puts what the loop is to stack into `out`: a value of its own for each that is turned. */
mp_status mp__scan_plan_outputs(mp_import *im, const OrtNode *node, int32_t carried,
                                mp_value_list *out);
/* Turns those, to be called once the loop is there: `stacked` became `wanted`. */
mp_status mp__scan_turn_outputs(mp_import *im, const OrtNode *node, int32_t carried,
                                const mp_value_list *stacked, const int32_t *wanted);

#endif
