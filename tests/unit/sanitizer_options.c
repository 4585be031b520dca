/* sanitizer_options.c - what the address sanitizer is told where the tests are built with it.
 *
 * It guesses what a thread's block of thread-local storage is from its address: one that lies 16
 * bytes into a page, as those of a loaded library may, is taken for an old C library's, and the
 * search for leaks at the end of the process then reads from an address that is none. Told not to
 * look at such blocks, it takes what the loader allocated for reachable.
 * SPDX-License-Identifier: Apache-2.0 */

/* The name is the sanitizer's. NOLINTBEGIN(bugprone-reserved-identifier,*-identifier-naming) */
__attribute__((visibility("default"))) const char *__asan_default_options(void);

const char *__asan_default_options(void) {
    return "intercept_tls_get_addr=0";
}
/* NOLINTEND(bugprone-reserved-identifier,*-identifier-naming) */
