/* cuda_jit.c - runs NVRTC on kernel text that lies in memory.
 *
 * A kernel may include every file of its image except other main files (*.cu), so those are all
 * that NVRTC gets and all that the cache's key covers: what is not hashed cannot be included.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_jit.h"

#include "device/cuda/cuda_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_SIZE = 64,
    ARCH_ALONE = 90, /* whose code may have what no other GPU has (kernel/core/group_matrix.h) */
};

/* These, the defines and the architecture are all options there are. No file outside the image is
 * ever read: no folder is searched, and the standard headers are not there. */
static const char *const options_fixed[] = {"--std=c++17", "-default-device",
                                            "--no-source-include"};
enum { OPTIONS_FIXED = MP_COUNT_OF(options_fixed) };

typedef struct target {
    int arch;
    bool native; /* machine code; otherwise PTX */
} target;

typedef struct job {
    const mp_kernel_image *image;
    const char *text; /* of the main file */
    target target;
    int header_count;
    const char **headers; /* names, then texts; owned */
    int option_count;
    const char **options; /* owned, as is the one buffer behind the defines */
    char *option_text;
} job;

static mp_status nvrtc_fail(const mp_kernel_image *image, nvrtcResult result, const char *call) {
    const mp_status status = result == NVRTC_ERROR_OUT_OF_MEMORY ? MP_OUT_OF_MEMORY : MP_INTERNAL;
    return mp__fail(status, "%s failed for kernel %s: %s", call, image->name,
                    mp__nvrtc.error_text(result));
}

mp_status mp__cuda_compiler_version(int *major, int *minor) {
    MP_TRY(mp__cuda_need(CUDA_LIB_NVRTC));
    if (mp__nvrtc.version(major, minor) != NVRTC_SUCCESS) {
        return MP_FAIL(INTERNAL, "NVRTC does not report its version; reinstall it");
    }
    return MP_OK;
}

/* ---- what to compile for ---- */

mp_status mp__cuda_compiler_archs(int archs[CUDA_ARCHS_MAX], int *count) {
    MP_TRY(mp__cuda_need(CUDA_LIB_NVRTC));
    if (mp__nvrtc.arch_count(count) != NVRTC_SUCCESS || *count < 1 || *count > CUDA_ARCHS_MAX ||
        mp__nvrtc.archs(archs) != NVRTC_SUCCESS) {
        return MP_FAIL(INTERNAL, "NVRTC does not report which GPUs it supports; reinstall it");
    }
    return MP_OK;
}

static mp_status target_choose(int arch, target *out) {
    int archs[CUDA_ARCHS_MAX];
    int count = 0;
    int newest = 0;
    MP_TRY(mp__cuda_compiler_archs(archs, &count));
    for (int i = 0; i < count; i++) {
        newest = archs[i] > newest && archs[i] <= arch ? archs[i] : newest;
    }
    if (newest == 0) {
        int major = 0;
        int minor = 0;
        MP_TRY(mp__cuda_compiler_version(&major, &minor));
        return MP_FAIL(UNSUPPORTED,
                       "NVRTC %d.%d compiles for compute capability %d.%d and newer, and the GPU "
                       "has %d.%d; install an older NVRTC (pip install nvidia-cuda-nvrtc-cu12)",
                       major, minor, archs[0] / 10, archs[0] % 10, arch / 10, arch % 10);
    }
    *out = (target){.arch = newest, .native = newest == arch};
    return MP_OK;
}

/* ---- one job ---- */

static bool is_main_file(const char *name) {
    const size_t length = strlen(name);
    return length > 3 && strcmp(name + length - 3, ".cu") == 0;
}

static mp_status headers_collect(job *work) {
    int count = 0;
    work->text = work->image->text;
    for (const mp_source *source = work->image->sources; source->name != NULL; source++) {
        if (strcmp(source->name, work->image->source) == 0) {
            work->text = source->text;
        }
        count += is_main_file(source->name) ? 0 : 1;
    }
    if (work->text == NULL) {
        return MP_FAIL(INTERNAL, "kernel %s names the file %s, which is not among its sources",
                       work->image->name, work->image->source);
    }
    work->headers = calloc((size_t)count * 2 + 1, sizeof *work->headers);
    if (work->headers == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to compile kernel %s",
                       work->image->name);
    }
    for (const mp_source *source = work->image->sources; source->name != NULL; source++) {
        if (!is_main_file(source->name)) {
            work->headers[work->header_count] = source->name;
            work->headers[count + work->header_count++] = source->text;
        }
    }
    return MP_OK;
}

