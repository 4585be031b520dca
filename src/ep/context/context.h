/* context.h - islands in a compiled model.
 *
 * A session with ep.context_enable=1 has ONNX Runtime write a model in which each island is a node
 * EPContext, whose attribute ep_cache_context is the island's graph (graph/store.h), or the name of
 * a file beside the model that holds it. Constants are the node's inputs, but for those of bodies,
 * so ONNX Runtime keeps them as it keeps all initializers. Machine code is in none of them: a model
 * is not trusted, and kernels are found in the cache of the user or compiled from our own text.
 *
 * If, Loop and Scan that islands hold are in their graphs. Where one is outside, nothing is
 * compiled, since ONNX Runtime fails to write it beside compiled nodes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_CONTEXT_H
#define MP_EP_CONTEXT_H

#include "ep/session/plugin.h"
#include "graph/graph.h"

#define MP_CONTEXT_DOMAIN   "com.microsoft"
#define MP_CONTEXT_OPERATOR "EPContext"
#define MP_CONTEXT_MAKER    "millpond " /* and the version: what has made a node */

/* What a session asks for. */
typedef struct mp_context {
    bool embeds;      /* graphs are in the nodes */
    const char *path; /* borrowed; where ONNX Runtime writes the model; "": beside the one it has */
    char *prefix;     /* owned; of names */
} mp_context;

/* context_options.c. Gives: `*out`, NULL where no compiled model is asked for, until close; and
 * `*path`, which it borrows, until free, also where it fails. */
mp_status mp__context_open(const OrtSessionOptions *session, char **path, mp_context **out);
void mp__context_close(mp_context *context); /* NULL is ignored */

/* ---- context_write.c ---- */

/* `graph` is the island's as imported, and `ports` its values in the order of the node's inputs.
 * Gives: `*out`, which is ONNX Runtime's. */
mp_status mp__context_node(const mp_provider *provider, const OrtGraph *group, const OrtNode *fused,
                           const mp_graph *graph, const int32_t *ports, size_t port_count,
                           OrtNode **out);

/* ---- context_read.c ---- */

/* Whether the node is one that this provider has made, by whichever of its names. */
mp_status mp__context_is_ours(const OrtNode *node, bool *out);
/* Of a group that is one node: that, where it is an EPContext; else NULL. */
mp_status mp__context_of_group(const OrtGraph *group, const OrtNode **out);
/* The island's graph; its inputs and outputs are those of `fused`, in its order. Constants' data is
 * ONNX Runtime's, as by mp__island_import. Gives: `*out`, until mp_graph_destroy. */
mp_status mp__context_import(mp_provider *provider, const OrtGraph *group, const OrtNode *node,
                             const OrtNode *fused, mp_graph **out);

#endif
