/* left_note.h - which nodes a session leaves to the CPU on purpose, told to whoever asks later.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_LEFT_NOTE_H
#define MP_EP_LEFT_NOTE_H

#include "ep/session/plugin.h"

/* Adds a node of the graph to what is told under the session's name, as one line of operator,
 * domain, name, number and graph with tabs between, control characters of names as '?'; does
 * nothing for a session without a name, or a node that is there already. What cannot be told is
 * left out. It is found after publish. */
void mp__left_note_add(mp_provider *provider, const OrtGraph *graph, const OrtNode *node);
void mp__left_note_publish(mp_provider *provider);
void mp__left_note_release(mp_provider *provider);

#endif
