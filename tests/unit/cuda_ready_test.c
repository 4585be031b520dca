/* cuda_ready_test.c - kernels that come with the package; without a GPU but for the last test.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "test_folder.h"

#include "device/cuda/cuda_ahead.h"
#include "device/cuda/cuda_jit.h"
#include "device/cuda/cuda_ready.h"
#include "device/kernel_record.h"
#include "kernel/kernel_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 512, ARCH = 89, OLDER = 80, KERNELS = 3, CODE_SIZE = 100 };

static const char *folder;

static const mp_source sources[] = {
    {"test/ready.cu",
     "extern \"C\" __global__ void NAME(float *y) { y[threadIdx.x] *= FACTOR; }\n"},
    {"test/ready.h", "#define NOTHING\n"},
    {NULL, NULL}};
static const char *const factors[KERNELS][3] = {{"NAME=mp_test_ready", "FACTOR=2", NULL},
                                                {"NAME=mp_test_ready", "FACTOR=3", NULL},
                                                {"NAME=mp_test_ready", "FACTOR=4", NULL}};

static mp_kernel_image image_of(int i) {
    return (mp_kernel_image){.name = "mp_test_ready",
                             .source = "test/ready.cu",
                             .defines = factors[i],
                             .sources = sources};
}

static void path_of(int arch, char out[PATH_SIZE]) {
    (void)snprintf(out, PATH_SIZE, "%s/sm_%d.kernels", folder, arch);
}

/* Each test is a process of its own, so files are opened anew. */
static void folder_use(void) {
    folder = test_folder();
    CHECK(setenv("MILLPOND_KERNELS", folder, 1) == 0);
}

/* What a test wants otherwise about a file than it should be. */
typedef struct faults {
    bool magic, arch, entries, code, beyond, cut;
} faults;

static int by_key(const void *a, const void *b) {
    return memcmp(a, b, MP_SHA256_SIZE);
}

/* A file with code for the first `count` kernels. */
static void file_make(int arch, int count, const cuda_blob *code, faults wrong) {
    ready_header header = {.arch = (uint32_t)(wrong.arch ? arch + 1 : arch),
                           .count = (uint32_t)count};
    ready_entry entries[KERNELS];
    char path[PATH_SIZE];
    const size_t size = (size_t)count * sizeof *entries;
    uint64_t end = sizeof header + size;
    for (int i = 0; i < count; i++) {
        const mp_kernel_image image = image_of(i);
        CHECK_OK(mp__cuda_ready_key(&image, arch, entries[i].key));
        mp_sha256_of(code[i].data, code[i].size, entries[i].sum);
        entries[i].sum[0] ^= wrong.code;
        entries[i].offset = end;
        entries[i].size = wrong.beyond ? UINT64_MAX - 8 : code[i].size;
        end += code[i].size;
    }
    qsort(entries, (size_t)count, sizeof *entries, by_key);
    mp_sha256_of(entries, size, header.sum);
    memcpy(header.magic, wrong.magic ? "MPREADY0" : READY_MAGIC, sizeof header.magic);
    header.sum[0] ^= wrong.entries;
    path_of(arch, path);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK(fwrite(&header, sizeof header, 1, file) == 1);
    CHECK(fwrite(entries, 1, wrong.cut ? size / 2 : size, file) > 0);
    for (int i = 0; i < count && !wrong.cut; i++) {
        CHECK(fwrite(code[i].data, code[i].size, 1, file) == 1);
    }
    CHECK(fclose(file) == 0);
}

/* The same with bytes of the value i + 1, which no GPU gets to see. */
static void file_write(int arch, int count, faults wrong) {
    uint8_t bytes[KERNELS][CODE_SIZE];
    cuda_blob code[KERNELS];
    for (int i = 0; i < count; i++) {
        memset(bytes[i], i + 1, CODE_SIZE);
        code[i] = (cuda_blob){bytes[i], CODE_SIZE};
    }
    file_make(arch, count, code, wrong);
}

