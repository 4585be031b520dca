/* trace_label.c - labels by number. The first few numbers are the kinds without a name; the others
 * are those of `known`, in which a key is the kind, the node and the tensor, each with a 0 behind.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_label.h"

#include "pool/trace/trace_intern.h"
#include "pool/trace/trace_text.h"

#include <string.h>

enum { KINDS = MP_LABEL_WORKSPACE + 1, LABELS_MAX = UINT16_MAX - KINDS + 1 };

static mp_intern known = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local uint16_t here;
atomic_bool mp__labels_used;

/* The name as it is kept, at `at`; returns where the next one goes. Of a long name the end is what
 * tells it apart. */
static char *put_name(char *at, const char *name) {
    const char *text = name != NULL ? name : "";
    size_t size = strlen(text);
    if (size > MP_LABEL_TEXT_MAX) {
        text += size - (MP_LABEL_TEXT_MAX - 3);
        size = MP_LABEL_TEXT_MAX - 3;
        for (int i = 0; i < 3; i++) {
            *at++ = '.';
        }
    }
    mp__text_clean(text, size, at);
    return at + strlen(at) + 1;
}

mp_label mp_label_make(mp_label_kind kind, const char *node, const char *tensor) {
    char key[1 + 2 * (MP_LABEL_TEXT_MAX + 1)];
    const unsigned plain = (unsigned)kind < KINDS ? (unsigned)kind : MP_LABEL_OTHER;
    if ((node == NULL || node[0] == '\0') && (tensor == NULL || tensor[0] == '\0')) {
        return plain;
    }
    key[0] = (char)plain;
    const char *end = put_name(put_name(key + 1, node), tensor);
    const uint32_t number = mp__intern(&known, key, (size_t)(end - key), LABELS_MAX);
    return number > 0 ? number + KINDS - 1 : plain;
}

mp_label mp_label_set(mp_label label) {
    const uint16_t before = here;
    here = label <= UINT16_MAX ? (uint16_t)label : 0;
    if (here != 0) {
        atomic_store_explicit(&mp__labels_used, true, memory_order_relaxed);
    }
    return before;
}

uint16_t mp__label_of_thread(void) {
    return here;
}

mp_label_info mp__label_info(uint16_t label) {
    size_t size = 0;
    if (label < KINDS) {
        return (mp_label_info){(mp_label_kind)label, "", ""};
    }
    const char *key = mp__intern_key(&known, (uint32_t)label - KINDS + 1, &size);
    if (key == NULL) {
        return (mp_label_info){MP_LABEL_OTHER, "", ""};
    }
    return (mp_label_info){(mp_label_kind)key[0], key + 1, key + 1 + strlen(key + 1) + 1};
}

const char *mp__label_kind_name(mp_label_kind kind) {
    static const char *const names[] = {[MP_LABEL_OTHER] = "other",
                                        [MP_LABEL_WEIGHTS] = "weights",
                                        [MP_LABEL_ACTIVATIONS] = "activations",
                                        [MP_LABEL_WORKSPACE] = "workspace"};
    return names[kind];
}
