/* shortage_test.c - what is kept of requests for memory that failed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/shortage.h"

#include <pthread.h>
#include <string.h>

static void *run_short(void *unused) {
    (void)unused;
    CHECK(mp_shortage_here()[0] == '\0');
    mp_shortage_keep(MP_FAIL(OUT_OF_MEMORY, "no 2 bytes"));
    CHECK(strcmp(mp_shortage_here(), "no 2 bytes") == 0);
    return NULL;
}

TEST(a_shortage_is_kept_for_its_thread_and_for_the_process) {
    char text[64];
    pthread_t thread;
    mp_shortage_find(1, text, sizeof text);
    CHECK(mp_shortage_count() == 0 && text[0] == '\0');
    mp_shortage_keep(MP_FAIL(INVALID_ARGUMENT, "of another kind"));
    mp_shortage_keep(MP_OK);
    CHECK(mp_shortage_count() == 0 && mp_shortage_here()[0] == '\0');
    mp_shortage_keep(MP_FAIL(OUT_OF_MEMORY, "no %d bytes", 1));
    CHECK(pthread_create(&thread, NULL, run_short, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(mp_shortage_count() == 2);
    mp_shortage_find(0, text, sizeof text);
    CHECK(strcmp(text, "no 1 bytes") == 0);
    mp_shortage_find(1, text, sizeof text);
    CHECK(strcmp(text, "no 2 bytes") == 0);
    mp_shortage_find(1, text, 4);
    CHECK(strcmp(text, "no ") == 0);
}
