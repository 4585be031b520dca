/* memory_calls.h - a row of device calls that tests make during captures.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_MEMORY_CALLS_H
#define MP_TESTS_UNIT_MEMORY_CALLS_H

#include "device/device.h"

/* Makes every call that must leave captures alone; each must succeed. `event` was recorded on a
 * stream that is not captured. */
void test_memory_calls(mp_device *device, mp_event *event);

#endif
