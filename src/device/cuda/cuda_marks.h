/* cuda_marks.h - for whom driver calls and nodes of graphs were made: tags of profile.h by the
 * numbers that CUPTI gives them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_MARKS_H
#define MP_DEVICE_CUDA_MARKS_H

#include "base/status.h"

#include <stdint.h>

/* Before all others; one thread at a time. Fails: OUT_OF_MEMORY. */
MP_MUST_CHECK mp_status mp__cuda_marks_open(void);
/* Forgets the nodes. */
void mp__cuda_marks_clear(void);

void mp__cuda_call_mark(uint32_t correlation, uint64_t tag);
/* The mark of a call, or 0. The first time counts as the call's record (mp__profile_expect). */
uint64_t mp__cuda_call_tag(uint32_t correlation);

/* `tag` 0: the node has gone. Without memory the node is left out. */
void mp__cuda_node_mark(uint64_t node, uint64_t tag);
uint64_t mp__cuda_node_tag(uint64_t node);

#endif
