/* growing.c - see growing.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/growing.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE = 16 };

bool mp_grow(void *list, size_t count, size_t *capacity, size_t width) {
    size_t more = 0;
    size_t bytes = 0;
    void *items = NULL;
    if (count <= *capacity) {
        return true;
    }
    if (__builtin_add_overflow(count, count / 2 + SPARE, &more) ||
        __builtin_mul_overflow(more, width, &bytes)) {
        return false;
    }
    memcpy(&items, list, sizeof items); /* a pointer of any type */
    items = realloc(items, bytes);
    if (items == NULL) {
        return false;
    }
    memcpy(list, &items, sizeof items);
    *capacity = more;
    return true;
}
