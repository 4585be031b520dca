/* island_note.h - what the islands of a session do, told to whoever looks: explanations by the name
 * of the session (base/note.h), and the layout of blocks in pages of the pool's trace.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ISLAND_NOTE_H
#define MP_EP_ISLAND_NOTE_H

#include "ep/island/claim.h"
#include "ep/island/island.h"

void mp__island_list_open(mp_provider *provider);
/* Where the session has a name and asks for it (mp_options.explain): leaves a note under that name
 * and "/islands", made when somebody looks:
 *
 *     {"islands": [{"number", "is_body", "name", "event", "nodes" (origin.h), "rewrites",
 *                   "last_pass", "before", "after",
 *                   "programs": [{"inputs": [{"name", "type", "shape"}], (program_write.h),
 *                                 "next": [{(program_write.h), "next"}]}]}],
 *      "outside": [{"op_type", "name", "reason"}]}
 *
 * "next" are the segments that go on behind one, for what was found, the last used first; a body of
 * a loop comes behind the island that it is of, as an island of the same number. "before" and
 * "after" the passes are texts (graph/text.h), "event" is ONNX Runtime's name, and
 * "last_pass" the last one that changed the graph. */
void mp__island_list_publish(mp_provider *provider);
void mp__island_list_close(mp_provider *provider);

/* An island that is compiled is told of, and what it keeps can be taken, until it is removed.
 * Without memory it has no note. */
void mp__island_list_add(mp_island *island);
void mp__island_list_remove(mp_island *island);

/* Notes which nodes of ours are in no island, and why. */
void mp__island_list_outside(mp_provider *provider, const mp_candidate *nodes, size_t count);

#endif