static bool has(int i, int arch, int value) {
    const mp_kernel_image image = image_of(i);
    cuda_blob found = {0};
    if (!mp__cuda_ready_load(&image, arch, &found)) {
        return false;
    }
    const bool same = found.size == CODE_SIZE && ((const uint8_t *)found.data)[99] == value;
    free(found.data);
    return same;
}

TEST(cuda_ready_finds_what_a_file_has) {
    folder_use();
    file_write(ARCH, 2, (faults){0});
    CHECK(has(0, ARCH, 1) && has(1, ARCH, 2) && !has(2, ARCH, 3));
    CHECK(!has(0, 90, 1));
}

TEST(cuda_ready_takes_code_of_an_older_architecture_of_the_same_major_version) {
    folder_use();
    file_write(OLDER, 3, (faults){0});
    file_write(ARCH, 1, (faults){0});
    CHECK(has(0, ARCH, 1) && has(2, ARCH, 3) && has(2, 86, 3));
    CHECK(!has(2, 75, 3) && !has(2, 90, 3));
}

/* The key is of all that the compiler gets, or of a hash that stands for the headers. */
TEST(cuda_ready_knows_a_kernel_by_its_text) {
    static const mp_source other[] = {{"test/ready.cu", "extern \"C\" __global__ void NAME() {}\n"},
                                      {NULL, NULL}};
    uint8_t key[5][MP_SHA256_SIZE];
    mp_kernel_image images[5] = {image_of(0), image_of(0), image_of(0), image_of(0), image_of(0)};
    images[1].sources = other;
    images[2].rounds = true;
    images[3].headers = "one";
    images[4].headers = "another";
    for (int i = 0; i < 5; i++) {
        CHECK_OK(mp__cuda_ready_key(&images[i], ARCH, key[i]));
        for (int j = 0; j < i; j++) {
            CHECK(memcmp(key[i], key[j], MP_SHA256_SIZE) != 0);
        }
    }
}

static void refuses(faults wrong) {
    folder_use();
    file_write(ARCH, KERNELS, wrong);
    CHECK(!has(0, ARCH, 1) && !has(1, ARCH, 2));
}

TEST(cuda_ready_leaves_another_version_alone) {
    refuses((faults){.magic = true});
}

TEST(cuda_ready_leaves_a_file_of_another_architecture_alone) {
    refuses((faults){.arch = true});
}

TEST(cuda_ready_leaves_damaged_entries_alone) {
    refuses((faults){.entries = true});
}

TEST(cuda_ready_leaves_half_a_file_alone) {
    refuses((faults){.cut = true});
}

TEST(cuda_ready_leaves_damaged_code_alone) {
    refuses((faults){.code = true});
}

TEST(cuda_ready_reads_nothing_behind_the_end) {
    refuses((faults){.beyond = true});
}

TEST(cuda_ready_leaves_a_file_alone_that_others_may_write) {
    char path[PATH_SIZE];
    folder_use();
    file_write(ARCH, 1, (faults){0});
    path_of(ARCH, path);
    CHECK(chmod(path, 0666) == 0);
    CHECK(!has(0, ARCH, 1));
}

TEST(cuda_ready_can_be_switched_off) {
    folder_use();
    file_write(ARCH, 1, (faults){0});
    CHECK(setenv("MILLPOND_KERNELS", "off", 1) == 0);
    CHECK(!has(0, ARCH, 1));
}

TEST(cuda_ready_wants_a_path_from_the_root) {
    folder_use();
    CHECK(setenv("MILLPOND_KERNELS", "kernels", 1) == 0);
    CHECK(!has(0, ARCH, 1));
}

