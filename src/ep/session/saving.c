/* saving.c - see saving.h.
 *
 * ONNX Runtime refuses to save a model with compiled nodes, once the session is all but made, and
 * has no function that says whether a session saves its model: it can only be told to. So a path is
 * set in options of our own, and what changes in them is looked for: the one word, near the
 * beginning, that was 0 and is then the length of each of several paths. The same word of the
 * session's options is the length of its path. Where there is no such word nothing is known, and
 * ONNX Runtime's own sentence says what is wrong.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/session/saving.h"

#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"

#include <pthread.h>
#include <string.h>

/* Fewer bytes than the options have in any version: they hold more than ten strings and tables. */
enum { WORDS = 16, NOT_FOUND = -1 };

/* Nothing is written there. The last one leaves a string with more room than it needs, so that its
 * length differs from that. */
static const char *const paths[] = {
    "a path that is set so that its length is found",
    "another one, which is longer, set so that its length is found",
    "a path",
};
enum { PATHS = MP_COUNT_OF(paths) };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int place = NOT_FOUND;

static void read_words(const OrtSessionOptions *options, size_t *out) {
    memcpy(out, options, WORDS * sizeof *out);
}

/* Whether the word is as it should be each time. */
static bool follows(size_t words[PATHS + 1][WORDS], int i) {
    bool does = words[0][i] == 0;
    for (int p = 0; p < PATHS; p++) {
        does = does && words[p + 1][i] == strlen(paths[p]);
    }
    return does;
}

static int find(size_t words[PATHS + 1][WORDS]) {
    int found = NOT_FOUND;
    int count = 0;
    for (int i = 0; i < WORDS; i++) {
        if (follows(words, i)) {
            found = i;
            count++;
        }
    }
    return count == 1 ? found : NOT_FOUND;
}

static mp_status look(OrtSessionOptions *options) {
    size_t words[PATHS + 1][WORDS];
    read_words(options, words[0]);
    for (int i = 0; i < PATHS; i++) {
        MP_TRY(mp__from_ort(ORT->SetOptimizedModelFilePath(options, paths[i])));
        read_words(options, words[i + 1]);
    }
    place = find(words);
    return MP_OK;
}

static void find_place(void) {
    OrtSessionOptions *options = NULL;
    if (mp__from_ort(ORT->CreateSessionOptions(&options)) == MP_OK) {
        (void)look(options); /* what is not found is not known */
        ORT->ReleaseSessionOptions(options);
    }
}

bool mp__session_saves(const OrtSessionOptions *session) {
    size_t words[WORDS];
    (void)pthread_once(&once, find_place);
    if (place == NOT_FOUND) {
        return false;
    }
    read_words(session, words);
    return words[place] != 0;
}
