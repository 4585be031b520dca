/* dynlib_test.c - where libraries are looked for, and where not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "base/dynlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const nowhere[] = {"libmillpond_not_there.so.9", NULL};

static mp_dynlib_place place_of(const char *const *names) {
    return (mp_dynlib_place){.names = names,
                             .package = "nvidia",
                             .subdir = "lib",
                             .any_between = true,
                             .remedy = "install it with: pip install something"};
}

TEST(dynlib_opens_a_system_library) {
    static const char *const names[] = {"libmillpond_not_there.so.9", "libm.so.6", NULL};
    const mp_dynlib_place place = place_of(names);
    void *library = NULL;
    void *symbol = NULL;
    CHECK_OK(mp_dynlib_open(&place, &library));
    CHECK_STR_HAS(mp_dynlib_file(library), "libm.so.6");
    CHECK_OK(mp_dynlib_symbol(library, "cos", &symbol));
    CHECK(symbol != NULL);
    CHECK_FAILS(mp_dynlib_symbol(library, "mp_no_such_function", &symbol), NOT_FOUND,
                "mp_no_such_function");
}

TEST(dynlib_says_what_is_missing) {
    const mp_dynlib_place place = place_of(nowhere);
    void *library = NULL;
    CHECK_FAILS(mp_dynlib_open(&place, &library), NOT_FOUND, "pip install something");
    CHECK_STR_HAS(mp_error_message(), "libmillpond_not_there.so.9");
}

/* A folder "<temp>/lib64" with a file of the wanted name that is no library. */
static void make_toolkit(char root[128], char file[256], mode_t mode) {
    char folder[160];
    (void)snprintf(root, 128, "%s", "/tmp/millpond-dynlib-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
    (void)snprintf(folder, sizeof folder, "%s/lib64", root);
    CHECK(mkdir(folder, 0755) == 0);
    (void)snprintf(file, 256, "%s/%s", folder, nowhere[0]);
    FILE *out = fopen(file, "w");
    CHECK(out != NULL && fputs("text", out) >= 0 && fclose(out) == 0);
    CHECK(chmod(file, mode) == 0);
}

static void remove_toolkit(char root[128], char file[256]) {
    (void)unlink(file);
    *strrchr(file, '/') = '\0';
    (void)rmdir(file);
    (void)rmdir(root);
}

TEST(dynlib_looks_into_cuda_path) {
    char root[128];
    char file[256];
    void *library = NULL;
    const mp_dynlib_place place = place_of(nowhere);
    make_toolkit(root, file, 0644);
    CHECK(setenv("CUDA_PATH", root, 1) == 0);
    const mp_status status = mp_dynlib_open(&place, &library);
    remove_toolkit(root, file);
    CHECK(status == MP_NOT_FOUND);
    CHECK_STR_HAS(mp_error_message(), "found but not loaded");
}

TEST(dynlib_refuses_what_anybody_may_write) {
    char root[128];
    char file[256];
    void *library = NULL;
    const mp_dynlib_place place = place_of(nowhere);
    make_toolkit(root, file, 0666);
    CHECK(setenv("CUDA_HOME", root, 1) == 0);
    const mp_status status = mp_dynlib_open(&place, &library);
    remove_toolkit(root, file);
    CHECK(status == MP_NOT_FOUND);
    CHECK_STR_HAS(mp_error_message(), "passed over");
}

TEST(dynlib_never_uses_relative_places) {
    char root[128];
    char file[256];
    void *library = NULL;
    const mp_dynlib_place place = place_of(nowhere);
    make_toolkit(root, file, 0644);
    CHECK(chdir(root) == 0);
    CHECK(setenv("CUDA_PATH", ".", 1) == 0);
    const mp_status status = mp_dynlib_open(&place, &library);
    CHECK(chdir("lib64") == 0);
    const mp_status beside = mp_dynlib_open(&place, &library);
    CHECK(chdir("/") == 0);
    remove_toolkit(root, file);
    CHECK(status == MP_NOT_FOUND && beside == MP_NOT_FOUND);
    CHECK(strstr(mp_error_message(), "not loaded") == NULL);
}
