/* trace_frames.c - lists of frames, each a dict with name, filename and line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_frames.h"

#include "pool/trace/trace_label.h"
#include "pool/trace/trace_stack.h"
#include "pool/trace/trace_text.h"

#include <assert.h>
#include <stdio.h>

enum frame_kind { FRAME_CALL, FRAME_LABEL, FRAME_CLIENT };

enum { TEXT_MAX = 255 }; /* of the pickle */

static_assert((int)MP_LABEL_TEXT_MAX <= (int)TEXT_MAX && (int)MP_FRAME_TEXT_MAX <= (int)TEXT_MAX,
              "names fit into the pickle");

void mp__frames_begin(mp_frames *frames, const mp_layout *layout) {
    *frames = (mp_frames){.layout = layout, .status = MP_OK};
}

void mp__frames_end(mp_frames *frames) {
    mp__map_free(&frames->lists);
    mp__map_free(&frames->kept);
}

/* Whether the value of `key` is written already: then it is referred to. */
static bool put_again(const mp_map *map, mp_pickle *pickle, uint64_t key) {
    uint64_t number;
    if (!mp__map_get(map, key, &number)) {
        return false;
    }
    mp__pickle_kept(pickle, (unsigned)number);
    return true;
}

static void keep(mp_frames *frames, mp_map *map, mp_pickle *pickle, uint64_t key) {
    const mp_status status = mp__map_set(map, key, mp__pickle_keep(pickle));
    frames->status = frames->status == MP_OK ? status : frames->status;
}

static void put_dict(mp_pickle *pickle, const char *name, const char *file, int32_t line) {
    mp__pickle_dict(pickle);
    mp__pickle_text(pickle, "name");
    mp__pickle_text(pickle, name);
    mp__pickle_text(pickle, "filename");
    mp__pickle_text(pickle, file);
    mp__pickle_text(pickle, "line");
    mp__pickle_int(pickle, line);
    mp__pickle_end_dict(pickle);
}

static void put_label(mp_pickle *pickle, uint16_t label) {
    const mp_label_info info = mp__label_info(label);
    const bool both = info.node[0] != '\0' && info.tensor[0] != '\0';
    char name[TEXT_MAX + 1], clean[TEXT_MAX + 1];
    (void)snprintf(name, sizeof name, "%s%s%s", info.node, both ? ": " : "", info.tensor);
    mp__text_clean(name, TEXT_MAX, clean); /* it may have been cut inside a character */
    const char *kind = mp__label_kind_name(info.kind);
    put_dict(pickle, clean[0] != '\0' ? clean : kind, kind, 0);
}

static void put_client(const mp_frames *frames, mp_pickle *pickle, uint8_t client) {
    char name[MP_CLIENT_NAME_MAX + 1] = "?";
    if (client < frames->layout->client_count) {
        mp__text_clean(frames->layout->clients[client], MP_CLIENT_NAME_MAX, name);
    }
    put_dict(pickle, name, "client", 0);
}

static void put_frame(mp_frames *frames, mp_pickle *pickle, enum frame_kind kind, uint16_t number) {
    const uint64_t key = (uint64_t)kind << 16 | number;
    if (put_again(&frames->kept, pickle, key)) {
        return;
    }
    if (kind == FRAME_CALL) {
        const mp_frame frame = mp__stack_frame(number);
        put_dict(pickle, frame.function, frame.file, frame.line);
    } else if (kind == FRAME_LABEL) {
        put_label(pickle, number);
    } else {
        put_client(frames, pickle, (uint8_t)number);
    }
    keep(frames, &frames->kept, pickle, key);
}

void mp__frames_put(mp_frames *frames, mp_pickle *pickle, uint8_t client, uint16_t label,
                    uint16_t stack) {
    const uint64_t key = (uint64_t)client << 32 | (uint64_t)label << 16 | stack;
    size_t count = 0;
    if (put_again(&frames->lists, pickle, key)) {
        return;
    }
    const uint16_t *calls = mp__stack_frames(stack, &count);
    mp__pickle_list(pickle);
    for (size_t i = 0; i < count; i++) {
        put_frame(frames, pickle, FRAME_CALL, calls[i]);
    }
    if (label != 0) {
        put_frame(frames, pickle, FRAME_LABEL, label);
    }
    put_frame(frames, pickle, FRAME_CLIENT, client);
    mp__pickle_end_list(pickle);
    keep(frames, &frames->lists, pickle, key);
}
