/* call.h - what one call of ONNX Runtime's works with: tensors it reads, and addresses.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_CALL_H
#define MP_EP_CALL_H

#include "ep/session/plugin.h"

enum { MP_CALL_FEW = 16, MP_CALL_ALIGNED = 16 };

/* On the stack; it needs no memory of its own unless there are very many inputs or outputs. */
typedef struct mp_call {
    mp_tensor *in;
    mp_addr *in_addr, *out_addr; /* outputs begin as 0 */
    mp_tensor few_in[MP_CALL_FEW];
    mp_addr few_in_addr[MP_CALL_FEW], few_out_addr[MP_CALL_FEW];
    void *many; /* owned */
} mp_call;

/* Gives: `*c`, until close, also where it fails. Fails: OUT_OF_MEMORY. */
mp_status mp__call_open(mp_call *c, int in_count, int out_count);
void mp__call_close(const mp_call *c);

/* An input or output as messages name it: by its number, or by `name` where that is not NULL. */
typedef struct mp_port {
    const char *side; /* "input" */
    int number;
    const char *name;
} mp_port;

/* Type, shape and address of a value's tensor. Fails: UNSUPPORTED for a rank beyond MP_RANK_MAX,
 * OUT_OF_MEMORY for a tensor that has no memory. */
mp_status mp__call_read(const OrtValue *value, mp_port port, mp_tensor *tensor, mp_addr *addr);

/* ONNX Runtime hands out a tensor without memory where an allocator had none to give. */
mp_status mp__call_check_memory(const mp_tensor *tensor, const void *data, mp_port port);

/* Whether all addresses are multiples of MP_CALL_ALIGNED. */
bool mp__all_aligned(const mp_addr *addresses, int count);

#endif
