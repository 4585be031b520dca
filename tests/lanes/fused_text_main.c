/* fused_text_main.c - writes the text of a fused kernel: fused_text READINGS EXPRESSION, where a
 * reading is a letter each (expression.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_source.h"

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    mp_expression e;
    mp_reading readings[K_FUSED_IN];
    char *text = NULL;
    if (count != 3 || mp_expression_read(words[2], &e) != MP_OK) {
        (void)fprintf(stderr, "fused_text: %s\n", mp_error_message());
        return 1;
    }
    for (int i = 0; i < e.input_count; i++) {
        readings[i] = MP_READ_WHOLE;
        while (mp_reading_letter(readings[i]) != words[1][i]) {
            readings[i]++;
        }
    }
    if (mp_fused_source(&e, readings, &text) != MP_OK) {
        return 1;
    }
    (void)fputs(text, stdout);
    free(text);
    return 0;
}
