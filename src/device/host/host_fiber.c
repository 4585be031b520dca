/* host_fiber.c - fibers: a stack each, and a switch that saves what a call must keep.
 *
 * x86-64 and AArch64 switch in a few instructions; elsewhere swapcontext does it. Sanitizers are
 * told about every switch. All stacks of a thread lie in one mapping, lowest first, each with a
 * page below it that no access is allowed to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_fiber.h"

#include "base/macros.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if MP_WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if MP_WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__) || defined(__aarch64__)
#define WITH_ASM 1
#else
#include <ucontext.h>
#endif

/* Frames are larger with the checks of a debug or sanitizer build. */
enum { STACK_BYTES = 128 << 10, GUARD_BYTES = 64 << 10 };

typedef struct place {
#ifdef WITH_ASM
    void *stack_pointer;
#else
    ucontext_t machine;
#endif
#if MP_WITH_ASAN
    void *fake_stack;
    const void *bottom;
    size_t size;
#endif
#if MP_WITH_TSAN
    void *tsan;
#endif
} place;

typedef struct fiber {
    place here;
    host_fiber_fn *fn;
    void *argument;
    bool ended;
} fiber;

typedef struct fibers { /* of one thread */
    fiber *items;
    uint32_t count;
    char *stacks;
    place thread; /* where the thread entered the current fiber */
    fiber *current;
} fibers;

static _Thread_local fibers *mine;
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static int key_fault;

/* ---- the switch itself ---- */

#ifdef WITH_ASM

/* Saves what a callee must keep on this stack, stores the stack pointer in *from, and goes on with
 * what was saved on the stack `to`. */
void mp__host_fiber_switch(void **from, void *to);

#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden mp__host_fiber_switch\n"
        ".globl mp__host_fiber_switch\n"
        ".type mp__host_fiber_switch, @function\n"
        "mp__host_fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size mp__host_fiber_switch, . - mp__host_fiber_switch\n");

enum { SAVED_WORDS = 8, SAVED_RETURN = 7, SAVED_BYTES = 88 }; /* as behind a call */

static void save_float_modes(uint64_t *saved) {
    uint32_t vector = 0;
    uint16_t x87 = 0;
    __asm__ volatile("stmxcsr %0" : "=m"(vector));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    saved[0] = vector | (uint64_t)x87 << 32;
}
#else
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden mp__host_fiber_switch\n"
        ".globl mp__host_fiber_switch\n"
        ".type mp__host_fiber_switch, %function\n"
        "mp__host_fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size mp__host_fiber_switch, . - mp__host_fiber_switch\n");

enum { SAVED_WORDS = 20, SAVED_RETURN = 11, SAVED_BYTES = 160 };

static void save_float_modes(uint64_t *saved) {
    (void)saved; /* FPCR is the thread's and stays as it is */
}
#endif
#endif

/* ---- telling the sanitizers ---- */

static void before_switch(place *from, const place *to, bool for_good) {
    (void)from, (void)to, (void)for_good;
#if MP_WITH_ASAN
    __sanitizer_start_switch_fiber(for_good ? NULL : &from->fake_stack, to->bottom, to->size);
#endif
#if MP_WITH_TSAN
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
}

/* Where the switch came from is only known to ASan, and only the thread's own stack is news. */
static void after_switch(place *here, place *thread) {
    (void)here, (void)thread;
#if MP_WITH_ASAN
    const void *bottom = NULL;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(here->fake_stack, &bottom, &size);
    if (thread != NULL) {
        thread->bottom = bottom;
        thread->size = size;
    }
#endif
}

static void place_switch(place *from, place *to, bool for_good) {
    before_switch(from, to, for_good);
#ifdef WITH_ASM
    mp__host_fiber_switch(&from->stack_pointer, to->stack_pointer);
#else
    (void)swapcontext(&from->machine, &to->machine);
#endif
}

/* ---- fibers ---- */

/* Never returns: the last switch leaves this frame for good. */
static void fiber_main(void) {
    fibers *all = mine;
    fiber *self = all->current;
    after_switch(&self->here, &all->thread);
    self->fn(self->argument);
    self->ended = true;
    place_switch(&self->here, &all->thread, true);
    abort();
}