/* What came with the package is not compiled ahead of time (cuda_ahead.h). */
TEST(cuda_ready_kernels_are_not_compiled_ahead) {
    const mp_kernel_image images[] = {image_of(0), image_of(1)};
    cuda_ahead_counts counts;
    int major = 0;
    int minor = 0;
    if (mp__cuda_compiler_version(&major, &minor) != MP_OK) {
        SKIP("%s", mp_error_message());
    }
    folder_use();
    file_write(ARCH, 1, (faults){0});
    CHECK(setenv("MILLPOND_CACHE", "off", 1) == 0); /* so nothing else ends well */
    mp_kernel_record_start();
    CHECK_OK(mp_kernel_record_add(&images[0]));
    CHECK_OK(mp_kernel_record_add(&images[1]));
    CHECK_FAILS(mp__cuda_ahead(ARCH, &counts), INTERNAL, "does not keep it");
    CHECK_EQ_INT(counts.ready, 1);
    CHECK_EQ_INT(counts.failed, counts.all - 1);
}

/* How many kernels of the table there are for an architecture. */
static int kernels_found(int arch) {
    int found = 0;
    for (int i = 0; i < mp__kernel_image_count; i++) {
        cuda_blob code = {0};
        if (mp__cuda_ready_load(&mp__kernel_images[i], arch, &code)) {
            static const uint8_t fatbin[] = {0x50, 0xed, 0x55, 0xba};
            CHECK(code.size > sizeof fatbin && memcmp(code.data, fatbin, sizeof fatbin) == 0);
            free(code.data);
            found++;
        }
    }
    return found;
}

/* Of those that tools/ready_kernels.py has made for 80 and 90, in the folder that the tests are
 * given. Later architectures of a major version take what there is for an earlier one. */
TEST(cuda_ready_kernels_of_the_table) {
    const char *made = getenv("MILLPOND_TEST_READY");
    if (made == NULL) {
        SKIP("no folder is named by MILLPOND_TEST_READY");
    }
    NEEDS_OWN_PROCESS();
    CHECK(setenv("MILLPOND_KERNELS", made, 1) == 0);
    const int found = kernels_found(80);
    CHECK(found > 0);
    CHECK_EQ_INT(kernels_found(86), found);
    CHECK_EQ_INT(kernels_found(89), found);
    CHECK_EQ_INT(kernels_found(90), found);
    CHECK_EQ_INT(kernels_found(100), 0);
    CHECK(unsetenv("MILLPOND_KERNELS") == 0);
}

/* ---- on a GPU ---- */

/* What the first kernel, which is to double, makes of 1. */
static float outcome(mp_device *device) {
    static mp_kernel_image image;
    mp_kernel *kernel = NULL;
    mp_stream *stream = NULL;
    mp_addr y = 0;
    float value = 1;
    image = image_of(0);
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->alloc(device, sizeof value, &y));
    CHECK_OK(device->ops->copy(device, stream, y, (mp_addr)&value, sizeof value));
    CHECK_OK(device->ops->kernel_load(device, &image, &kernel));
    CHECK_OK(device->ops->launch(device, stream, kernel, (mp_grid){.blocks = 1, .lanes = 1}, &y,
                                 sizeof y));
    CHECK_OK(device->ops->copy(device, stream, (mp_addr)&value, y, sizeof value));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    device->ops->kernel_unload(device, kernel);
    device->ops->stream_destroy(device, stream);
    device->ops->free(device, y, sizeof value);
    return value;
}

/* Code under the key of another kernel: it runs, so it was not compiled from the text. */
TEST(cuda_ready_code_runs) {
    mp_device *device = test_gpu();
    const mp_kernel_image other = image_of(1);
    cuda_blob code = {0};
    folder_use();
    CHECK_OK(mp__cuda_compile_native(&other, device->info.arch, &code));
    file_make(device->info.arch, 1, &code, (faults){0});
    free(code.data);
    CHECK(outcome(device) == 3);
}

TEST(cuda_ready_code_that_the_driver_refuses_is_compiled) {
    mp_device *device = test_gpu();
    folder_use();
    file_write(device->info.arch, 1, (faults){0});
    CHECK(outcome(device) == 2);
}
