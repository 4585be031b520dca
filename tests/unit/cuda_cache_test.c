/* cuda_cache_test.c - compiled kernels on disk, and the compiler; without a GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "test_folder.h"

#include "device/cuda/cuda_cache.h"
#include "device/cuda/cuda_cache_trim.h"
#include "device/cuda/cuda_choice.h"
#include "device/cuda/cuda_jit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_SIZE = 512 };

static const char *folder;

/* A cache of this test's own; each test is a process, so the choice is made again. */
static void folder_use(void) {
    folder = test_folder();
    CHECK(setenv("MILLPOND_CACHE_DIR", folder, 1) == 0 && unsetenv("MILLPOND_CACHE") == 0);
    CHECK_STR_HAS(mp__cuda_cache_folder(), folder);
}

static void key_make(uint8_t key[MP_SHA256_SIZE], uint8_t first) {
    memset(key, 0x5a, MP_SHA256_SIZE);
    key[0] = first;
}

static void file_of(const uint8_t key[MP_SHA256_SIZE], char out[PATH_SIZE]) {
    char hex[2 * MP_SHA256_SIZE + 1];
    for (size_t i = 0; i < MP_SHA256_SIZE; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", key[i]);
    }
    CHECK(snprintf(out, PATH_SIZE, "%.300s/%s", folder, hex) < PATH_SIZE);
}

static void store_and_check(const uint8_t key[MP_SHA256_SIZE], const char *text) {
    cuda_blob found = {0};
    mp__cuda_cache_store(key, text, strlen(text));
    CHECK(mp__cuda_cache_load(key, &found));
    CHECK(found.size == strlen(text) && memcmp(found.data, text, found.size) == 0);
    free(found.data);
}

TEST(cuda_cache_keeps_and_replaces) {
    uint8_t key[MP_SHA256_SIZE];
    char path[PATH_SIZE];
    cuda_blob found = {0};
    struct stat entry;
    folder_use();
    key_make(key, 1);
    CHECK(!mp__cuda_cache_load(key, &found));
    store_and_check(key, "first");
    store_and_check(key, "second, longer");
    file_of(key, path);
    CHECK(stat(path, &entry) == 0 && (entry.st_mode & 0777) == 0600);
    CHECK_EQ_INT(test_folder_count(), 1);
    key_make(key, 2);
    CHECK(!mp__cuda_cache_load(key, &found));
}

static void damage(const char *path, off_t at, char byte) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

TEST(cuda_cache_drops_damaged_files) {
    uint8_t key[MP_SHA256_SIZE];
    char path[PATH_SIZE];
    cuda_blob found = {0};
    struct stat entry;
    folder_use();
    key_make(key, 3);
    file_of(key, path);
    store_and_check(key, "0123456789");
    CHECK(stat(path, &entry) == 0);
    for (off_t at = 0; at < entry.st_size; at++) { /* each byte matters */
        store_and_check(key, "0123456789");
        damage(path, at, '!');
        CHECK(!mp__cuda_cache_load(key, &found));
        CHECK(access(path, F_OK) != 0);
    }
    for (off_t size = 0; size < entry.st_size; size += 7) {
        store_and_check(key, "0123456789");
        CHECK(truncate(path, size) == 0);
        CHECK(!mp__cuda_cache_load(key, &found));
    }
    store_and_check(key, "0123456789");
    CHECK(truncate(path, entry.st_size + 1) == 0);
    CHECK(!mp__cuda_cache_load(key, &found));
}

TEST(cuda_cache_follows_no_links_and_waits_for_no_pipes) {
    uint8_t key[MP_SHA256_SIZE];
    char path[PATH_SIZE];
    char other[PATH_SIZE];
    cuda_blob found = {0};
    folder_use();
    key_make(key, 4);
    store_and_check(key, "linked");
    file_of(key, path);
    CHECK(snprintf(other, sizeof other, "%.300s/other", folder) > 0);
    CHECK(rename(path, other) == 0 && symlink(other, path) == 0);
    CHECK(!mp__cuda_cache_load(key, &found));
    store_and_check(key, "a file again");
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK(!mp__cuda_cache_load(key, &found));
    store_and_check(key, "a file again");
}

