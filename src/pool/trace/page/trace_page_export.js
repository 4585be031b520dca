/* trace_page_export.js - blocks as files of other programs: CSV and JSON.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Export = (() => {
  /* One flat object a block; times are in nanoseconds from the first event that is kept. */
  function rowOf(block) {
    const {kind, node, tensor} = Labels.text(block.label);
    const start = block.life < 0 ? -1 : Model.lives.start[block.life];
    return {address: Model.address(block.addr), size: block.size, requested: block.requested, client: Model.client(block.client),
      kind, node, tensor, stream: Model.about.streams[block.stream] ?? '', allocated_at_ns: start < 0 ? null : Model.events.time[start],
      stack: Labels.frames(Describe.stackOf(block)).map(Labels.frameText)};
  }

  /* Between quotes where that is needed; a text that a spreadsheet would take for a formula begins
   * with an apostrophe. */
  function cell(value) {
    const text = Array.isArray(value) ? value.join('; ') : String(value ?? '');
    const safe = typeof value !== 'number' && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function csv(blocks) {
    const names = ['address', 'size', 'requested', 'client', 'kind', 'node', 'tensor', 'stream', 'allocated_at_ns', 'stack'];
    const lines = blocks.map(rowOf).map((row) => names.map((name) => cell(row[name])).join(','));
    return `${[names.join(','), ...lines].join('\r\n')}\r\n`;
  }

  function json(blocks, moment, query) {
    const {device, memory, version} = Model.about;
    return `${JSON.stringify({device, memory, version, event: moment, events: Model.count, query, blocks: blocks.map(rowOf)}, null, 1)}\n`;
  }

  function save(name, type, text) {
    const address = URL.createObjectURL(new Blob([text], {type}));
    Text.make('a', {href: address, download: name}).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  return {csv, json, save};
})();
