/* cuda_kernel.c - kernels loaded on a GPU, and their launch.
 *
 * An image is loaded once a device, however often it is asked for. The launch is the hottest path
 * of the program: it takes no lock, and since a CUkernel runs in the context of its stream, the
 * thread's own context need not even be looked at.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "device/cuda/cuda_jit.h"
#include "device/cuda/cuda_private.h"
#include "device/cuda/cuda_ready.h"

#include <assert.h>
#include <stdlib.h>

/* A kernel that begins by waiting for the one before may be brought up while that one ends: a graph
 * of 200 small kernels takes 0.21 ms instead of 0.29 on an H200. */
enum { ARCH_OF_DEPENDENT_LAUNCH = 90 };

static cuda_kernel *kernel_find(const cuda_device *device, const mp_kernel_image *image) {
    cuda_kernel *kernel = device->kernels;
    while (kernel != NULL && kernel->image != image) {
        kernel = kernel->next;
    }
    return kernel;
}

/* Lets the kernel have all the dynamic shared memory that its own static part leaves. */
static CUresult shared_open(const cuda_device *device, CUfunction function) {
    int fixed = 0;
    const CUresult result =
        mp__cu.function_attribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
    const int room = (int)device->base.info.shared_bytes_max - fixed;
    if (result != CUDA_SUCCESS || room <= 0) {
        return result;
    }
    return mp__cu.function_set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, room);
}

/* How a multiprocessor divides its memory cannot change while blocks are there: the driver, which
 * looks at one kernel at a time, would leave none to those of the next one. */
static CUresult beside_open(const cuda_kernel *kernel, CUfunction function) {
    return !kernel->image->beside
               ? CUDA_SUCCESS
               : mp__cu.function_set(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                     CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
}

/* Lets the kernel be launched in clusters of more blocks than every GPU has, where this one has. */
static CUresult cluster_open(const cuda_device *device, CUfunction function) {
    return device->base.info.cluster_blocks_max <= CUDA_CLUSTER_PORTABLE
               ? CUDA_SUCCESS
               : mp__cu.function_set(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                                     1);
}

static size_t args_size_of(CUfunction function) {
    size_t offset = 0;
    size_t size = 0;
    if (mp__cu.function_parameter == NULL ||
        mp__cu.function_parameter(function, 0, &offset, &size) != CUDA_SUCCESS) {
        return 0;
    }
    return size;
}

/* In the device's context. Asking for the function loads the code now; left to the first launch it
 * would break a capture. */
static mp_status library_open(const cuda_device *device, cuda_kernel *kernel,
                              const cuda_blob *code) {
    CUfunction function = NULL;
    const char *call = "cuLibraryLoadData";
    CUresult result =
        mp__cu.library_load(&kernel->library, code->data, NULL, NULL, 0, NULL, NULL, 0);
    if (result == CUDA_SUCCESS) {
        call = "cuLibraryGetKernel";
        result = mp__cu.library_kernel(&kernel->kernel, kernel->library, kernel->image->name);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuKernelGetFunction";
        result = mp__cu.kernel_function(&function, kernel->kernel);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuFuncSetAttribute";
        result = shared_open(device, function);
    }
    if (result == CUDA_SUCCESS) {
        result = beside_open(kernel, function);
    }
    if (result == CUDA_SUCCESS) {
        result = cluster_open(device, function);
    }
    if (result == CUDA_SUCCESS) {
        kernel->args_size = args_size_of(function);
        return MP_OK;
    }
    const mp_status status = mp__cuda_fail(device, result, call);
    if (kernel->library != NULL) {
        (void)mp__cu.library_unload(kernel->library);
        kernel->library = NULL;
    }
    return mp__fail(status, "kernel %s: %s", kernel->image->name, mp_error_message());
}

/* Takes: `code`. */
static mp_status code_open(cuda_device *device, cuda_kernel *kernel, cuda_blob code) {
    cuda_scope scope;
    mp_status status = mp__cuda_enter_aside(device, &scope); /* others may capture meanwhile */
    if (status == MP_OK) {
        status = library_open(device, kernel, &code);
        mp__cuda_exit(&scope);
    }
    free(code.data);
    return status;
}

/* Code that came with the package, unless the driver will not have it; else from the cache or the
 * compiler. */
static mp_status code_bring(cuda_device *device, cuda_kernel *kernel) {
    const int arch = device->base.info.arch;
    cuda_blob code = {0};
    if (mp__cuda_ready_load(kernel->image, arch, &code)) {
        if (code_open(device, kernel, code) == MP_OK) {
            return MP_OK;
        }
        MP_LOG(WARNING, "code that came with the package cannot be loaded, and is compiled: %s",
               mp_error_message());
    }
    MP_TRY(mp__cuda_build(kernel->image, arch, &code));
    return code_open(device, kernel, code);
}

static void run_later(mp_later *self);

mp_status mp__cuda_kernel_open(mp_device *self, const mp_kernel_image *image, mp_kernel **out) {
    cuda_device *device = cuda_device_of(self);
    (void)pthread_mutex_lock(&device->kernel_lock);
    cuda_kernel *kernel = kernel_find(device, image);
    if (kernel == NULL) {
        kernel = calloc(1, sizeof *kernel);
        if (kernel != NULL) {
            kernel->device = device;
            kernel->later = (mp_later){.run = run_later, .owner = device};
            kernel->image = image;
            kernel->early = image->waits && device->base.info.arch >= ARCH_OF_DEPENDENT_LAUNCH;
            kernel->next = device->kernels;
            device->kernels = kernel;
        }
    }
    if (kernel != NULL) {
        kernel->references++;
        *out = (mp_kernel *)(void *)kernel;
    }
    (void)pthread_mutex_unlock(&device->kernel_lock);
    return kernel != NULL
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of kernel %s",
                         image->name);
}

