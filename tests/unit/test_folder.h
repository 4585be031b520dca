/* test_folder.h - a folder of a test's own, which goes with the process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TEST_FOLDER_H
#define MP_TEST_FOLDER_H

/* Makes it, open to this user alone, once in a process; a test that shares its process is skipped.
 * Gives: its path, static. */
const char *test_folder(void);

/* How many files it has. */
int test_folder_count(void);

#endif
