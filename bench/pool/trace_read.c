/* trace_read.c - reads a log in RMM's CSV format into a list of operations.
 *
 * Lines are "Thread,Time,Action,Pointer,Size,Stream" after a line that says so. Pointers name
 * blocks from their allocation to their free. Failed allocations, and frees of what was never
 * allocated, are left out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIELDS = 6, FIELD_MAX = 64, NAMES_MAX = 64, BUCKETS = 1 << 16 };

/* ---- words to small numbers, in order of appearance ---- */

typedef struct names {
    char words[NAMES_MAX][FIELD_MAX];
    unsigned count;
} names;

static unsigned name_index(names *self, const char *word, const char *what, unsigned most) {
    for (unsigned i = 0; i < self->count; i++) {
        if (strcmp(self->words[i], word) == 0) {
            return i;
        }
    }
    if (self->count == most) {
        die("a trace with more than %u %s", most, what);
    }
    (void)snprintf(self->words[self->count], FIELD_MAX, "%s", word);
    return self->count++;
}

/* ---- live blocks by pointer: a table of chains; free slots are used again ---- */

typedef struct block {
    uint64_t pointer, size;
    uint32_t next; /* of the chain, or of the free slots; one more than the index, 0 ends */
} block;

typedef struct table {
    block *blocks; /* owned */
    size_t count, capacity;
    uint32_t first[BUCKETS], unused;
} table;

static uint32_t *chain_of(table *self, uint64_t pointer) {
    return &self->first[(pointer * 0x9e3779b97f4a7c15u) >> 48];
}

static uint32_t block_add(table *self, uint64_t pointer, uint64_t size) {
    uint32_t slot;
    if (self->unused != 0) {
        slot = self->unused - 1;
        self->unused = self->blocks[slot].next;
    } else {
        self->blocks = must_grow(self->blocks, self->count, &self->capacity, sizeof *self->blocks);
        slot = (uint32_t)self->count++;
    }
    uint32_t *chain = chain_of(self, pointer);
    self->blocks[slot] = (block){.pointer = pointer, .size = size, .next = *chain};
    *chain = slot + 1;
    return slot;
}

static bool block_take(table *self, uint64_t pointer, uint32_t *slot, uint64_t *size) {
    for (uint32_t *link = chain_of(self, pointer); *link != 0;) {
        block *found = &self->blocks[*link - 1];
        if (found->pointer == pointer) {
            *slot = *link - 1;
            *size = found->size;
            *link = found->next;
            found->next = self->unused;
            self->unused = *slot + 1;
            return true;
        }
        link = &found->next;
    }
    return false;
}

/* ---- the file ---- */

static FILE *trace_open(const char *path, pid_t *child) {
    const size_t length = strlen(path);
    int ends[2];
    *child = 0;
    if (length < 3 || strcmp(path + length - 3, ".gz") != 0) {
        return fopen(path, "r");
    }
    if (access(path, R_OK) != 0 || pipe(ends) != 0) {
        return NULL;
    }
    char program[] = "gzip", flags[] = "-dc", split[] = "--";
    char *copy = strdup(path);
    char *const arguments[] = {program, flags, split, copy, NULL};
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_addclose(&actions, ends[0]);
    (void)posix_spawn_file_actions_addclose(&actions, ends[1]);
    if (copy == NULL || posix_spawnp(child, program, &actions, NULL, arguments, environ) != 0) {
        die("gzip cannot be started");
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    free(copy);
    (void)close(ends[1]);
    return fdopen(ends[0], "r");
}

static void trace_close(FILE *file, pid_t child, const char *path) {
    int status = 0;
    (void)fclose(file);
    if (child != 0 && (waitpid(child, &status, 0) != child || status != 0)) {
        die("gzip cannot read %s", path);
    }
}

/* Cuts a line at its commas; returns whether it has all fields. */
static bool cut(char *line, const char *fields[FIELDS]) {
    line[strcspn(line, "\r\n")] = 0;
    for (unsigned i = 0; i < FIELDS; i++) {
        fields[i] = line;
        line = strchr(line, ',');
        if (line == NULL) {
            return i == FIELDS - 1;
        }
        *line++ = 0;
    }
    return true;
}

static void add_line(ops *list, table *live, names threads[2], const char *const *fields) {
    op item = {.alloc = strcmp(fields[2], "allocate") == 0};
    const uint64_t pointer = strtoull(fields[3], NULL, 16);
    if (item.alloc) {
        item.size = strtoull(fields[4], NULL, 10);
        item.size = item.size != 0 ? item.size : 1;
        item.slot = block_add(live, pointer, item.size);
    } else if (strcmp(fields[2], "free") != 0 ||
               !block_take(live, pointer, &item.slot, &item.size)) {
        return;
    }
    item.thread = (uint8_t)name_index(&threads[0], fields[0], "threads", THREADS_MAX);
    item.stream = (uint16_t)name_index(&threads[1], fields[5], "streams", NAMES_MAX);
    ops_add(list, item);
}

ops ops_read(const char *path) {
    ops list = {0};
    pid_t child;
    char line[512];
    table *live = must_alloc(1, sizeof *live);
    names *words = must_alloc(2, sizeof *words); /* of threads, of streams */
    FILE *file = trace_open(path, &child);
    if (file == NULL) {
        die("%s cannot be read", path);
    }
    while (fgets(line, sizeof line, file) != NULL) {
        const char *fields[FIELDS];
        if (cut(line, fields)) {
            add_line(&list, live, words, fields);
        }
    }
    trace_close(file, child, path);
    free(live->blocks);
    free(live);
    free(words);
    if (list.count == 0) {
        die("%s holds no allocation; it should be a log in RMM's CSV format", path);
    }
    return list;
}
