/* note.c - a list of names with texts, newest first. There are as many as there are sessions, so
 * looking through all of them costs nothing that matters.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/note.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct mp_note {
    mp_note *next;
    const char *text; /* within `name`, behind its end */
    char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mp_note *newest; /* owned: the list */

mp_status mp_note_add(const char *name, const char *text, mp_note **out) {
    const size_t name_size = strlen(name) + 1;
    const size_t text_size = strlen(text) + 1;
    mp_note *note = malloc(sizeof *note + name_size + text_size);
    if (note == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a note of %zu bytes",
                       text_size);
    }
    memcpy(note->name, name, name_size);
    memcpy(note->name + name_size, text, text_size);
    note->text = note->name + name_size;
    (void)pthread_mutex_lock(&lock);
    note->next = newest;
    newest = note;
    (void)pthread_mutex_unlock(&lock);
    *out = note;
    return MP_OK;
}

void mp_note_remove(mp_note *note) {
    if (note == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    mp_note **link = &newest;
    while (*link != note) {
        link = &(*link)->next;
    }
    *link = note->next;
    (void)pthread_mutex_unlock(&lock);
    free(note);
}

mp_status mp_note_find(const char *name, char *text, size_t size, size_t *length) {
    (void)pthread_mutex_lock(&lock);
    const mp_note *note = newest;
    while (note != NULL && strcmp(note->name, name) != 0) {
        note = note->next;
    }
    if (note != NULL) {
        *length = strlen(note->text);
        const size_t fits = *length < size ? *length : size - 1;
        if (size > 0) {
            memcpy(text, note->text, fits);
            text[fits] = '\0';
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return note != NULL ? MP_OK : MP_FAIL(NOT_FOUND, "there is no note named \"%s\"", name);
}
