/* note.c - a list of names with texts, newest first. There are as many as there are sessions and
 * islands, so looking through all of them costs nothing that matters.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/note.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct mp_note {
    mp_note *next;
    const char *text; /* within `name`, behind its end; NULL: it is made */
    mp_note_fn *make;
    void *context;
    char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mp_note *newest; /* owned: the list */

static mp_status make_note(const char *name, size_t text_size, mp_note **out) {
    const size_t name_size = strlen(name) + 1;
    mp_note *note = calloc(1, sizeof *note + name_size + text_size);
    if (note == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a note of %zu bytes",
                       text_size);
    }
    memcpy(note->name, name, name_size);
    *out = note;
    return MP_OK;
}

static void put_first(mp_note *note) {
    (void)pthread_mutex_lock(&lock);
    note->next = newest;
    newest = note;
    (void)pthread_mutex_unlock(&lock);
}

mp_status mp_note_add(const char *name, const char *text, mp_note **out) {
    MP_TRY(make_note(name, strlen(text) + 1, out));
    char *copy = (*out)->name + strlen(name) + 1;
    memcpy(copy, text, strlen(text) + 1);
    (*out)->text = copy;
    put_first(*out);
    return MP_OK;
}

mp_status mp_note_add_made(const char *name, mp_note_fn *make, void *context, mp_note **out) {
    MP_TRY(make_note(name, 0, out));
    (*out)->make = make;
    (*out)->context = context;
    put_first(*out);
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

static void copy_text(const char *from, char *text, size_t size, size_t *length) {
    *length = strlen(from);
    const size_t fits = *length < size ? *length : size - 1;
    if (size > 0) {
        memcpy(text, from, fits);
        text[fits] = '\0';
    }
}

/* With the lock held, so that who removes a note waits for what is made of it. */
static mp_status read_note(const mp_note *note, char *text, size_t size, size_t *length) {
    if (note->text != NULL) {
        copy_text(note->text, text, size, length);
        return MP_OK;
    }
    char *made = note->make(note->context);
    if (made == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the note \"%s\"",
                       note->name);
    }
    copy_text(made, text, size, length);
    free(made);
    return MP_OK;
}

mp_status mp_note_find(const char *name, char *text, size_t size, size_t *length) {
    (void)pthread_mutex_lock(&lock);
    const mp_note *note = newest;
    while (note != NULL && strcmp(note->name, name) != 0) {
        note = note->next;
    }
    const mp_status status = note != NULL ? read_note(note, text, size, length) : MP_OK;
    (void)pthread_mutex_unlock(&lock);
    return note != NULL ? status : MP_FAIL(NOT_FOUND, "there is no note named \"%s\"", name);
}
