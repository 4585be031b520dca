/* torch_throw.c - throws PyTorch's own exceptions from C.
 *
 * PyTorch does not look at what an allocator returns, so a failure must be a C++ exception, and
 * only c10::OutOfMemoryError becomes torch.OutOfMemoryError. Its constructor is inline, so the
 * object is made here as the compiler makes it: memory of __cxa_allocate_exception, the exported
 * constructor of its base c10::Error, then the table of virtual functions and the type of
 * c10::OutOfMemoryError, which adds no member. Each name is looked up; where one is missing, the
 * next plainer exception is thrown, of which std::bad_alloc is always there.
 *
 * Layouts are those of the Itanium C++ ABI and of libstdc++: a std::string passed by value is
 * passed by its address, an object begins with the address of its table's third entry.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "base/log.h"
#include "torch.h"

#include <dlfcn.h>
#include <string.h>

enum {
    ERROR_SIZE_MAX = 1024, /* of a c10::Error; some 130 bytes today */
    TABLE_HEAD = 2,        /* entries before the first function, which is the destructor */
};

typedef struct source_location { /* c10::SourceLocation */
    const char *function, *file;
    uint32_t line;
} source_location;

typedef struct cxx_string { /* std::string: data points to `inside`, or to memory of `capacity` */
    char *data;
    size_t size;
    union {
        char inside[16];
        size_t capacity;
    } room;
} cxx_string;

typedef void *new_fn(size_t size);
typedef void delete_fn(void *memory);
typedef void destroy_fn(void *object);
typedef void throw_fn(void *object, void *type, destroy_fn *destroy);
typedef void error_fn(void *object, source_location where, cxx_string *message);
typedef void check_fn(const char *function, const char *file, uint32_t line, const char *message);
typedef void bad_alloc_fn(void);

static struct {
    new_fn *new, *allocate;
    delete_fn *delete;
    throw_fn *throw;
    bad_alloc_fn *bad_alloc;
    check_fn *check;
    error_fn *error;
    void **table; /* of c10::OutOfMemoryError */
    void *type;
} cxx;

static torch_thrower best = TORCH_NOTHING;

CORE_EXPORT int millpond_torch_prepare(const char *c10, const char *c10_cuda);

/* ---- looking up ---- */

enum { LIBRARY_CXX, LIBRARY_C10, LIBRARY_C10_CUDA, LIBRARIES };

static const struct {
    torch_thrower needed; /* for this and all better ones */
    int library;
    const char *name;
    void *out; /* of a pointer */
} symbols[] = {
    {TORCH_BAD_ALLOC, LIBRARY_CXX, "_ZSt17__throw_bad_allocv", &cxx.bad_alloc},
    {TORCH_ERROR, LIBRARY_C10, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_", &cxx.check},
    {TORCH_OUT_OF_MEMORY, LIBRARY_CXX, "_Znwm", &cxx.new},
    {TORCH_OUT_OF_MEMORY, LIBRARY_CXX, "_ZdlPv", &cxx.delete},
    {TORCH_OUT_OF_MEMORY, LIBRARY_CXX, "__cxa_allocate_exception", &cxx.allocate},
    {TORCH_OUT_OF_MEMORY, LIBRARY_CXX, "__cxa_throw", &cxx.throw},
    {TORCH_OUT_OF_MEMORY, LIBRARY_C10,
     "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
     &cxx.error},
    {TORCH_OUT_OF_MEMORY, LIBRARY_C10_CUDA, "_ZTVN3c1016OutOfMemoryErrorE", &cxx.table},
    {TORCH_OUT_OF_MEMORY, LIBRARY_C10_CUDA, "_ZTIN3c1016OutOfMemoryErrorE", &cxx.type},
};

/* Looks for what `wanted` needs beyond the plainer ones. */
static bool find(torch_thrower wanted, void *const *libraries) {
    for (size_t i = 0; i < MP_COUNT_OF(symbols); i++) {
        if (symbols[i].needed != wanted) {
            continue;
        }
        void *library = libraries[symbols[i].library];
        void *found = library != NULL ? dlsym(library, symbols[i].name) : NULL;
        if (found == NULL) {
            return false;
        }
        memcpy(symbols[i].out, &found, sizeof found);
    }
    return true;
}

/* Finds out what can be thrown; the libraries are in the process already. Returns a torch_thrower.
 * Called with the GIL, so by one thread at a time. */
int millpond_torch_prepare(const char *c10, const char *c10_cuda) {
    enum { ALREADY = RTLD_LAZY | RTLD_NOLOAD };
    void *const libraries[LIBRARIES] = {
        [LIBRARY_CXX] = dlopen("libstdc++.so.6", ALREADY),
        [LIBRARY_C10] = dlopen(c10, ALREADY),
        [LIBRARY_C10_CUDA] = dlopen(c10_cuda, ALREADY),
    };
    while (best < TORCH_OUT_OF_MEMORY && find(best + 1, libraries)) {
        best++;
    }
    return (int)best;
}

/* ---- throwing ---- */

static void fill(cxx_string *out, const char *text) {
    const size_t size = strlen(text);
    out->room.capacity = size < sizeof out->room ? sizeof out->room : size;
    out->data = cxx.new(out->room.capacity + 1);
    out->size = size;
    memcpy(out->data, text, size + 1);
}

static void throw_out_of_memory(const char *sentence) {
    const source_location where = {.function = "millpond_torch_alloc", .file = __FILE__};
    cxx_string message;
    void **object = cxx.allocate(ERROR_SIZE_MAX);
    memset(object, 0, ERROR_SIZE_MAX);
    fill(&message, sentence);
    cxx.error(object, where, &message);
    if (message.data != message.room.inside) { /* it was copied */
        cxx.delete(message.data);
    }
    *object = &cxx.table[TABLE_HEAD];
    destroy_fn *destroy = NULL;
    memcpy(&destroy, &cxx.table[TABLE_HEAD], sizeof destroy);
    cxx.throw(object, cxx.type, destroy);
}

void torch_throw(mp_status status) {
    const char *sentence = mp_error_message();
    if (best == TORCH_OUT_OF_MEMORY && status == MP_OUT_OF_MEMORY) {
        throw_out_of_memory(sentence);
    } else if (best >= TORCH_ERROR) {
        cxx.check("millpond_torch", __FILE__, 0, sentence);
    } else if (best >= TORCH_BAD_ALLOC) {
        MP_LOG(ERROR, "%s", sentence);
        cxx.bad_alloc();
    }
}
