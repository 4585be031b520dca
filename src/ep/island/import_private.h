/* import_private.h - what the files of an import share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_IMPORT_PRIVATE_H
#define MP_EP_IMPORT_PRIVATE_H

#include "ep/abi/node_values.h"
#include "ep/placement/name_set.h"
#include "ep/session/plugin.h"
#include "graph/graph.h"

/* A name that a branch has given to another value than before. */
typedef struct mp_renamed {
    int number;
    int32_t before;
} mp_renamed;

typedef struct mp_import {
    const mp_provider *provider;
    mp_graph *graph;
    mp_name_set names;
    mp_name_set dims; /* what the model calls dimensions that are not known */
    mp_name_set held; /* constants of the group, where the fused node has them as inputs */
    const OrtValueInfo **held_values; /* owned; by the number of the name */
    int32_t *values; /* owned; of the graph, by the number of the name; MP_NO_VALUE: none now */
    size_t capacity;
    mp_renamed *renamed; /* owned; in the branches that are open */
    size_t renamed_count, renamed_capacity;
    struct mp_import *outer; /* of a loop's body: what is around it */
    int32_t *captured; /* owned; values of the outer graph, in the order of the body's inputs */
    size_t captured_count, captured_capacity;
} mp_import;

typedef struct mp_value_list {
    int32_t *values; /* owned */
    size_t count;
} mp_value_list;

typedef mp_status(mp_look_fn)(mp_import *im, const OrtValueInfo *value, int32_t *out);

/* ---- import_value.c ---- */

mp_status mp__import_no_memory(void);
/* A value that a node reads: made before, a constant, or from around a loop. */
mp_look_fn mp__import_read;
/* A value that a node makes; MP_NO_VALUE for one that is left out. */
mp_look_fn mp__import_made;
/* Gives: `*out`, until its values are freed, also where it fails. */
mp_status mp__import_list(mp_import *im, const OrtNode *node, mp_side side, mp_look_fn *look,
                          mp_value_list *out);
/* Forgets names of a branch, from the `from`th that was noted. */
void mp__import_forget(mp_import *im, size_t from);
void mp__import_close(mp_import *im); /* the graph stays */

/* ---- import.c ---- */

mp_status mp__import_nodes(mp_import *im, const OrtGraph *group);

/* ---- import_body.c ---- */

mp_status mp__import_if(mp_import *im, const OrtNode *node);
mp_status mp__import_loop(mp_import *im, const OrtNode *node, bool is_scan);

#endif
