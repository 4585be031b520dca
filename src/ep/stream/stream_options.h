/* stream_options.h - the streams that a session's options ask for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_STREAM_OPTIONS_H
#define MP_EP_STREAM_OPTIONS_H

#include "ep/stream/run_stream.h"

/* Brings the options for streams into agreement. Fails: INVALID_ARGUMENT where they exclude each
 * other, or name a stream that cannot be used. */
mp_status mp__stream_options_settle(mp_options *options);

/* Opens the stream that all runs of the session share, if the options ask for one: the user's, or
 * one of its own. Gives: `provider->only_stream`. */
mp_status mp__only_stream_open(mp_provider *provider);

/* Has ONNX Runtime say where runs on a stream of the user's end, of which it may tell nothing else.
 */
void mp__only_stream_install(mp_provider *provider);

/* The stream for runs on this thread. Gives: `*out` with one reference. */
mp_status mp__session_stream(mp_provider *provider, mp_run_stream **out);

#endif
