/* growing.h - lists that grow.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_GROWING_H
#define MP_BASE_GROWING_H

#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>

/* Makes room for `count` elements of `width` bytes in a list from malloc with room for `*capacity`,
 * with some to spare. `list` is the address of the pointer to it, which may be NULL. What the list
 * has stays; what is new is not set. Gives: false without memory, all as it was. */
MP_MUST_CHECK bool mp_grow(void *list, size_t count, size_t *capacity, size_t width);

#endif