TEST(cuda_cache_can_be_off) {
    NEEDS_OWN_PROCESS();
    uint8_t key[MP_SHA256_SIZE];
    cuda_blob found = {0};
    CHECK(setenv("MILLPOND_CACHE", "off", 1) == 0);
    CHECK_EQ_INT(strlen(mp__cuda_cache_folder()), 0);
    key_make(key, 5);
    mp__cuda_cache_store(key, "text", 4);
    CHECK(!mp__cuda_cache_load(key, &found));
}

TEST(cuda_cache_refuses_an_open_folder) {
    folder = test_folder();
    CHECK(chmod(folder, 0777) == 0);
    CHECK(setenv("MILLPOND_CACHE_DIR", folder, 1) == 0);
    CHECK(unsetenv("MILLPOND_CACHE") == 0);
    CHECK_EQ_INT(strlen(mp__cuda_cache_folder()), 0);
}

TEST(cuda_cache_refuses_a_relative_folder) {
    NEEDS_OWN_PROCESS();
    CHECK(setenv("MILLPOND_CACHE_DIR", "here", 1) == 0 && unsetenv("MILLPOND_CACHE") == 0);
    CHECK_EQ_INT(strlen(mp__cuda_cache_folder()), 0);
    CHECK(access("here", F_OK) != 0);
}

TEST(cuda_cache_follows_xdg) {
    NEEDS_OWN_PROCESS();
    char root[] = "/tmp/millpond-xdg-XXXXXX";
    char path[PATH_SIZE];
    struct stat entry;
    CHECK(mkdtemp(root) != NULL);
    CHECK(unsetenv("MILLPOND_CACHE_DIR") == 0 && unsetenv("MILLPOND_CACHE") == 0);
    CHECK(setenv("XDG_CACHE_HOME", root, 1) == 0);
    (void)snprintf(path, sizeof path, "%s/millpond/kernels", root);
    CHECK_STR_HAS(mp__cuda_cache_folder(), path);
    CHECK(stat(path, &entry) == 0 && (entry.st_mode & 0777) == 0700);
    (void)rmdir(path);
    *strrchr(path, '/') = '\0';
    (void)rmdir(path);
    (void)rmdir(root);
}

/* Writes and reads one key over and over; whatever is read must be one of the whole texts. */
static void *hammer(void *context) {
    uint8_t key[MP_SHA256_SIZE];
    char text[5000];
    key_make(key, 6);
    memset(text, *(const char *)context, sizeof text);
    for (int i = 0; i < 100; i++) {
        cuda_blob found = {0};
        mp__cuda_cache_store(key, text, sizeof text);
        if (mp__cuda_cache_load(key, &found)) {
            const char *data = found.data;
            CHECK(found.size == sizeof text && data[0] == data[sizeof text - 1]);
            free(found.data);
        }
    }
    return NULL;
}

