/* trace_file.c - writes a trace in the format asked for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_format.h"

typedef mp_status format_fn(mp_writer *writer, const mp_trace_view *view);

static format_fn *const formats[] = {
    [MP_TRACE_SNAPSHOT] = mp__trace_snapshot,
    [MP_TRACE_RMM_CSV] = mp__trace_csv,
    [MP_TRACE_HTML] = mp__trace_page,
};

mp_status mp__trace_write(mp_trace_format format, const char *path, const mp_trace_event *events,
                          size_t count, uint64_t dropped, const mp_layout *layout) {
    const mp_trace_view view = {
        .events = events, .count = count, .dropped = dropped, .layout = layout};
    mp_writer *writer;
    if ((size_t)format >= MP_COUNT_OF(formats)) {
        return MP_FAIL(INVALID_ARGUMENT, "there is no trace format %d", (int)format);
    }
    MP_TRY(mp__writer_open(path, &writer));
    return mp__writer_close(writer, formats[format](writer, &view));
}
