/* node_label.h - how a trace of the pool names the memory of a node: its outputs are activations,
 * its scratch memory is workspace, its constant inputs are weights.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_NODE_LABEL_H
#define MP_EP_NODE_LABEL_H

#include "ep/session/plugin.h"

typedef struct mp_node_labels {
    mp_label work;
    mp_label *out;    /* owned; one an output */
    mp_addr *weights; /* owned; where constant inputs lie, as far as the pool was told; 0: not */
    int weight_count; /* one an input */
} mp_node_labels;

/* `node`: its name. Gives: `*out`, also where it fails, until release. Fails: OUT_OF_MEMORY. */
mp_status mp__node_labels_make(const mp_provider *provider, const OrtKernelInfo *info,
                               const char *node, size_t inputs, size_t outputs,
                               mp_node_labels *out);
void mp__node_labels_release(const mp_provider *provider, mp_node_labels *labels);

/* The node keeps this constant input in another form, and ONNX Runtime may free it. */
void mp__node_label_drop(const mp_provider *provider, mp_node_labels *labels, int input);

#endif
