/* fused_text_main.c - writes the text of a fused kernel: fused_text READINGS EXPRESSION, where a
 * reading is a letter each (expression.h). With a third word it writes the bytes of the table that
 * its stand-in reads instead, as numbers with commas between.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_source.h"
#include "op/fused/stand_in.h"

#include <stdio.h>
#include <stdlib.h>

static int write_table(const mp_expression *e, const mp_reading *readings) {
    mp_row_stand_in_table table;
    const unsigned char *bytes = (const unsigned char *)&table;
    const size_t size = mp_row_stand_in_write(e, readings, &table);
    for (size_t i = 0; i < size; i++) {
        (void)printf("%d,\n", bytes[i]);
    }
    return size == 0;
}

int main(int count, char **words) {
    mp_expression e;
    mp_reading readings[K_FUSED_IN];
    char *text = NULL;
    if (count < 3 || mp_expression_read(words[2], &e) != MP_OK) {
        (void)fprintf(stderr, "fused_text: %s\n", mp_error_message());
        return 1;
    }
    for (int i = 0; i < e.input_count; i++) {
        readings[i] = MP_READ_WHOLE;
        while (mp_reading_letter(readings[i]) != words[1][i]) {
            readings[i]++;
        }
    }
    if (count > 3) {
        return write_table(&e, readings);
    }
    if (mp_fused_source(&e, readings, &text) != MP_OK) {
        return 1;
    }
    (void)fputs(text, stdout);
    free(text);
    return 0;
}
