/* pass.h - rewrites of a graph, each with one purpose, in the order of pass_list.def.
 *
 * A pass looks for one pattern and leaves a graph that computes the same. Profiles and errors name
 * the nodes of the model: a node that a pass has changed stands for those that were taken out
 * around it (mp_graph_settle), and where that does not find them the pass says it
 * (mp_graph_absorb). Which passes run is said by words: "-bias" leaves one out, "+channels_last"
 * runs one though this device gains nothing by it, "gpu" has the graph rewritten as a GPU's is,
 * "=12" stops after so many rewrites in all, so that a wrong result can be traced to one rewrite by
 * halving. "-cluster" is no pass: programs of the graph then join no element-wise nodes
 * (cluster.h); nor is "-row_cluster", without reductions among them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_H
#define MP_GRAPH_PASS_H

#include "graph/graph.h"

/* How many rewrites are left; a pass asks before each. */
typedef struct mp_rewrites {
    int64_t done, most;
    bool forced; /* to be made where they gain nothing, too; for tests */
} mp_rewrites;

static inline bool mp_rewrite_allowed(mp_rewrites *rewrites) {
    if (rewrites->done >= rewrites->most) {
        return false;
    }
    rewrites->done++;
    return true;
}

/* Fails: OUT_OF_MEMORY (host); the graph is then still one that computes the same. */
typedef mp_status mp_pass_fn(mp_graph *graph, mp_rewrites *rewrites);

#define MP_PASS(name) mp_pass_fn mp_pass_##name;
#include "graph/pass_list.def"
#undef MP_PASS

/* Runs the passes that `words` (NULL: all) leaves in, each to its end. `*done`: how many rewrites
 * there were in graphs before this one; those of this one are added. Fails:
 * INVALID_ARGUMENT for a word that names no pass. */
mp_status mp_passes_run(mp_graph *graph, const char *words, int64_t *done);

#endif