/* Whoever comes first brings the code, and the others wait. Where it could not, the next one tries,
 * and gets the error of its own. */
mp_status mp__cuda_kernel_ready(mp_device *self, mp_kernel *kernel) {
    cuda_device *device = cuda_device_of(self);
    cuda_kernel *mine = (cuda_kernel *)(void *)kernel;
    mp_status status = MP_OK;
    if (atomic_load_explicit(&mine->ready, memory_order_acquire)) {
        return MP_OK;
    }
    (void)pthread_mutex_lock(&device->kernel_lock);
    while (mine->busy) {
        (void)pthread_cond_wait(&device->kernel_made, &device->kernel_lock);
    }
    if (!atomic_load_explicit(&mine->ready, memory_order_relaxed)) {
        mine->busy = true;
        (void)pthread_mutex_unlock(&device->kernel_lock);
        status = code_bring(device, mine);
        (void)pthread_mutex_lock(&device->kernel_lock);
        mine->busy = false;
        atomic_store_explicit(&mine->ready, status == MP_OK, memory_order_release);
        (void)pthread_cond_broadcast(&device->kernel_made);
    }
    (void)pthread_mutex_unlock(&device->kernel_lock);
    return status;
}

/* ---- with a stand-in until then ---- */

/* The process may end while this runs. NVRTC is loaded first, so that the end waits for what it
 * compiles before it is taken down; and so again once it has compiled, which brings more of it. */
static void run_later(mp_later *self) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    cuda_kernel *mine = MP_CONTAINER_OF(self, cuda_kernel, later);
    mp_device *device = &mine->device->base;
    if (mp__cuda_need(CUDA_LIB_NVRTC) == MP_OK) {
        mp_later_loaded();
    }
    const mp_status status = mp__cuda_kernel_ready(device, (mp_kernel *)(void *)mine);
    mp_later_loaded();
    if (status != MP_OK && !atomic_flag_test_and_set(&told)) {
        MP_LOG(WARNING, "%s, which is slower, keeps standing in for kernels: %s",
               mine->stand_in->image->name, mp_error_message());
    }
}

/* That takes no compiler, nor that one is loaded. */
static bool is_at_hand(const cuda_device *device, const mp_kernel_image *image) {
    const int arch = device->base.info.arch;
    cuda_blob code = {0};
    const bool found = mp__cuda_ready_load(image, arch, &code) ||
                       (mp__cuda_has(CUDA_LIB_NVRTC) && mp__cuda_is_cached(image, arch));
    free(code.data);
    return found;
}

static bool is_ready(const cuda_kernel *kernel) {
    return atomic_load_explicit(&kernel->ready, memory_order_acquire);
}

bool mp__cuda_kernel_ready_later(mp_device *self, mp_kernel *kernel, mp_kernel *stand_in) {
    cuda_device *device = cuda_device_of(self);
    cuda_kernel *mine = (cuda_kernel *)(void *)kernel;
    cuda_kernel *other = (cuda_kernel *)(void *)stand_in;
    if (is_ready(mine)) {
        return false;
    }
    (void)pthread_mutex_lock(&device->kernel_lock);
    const bool has_one = mine->stand_in != NULL;
    (void)pthread_mutex_unlock(&device->kernel_lock);
    if (has_one) {
        return true;
    }
    if (is_at_hand(device, mine->image) ||
        (!is_ready(other) && !is_at_hand(device, other->image)) ||
        mp__cuda_kernel_ready(self, stand_in) != MP_OK) {
        return false;
    }
    (void)pthread_mutex_lock(&device->kernel_lock);
    const bool is_first = mine->stand_in == NULL;
    const bool queued = !is_first || mp_later_add(&mine->later);
    mine->stand_in = queued ? other : NULL;
    (void)pthread_mutex_unlock(&device->kernel_lock);
    return queued;
}

bool mp__cuda_kernels_settled(mp_device *self, bool wait) {
    if (wait) {
        mp_later_settle(self);
    }
    return !mp_later_has(self);
}

/* What a launch takes that finds its kernel not ready. A graph would keep the stand-in for good. */
static __attribute__((noinline, cold)) const cuda_kernel *
code_for_now(mp_device *self, mp_stream *stream, const cuda_kernel *kernel) {
    bool captured = false;
    assert(kernel->stand_in != NULL);
    if (mp__cuda_capture_active(self, stream, &captured) == MP_OK && captured) {
        mp_later_wait((mp_later *)(uintptr_t)&kernel->later);
    }
    return is_ready(kernel) ? kernel : kernel->stand_in;
}

