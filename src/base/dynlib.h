/* dynlib.h - libraries opened on first need, from trusted places only.
 *
 * Places, in this order: the system loader by plain name (libraries already in the process and the
 * system's own folders); lib64 and lib of $CUDA_PATH, of $CUDA_HOME and of /usr/local/cuda; and
 * below every Python package folder (".../site-packages", ".../dist-packages") that a loaded
 * library came from. Never the working directory or a relative path, and never a file that anybody
 * may write or that belongs to a user other than root, this one, or the owner of the place itself.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_DYNLIB_H
#define MP_BASE_DYNLIB_H

#include "base/status.h"

#include <stdbool.h>
#include <sys/types.h>

typedef struct mp_dynlib_place {
    const char *const *names; /* sonames, the best first: "libcudnn.so.9"; NULL ends */
    const char *package;      /* in a package folder: "nvidia" or "scipy_openblas32" */
    const char *subdir;       /* folder of the file below `package`: "lib" */
    bool any_between;         /* whether one folder of any name lies between the two */
    const char *remedy;       /* ends the message: "install it with: pip install nvidia-..." */
} mp_dynlib_place;

/* Opens the first of the names found. The library stays loaded until the process ends.
 * Gives: `*out`, a handle for mp_dynlib_symbol. Threads: any. Blocks: reads folders.
 * Fails: NOT_FOUND; the message says what was looked for, where, and the remedy. */
MP_MUST_CHECK mp_status mp_dynlib_open(const mp_dynlib_place *place, void **out);

/* The address of a symbol in an opened library. Fails: NOT_FOUND; names symbol and file. */
MP_MUST_CHECK mp_status mp_dynlib_symbol(void *library, const char *symbol, void **out);

/* The folder of the library that this code is in, as a path without links, and who owns the
 * library. False where that is not known, or longer than `size`. */
bool mp_dynlib_own_folder(char *out, size_t size, uid_t *owner);

/* Whether nobody but root, this user and `owner`, whose place it is, can have written the file.
 * Blocks: reads folders. */
bool mp_dynlib_trusts(const char *path, uid_t owner);

/* The file a library was opened from; "?" where that is not known. Valid as long as `library`. */
const char *mp_dynlib_file(void *library);

#endif
