/* stream_map.h - out[i] = m_one(x[i], with), in packs of up to 16 bytes where both tensors lie at
 * multiples of theirs. Bound by memory: one read and one write an element.
 *
 * Before it is included: M_OUT, the type of a result; m_with, what all are made with; m_one, which
 * makes one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_STREAM_MAP_H
#define MP_KERNEL_STREAM_MAP_H

#include "kernel/core/stream.h"

/* What one lane moves at once on a GPU; a CPU's compiler vectorises by itself. */
#if K_HOST
enum { M_WIDTH = 1 };
#else
enum { M_LARGER = sizeof(T) > sizeof(M_OUT) ? sizeof(T) : sizeof(M_OUT), M_WIDTH = 16 / M_LARGER };
#endif
typedef struct K_ALIGN(sizeof(T) * M_WIDTH) m_in {
    T lane[M_WIDTH];
} m_in;
typedef struct K_ALIGN(sizeof(M_OUT) * M_WIDTH) m_out {
    M_OUT lane[M_WIDTH];
} m_out;

K_FN m_out m_each(const m_in *in, const m_with *with) {
    m_out made;
    K_UNROLL
    for (int k = 0; k < M_WIDTH; k++) {
        made.lane[k] = m_one(in->lane[k], with);
    }
    return made;
}

/* `out` may be `x`. */
K_FN void m_map(const T *x, M_OUT *out, int64_t count, const m_with *with) {
    const int aligned = ((uint64_t)x % sizeof(m_in) | (uint64_t)out % sizeof(m_out)) == 0;
    const int64_t packs = aligned && !K_HOST ? count / M_WIDTH : 0;
    const k_stream s = k_stream_of(packs);
    K_STREAM_LOOP(i, s) {
        const int64_t last = k_stream_last(&s, i);
        m_in in = ((const m_in *)x)[i];
        const m_in ahead = ((const m_in *)x)[last];
        K_ONE_COPY
        for (int64_t at = i; at <= last; at += s.next) {
            ((m_out *)out)[at] = m_each(&in, with);
            in = ahead;
        }
    }
    const int64_t done = packs * M_WIDTH;
    K_ONE_COPY
    K_GRID_LOOP(i, count - done) {
        out[done + i] = m_one(x[done + i], with);
    }
}

#endif
