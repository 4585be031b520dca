/* trace_text.c - names that callers gave, made fit for a file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_text.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the UTF-8 character at `text`, of which `size` bytes are there; 0 where it is none. */
static size_t character_size(const unsigned char *text, size_t size) {
    /* The least value that needs 1, 2, 3 and 4 bytes: a smaller one may not be written so long. */
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char first = text[0];
    const size_t more = first < 0x80   ? 0
                        : first < 0xc0 ? 4
                        : first < 0xe0 ? 1
                        : first < 0xf0 ? 2
                                       : 3;
    if (more > 3 || more >= size || first >= 0xf8) {
        return 0;
    }
    uint32_t value = more == 0 ? first : first & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
        value = value << 6 | (text[i] & 0x3f);
    }
    const int surrogate = value >= 0xd800 && value < 0xe000;
    return value < least[more] || value > 0x10ffff || surrogate ? 0 : more + 1;
}

void mp__text_clean(const char *text, size_t size, char *out) {
    const size_t length = strnlen(text, size);
    size_t at = 0;
    while (at < length) {
        const size_t part = character_size((const unsigned char *)text + at, length - at);
        if (part == 0) {
            out[at++] = '?';
        } else {
            memcpy(out + at, text + at, part);
            at += part;
        }
    }
    out[length] = '\0';
}
