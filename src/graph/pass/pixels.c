/* pixels.c - see pixels.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/pixels.h"

#include "op/core/channels.h"

#include <string.h>

static bool is_in(const mp_vertex *v, const char *domain, const char *name) {
    return !v->is_gone && v->loop == NULL && strcmp(v->node.op->domain, domain) == 0 &&
           strcmp(v->node.op->name, name) == 0;
}

bool mp_is_of_pixels(const mp_vertex *v) {
    return (is_in(v, MP_NHWC_DOMAIN, "Conv") || is_in(v, MP_OWN_NHWC_DOMAIN, "FusedConv")) &&
           mp_node_int(&v->node, "group", 1) == 1 && mp_node_ints_are(&v->node, "pads", 0) &&
           mp_node_ints_are(&v->node, "strides", 1) &&
           strcmp(mp_node_string(&v->node, "auto_pad", "NOTSET"), "NOTSET") == 0;
}
