/* dynlib.c - finds and opens shared libraries in trusted places.
 *
 * A place outside the system loader's reach is a folder and the user who owns it. Whoever owns it
 * already decides what this process runs (the user named it, or code was loaded from it), so files
 * of that user are as trustworthy as the place; files of anybody else but root are not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/dynlib.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOTS_MAX = 32, NOTE_SIZE = 512 };

typedef struct folder {
    char path[PATH_MAX];
    uid_t owner;
} folder;

typedef struct folders {
    int count;
    folder *items; /* owned; ROOTS_MAX of them */
} folders;

/* What the search came across, for the message; the last trouble wins. */
typedef struct search {
    const mp_dynlib_place *place;
    void *found;
    char note[NOTE_SIZE];
} search;

static bool path_join(char out[PATH_MAX], const char *folder_path, const char *name) {
    const int length = snprintf(out, PATH_MAX, "%s/%s", folder_path, name);
    return length > 0 && length < PATH_MAX;
}

static bool owner_trusted(const struct stat *entry, uid_t place_owner) {
    return entry->st_uid == 0 || entry->st_uid == geteuid() || entry->st_uid == place_owner;
}

bool mp_dynlib_trusts(const char *path, uid_t owner) {
    char real[PATH_MAX];
    struct stat file;
    struct stat parent;
    if (realpath(path, real) == NULL || stat(real, &file) != 0 || !S_ISREG(file.st_mode)) {
        return false;
    }
    char *slash = strrchr(real, '/');
    slash[slash == real ? 1 : 0] = '\0';
    return stat(real, &parent) == 0 && owner_trusted(&file, owner) &&
           owner_trusted(&parent, owner) && (file.st_mode & S_IWOTH) == 0;
}

static void open_file(search *state, const char *path, uid_t place_owner) {
    if (access(path, R_OK) != 0) {
        return;
    }
    if (!mp_dynlib_trusts(path, place_owner)) {
        (void)snprintf(state->note, sizeof state->note,
                       "; %.300s was passed over because another user could have written it", path);
        return;
    }
    state->found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (state->found == NULL) {
        const char *reason = dlerror();
        (void)snprintf(state->note, sizeof state->note, "; it was found but not loaded: %.400s",
                       reason != NULL ? reason : path);
    }
}

static void open_in(search *state, const char *folder_path, const char *name, uid_t place_owner) {
    char path[PATH_MAX];
    if (state->found == NULL && path_join(path, folder_path, name)) {
        open_file(state, path, place_owner);
    }
}

static void open_by_loader(search *state, const char *name) {
    state->found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *reason = state->found == NULL ? dlerror() : NULL;
    /* "cannot open shared object file: No such file" about the file itself says nothing new; any
     * other reason (a missing dependency, a wrong format) is what the user needs to know. */
    if (reason != NULL &&
        (strncmp(reason, name, strlen(name)) != 0 || strstr(reason, "No such file") == NULL)) {
        (void)snprintf(state->note, sizeof state->note, "; the loader says: %.400s", reason);
    }
}

/* ---- toolkit folders ---- */

static void open_in_toolkit(search *state, const char *root, const char *name) {
    struct stat entry;
    if (root == NULL || root[0] != '/' || stat(root, &entry) != 0) {
        return;
    }
    char path[PATH_MAX];
    if (path_join(path, root, "lib64")) {
        open_in(state, path, name, entry.st_uid);
    }
    if (path_join(path, root, "lib")) {
        open_in(state, path, name, entry.st_uid);
    }
}

/* ---- Python package folders ---- */

static void folder_add(folders *list, const char *path, size_t length, uid_t owner) {
    if (list->count == ROOTS_MAX || length == 0 || length >= PATH_MAX) {
        return;
    }
    for (int i = 0; i < list->count; i++) {
        if (strlen(list->items[i].path) == length &&
            memcmp(list->items[i].path, path, length) == 0) {
            return;
        }
    }
    folder *fresh = &list->items[list->count++];
    memcpy(fresh->path, path, length);
    fresh->path[length] = '\0';
    fresh->owner = owner;
}

/* The end of the last "/site-packages" or "/dist-packages" in a path; NULL where there is none. */
static const char *package_folder_end(const char *path) {
    static const char *const marks[] = {"/site-packages/", "/dist-packages/"};
    const char *end = NULL;
    for (size_t i = 0; i < MP_COUNT_OF(marks); i++) {
        for (const char *at = strstr(path, marks[i]); at != NULL; at = strstr(at + 1, marks[i])) {
            const char *candidate = at + strlen(marks[i]) - 1;
            end = end == NULL || candidate > end ? candidate : end;
        }
    }
    return end;
}

