/* note_test.c - texts left under names, by many threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/note.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool holds(const char *name, const char *expected) {
    char text[64];
    size_t length = 0;
    return mp_note_find(name, text, sizeof text, &length) == MP_OK && strcmp(text, expected) == 0 &&
           length == strlen(expected);
}

TEST(the_newest_note_of_a_name_is_found) {
    mp_note *first = NULL;
    mp_note *second = NULL;
    mp_note *other = NULL;
    char text[64];
    size_t length = 0;
    CHECK_FAILS(mp_note_find("a", text, sizeof text, &length), NOT_FOUND, "named \"a\"");
    CHECK_OK(mp_note_add("a", "one", &first));
    CHECK_OK(mp_note_add("b", "", &other));
    CHECK_OK(mp_note_add("a", "two", &second));
    CHECK(holds("a", "two"));
    CHECK(holds("b", ""));
    mp_note_remove(second);
    CHECK(holds("a", "one"));
    mp_note_remove(first);
    CHECK_FAILS(mp_note_find("a", text, sizeof text, &length), NOT_FOUND, "a");
    mp_note_remove(NULL);
    mp_note_remove(other);
}

TEST(a_note_is_cut_to_fit) {
    mp_note *note = NULL;
    char text[3];
    size_t length = 0;
    CHECK_OK(mp_note_add("long", "seven..", &note));
    CHECK_OK(mp_note_find("long", text, sizeof text, &length));
    CHECK(strcmp(text, "se") == 0);
    CHECK_EQ_INT(length, 7);
    CHECK_OK(mp_note_find("long", NULL, 0, &length));
    CHECK_EQ_INT(length, 7);
    mp_note_remove(note);
}

static char *count_up(void *context) {
    char *text = NULL;
    int *count = context;
    return ++*count == 3 || asprintf(&text, "look %d", *count) < 0 ? NULL : text;
}

TEST(a_note_is_made_when_somebody_looks) {
    mp_note *note = NULL;
    char text[64];
    size_t length = 0;
    int count = 0;
    CHECK_OK(mp_note_add_made("made", count_up, &count, &note));
    CHECK_EQ_INT(count, 0);
    CHECK(holds("made", "look 1"));
    CHECK(holds("made", "look 2"));
    CHECK_FAILS(mp_note_find("made", text, sizeof text, &length), OUT_OF_MEMORY, "\"made\"");
    mp_note_remove(note);
    CHECK_FAILS(mp_note_find("made", text, sizeof text, &length), NOT_FOUND, "made");
    CHECK_EQ_INT(count, 3);
}

enum { THREADS = 4, ROUNDS = 500 };

static void *add_and_remove(void *name) {
    for (int i = 0; i < ROUNDS; i++) {
        mp_note *note = NULL;
        if (mp_note_add(name, name, &note) != MP_OK) {
            return name;
        }
        const bool found = holds(name, name);
        mp_note_remove(note);
        if (!found) {
            return name;
        }
    }
    return NULL;
}

TEST(threads_find_their_own_notes) {
    static char names[THREADS][16];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        (void)snprintf(names[i], sizeof names[i], "n%d", i);
        CHECK(pthread_create(&threads[i], NULL, add_and_remove, names[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        CHECK(pthread_join(threads[i], &failed) == 0);
        CHECK(failed == NULL);
    }
}
