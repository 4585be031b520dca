/* trace_test.c - the ring of events, the figures of a layout, and the writer of files.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "pool/trace/trace.h"
#include "pool/trace/trace_writer.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the ring ---- */

static void add_numbered(mp_trace *trace, uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; i++) {
        mp__trace_add(trace, (mp_trace_event){.action = MP_TRACE_ALLOC, .addr = 256, .size = i});
    }
}

/* The events kept are numbered from `first`, and `dropped` ones are gone. */
static void check_kept(mp_trace *trace, uint64_t first, size_t expected,
                       uint64_t expected_dropped) {
    mp_trace_event *events;
    size_t count;
    uint64_t dropped;
    CHECK_OK(mp__trace_copy(trace, &events, &count, &dropped));
    CHECK_EQ_INT(count, expected);
    CHECK_EQ_INT(dropped, expected_dropped);
    CHECK((events == NULL) == (expected == 0));
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ_INT(events[i].size, first + i);
        CHECK(events[i].thread == (uint64_t)gettid());
        CHECK(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
    }
    free(events);
}

TEST(trace_keeps_the_last_events) {
    mp_trace *trace;
    CHECK_OK(mp__trace_create(&trace));
    CHECK(!mp__trace_on(trace));
    add_numbered(trace, 0, 3); /* off: nothing is kept */
    check_kept(trace, 0, 0, 0);

    CHECK_OK(mp__trace_start(trace, 5));
    CHECK(mp__trace_on(trace));
    check_kept(trace, 0, 0, 0);
    add_numbered(trace, 0, 4);
    check_kept(trace, 0, 4, 0);
    add_numbered(trace, 4, 1);
    check_kept(trace, 0, 5, 0);
    add_numbered(trace, 5, 1);
    check_kept(trace, 1, 5, 1);
    add_numbered(trace, 6, 101);
    check_kept(trace, 102, 5, 102);

    CHECK_OK(mp__trace_start(trace, 2)); /* anew */
    check_kept(trace, 0, 0, 0);
    add_numbered(trace, 7, 3);
    check_kept(trace, 8, 2, 1);

    CHECK_FAILS(mp__trace_start(trace, ((size_t)1 << 30) + 1), INVALID_ARGUMENT, "1073741825");
    check_kept(trace, 8, 2, 1);
    CHECK_OK(mp__trace_start(trace, 0));
    CHECK(!mp__trace_on(trace));
    check_kept(trace, 0, 0, 0);
    mp__trace_destroy(trace);
    mp__trace_destroy(NULL);
}

enum { THREADS = 4, EVENTS = 20000 };

typedef struct adder {
    mp_trace *trace;
    uint64_t id;
    pthread_t thread;
} adder;

static void *add_many(void *context) {
    const adder *self = context;
    for (uint64_t i = 0; i < EVENTS; i++) {
        mp__trace_add(self->trace, (mp_trace_event){.addr = self->id, .size = i});
    }
    return NULL;
}

TEST(trace_takes_events_from_many_threads) {
    adder adders[THREADS];
    mp_trace *trace;
    mp_trace_event *events;
    size_t count;
    uint64_t dropped, next[THREADS] = {0}, thread[THREADS] = {0};
    CHECK_OK(mp__trace_create(&trace));
    CHECK_OK(mp__trace_start(trace, (size_t)THREADS * EVENTS));
    for (uint64_t i = 0; i < THREADS; i++) {
        adders[i] = (adder){.trace = trace, .id = i};
        CHECK(pthread_create(&adders[i].thread, NULL, add_many, &adders[i]) == 0);
    }
    for (int i = 0; i < 20; i++) { /* reading meanwhile */
        CHECK_OK(mp__trace_copy(trace, &events, &count, &dropped));
        free(events);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(adders[i].thread, NULL) == 0);
    }
    CHECK_OK(mp__trace_copy(trace, &events, &count, &dropped));
    CHECK_EQ_INT(count, THREADS * EVENTS);
    CHECK_EQ_INT(dropped, 0);
    for (size_t i = 0; i < count; i++) { /* each thread's in its own order, all in that of time */
        const mp_addr id = events[i].addr;
        CHECK_EQ_INT(events[i].size, next[id]++);
        CHECK(next[id] == 1 || events[i].thread == thread[id]);
        thread[id] = events[i].thread;
        CHECK(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
    }
    CHECK(thread[0] != thread[1]);
    free(events);
    mp__trace_destroy(trace);
}

/* ---- layouts ---- */