static int folder_of_object(struct dl_phdr_info *object, size_t size, void *context) {
    (void)size;
    struct stat entry;
    const char *path = object->dlpi_name;
    if (path == NULL || path[0] != '/') {
        return 0;
    }
    const char *end = package_folder_end(path);
    if (end != NULL && stat(path, &entry) == 0) {
        folder_add(context, path, (size_t)(end - path), entry.st_uid);
    }
    return 0;
}

bool mp_dynlib_own_folder(char *out, size_t size, uid_t *owner) {
    static const char inside_us;
    Dl_info info;
    char real[PATH_MAX];
    struct stat entry;
    if (dladdr(&inside_us, &info) == 0 || info.dli_fname == NULL || info.dli_fname[0] != '/' ||
        realpath(info.dli_fname, real) == NULL || stat(real, &entry) != 0) {
        return false;
    }
    const size_t length = (size_t)(strrchr(real, '/') - real);
    if (length >= size) {
        return false;
    }
    memcpy(out, real, length);
    out[length] = '\0';
    *owner = entry.st_uid;
    return true;
}

/* "<folder>/millpond/libmillpond.so" gives "<folder>", whatever its name. */
static void folder_of_ourselves(folders *list) {
    char path[PATH_MAX];
    uid_t owner = 0;
    char *slash = mp_dynlib_own_folder(path, sizeof path, &owner) ? strrchr(path, '/') : NULL;
    if (slash != NULL) {
        folder_add(list, path, (size_t)(slash - path), owner);
    }
}

static int not_hidden(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static void open_below_any(search *state, const char *package, const char *name, uid_t owner) {
    struct dirent **entries = NULL;
    const int count = scandir(package, &entries, not_hidden, alphasort);
    for (int i = 0; i < count; i++) {
        char middle[PATH_MAX];
        char path[PATH_MAX];
        if (path_join(middle, package, entries[i]->d_name) &&
            path_join(path, middle, state->place->subdir)) {
            open_in(state, path, name, owner);
        }
        free(entries[i]);
    }
    free(entries);
}

static void open_in_packages(search *state, const folder *root, const char *name) {
    char package[PATH_MAX];
    char path[PATH_MAX];
    if (state->place->package == NULL || !path_join(package, root->path, state->place->package)) {
        return;
    }
    if (state->place->any_between) {
        open_below_any(state, package, name, root->owner);
    } else if (path_join(path, package, state->place->subdir)) {
        open_in(state, path, name, root->owner);
    }
}

/* ---- public ---- */

static void open_anywhere(search *state, const folders *packages, const char *name) {
    open_by_loader(state, name);
    const char *const toolkits[] = {secure_getenv("CUDA_PATH"), secure_getenv("CUDA_HOME"),
                                    "/usr/local/cuda"};
    for (size_t i = 0; i < MP_COUNT_OF(toolkits) && state->found == NULL; i++) {
        open_in_toolkit(state, toolkits[i], name);
    }
    for (int i = 0; i < packages->count && state->found == NULL; i++) {
        open_in_packages(state, &packages->items[i], name);
    }
}

mp_status mp_dynlib_open(const mp_dynlib_place *place, void **out) {
    search state = {.place = place};
    folders packages = {.items = malloc(ROOTS_MAX * sizeof *packages.items)};
    if (packages.items == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look for %s",
                       place->names[0]);
    }
    (void)dl_iterate_phdr(folder_of_object, &packages);
    folder_of_ourselves(&packages);
    for (const char *const *name = place->names; *name != NULL && state.found == NULL; name++) {
        open_anywhere(&state, &packages, *name);
    }
    free(packages.items);
    if (state.found == NULL) {
        return MP_FAIL(NOT_FOUND,
                       "%s could not be loaded from the system's library folders, $CUDA_PATH, "
                       "$CUDA_HOME, /usr/local/cuda or the Python packages in use%s; %s",
                       place->names[0], state.note, place->remedy);
    }
    *out = state.found;
    return MP_OK;
}

mp_status mp_dynlib_symbol(void *library, const char *symbol, void **out) {
    void *address = dlsym(library, symbol);
    if (address == NULL) {
        return MP_FAIL(NOT_FOUND, "%s has no function %s; install a newer version of it",
                       mp_dynlib_file(library), symbol);
    }
    *out = address;
    return MP_OK;
}

const char *mp_dynlib_file(void *library) {
    struct link_map *map = NULL;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == NULL || map->l_name[0] == '\0') {
        return "?";
    }
    return map->l_name;
}