TEST(cuda_cache_is_shared_by_threads_and_processes) {
    static char letters[] = "abcd";
    pthread_t threads[2];
    folder_use();
    const pid_t child = fork();
    CHECK(child >= 0);
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_create(&threads[i], NULL, hammer, letters + i + (child == 0 ? 2 : 0)) == 0);
    }
    for (size_t i = 0; i < MP_COUNT_OF(threads); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    if (child == 0) {
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_EQ_INT(test_folder_count(), 1);
}

/* ---- the compiler ---- */

/* ---- its size ---- */

/* As if the file had been used so many seconds ago. */
static void age(const char *path, time_t seconds) {
    const struct timespec then = {.tv_sec = time(NULL) - seconds};
    CHECK(utimensat(AT_FDCWD, path, (const struct timespec[2]){then, then}, 0) == 0);
}

TEST(cuda_cache_drops_what_was_used_longest_ago) {
    enum { FILES = 8, SIZE = 1000, DAY_S = 86400 };
    static const char stranger[] = "notes.txt";
    uint8_t key[MP_SHA256_SIZE];
    char data[SIZE] = "";
    char path[PATH_SIZE];
    cuda_blob found = {0};
    folder_use();
    for (int i = 0; i < FILES; i++) {
        key_make(key, (uint8_t)i);
        mp__cuda_cache_store(key, data, sizeof data);
        file_of(key, path);
        age(path, (FILES - i) * DAY_S * 2);
    }
    const int fd = open(folder, O_RDONLY | O_DIRECTORY);
    const int other = openat(fd, stranger, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && other >= 0 && write(other, data, sizeof data) == SIZE && close(other) == 0);
    CHECK(snprintf(path, sizeof path, "%.300s/new-half", folder) < PATH_SIZE);
    const int half = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(half >= 0 && close(half) == 0);
    key_make(key, 0); /* the oldest is used again */
    CHECK(mp__cuda_cache_load(key, &found));
    free(found.data);
    CHECK_EQ_INT(mp__cuda_cache_trim(fd, 100 * SIZE), 0);
    CHECK_EQ_INT(test_folder_count(), FILES + 2);
    age(path, DAY_S);
    CHECK(mp__cuda_cache_trim(fd, 6 * SIZE) == 4); /* each has a header, so four are left */
    CHECK_EQ_INT(test_folder_count(), 4 + 1);
    CHECK(mp__cuda_cache_load(key, &found));
    free(found.data);
    for (int i = 1; i < FILES; i++) {
        key_make(key, (uint8_t)i);
        const bool there = mp__cuda_cache_load(key, &found);
        CHECK(there == (i > 4));
        free(there ? found.data : NULL);
    }
    CHECK(unlinkat(fd, stranger, 0) == 0 && close(fd) == 0);
}

TEST(cuda_cache_keeps_to_its_size) {
    uint8_t key[MP_SHA256_SIZE];
    CHECK(setenv("MILLPOND_CACHE_SIZE", "0", 1) == 0);
    folder_use();
    key_make(key, 1);
    mp__cuda_cache_store(key, "code", 4); /* a process looks when it first stores something */
    CHECK_EQ_INT(test_folder_count(), 0);
}

/* ---- the compiler ---- */

static const mp_source sources[] = {
    {"test/scale.cu",
     "#include \"test/factor.h\"\n"
     "extern \"C\" __global__ void NAME(float *y) { y[threadIdx.x] *= FACTOR; }\n"},
    {"test/factor.h", "#define FACTOR 3.0f\n"},
    {"test/broken.cu", "extern \"C\" __global__ void NAME(float *y) { y[0] = nonsense; }\n"},
    {"test/stranger.cu", "#include \"/etc/hostname\"\n#include <stdio.h>\n"},
    {"test/thief.cu", "#include \"test/scale.cu\"\n"},
    {NULL, NULL}};

static mp_kernel_image image_of(const char *source) {
    static const char *const defines[] = {"NAME=mp_test_scale", NULL};
    return (mp_kernel_image){
        .name = "mp_test_scale", .source = source, .defines = defines, .sources = sources};
}

static void compiler_need(void) {
    int major = 0;
    int minor = 0;
    if (mp__cuda_compiler_version(&major, &minor) != MP_OK) {
        SKIP("%s", mp_error_message());
    }
}

static void compiles(const mp_kernel_image *image, int arch) {
    cuda_blob code = {0};
    CHECK_OK(mp__cuda_compile_native(image, arch, &code));
    free(code.data);
}

TEST(cuda_compile_gives_machine_code) {
    static const int archs[] = {75, 80, 90, 100};
    const mp_kernel_image image = image_of("test/scale.cu");
    compiler_need();
    for (size_t i = 0; i < MP_COUNT_OF(archs); i++) {
        compiles(&image, archs[i]);
    }
}

TEST(cuda_compile_knows_its_own_kernels) {
    static const int archs[] = {75, 80, 90, 100};
    size_t count = 0;
    const mp_kernel_image *images = mp__cuda_own_images(&count);
    compiler_need();
    CHECK_EQ_INT(count, 8);
    for (size_t i = 0; i < count * MP_COUNT_OF(archs); i++) {
        compiles(&images[i / MP_COUNT_OF(archs)], archs[i % MP_COUNT_OF(archs)]);
    }
}

TEST(cuda_compile_falls_back_to_ptx) {
    const mp_kernel_image image = image_of("test/scale.cu");
    cuda_blob code = {0};
    compiler_need();
    CHECK_OK(mp__cuda_compile(&image, 990, &code)); /* a GPU of the far future */
    CHECK(memmem(code.data, code.size, ".target", 7) != NULL);
    free(code.data);
    CHECK_FAILS(mp__cuda_compile_native(&image, 990, &code), UNSUPPORTED, "99.0");
    CHECK_FAILS(mp__cuda_compile(&image, 20, &code), UNSUPPORTED, "older NVRTC");
}

TEST(cuda_compile_reports_the_first_error) {
    const mp_kernel_image image = image_of("test/broken.cu");
    cuda_blob code = {0};
    compiler_need();
    CHECK_FAILS(mp__cuda_compile(&image, 90, &code), INVALID_ARGUMENT, "nonsense");
    CHECK_STR_HAS(mp_error_message(), "mp_test_scale");
}

TEST(cuda_compile_reads_no_files) {
    char root[] = "/tmp/millpond-jit-XXXXXX";
    cuda_blob code = {0};
    compiler_need();
    const mp_kernel_image stranger = image_of("test/stranger.cu");
    CHECK_FAILS(mp__cuda_compile(&stranger, 90, &code), INVALID_ARGUMENT, "error");
    const mp_kernel_image thief = image_of("test/thief.cu");
    CHECK_FAILS(mp__cuda_compile(&thief, 90, &code), INVALID_ARGUMENT, "scale.cu");
    /* A header of the same name in the working directory changes nothing. */
    CHECK(mkdtemp(root) != NULL && chdir(root) == 0 && mkdir("test", 0700) == 0);
    FILE *out = fopen("test/factor.h", "w");
    CHECK(out != NULL && fputs("#error from the working directory\n", out) >= 0);
    CHECK(fclose(out) == 0);
    const mp_kernel_image image = image_of("test/scale.cu");
    const mp_status status = mp__cuda_compile(&image, 90, &code);
    (void)unlink("test/factor.h");
    (void)rmdir("test");
    CHECK(chdir("/") == 0 && rmdir(root) == 0);
    CHECK_OK(status);
    free(code.data);
}

TEST(cuda_build_uses_the_cache) {
    static const char *const renamed[] = {"NAME=mp_test_scale", "OTHER", NULL};
    mp_kernel_image image = image_of("test/scale.cu");
    cuda_blob first = {0};
    cuda_blob second = {0};
    compiler_need();
    folder_use();
    CHECK_OK(mp__cuda_build(&image, 90, &first));
    CHECK_EQ_INT(test_folder_count(), 1);
    CHECK_OK(mp__cuda_build(&image, 90, &second));
    CHECK_EQ_INT(test_folder_count(), 1);
    CHECK(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    free(second.data);
    CHECK_OK(mp__cuda_build(&image, 80, &second));
    CHECK_EQ_INT(test_folder_count(), 2);
    free(second.data);
    image.defines = renamed;
    CHECK_OK(mp__cuda_build(&image, 90, &second));
    CHECK_EQ_INT(test_folder_count(), 3);
    free(first.data);
    free(second.data);
}

/* ---- choices ---- */

TEST(cuda_choice_is_for_one_question) {
    enum { NUMBERS = 3, ANSWER = 2 };
    const int64_t numbers[NUMBERS] = {1, 2, 3};
    const int64_t others[NUMBERS] = {1, 2, 4};
    const int64_t answer[ANSWER] = {7, -8};
    int64_t found[ANSWER] = {0};
    int64_t more[ANSWER + 1] = {0};
    mp_device device = {.info = {.name = "GPU", .driver = "CUDA 13.0", .arch = 90}};
    mp_device newer = {.info = {.name = "GPU", .driver = "CUDA 13.1", .arch = 90}};
    mp_device larger = {.info = {.name = "GPU XL", .driver = "CUDA 13.0", .arch = 90}};
    const cuda_question asked = {
        .device = &device, .kind = "test", .version = 9, .numbers = numbers, .count = NUMBERS};
    cuda_question rows[] = {asked, asked, asked, asked, asked, asked};
    rows[0].device = &newer;
    rows[1].device = &larger;
    rows[2].kind = "tests";
    rows[3].version = 10;
    rows[4].numbers = others;
    rows[5].count = NUMBERS - 1;
    folder_use();
    CHECK(!mp__cuda_choice_recall(&asked, found, ANSWER));
    mp__cuda_choice_keep(&asked, answer, ANSWER);
    CHECK(mp__cuda_choice_recall(&asked, found, ANSWER));
    CHECK(memcmp(found, answer, sizeof answer) == 0);
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        CHECK(!mp__cuda_choice_recall(&rows[i], found, ANSWER));
    }
    CHECK(!mp__cuda_choice_recall(&asked, more, ANSWER + 1));
    CHECK_EQ_INT(test_folder_count(), 1);
}
