/* layout.c - what is made of a pool's layout: room and fragmentation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/layout.h"

#include <stdlib.h>

void mp__layout_free(mp_layout *layout) {
    free(layout->regions);
    free(layout->blocks);
    free(layout->parts);
    *layout = (mp_layout){0};
}

mp_layout_room mp__layout_room(const mp_layout_block *blocks, size_t count) {
    mp_layout_room room = {0};
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].state == MP_BLOCK_FREE || blocks[i].state == MP_BLOCK_KEPT) {
            room.free += blocks[i].size;
            if (blocks[i].size > room.largest) {
                room.largest = blocks[i].size;
            }
        }
    }
    return room;
}

unsigned mp__layout_fragmentation(mp_layout_room room) {
    if (room.free == 0) {
        return 0;
    }
    /* Memory is far below 2^54 bytes, so the product fits. */
    return 1000 - (unsigned)(room.largest * 1000 / room.free);
}
