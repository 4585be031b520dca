/* sanitizer_options.c - what the sanitizers are told where the tests are built with them.
 *
 * The address sanitizer guesses what a thread's block of thread-local storage is from its address:
 * one that lies 16 bytes into a page, as those of a loaded library may, is taken for an old C
 * library's, and the search for leaks at the end of the process then reads from an address that is
 * none. Told not to look at such blocks, it takes what the loader allocated for reachable.
 *
 * The thread sanitizer sees the locks of a library that is not built with it, but not its atomics,
 * by which NVRTC makes sure that a lock is there before it is used.
 * SPDX-License-Identifier: Apache-2.0 */

/* The names are the sanitizers'. NOLINTBEGIN(bugprone-reserved-identifier,*-identifier-naming) */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);

const char *__asan_default_options(void) {
    return "intercept_tls_get_addr=0";
}

const char *__tsan_default_suppressions(void) {
    return "called_from_lib:libnvrtc.so\n";
}
/* NOLINTEND(bugprone-reserved-identifier,*-identifier-naming) */
