/* core_pool_type.c - the type Pool: its methods and properties, with what help() says of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_pool.h"

#include <stddef.h>
#include <structmember.h>

PyTypeObject *core_pool_type;

/* ---- properties ---- */

static PyObject *pool_memory(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(((core_pool *)self)->is_pinned ? "pinned" : "device");
}

static PyMemberDef members[] = {
    {"device", T_OBJECT_EX, offsetof(core_pool, device), READONLY,
     "Name of the device, as Pool() takes it: \"cuda:0\"."},
    {"device_name", T_OBJECT_EX, offsetof(core_pool, name), READONLY,
     "What the device calls itself."},
    {"bus_id", T_OBJECT_EX, offsetof(core_pool, bus_id), READONLY,
     "Where the GPU is on the PCI bus; \"\" for none."},
    {"client", T_OBJECT_EX, offsetof(core_pool, client), READONLY, "Whom statistics name."},
    {"ordinal", T_INT, offsetof(core_pool, ordinal), READONLY,
     "The driver's number of the device."},
    {"is_emulated", T_BOOL, offsetof(core_pool, is_emulated), READONLY,
     "Whether the device is emulated: its addresses are the host's."},
    {"closed", T_BOOL, offsetof(core_pool, is_closed), READONLY, "Whether close() was called."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(core_pool, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"memory", pool_memory, NULL, "\"device\" or \"pinned\".", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define FAST     METH_FASTCALL
#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)

static PyMethodDef methods[] = {
    {"alloc", CORE_METHOD(core_pool_alloc), KEYWORDS,
     "alloc($self, size, stream=None)\n--\n\n"
     "Allocates `size` bytes for work queued on `stream` after this call, as a Buffer.\n\n"
     "stream: None (the host uses it, or in an order that the caller keeps), the number of a\n"
     "handle, or an object with __cuda_stream__.\n"
     "Raises OutOfMemoryError, whose message lists usage by client; InvalidArgumentError."},
    {"reserve", core_pool_reserve, METH_O,
     "reserve($self, size, /)\n--\n\n"
     "Memory of `size` bytes outside the arena, for what stays: neither rounded up to chunks nor\n"
     "touched by shrink(). Freeing it waits for the device. Raises OutOfMemoryError."},
    {"alloc_address", CORE_METHOD(core_pool_alloc_address), FAST,
     "alloc_address($self, size, stream=None, /)\n--\n\n"
     "As alloc(), but an address that must be freed by hand."},
    {"free_address", CORE_METHOD(core_pool_free_address), FAST,
     "free_address($self, address, stream=..., /)\n--\n\n"
     "Frees in the order of `stream`, by default the one it was allocated on. None: nothing\n"
     "uses it.\n"
     "Raises InvalidArgumentError, with no effect, for an address that is not allocated."},
    {"record_use", CORE_METHOD(core_pool_record_use), FAST,
     "record_use($self, address, stream, /)\n--\n\n"
     "Work queued on `stream` from now on, another one than the block was allocated on, uses it\n"
     "too: that comes after earlier users of the memory, which is allocated again only after it."},
    {"find", core_pool_find, METH_O,
     "find($self, address, /)\n--\n\n"
     "Describes the allocated block that contains `address`, as a dict. Raises NotFoundError."},
    {"stream_settled", core_pool_stream_settled, METH_O,
     "stream_settled($self, stream, /)\n--\n\n"
     "All work queued on `stream` so far has ended: what was freed on it may be used on any\n"
     "stream."},
    {"stream_gone", core_pool_stream_gone, METH_O,
     "stream_gone($self, stream, /)\n--\n\n"
     "`stream` is about to be destroyed; waits for its work. Needed for every stream that was\n"
     "used with the pool, since drivers use handles again."},
    {"stream_mark", core_pool_stream_mark, METH_O,
     "stream_mark($self, producer, /)\n--\n\n"
     "A number for this moment of `producer`; the caller records an event on it right after."},
    {"stream_ordered", CORE_METHOD(core_pool_stream_ordered), KEYWORDS,
     "stream_ordered($self, consumer, producer, mark)\n--\n\n"
     "`consumer` has been made to wait for the event recorded after `mark`: what was freed on\n"
     "`producer` before may serve `consumer`."},
    {"capture_begin", CORE_METHOD(core_pool_capture_begin), KEYWORDS,
     "capture_begin($self, stream, capture=None)\n--\n\n"
     "`stream` is about to be captured into a graph: until capture_end its blocks come from\n"
     "memory set apart for the graph. `capture`: one given before, whose graphs never run at the\n"
     "same time. Returns the Capture, to be kept as long as the graph."},
    {"capture_end", core_pool_capture_end, METH_O,
     "capture_end($self, stream, /)\n--\n\nThe capture of `stream` has ended."},
    {"shrink", core_pool_shrink, METH_NOARGS,
     "shrink($self)\n--\n\n"
     "Waits for the device and gives it back unused memory. Returns the bytes."},
    {"add_hook", core_pool_add_hook, METH_O,
     "add_hook($self, hook, /)\n--\n\n"
     "hook(size) is called before a request of `size` bytes fails, on the thread that asks; it\n"
     "returns whether it freed anything. What it raises is reported (sys.unraisablehook) and\n"
     "counts as False. It stays until remove_hook, close, or the end of this Pool."},
    {"remove_hook", core_pool_remove_hook, METH_O,
     "remove_hook($self, hook, /)\n--\n\n"
     "Returns after no thread runs in it. Raises NotFoundError; UnsupportedError in a hook."},
    {"stats", core_pool_stats, METH_NOARGS,
     "stats($self)\n--\n\n"
     "The pool's figures of one moment, as a dict: bytes and counts of all its users together."},
    {"reset_peaks", core_pool_reset_peaks, METH_NOARGS,
     "reset_peaks($self)\n--\n\nSets the peaks to the present values."},
    {"clients", core_pool_clients, METH_NOARGS,
     "clients($self)\n--\n\nWhat each client holds, as a list of dicts; bytes and counts."},
    {"streams", core_pool_streams, METH_NOARGS,
     "streams($self)\n--\n\nWhat each stream holds, as a list of dicts; bytes and counts."},
    {"memory_info", core_pool_memory_info, METH_NOARGS,
     "memory_info($self)\n--\n\nFree and total bytes of the device itself, (0, 0) if unknown."},
    {"dump", core_pool_dump, METH_NOARGS,
     "dump($self)\n--\n\nA page of text: sizes, bins, fragmentation, regions, clients."},
    {"trace", CORE_METHOD(core_pool_trace), KEYWORDS,
     "trace($self, capacity, stacks=0)\n--\n\n"
     "Keeps the last `capacity` events (64 bytes each) from now on; 0 stops and forgets. With\n"
     "`stacks`, up to that many Python frames (at most 64) of each thread that asks for memory."},
    {"write_trace", CORE_METHOD(core_pool_write_trace), KEYWORDS,
     "write_trace($self, path, format=None)\n--\n\n"
     "Writes the events kept, and what the pool looks like now. format: \"html\", \"snapshot\"\n"
     "(PyTorch's memory viewer) or \"rmm\"; by default the one that the name of the file asks\n"
     "for: .html, .pickle, .csv. Raises NotFoundError where it cannot be written."},
    {"ipc_export", core_pool_ipc_export, METH_O,
     "ipc_export($self, address, /)\n--\n\n"
     "A handle of 64 bytes of the device's memory around a block, for another process, and how\n"
     "far into that memory the block begins. Raises UnsupportedError, InvalidArgumentError."},
    {"ipc_open", CORE_METHOD(core_pool_ipc_open), METH_FASTCALL,
     "ipc_open($self, handle, offset, size, /)\n--\n\n"
     "A Buffer of memory that another process has exported; closed with its last reference,\n"
     "after the device has ended what is queued. Raises InvalidArgumentError for a handle of this\n"
     "process, of one that has ended, or of memory that it has freed."},
    {"enable_peer", core_pool_enable_peer, METH_O,
     "enable_peer($self, ordinal, /)\n--\n\n"
     "The device `ordinal` of the same kind may use all memory that Millpond has of this pool's\n"
     "device, expandable regions too. Raises UnsupportedError where the two are not connected."},
    {"close", core_pool_close, METH_NOARGS,
     "close($self)\n--\n\nNo more requests through this Pool. Its Buffers stay valid."},
    {"_repr_html_", core_pool_html, METH_NOARGS, NULL},
    {"__enter__", core_pool_enter_with, METH_NOARGS, NULL},
    {"__exit__", CORE_METHOD(core_pool_exit_with), FAST, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, CORE_SLOT(core_pool_new)},
    {Py_tp_dealloc, CORE_SLOT(core_pool_dealloc)},
    {Py_tp_traverse, CORE_SLOT(core_pool_traverse)},
    {Py_tp_clear, CORE_SLOT(core_pool_clear)},
    {Py_tp_repr, CORE_SLOT(core_pool_repr)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {Py_tp_doc,
     (void *)(uintptr_t) "Pool(device=\"auto\", *, memory=\"device\", client=\"python\", "
                         "options=None)\n--\n\n"
                         "One user's handle on the pool of a device's memory, which all users of "
                         "the process\n"
                         "share.\n\n"
                         "device: \"cuda:N\", \"host:N\" (the emulated device), \"cuda\", \"host\" "
                         "or \"auto\" (the\n"
                         "first GPU, else emulated; MILLPOND_DEVICE decides where set).\n"
                         "memory: \"device\", or \"pinned\" memory of the host for that device.\n"
                         "client: whom statistics name; at most 31 bytes of UTF-8.\n"
                         "options: of the arena, with or without \"arena.\"; see docs/memory.md.\n"
                         "Raises InvalidArgumentError, NotFoundError, Error. Methods may be called "
                         "from any\n"
                         "thread."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "millpond.Pool",
    .basicsize = sizeof(core_pool),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

int core_pool_add(PyObject *module) {
    if (core_pool_type == NULL) {
        core_pool_type = (PyTypeObject *)PyType_FromSpec(&spec);
    }
    return core_pool_type != NULL
               ? PyObject_SetAttrString(module, "Pool", (PyObject *)core_pool_type)
               : -1;
}
