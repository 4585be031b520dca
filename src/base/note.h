/* note.h - texts that one part of a process leaves for others under a name: what a session runs
 * with, to be read later.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_NOTE_H
#define MP_BASE_NOTE_H

#include "base/status.h"

#include <stddef.h>

typedef struct mp_note mp_note;

/* Leaves a copy of `text` under `name`. Names may repeat; the newest note is the one that is found.
 * Gives: `*out`, until mp_note_remove. Fails: OUT_OF_MEMORY. Threads: any. */
MP_MUST_CHECK mp_status mp_note_add(const char *name, const char *text, mp_note **out);

/* The same for a text that is made when somebody looks for it. `make` gives a text, until free, or
 * NULL without memory; it must neither leave, remove nor look for notes. */
typedef char *mp_note_fn(void *context);
MP_MUST_CHECK mp_status mp_note_add_made(const char *name, mp_note_fn *make, void *context,
                                         mp_note **out);

/* Takes: `note`; NULL is allowed. Returns when nobody makes its text any more. */
void mp_note_remove(mp_note *note);

/* Copies the text found into `text`, cut to fit `size`; `*length` is what it would need without
 * the end. Fails: NOT_FOUND; OUT_OF_MEMORY, of a text that is made. Threads: any. */
MP_MUST_CHECK mp_status mp_note_find(const char *name, char *text, size_t size, size_t *length);

#endif
