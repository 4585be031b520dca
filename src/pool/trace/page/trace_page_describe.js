/* trace_page_describe.js - words for events and blocks.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Describe = (() => {
  const {events, lives} = Model;

  /* ' for conv1: y', where that is known. */
  function what(label) {
    const name = Labels.name(label);
    return name === '' ? '' : ` for ${name}`;
  }

  /* Rows that say what memory is for, and who requested it. */
  function purpose(label, stack) {
    const {kind, node, tensor} = Labels.text(label);
    const frames = Labels.frames(stack);
    return [
      ['kind', kind === 'other' && node === '' && tensor === '' ? null : kind],
      ['node', node || null],
      ['value', tensor || null],
      ['called by', frames.length > 0 ? Labels.frameText(frames[0]) : null],
    ];
  }

  function event(i) {
    const size = Text.bytes(events.requested[i] || events.size[i]);
    const who = Model.client(events.client[i]);
    switch (events.action[i]) {
      case ACTION.ALLOC: return `${size} allocated by ${who}${what(events.label[i])}`;
      case ACTION.FREE: return `${size} of ${who} freed${what(events.label[i])}`;
      case ACTION.USE: return `${size} of ${who} declared on stream ${Model.stream(events.stream[i])}`;
      case ACTION.FAIL: return `Out of memory: ${who} requested ${size}${what(events.label[i])}`;
      case ACTION.GROW: return `${Text.bytes(events.size[i])} reserved from the device`;
      default: return `${Text.bytes(events.size[i])} returned to the device`;
    }
  }

  /* What there is to say of an event, beside its first line. */
  function rows(i) {
    const life = lives.of[i];
    const of_block = events.action[i] <= ACTION.USE;
    return [
      ...purpose(events.label[i], events.action[i] === ACTION.FREE ? -1 : events.stack[i]),
      ['time', Text.time(events.time[i], 1000)],
      ['size', of_block ? `${Text.count(events.requested[i])} bytes, in a chunk of ${Text.count(events.size[i])}` : null],
      ['address', events.action[i] === ACTION.FAIL ? null : Model.address(events.addr[i])],
      ['stream', events.action[i] <= ACTION.FAIL ? Model.streamHandle(events.stream[i]) : null],
      ['thread', Model.thread(events.thread[i])],
      ['in use for', life >= 0 && events.action[i] === ACTION.FREE && lives.start[life] >= 0
        ? Text.time(events.time[i] - events.time[lives.start[life]]) : null],
    ];
  }

  function since(block) {
    if (block.life < 0) {
      return null;
    }
    const start = lives.start[block.life];
    return start < 0 ? 'before the trace' : Text.time(events.time[start], 1e5);
  }

  /* Of the event that lent it; -1 where that is not known. */
  function stackOf(block) {
    return block.life < 0 ? -1 : lives.stack[block.life];
  }

  function blockTitle(block) {
    return block.state === STATE.LENT ? `${Text.bytes(block.requested)} of ${Labels.name(block.label) || Model.client(block.client)}`
      : `${Text.bytes(block.size)} ${STATE_WORDS[block.state]}`;
  }

  function blockRows(block) {
    const lent = block.state === STATE.LENT;
    return [
      ...(lent ? purpose(block.label, stackOf(block)) : []),
      ['client', lent ? Model.client(block.client) : null],
      ['address', Model.address(block.addr)],
      ['size', lent ? `${Text.count(block.requested)} bytes, in a chunk of ${Text.count(block.size)}`
        : `${Text.count(block.size)} bytes`],
      ['stream', block.stream < 0 || block.state === STATE.UNMAPPED ? null : Model.streamHandle(block.stream)],
      ['allocated at', since(block)],
    ];
  }

  /* What there is to say of a block at length, as elements. */
  function detail(block) {
    const words = [blockTitle(block), ...blockRows(block).filter(([name, value]) => value !== null && name !== 'called by')
      .map(([name, value]) => `${name} ${value}`)].join(' · ');
    const lent = block.state === STATE.LENT;
    const frames = lent ? Labels.frames(stackOf(block)) : [];
    const parts = lent ? Labels.partsOf(block) : [];
    const notes = lent ? Labels.notes(block.label) : [];
    return [Text.make('p', {}, words),
      frames.length > 0 ? Text.make('ol', {class: 'stack'}, ...frames.map((frame) => Text.make('li', {},
        Text.make('b', {}, frame.call), ` ${frame.file}:${frame.line}`))) : null,
      parts.length > 0 ? Text.make('p', {class: 'parts'}, `${Text.plural(parts.length, 'part')}: `,
        parts.slice(0, 24).map((part) => `${Labels.name(part.label)} ${Text.bytes(part.size)}`).join(', '),
        parts.length > 24 ? ' …' : '') : null,
      notes.length > 0 ? Text.make('pre', {class: 'notes'}, notes.join('\n')) : null].filter((element) => element !== null);
  }

  return {event, rows, since, stackOf, detail, blockTitle, blockRows};
})();
