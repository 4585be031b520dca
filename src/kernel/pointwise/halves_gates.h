/* halves_gates.h - what gates a half in gated_halves.cu only, behind K_GATE_... of all: the sigmoid
 * of one half times the other, or times the other's tanh.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_HALVES_GATES_H
#define MP_KERNEL_HALVES_GATES_H

#include "kernel/pointwise/pointwise_args.h"

enum { K_GATE_OF_SIGMOID = K_GATE_GELU_BY_TANH + 1, K_GATE_OF_SIGMOID_AND_TANH };

#endif
