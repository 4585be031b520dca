/* trace_frames.h - what a snapshot has in place of a call stack: the stack, where it was looked at,
 * then what the memory is for, then the client.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_FRAMES_H
#define MP_POOL_TRACE_FRAMES_H

#include "pool/layout.h"
#include "pool/trace/trace_map.h"
#include "pool/trace/trace_pickle.h"

typedef struct mp_frames {
    const mp_layout *layout; /* borrowed */
    mp_map lists;            /* numbers in the pickle, of lists by client, label and stack */
    mp_map kept;             /* the same of single frames, by FRAME_ and number */
    mp_status status;        /* OUT_OF_MEMORY once a number could not be kept */
} mp_frames;

void mp__frames_begin(mp_frames *frames, const mp_layout *layout);
void mp__frames_end(mp_frames *frames);

/* Writes a list of frames. A list and a frame are written once, and then referred to. */
void mp__frames_put(mp_frames *frames, mp_pickle *pickle, uint8_t client, uint16_t label,
                    uint16_t stack);

#endif
