/* strip_args.h - what a block of depthwise_strip.cu has: floats of taps, of what it holds of a line
 * and of what it makes, each in whole turns of its lanes. The rest is as of depthwise_planes.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_STRIP_ARGS_H
#define MP_KERNEL_STRIP_ARGS_H

#include "kernel/linear/linear_args.h"

enum {
    K_STRIP_LANES = 128,
    K_STRIP_PITCH = K_LINE_STRIP + 4,
    K_STRIP_ASKED = 8, /* elements of a turn, of a lane */
    K_STRIP_TURN = K_STRIP_LANES * K_STRIP_ASKED / K_LINE_STRIP * K_STRIP_PITCH,
};
#define K_STRIP_TAPS(taps) (((taps) + 3) / 4 * 4)
#define K_STRIP_HELD(strips, taps) \
    (((strips) + 1 + K_STRIP_TAPS(taps) / K_LINE_STRIP) * K_STRIP_PITCH)
#define K_STRIP_FLOATS(strips, taps) \
    (K_STRIP_TAPS(taps) + K_STRIP_HELD(strips, taps) + (strips)*K_STRIP_PITCH + K_STRIP_TURN)

#endif
