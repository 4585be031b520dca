/* main.c - compile_kernels ARCH FOLDER [TEXT]: compiles every kernel there is, or those with TEXT
 * in their names, into machine code for ARCH (90 for compute capability 9.0), on all cores. What
 * hardly a model has is left to be compiled when it is needed: double precision, a ninth of the
 * code, attention over paged caches and blocks, a fifteenth, integers of 16 bits and longer ones
 * without a sign, mixtures of experts, the largest or least of several inputs. So is what no plan
 * takes there: before 8.0 bfloat16, which is computed in float, products of rows of bytes and
 * convolutions by tensor cores, and but for 9.0 what its groups of warps multiply.
 *
 * Each becomes FOLDER/<key>.cubin, by the key that src/device/cuda/cuda_ready.h looks for. A file
 * that is there is not made again. tools/ready_kernels.py calls this and packs the files. Needs
 * NVRTC, and neither GPU nor driver. Prints the names of the files that are wanted.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "device/cuda/cuda_jit.h"
#include "kernel/kernel_table.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 256, HEX_SIZE = 2 * MP_SHA256_SIZE + 1 };

typedef struct task {
    int arch;
    const char *folder, *text;
    atomic_size_t next, failed;
} task;

static const mp_kernel_image *image_at(size_t i) {
    size_t own = 0;
    const mp_kernel_image *images = mp__cuda_own_images(&own);
    if (i < own) {
        return &images[i];
    }
    return i - own < (size_t)mp__kernel_image_count ? &mp__kernel_images[i - own] : NULL;
}

/* Under another name first, so that a file is whole or not there. */
static bool file_write(const char *path, const cuda_blob *code) {
    char fresh[PATH_MAX];
    (void)snprintf(fresh, sizeof fresh, "%.*s.new", PATH_MAX - 5, path);
    FILE *file = fopen(fresh, "wb");
    if (file == NULL) {
        return false;
    }
    const bool written = fwrite(code->data, 1, code->size, file) == code->size;
    return fclose(file) == 0 && written && rename(fresh, path) == 0;
}

static bool make(const task *work, const mp_kernel_image *image) {
    uint8_t key[MP_SHA256_SIZE];
    char hex[HEX_SIZE];
    char path[PATH_MAX];
    cuda_blob code = {0};
    if (mp__cuda_ready_key(image, work->arch, key) != MP_OK) {
        (void)fprintf(stderr, "compile_kernels: %s: %s\n", image->name, mp_error_message());
        return false;
    }
    for (size_t i = 0; i < sizeof key; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", key[i]);
    }
    (void)snprintf(path, sizeof path, "%s/%s.cubin", work->folder, hex);
    if (access(path, F_OK) != 0) {
        if (mp__cuda_compile_native(image, work->arch, &code) != MP_OK) {
            (void)fprintf(stderr, "compile_kernels: %s\n", mp_error_message());
            return false;
        }
        const bool written = file_write(path, &code);
        free(code.data);
        if (!written) {
            (void)fprintf(stderr, "compile_kernels: %s cannot be written: %s\n", path,
                          strerror(errno));
            return false;
        }
    }
    (void)printf("%s\n", hex);
    return true;
}

static bool has_any(const char *name, const char *const *words, size_t count) {
    bool has = false;
    for (size_t i = 0; i < count; i++) {
        has = has || strstr(name, words[i]) != NULL;
    }
    return has;
}

static bool is_wanted(const mp_kernel_image *image, const task *work) {
    enum { NEWER = 80, GROUPS = 90 };
    static const char *const rare[] = {"_f64",
                                       "_i16",
                                       "_u16",
                                       "_u32",
                                       "_u64",
                                       "attention_blocks_",
                                       "attention_chosen_",
                                       "attention_paged_",
                                       "fft_across_",
                                       "fft_power_5_",
                                       "fft_power_6_",
                                       "fft_power_7_",
                                       "fft_power_13_",
                                       "moe_",
                                       "fold_max_",
                                       "fold_min_"};
    static const char *const newer[] = {"_bf16", "integer_rows_", "conv_groups_", "conv_stem_"};
    static const char *const groups[] = {"_wgmma_", "attention_group_", "attention_turns_"};
    const char *name = image->name;
    return strstr(name, work->text) != NULL && !has_any(name, rare, MP_COUNT_OF(rare)) &&
           (work->arch >= NEWER || !has_any(name, newer, MP_COUNT_OF(newer))) &&
           (work->arch == GROUPS || !has_any(name, groups, MP_COUNT_OF(groups)));
}

static void *run(void *context) {
    task *work = context;
    for (;;) {
        const mp_kernel_image *image = image_at(atomic_fetch_add(&work->next, 1));
        if (image == NULL) {
            return NULL;
        }
        if (is_wanted(image, work) && !make(work, image)) {
            atomic_fetch_add(&work->failed, 1);
        }
    }
}

int main(int count, char **words) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t threads[THREADS_MAX];
    int started = 0;
    if (count < 3 || count > 4 || atoi(words[1]) <= 0) {
        (void)fprintf(stderr, "use: compile_kernels ARCH FOLDER [TEXT]\n");
        return 2;
    }
    task work = {.arch = atoi(words[1]), .folder = words[2], .text = count == 4 ? words[3] : ""};
    while (started < MP_MIN(cores, THREADS_MAX) &&
           pthread_create(&threads[started], NULL, run, &work) == 0) {
        started++;
    }
    if (started == 0) {
        (void)run(&work);
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    return atomic_load(&work.failed) == 0 ? 0 : 1;
}
