/* trace_page_read.js - the rows of numbers of a page; the order of fields is that of trace_page.c.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const ACTION = {ALLOC: 0, FREE: 1, USE: 2, FAIL: 3, GROW: 4, SHRINK: 5};
const STATE = {LENT: 0, FREE: 1, KEPT: 2, WAITING: 3, UNMAPPED: 4};
const NO_STREAM = '0xffffffffffffffff';

const Read = (() => {
  /* The numbers in the element `id`; see trace_page.c. */
  function numbersOf(id) {
    const text = atob(document.getElementById(id).textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) {
      bytes[i] = text.charCodeAt(i);
    }
    let at = 0;
    function next() {
      let byte = bytes[at++];
      if (byte < 128) {
        return byte;
      }
      let value = byte & 127;
      let scale = 128;
      do {
        byte = bytes[at++];
        value += (byte & 127) * scale;
        scale *= 128;
      } while (byte >= 128);
      return value;
    }
    function step() {
      const value = next();
      return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
    return {next, step};
  }

  function readBlocks(count) {
    const {next, step} = numbersOf('blocks');
    const blocks = new Array(count);
    let end = 0;
    for (let i = 0; i < count; i++) {
      const addr = end + step();
      const size = next();
      blocks[i] = {addr, size, requested: next(), stream: next(), state: next(), client: next(), label: next(), life: -1};
      end = addr + size;
    }
    return blocks;
  }

  function readEvents(count) {
    const {next, step} = numbersOf('events');
    const events = {
      time: new Float64Array(count), action: new Uint8Array(count), pages: new Uint8Array(count),
      client: new Uint8Array(count), addr: new Float64Array(count), size: new Float64Array(count),
      requested: new Float64Array(count), stream: new Uint32Array(count), thread: new Uint32Array(count),
      total: new Float64Array(count), label: new Uint32Array(count), stack: new Uint32Array(count),
    };
    let time = 0;
    let addr = 0;
    let total = 0;
    for (let i = 0; i < count; i++) {
      events.time[i] = time += next();
      const head = next();
      events.action[i] = head & 7;
      events.pages[i] = head >> 3;
      events.client[i] = next();
      events.addr[i] = addr += step();
      events.size[i] = next();
      events.requested[i] = next();
      events.stream[i] = next();
      events.thread[i] = next();
      events.total[i] = total += step();
      events.label[i] = next();
      events.stack[i] = next();
    }
    return events;
  }

  return {blocks: readBlocks, events: readEvents};
})();