static mp_status options_collect(job *work) {
    size_t count = OPTIONS_FIXED + 2;
    size_t size = OPTION_SIZE;
    for (const char *const *define = work->image->defines; *define != NULL; define++) {
        count++;
        size += strlen(*define) + sizeof "-D";
    }
    work->options = calloc(count, sizeof *work->options);
    work->option_text = malloc(size);
    if (work->options == NULL || work->option_text == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to compile kernel %s",
                       work->image->name);
    }
    char *at = work->option_text;
    const char *const end = at + size;
    work->options[work->option_count++] = at;
    at += snprintf(at, (size_t)(end - at), "--gpu-architecture=%s_%d%s",
                   work->target.native ? "sm" : "compute", work->target.arch,
                   work->target.native && work->target.arch == ARCH_ALONE ? "a" : "") +
          1;
    for (size_t i = 0; i < OPTIONS_FIXED; i++) {
        work->options[work->option_count++] = options_fixed[i];
    }
    work->options[work->option_count++] = work->image->rounds ? "--fmad=false" : "--fmad=true";
    for (const char *const *define = work->image->defines; *define != NULL; define++) {
        work->options[work->option_count++] = at;
        at += snprintf(at, (size_t)(end - at), "-D%s", *define) + 1;
    }
    return MP_OK;
}

static void job_end(job *work) {
    free(work->headers);
    free(work->options);
    free(work->option_text);
}

static mp_status job_for(job *work, const mp_kernel_image *image, target chosen) {
    *work = (job){.image = image, .target = chosen};
    mp_status status = headers_collect(work);
    if (status == MP_OK) {
        status = options_collect(work);
    }
    if (status != MP_OK) {
        job_end(work);
    }
    return status;
}

static mp_status job_begin(job *work, const mp_kernel_image *image, int arch) {
    target chosen;
    MP_TRY(target_choose(arch, &chosen));
    return job_for(work, image, chosen);
}

/* ---- compiling ---- */

/* The first line of the log that reports an error; the whole log where none does. */
static const char *first_error(char *log) {
    char *error = strstr(log, "error");
    if (error == NULL) {
        return log;
    }
    while (error > log && error[-1] != '\n') {
        error--;
    }
    char *end = strchr(error, '\n');
    if (end != NULL) {
        *end = '\0';
    }
    return error;
}

static mp_status compile_fail(const job *work, nvrtcProgram program, nvrtcResult result) {
    size_t size = 0;
    char *log = NULL;
    if (mp__nvrtc.log_size(program, &size) == NVRTC_SUCCESS && size > 0) {
        log = calloc(1, size + 1);
    }
    if (log != NULL && mp__nvrtc.log(program, log) != NVRTC_SUCCESS) {
        log[0] = '\0';
    }
    const mp_status status =
        MP_FAIL(INVALID_ARGUMENT, "NVRTC could not compile kernel %s for compute capability %d: %s",
                work->image->name, work->target.arch,
                log != NULL && log[0] != '\0' ? first_error(log) : mp__nvrtc.error_text(result));
    free(log);
    return status;
}

static mp_status code_fetch(const job *work, nvrtcProgram program, cuda_blob *out) {
    const bool native = work->target.native;
    size_t size = 0;
    nvrtcResult result =
        native ? mp__nvrtc.cubin_size(program, &size) : mp__nvrtc.ptx_size(program, &size);
    if (result != NVRTC_SUCCESS || size == 0) {
        return nvrtc_fail(work->image, result, "nvrtcGetCUBINSize");
    }
    char *code = malloc(size);
    if (code == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the %zu bytes of kernel %s",
                       size, work->image->name);
    }
    result = native ? mp__nvrtc.cubin(program, code) : mp__nvrtc.ptx(program, code);
    if (result != NVRTC_SUCCESS) {
        free(code);
        return nvrtc_fail(work->image, result, "nvrtcGetCUBIN");
    }
    *out = (cuda_blob){.data = code, .size = size};
    return MP_OK;
}

static mp_status job_compile(const job *work, cuda_blob *out) {
    nvrtcProgram program = NULL;
    nvrtcResult result =
        mp__nvrtc.create(&program, work->text, work->image->source, work->header_count,
                         work->headers + work->header_count, work->headers);
    if (result != NVRTC_SUCCESS) {
        return nvrtc_fail(work->image, result, "nvrtcCreateProgram");
    }
    result = mp__nvrtc.compile(program, work->option_count, work->options);
    const mp_status status = result == NVRTC_SUCCESS ? code_fetch(work, program, out)
                                                     : compile_fail(work, program, result);
    (void)mp__nvrtc.destroy(&program);
    return status;
}

