/* trace_csv.c - the trace as the log of RMM's logging adaptor, which its replay benchmark reads.
 *
 * A line an event: thread, time of day with microseconds, action, pointer, size, stream. Sizes are
 * what was asked for, and a free has the size of its allocation. A free of what was lent before the
 * first event kept is left out, so that a replay never frees what it has not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_format.h"
#include "pool/trace/trace_map.h"

#include <inttypes.h>
#include <time.h>

/* The time of day, broken down once a second. */
typedef struct day_clock {
    time_t second;
    struct tm local;
} day_clock;

static void write_line(mp_writer *writer, day_clock *clock, const mp_trace_event *event,
                       const char *action, uint64_t size) {
    const time_t second = (time_t)(event->time_ns / 1000000000u);
    if (second != clock->second) {
        clock->second = second;
        (void)localtime_r(&second, &clock->local);
    }
    mp__writer_print(writer, "%" PRIu64 ",%02d:%02d:%02d.%06u,%s,", event->thread,
                     clock->local.tm_hour, clock->local.tm_min, clock->local.tm_sec,
                     (unsigned)(event->time_ns / 1000 % 1000000), action);
    if (event->addr == 0) {
        mp__writer_print(writer, "(nil),");
    } else {
        mp__writer_print(writer, "0x%" PRIxPTR ",", event->addr);
    }
    const uintptr_t stream = event->stream == MP_NO_STREAM ? 0 : (uintptr_t)event->stream;
    mp__writer_print(writer,
                     stream == 0 ? "%" PRIu64 ",%" PRIxPTR "\n" : "%" PRIu64 ",0x%" PRIxPTR "\n",
                     size, stream);
}

static mp_status write_event(mp_writer *writer, day_clock *clock, mp_map *lent,
                             const mp_trace_event *event) {
    uint64_t size;
    switch ((mp_trace_action)event->action) {
    case MP_TRACE_ALLOC:
        write_line(writer, clock, event, "allocate", event->requested);
        return mp__map_set(lent, event->addr, event->requested);
    case MP_TRACE_FREE:
        if (mp__map_take(lent, event->addr, &size)) {
            write_line(writer, clock, event, "free", size);
        }
        return MP_OK;
    case MP_TRACE_FAIL:
        write_line(writer, clock, event, "allocate failure", event->requested);
        return MP_OK;
    case MP_TRACE_USE:
    case MP_TRACE_GROW:
    case MP_TRACE_SHRINK:
        break;
    }
    return MP_OK;
}

mp_status mp__trace_csv(mp_writer *writer, const mp_trace_view *view) {
    mp_map lent = {0};
    day_clock clock = {.second = -1};
    mp_status status = MP_OK;
    mp__writer_print(writer, "Thread,Time,Action,Pointer,Size,Stream\n");
    for (size_t i = 0; i < view->count && status == MP_OK; i++) {
        status = write_event(writer, &clock, &lent, &view->events[i]);
    }
    mp__map_free(&lent);
    return status;
}
