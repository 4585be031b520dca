/* escape.c - a model may hold any bytes as a name or an attribute, and a sentence that quotes them
 * goes to readers who take it for UTF-8.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The bytes of the character that `byte` begins; 0 where it begins none. */
static size_t length_of(unsigned char byte) {
    return byte < 0x80   ? 1
           : byte < 0xc2 ? 0
           : byte < 0xe0 ? 2
           : byte < 0xf0 ? 3
           : byte < 0xf5 ? 4
                         : 0;
}

/* The first byte leaves some second bytes out: longer forms, surrogates, what is beyond U+10FFFF.
 */
static bool second_fits(unsigned char first, unsigned char second) {
    const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

size_t mp_character_size(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    const size_t length = length_of(at[0]);
    if (length == 1) {
        const bool control = (at[0] < 0x20 && at[0] != '\n' && at[0] != '\t') || at[0] == 0x7f;
        return control ? 0 : 1;
    }
    for (size_t i = 1; i < length; i++) { /* ends at a NUL, which continues nothing */
        if (i == 1 ? !second_fits(at[0], at[1]) : (at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

void mp_escape(char *out, size_t capacity, const char *text) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;
    while (*at != 0) {
        const size_t length = mp_character_size((const char *)at);
        const char code[] = {'\\', 'x', digits[*at >> 4], digits[*at & 15]};
        const size_t size = length > 0 ? length : sizeof code;
        if (capacity - used <= size) {
            break;
        }
        memcpy(out + used, length > 0 ? (const char *)at : code, size);
        used += size;
        at += length > 0 ? length : 1;
    }
    out[used] = 0;
}
