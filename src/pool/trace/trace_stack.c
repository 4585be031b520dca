/* trace_stack.c - frames and stacks by number. The key of a frame is its line, its file and its
 * function with a 0 behind each name; that of a stack, the numbers of its frames.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_stack.h"

#include "base/macros.h"
#include "pool/trace/trace_intern.h"
#include "pool/trace/trace_text.h"

#include <stdatomic.h>
#include <string.h>

static mp_intern known_frames = {.lock = PTHREAD_MUTEX_INITIALIZER};
static mp_intern known_stacks = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic(mp_stack_fn *) looker;

static char *put_name(char *at, const char *name) {
    const size_t size = strlen(name);
    const size_t kept = MP_MIN(size, MP_FRAME_TEXT_MAX);
    mp__text_clean(name + size - kept, kept, at);
    return at + strlen(at) + 1;
}

static uint16_t frame_number(const mp_frame *frame) {
    char key[sizeof frame->line + 2 * (MP_FRAME_TEXT_MAX + 1)];
    memcpy(key, &frame->line, sizeof frame->line);
    const char *end = put_name(put_name(key + sizeof frame->line, frame->file), frame->function);
    return (uint16_t)mp__intern(&known_frames, key, (size_t)(end - key), UINT16_MAX);
}

uint16_t mp__stack_make(const mp_frame *frames, size_t count) {
    uint16_t key[MP_STACK_FRAMES_MAX];
    size_t kept = 0;
    for (size_t i = 0; i < count && i < MP_STACK_FRAMES_MAX; i++) {
        const uint16_t number = frame_number(&frames[i]);
        if (number > 0) {
            key[kept++] = number;
        }
    }
    return kept > 0 ? (uint16_t)mp__intern(&known_stacks, key, kept * sizeof *key, UINT16_MAX) : 0;
}

const uint16_t *mp__stack_frames(uint16_t stack, size_t *count) {
    size_t size = 0;
    const uint16_t *frames = mp__intern_key(&known_stacks, stack, &size);
    *count = size / sizeof *frames;
    return frames;
}

mp_frame mp__stack_frame(uint16_t frame) {
    size_t size = 0;
    mp_frame out = {.file = "", .function = ""};
    const char *key = mp__intern_key(&known_frames, frame, &size);
    if (key != NULL) {
        memcpy(&out.line, key, sizeof out.line);
        out.file = key + sizeof out.line;
        out.function = out.file + strlen(out.file) + 1;
    }
    return out;
}

void mp__stack_looker_set(mp_stack_fn *fn) {
    atomic_store(&looker, fn);
}

uint16_t mp__stack_look(size_t depth) {
    mp_stack_fn *fn = atomic_load(&looker);
    return fn != NULL && depth > 0 ? fn(depth) : 0;
}
