/* memory_calls.h - calls of a device that tests make during captures, and from another process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_MEMORY_CALLS_H
#define MP_TESTS_UNIT_MEMORY_CALLS_H

#include "device/device.h"

/* Makes every call that must leave captures alone, on this thread and then on another; each must
 * succeed. `event` was recorded on a stream that is not captured. */
void test_memory_calls(mp_device *device, mp_event *event);

/* What another process does with an exported allocation of 1 MiB: opens it, finds 11 in its last
 * word, fills it with 12, closes it. Gives: `*opened`, where it was. Returns 0, or which of these
 * four steps failed. */
int test_use_shared(mp_device *device, const unsigned char *handle, mp_addr *opened);

#endif
