/* json.c - see json.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/escape.h"

#include <string.h>

/* Writes one character; gives its bytes. */
static size_t write_character(FILE *out, const char *at) {
    const unsigned char byte = (unsigned char)*at;
    const size_t size = mp_character_size(at);
    if (byte < 0x20 || byte == 0x7f || strchr("\"\\<", *at) != NULL) {
        (void)fprintf(out, "\\u%04x", byte);
    } else if (size == 0) {
        (void)fputc('?', out);
    } else {
        (void)fwrite(at, 1, size, out);
    }
    return size > 0 ? size : 1;
}

void mp_json_text(FILE *out, const char *text) {
    (void)fputc('"', out);
    while (*text != '\0') {
        text += write_character(out, text);
    }
    (void)fputc('"', out);
}
