/* test_folder.c - see test_folder.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test_folder.h"

#include "test.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/millpond-test-XXXXXX";

static void folder_remove(void) {
    DIR *entries = opendir(path);
    for (struct dirent *entry = entries != NULL ? readdir(entries) : NULL; entry != NULL;
         entry = readdir(entries)) {
        (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    (void)rmdir(path);
}

const char *test_folder(void) {
    NEEDS_OWN_PROCESS();
    CHECK(mkdtemp(path) != NULL && atexit(folder_remove) == 0);
    return path;
}

int test_folder_count(void) {
    int count = 0;
    DIR *entries = opendir(path);
    CHECK(entries != NULL);
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(entries);
    return count;
}
