/* test_log.h - logs of what tests bring about.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_TEST_LOG_H
#define MP_TESTS_UNIT_TEST_LOG_H

#include "base/log.h"

/* A sink, for mp_log_set_sink, of lines that are expected. */
static inline void no_line(void *context, mp_log_level level, const char *file, int line,
                           const char *text) {
    (void)context, (void)level, (void)file, (void)line, (void)text;
}

#endif
