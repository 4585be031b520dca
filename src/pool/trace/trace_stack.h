/* trace_stack.h - call stacks of a language above, such as Python: each kept once, by a number.
 *
 * The pool knows nothing of the language: who does gives a function that looks at the calling
 * thread and makes a stack of what it finds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_STACK_H
#define MP_POOL_TRACE_STACK_H

#include <stddef.h>
#include <stdint.h>

enum { MP_STACK_FRAMES_MAX = 64, MP_FRAME_TEXT_MAX = 240 };

typedef struct mp_frame {
    const char *file, *function;
    int32_t line;
} mp_frame;

/* The number of a stack, the innermost frame first; of more than MP_STACK_FRAMES_MAX frames the
 * first are kept, of long names the end. 0 where there is none, or no more can be told apart (65535
 * stacks, 65535 frames). Threads: any. */
uint16_t mp__stack_make(const mp_frame *frames, size_t count);

/* The frames of a stack as numbers of frames, borrowed for good; `*count` is how many. */
const uint16_t *mp__stack_frames(uint16_t stack, size_t *count);
/* Texts are valid UTF-8; empty where there is no such frame. */
mp_frame mp__stack_frame(uint16_t frame);

/* Looks at the calling thread and returns the number of its stack, of at most `depth` frames; 0 for
 * none. Called without locks of the pool. */
typedef uint16_t mp_stack_fn(size_t depth);

/* Who asks last looks for all; NULL: nobody. Does not wait for a call under way. */
void mp__stack_looker_set(mp_stack_fn *fn);
uint16_t mp__stack_look(size_t depth);

#endif