TEST(fragmentation_is_what_one_request_cannot_have) {
    const mp_layout_block blocks[] = {
        {.size = 4096, .state = MP_BLOCK_LENT},        {.size = 512, .state = MP_BLOCK_FREE},
        {.size = 1024, .state = MP_BLOCK_KEPT},        {.size = 8192, .state = MP_BLOCK_WAITING},
        {.size = 1 << 30, .state = MP_BLOCK_UNMAPPED}, {.size = 2560, .state = MP_BLOCK_FREE},
    };
    const mp_layout_room room = mp__layout_room(blocks, MP_COUNT_OF(blocks));
    CHECK_EQ_INT(room.free, 4096);
    CHECK_EQ_INT(room.largest, 2560);
    CHECK_EQ_INT(mp__layout_fragmentation(room), 375);
    CHECK_EQ_INT(mp__layout_fragmentation(mp__layout_room(blocks, 2)), 0);
    CHECK_EQ_INT(mp__layout_fragmentation(mp__layout_room(blocks, 1)), 0); /* nothing is free */
}

/* ---- files ---- */

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%.63s", folder, name);
    return path;
}

static void make_folder(void) {
    (void)snprintf(folder, sizeof folder, "/tmp/millpond-trace-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
}

/* Removes the folder and what is in it; returns how many files there were. */
static int clear_folder(void) {
    int files = 0;
    DIR *listing = opendir(folder);
    CHECK(listing != NULL);
    for (struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        if (entry->d_name[0] != '.') {
            files++;
            CHECK(remove(in_folder(entry->d_name)) == 0);
        }
    }
    (void)closedir(listing);
    CHECK(rmdir(folder) == 0);
    return files;
}

static mp_status write_file(const char *path, const char *text, mp_status status) {
    mp_writer *writer;
    MP_TRY(mp__writer_open(path, &writer));
    mp__writer_print(writer, "%s", text);
    return mp__writer_close(writer, status);
}

static void check_text(const char *path, const char *expected) {
    char text[64] = "";
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fread(text, 1, sizeof text - 1, file) == strlen(expected));
    CHECK_STR_HAS(text, expected);
    (void)fclose(file);
}

TEST(a_file_is_replaced_only_once_it_is_whole) {
    make_folder();
    CHECK_OK(write_file(in_folder("a"), "first", MP_OK));
    check_text(in_folder("a"), "first");
    CHECK_EQ_INT(write_file(in_folder("a"), "second", MP_OUT_OF_MEMORY), MP_OUT_OF_MEMORY);
    check_text(in_folder("a"), "first");
    CHECK_OK(write_file(in_folder("a"), "third", MP_OK));
    check_text(in_folder("a"), "third");
    CHECK(symlink("a", in_folder("link")) == 0); /* the file behind a link, not the link */
    CHECK_OK(write_file(in_folder("link"), "fourth", MP_OK));
    check_text(in_folder("a"), "fourth");
    CHECK_EQ_INT(clear_folder(), 2);
}

TEST(large_files_are_written_in_pieces) {
    enum { LINES = 30000 };
    mp_writer *writer;
    make_folder();
    CHECK_OK(mp__writer_open(in_folder("a"), &writer));
    for (int i = 0; i < LINES; i++) {
        mp__writer_print(writer, "%08d\n", i);
    }
    CHECK_OK(mp__writer_close(writer, MP_OK));
    FILE *file = fopen(in_folder("a"), "r");
    CHECK(file != NULL);
    for (int i = 0; i < LINES; i++) {
        int number = -1;
        CHECK(fscanf(file, "%d", &number) == 1);
        CHECK_EQ_INT(number, i);
    }
    CHECK(fgetc(file) == '\n');
    CHECK(fgetc(file) == EOF);
    (void)fclose(file);
    CHECK_EQ_INT(clear_folder(), 1);
}

TEST(places_that_cannot_be_written_are_named) {
    char path[8200];
    make_folder();
    CHECK_FAILS(write_file(NULL, "", MP_OK), INVALID_ARGUMENT, "no path");
    CHECK_FAILS(write_file("", "", MP_OK), INVALID_ARGUMENT, "no path");
    CHECK_FAILS(write_file(in_folder("no/a"), "", MP_OK), NOT_FOUND, "/no/a\": No such file");
    CHECK_FAILS(write_file(folder, "", MP_OK), NOT_FOUND, "not a plain file");
    CHECK_FAILS(write_file("/dev/null", "", MP_OK), NOT_FOUND, "not a plain file");
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    CHECK_FAILS(write_file(path, "", MP_OK), NOT_FOUND, "too long");
    CHECK_EQ_INT(clear_folder(), 0);
}

TEST(a_full_disk_leaves_the_old_file) {
    NEEDS_OWN_PROCESS();
    const struct rlimit limit = {.rlim_cur = 100000, .rlim_max = 100000};
    static char text[150000];
    mp_writer *writer;
    make_folder();
    CHECK_OK(write_file(in_folder("a"), "first", MP_OK));
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_OK(mp__writer_open(in_folder("a"), &writer));
    memset(text, 'x', sizeof text);
    mp__writer_put(writer, text, sizeof text);
    CHECK_FAILS(mp__writer_close(writer, MP_OK), NOT_FOUND, "/a\": File too large");
    check_text(in_folder("a"), "first");
    CHECK_EQ_INT(clear_folder(), 1);
}