mp_status mp__cuda_compile(const mp_kernel_image *image, int arch, cuda_blob *out) {
    job work;
    MP_TRY(job_begin(&work, image, arch));
    const mp_status status = job_compile(&work, out);
    job_end(&work);
    return status;
}

mp_status mp__cuda_compile_native(const mp_kernel_image *image, int arch, cuda_blob *out) {
    job work;
    MP_TRY(job_begin(&work, image, arch));
    mp_status status = MP_OK;
    if (!work.target.native) {
        status = MP_FAIL(UNSUPPORTED, "this NVRTC does not know compute capability %d.%d",
                         arch / 10, arch % 10);
    } else {
        status = job_compile(&work, out);
    }
    if (status == MP_OK && memmem(out->data, out->size, image->name, strlen(image->name)) == NULL) {
        status = MP_FAIL(INVALID_ARGUMENT, "the file %s has no kernel named %s", image->source,
                         image->name);
        free(out->data);
    }
    job_end(&work);
    return status;
}

/* ---- with the cache ---- */

/* Text and options, among which are architecture and defines; `version` is that of the compiler. */
static void key_of(const job *work, const int version[2], uint8_t key[MP_SHA256_SIZE]) {
    const char *headers = work->image->headers;
    mp_sha256 hash;
    mp_sha256_init(&hash);
    mp_sha256_add(&hash, version, 2 * sizeof *version);
    mp_sha256_add_text(&hash, work->image->source);
    mp_sha256_add_text(&hash, work->text);
    if (headers != NULL) {
        mp_sha256_add_text(&hash, headers);
    }
    for (int i = 0; headers == NULL && i < 2 * work->header_count; i++) {
        mp_sha256_add_text(&hash, work->headers[i]);
    }
    for (int i = 0; i < work->option_count; i++) {
        mp_sha256_add_text(&hash, work->options[i]);
    }
    mp_sha256_end(&hash, key);
}

/* Kernels that came with the package are known by what they were made from, whatever compiler made
 * them. */
mp_status mp__cuda_ready_key(const mp_kernel_image *image, int arch, uint8_t key[MP_SHA256_SIZE]) {
    static const int any_version[2];
    job work;
    MP_TRY(job_for(&work, image, (target){.arch = arch, .native = true}));
    key_of(&work, any_version, key);
    job_end(&work);
    return MP_OK;
}

/* Begins a job and looks for it in the cache: `*found`. */
static mp_status job_find(job *work, const mp_kernel_image *image, int arch,
                          uint8_t key[MP_SHA256_SIZE], cuda_blob *out, bool *found) {
    int version[2];
    MP_TRY(mp__cuda_compiler_version(&version[0], &version[1]));
    MP_TRY(job_begin(work, image, arch));
    key_of(work, version, key);
    *found = mp__cuda_cache_load(key, out);
    return MP_OK;
}

bool mp__cuda_is_cached(const mp_kernel_image *image, int arch) {
    job work;
    uint8_t key[MP_SHA256_SIZE];
    cuda_blob code = {0};
    bool found = false;
    if (job_find(&work, image, arch, key, &code, &found) != MP_OK) {
        return false;
    }
    free(code.data);
    job_end(&work);
    return found;
}

/* `*found` says that the cache had it. */
static mp_status build(const mp_kernel_image *image, int arch, uint8_t key[MP_SHA256_SIZE],
                       cuda_blob *out, bool *found) {
    job work;
    mp_status status = MP_OK;
    MP_TRY(job_find(&work, image, arch, key, out, found));
    if (!*found) {
        status = job_compile(&work, out);
        if (status == MP_OK) {
            mp__cuda_cache_store(key, out->data, out->size);
        }
    }
    job_end(&work);
    return status;
}

mp_status mp__cuda_build(const mp_kernel_image *image, int arch, cuda_blob *out) {
    uint8_t key[MP_SHA256_SIZE];
    bool found = false;
    return build(image, arch, key, out, &found);
}

mp_status mp__cuda_build_kept(const mp_kernel_image *image, int arch, bool *found) {
    uint8_t key[MP_SHA256_SIZE];
    cuda_blob code = {0};
    MP_TRY(build(image, arch, key, &code, found));
    free(code.data);
    if (*found) {
        return MP_OK;
    }
    if (!mp__cuda_cache_load(key, &code)) {
        return MP_FAIL(INTERNAL,
                       "kernel %s was compiled, but the cache \"%s\" does not keep it; see that "
                       "there is such a folder, of this user alone, with room "
                       "(MILLPOND_LOG=info says more)",
                       image->name, mp__cuda_cache_folder());
    }
    free(code.data);
    return MP_OK;
}