void mp__host_fiber_set(uint32_t index, host_fiber_fn *fn, void *context) {
    fiber *self = &mine->items[index];
    char *bottom = mine->stacks + (size_t)index * (STACK_BYTES + GUARD_BYTES) + (size_t)GUARD_BYTES;
    self->fn = fn;
    self->argument = context;
    self->ended = false;
#ifdef WITH_ASM
    uint64_t *saved = (uint64_t *)(void *)(bottom + STACK_BYTES - SAVED_BYTES);
    memset(saved, 0, SAVED_WORDS * sizeof *saved);
    save_float_modes(saved);
    void (*entry)(void) = fiber_main;
    memcpy(&saved[SAVED_RETURN], &entry, sizeof entry);
    self->here.stack_pointer = saved;
#else
    (void)getcontext(&self->here.machine);
    self->here.machine.uc_stack.ss_sp = bottom;
    self->here.machine.uc_stack.ss_size = STACK_BYTES;
    self->here.machine.uc_link = NULL;
    makecontext(&self->here.machine, fiber_main, 0);
#endif
#if MP_WITH_ASAN
    self->here.fake_stack = NULL;
    self->here.bottom = bottom;
    self->here.size = STACK_BYTES;
#endif
}

bool mp__host_fiber_resume(uint32_t index) {
    fibers *all = mine;
    fiber *self = &all->items[index];
    all->current = self;
#if MP_WITH_TSAN
    all->thread.tsan = __tsan_get_current_fiber();
#endif
    place_switch(&all->thread, &self->here, false);
    after_switch(&all->thread, NULL);
    all->current = NULL;
    return self->ended;
}

void mp__host_fiber_yield(void) {
    fibers *all = mine;
    fiber *self = all->current;
    place_switch(&self->here, &all->thread, false);
    after_switch(&self->here, &all->thread);
}

/* ---- a thread's fibers ---- */

static void unmap_stacks(fibers *all) {
    if (all->stacks != NULL) {
        (void)munmap(all->stacks, (size_t)all->count * (STACK_BYTES + GUARD_BYTES));
    }
}

static void free_fibers(fibers *all) {
#if MP_WITH_TSAN
    for (uint32_t i = 0; i < all->count; i++) {
        __tsan_destroy_fiber(all->items[i].here.tsan);
    }
#endif
    unmap_stacks(all);
    free(all->items);
    free(all);
}

static void thread_ends(void *all) {
    free_fibers(all);
}

static void make_key(void) {
    key_fault = pthread_key_create(&key, thread_ends);
}

static char *map_stacks(uint32_t count) {
    const size_t step = STACK_BYTES + GUARD_BYTES;
    char *stacks = mmap(NULL, count * step, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)mprotect(stacks + i * step, GUARD_BYTES, PROT_NONE);
    }
    return stacks;
}

static fibers *make_fibers(uint32_t count) {
    fibers *all = calloc(1, sizeof *all);
    if (all == NULL) {
        return NULL;
    }
    all->items = calloc(count, sizeof *all->items);
    all->stacks = map_stacks(count);
    all->count = count;
    if (all->items == NULL || all->stacks == NULL) {
        unmap_stacks(all);
        free(all->items);
        free(all);
        return NULL;
    }
#if MP_WITH_TSAN
    for (uint32_t i = 0; i < count; i++) {
        all->items[i].here.tsan = __tsan_create_fiber(0);
    }
#endif
    return all;
}

mp_status mp__host_fiber_reserve(uint32_t count) {
    if (mine != NULL && mine->count >= count) {
        return MP_OK;
    }
    (void)pthread_once(&key_once, make_key);
    fibers *fresh = key_fault == 0 ? make_fibers(count) : NULL;
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate memory for the stacks of %u lanes", count);
    }
    if (mine != NULL) {
        free_fibers(mine);
    }
    mine = fresh;
    (void)pthread_setspecific(key, fresh);
    return MP_OK;
}