mp_status mp__cuda_kernel_load(mp_device *self, const mp_kernel_image *image, mp_kernel **out) {
    mp_kernel *kernel = NULL;
    MP_TRY(mp__cuda_kernel_open(self, image, &kernel));
    const mp_status status = mp__cuda_kernel_ready(self, kernel);
    if (status != MP_OK) {
        mp__cuda_kernel_unload(self, kernel);
        return status;
    }
    *out = kernel;
    return MP_OK;
}

/* Takes a reference away; gives the kernel where it was the last. */
static cuda_kernel *kernel_drop(cuda_device *device, cuda_kernel *kernel) {
    (void)pthread_mutex_lock(&device->kernel_lock);
    const bool last = --kernel->references == 0;
    if (last) {
        cuda_kernel **link = &device->kernels;
        while (*link != kernel) {
            link = &(*link)->next;
        }
        *link = kernel->next;
    }
    (void)pthread_mutex_unlock(&device->kernel_lock);
    return last ? kernel : NULL;
}

void mp__cuda_kernel_unload(mp_device *self, mp_kernel *kernel) {
    cuda_device *device = cuda_device_of(self);
    cuda_kernel *gone = kernel_drop(device, (cuda_kernel *)(void *)kernel);
    cuda_scope scope;
    if (gone != NULL) {
        mp_later_drop(&gone->later);
    }
    if (gone != NULL && gone->library != NULL && mp__cuda_enter(device, &scope) == MP_OK) {
        mp__cuda_warn(device, mp__cu.library_unload(gone->library), "cuLibraryUnload");
        mp__cuda_exit(&scope);
    }
    free(gone);
}

static mp_status launch_fail(const cuda_device *device, CUresult result, const cuda_kernel *kernel,
                             mp_grid grid) {
    const mp_status status = mp__cuda_fail(device, result, "cuLaunchKernelEx");
    return mp__fail(status, "launch of %s (%u x %u blocks of %u lanes, %u bytes shared): %s",
                    kernel->image->name, grid.blocks, grid.blocks_y, grid.lanes, grid.shared_bytes,
                    mp_error_message());
}

/* How the blocks meet; the number of attributes. A cooperative launch is brought up when the kernel
 * before has ended: its blocks must not wait for others that hold the room of the rest. */
static __attribute__((noinline, cold)) unsigned meeting(mp_grid grid, CUlaunchAttribute *out,
                                                        unsigned early) {
    if (grid.meets == MP_MEETS_ALL) {
        out[0] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
        return 1;
    }
    out[early] = (CUlaunchAttribute){
        .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        .value.clusterDim = {.x = grid.meets, .y = 1, .z = 1},
    };
    return early + 1;
}

static CUresult launch(const cuda_kernel *code, cuda_stream *stream, mp_grid grid,
                       const void *args) {
    CUlaunchAttribute attributes[2];
    unsigned count = code->early && !stream->ended_branch ? 1 : 0;
    stream->ended_branch = false;
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[0].value.programmaticStreamSerializationAllowed = 1;
    if (__builtin_expect(grid.meets > 1, 0)) {
        count = meeting(grid, attributes, count);
    }
    const CUlaunchConfig config = {
        .gridDimX = grid.blocks,
        .gridDimY = grid.blocks_y != 0 ? grid.blocks_y : 1,
        .gridDimZ = 1,
        .blockDimX = grid.lanes,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = grid.shared_bytes,
        .hStream = stream->handle,
        .attrs = attributes,
        .numAttrs = count,
    };
    /* The driver only reads the arguments, but takes them as `void **`. */
    void *parameters[] = {(void *)(uintptr_t)args};
    return mp__cu.launch(&config, (CUfunction)code->kernel, parameters, NULL);
}

mp_status mp__cuda_launch(mp_device *self, mp_stream *stream, const mp_kernel *kernel, mp_grid grid,
                          const void *args, size_t args_size) {
    const cuda_device *device = cuda_device_of(self);
    const cuda_kernel *code = (const cuda_kernel *)(const void *)kernel;
    cuda_stream *to = cuda_stream_from(stream);
    assert(grid.blocks > 0 && grid.lanes > 0);
    if (__builtin_expect(!is_ready(code), 0)) {
        code = code_for_now(self, stream, code);
    }
    assert(code->args_size == 0 || code->args_size == args_size);
    (void)args_size;
    CUresult result = CUDA_SUCCESS;
    if (__builtin_expect(to->handle != NULL, 1)) {
        result = launch(code, to, grid, args); /* in the context of the stream */
    } else {
        cuda_scope scope;
        MP_TRY(mp__cuda_enter(device, &scope));
        result = launch(code, to, grid, args);
        mp__cuda_exit(&scope);
    }
    return __builtin_expect(result == CUDA_SUCCESS, 1) ? MP_OK
                                                       : launch_fail(device, result, code, grid);
}
