/* trace_page_model.js - the data of the page: reads what trace_page.c wrote, and tells what memory
 * looked like after any number of events.
 *
 * A moment is a number of events, from 0 (before the first that is kept) to all (now). A "life" is
 * one loan of a block, from the event that lent it to the one that freed it; -1 stands for "before
 * the first event", the number of events for "not yet". A "range" is the same for memory had from
 * the device. SPDX-License-Identifier: Apache-2.0 */
'use strict';

const ACTION = {ALLOC: 0, FREE: 1, USE: 2, FAIL: 3, GROW: 4, SHRINK: 5};
const STATE = {LENT: 0, FREE: 1, KEPT: 2, WAITING: 3, UNMAPPED: 4};
const NO_STREAM = '0xffffffffffffffff';

const Model = (() => {
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
      blocks[i] = {addr, size, requested: next(), stream: next(), state: next(), client: next(), life: -1};
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
      total: new Float64Array(count),
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
    }
    return events;
  }

  /* Every loan: columns, and for each event the life it begins or ends (-1 for none). */
  function livesOf(events, count, blocks) {
    const most = count + blocks.length;
    const lives = {
      count: 0, of: new Int32Array(count).fill(-1), start: new Int32Array(most), end: new Int32Array(most),
      addr: new Float64Array(most), size: new Float64Array(most), requested: new Float64Array(most),
      client: new Uint8Array(most), stream: new Uint32Array(most),
    };
    const open = new Map();
    function begin(start, source, i) {
      const life = lives.count++;
      lives.start[life] = start;
      lives.end[life] = count;
      for (const column of ['addr', 'size', 'requested', 'client', 'stream']) {
        lives[column][life] = i === undefined ? source[column] : source[column][i];
      }
      return life;
    }
    for (let i = 0; i < count; i++) {
      const addr = events.addr[i];
      if (events.action[i] === ACTION.ALLOC) {
        open.set(addr, lives.of[i] = begin(i, events, i));
      } else if (events.action[i] === ACTION.FREE) {
        const life = lives.of[i] = open.get(addr) ?? begin(-1, events, i);
        lives.end[life] = i;
        open.delete(addr);
      }
    }
    for (const block of blocks) {
      if (block.state === STATE.LENT) {
        block.life = open.get(block.addr) ?? begin(-1, block);
      }
    }
    return lives;
  }

  /* Memory had from the device: ranges {addr, size, start, end, pages}, found by undoing. A block
   * outside of what is had then came and went with memory of its own. */
  function rangesOf(events, count, regions, blocks, lives) {
    const done = [];
    const open = []; /* what is had at this point, by address */

    /* The index of the last open range that begins at or before `addr`; -1 for none. */
    function before(addr) {
      let low = 0;
      let high = open.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (open[middle].addr <= addr) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low - 1;
    }

    function add(range) {
      open.splice(before(range.addr) + 1, 0, range);
    }

    /* Ends the open ranges that meet [addr, addr + size), as far as they do. */
    function undo(addr, size, start) {
      let at = Math.max(0, before(addr));
      while (at < open.length && open[at].addr < addr + size) {
        const range = open[at];
        const from = Math.max(range.addr, addr);
        const to = Math.min(range.addr + range.size, addr + size);
        if (from >= to) {
          at++;
          continue;
        }
        done.push({...range, addr: from, size: to - from, start});
        const rest = [{...range, size: from - range.addr}, {...range, addr: to, size: range.addr + range.size - to}];
        const kept = rest.filter((one) => one.size > 0);
        open.splice(at, 1, ...kept);
        at += kept.length;
      }
    }

    const waiting = new Map(); /* blocks outside the arena that are freed but not given back, by address */
    function addAlone(life, end) {
      done.push({addr: lives.addr[life], size: lives.size[life], start: lives.start[life], end, pages: false, alone: true});
    }

    for (const region of regions) {
      for (let i = region.first; i < region.first + region.count; i++) {
        const last = open.at(-1);
        if (region.reserved && blocks[i].state === STATE.WAITING) {
          waiting.set(region.addr, {addr: region.addr, size: region.size, start: -1, end: count, pages: false, alone: true});
        } else if (region.reserved) {
          addAlone(blocks[i].life, count);
        } else if (blocks[i].state === STATE.UNMAPPED) {
          continue;
        } else if (last !== undefined && last.region === region && last.addr + last.size === blocks[i].addr) {
          last.size += blocks[i].size;
        } else {
          open.push({addr: blocks[i].addr, size: blocks[i].size, end: count, pages: region.expandable, region});
        }
      }
    }
    for (let i = count - 1; i >= 0; i--) {
      const addr = events.addr[i];
      if (events.action[i] === ACTION.SHRINK) {
        add({addr, size: events.size[i], end: i, pages: events.pages[i] === 1});
      } else if (events.action[i] === ACTION.GROW) {
        undo(addr, events.size[i], i);
      } else if (events.action[i] === ACTION.FREE) {
        const around = open[before(addr)];
        if (around === undefined || around.addr + around.size <= addr) {
          addAlone(lives.of[i], waiting.delete(addr) ? count : i);
        }
      }
    }
    return [...done, ...waiting.values(), ...open.map((range) => ({...range, start: -1}))];
  }

  /* Gives every region its ranges; memory that is gone by now makes regions of its own. */
  function addRanges(regions, ranges, now) {
    const gone = [];
    const expandable = regions.filter((region) => region.expandable);
    const whole = new Map(regions.filter((region) => !region.expandable).map((region) => [region.addr, region]));
    for (const range of ranges) {
      const owner = range.pages
        ? expandable.find((region) => range.addr >= region.addr &&
                                      range.addr + range.size <= region.addr + region.size)
        : range.end === now ? whole.get(range.addr) : undefined;
      if (owner !== undefined) {
        owner.ranges.push(range);
      } else {
        gone.push(range);
      }
    }
    gone.sort((a, b) => a.addr - b.addr);
    const fresh = [];
    for (const range of gone) {
      const last = fresh.at(-1);
      if (range.pages && last !== undefined && last.expandable && range.addr <= last.addr + last.size) {
        last.size = Math.max(last.size, range.addr + range.size - last.addr);
        last.ranges.push(range);
      } else {
        fresh.push({addr: range.addr, size: range.size, expandable: range.pages, reserved: range.alone === true, gone: true,
          ranges: [range], first: 0, count: 0});
      }
    }
    return [...regions, ...fresh];
  }

  function load() {
    const about = JSON.parse(document.getElementById('about').textContent);
    const count = about.event_count;
    const blocks = readBlocks(about.block_count);
    const events = readEvents(count);
    const present = about.regions.map(([addr, size, expandable, reserved, first, number]) => ({
      addr, size, expandable: expandable === 1, reserved: reserved === 1, first, count: number, gone: false, ranges: [],
    }));
    const lives = livesOf(events, count, blocks);
    const regions = addRanges(present, rangesOf(events, count, present, blocks, lives), count);
    const failures = [];
    for (let i = 0; i < count; i++) {
      if (events.action[i] === ACTION.FAIL) {
        failures.push(i);
      }
    }
    return {about, count, blocks, events, lives, regions, failures, base: BigInt(about.base), order: null};
  }

  const data = load();
  const {about, count, blocks, events, lives, regions} = data;

  /* ---- names ---- */

  function address(offset) {
    return `0x${(data.base + BigInt(offset)).toString(16)}`;
  }

  function client(index) {
    return about.clients[index] ?? '?';
  }

  /* Streams are numbered as they appear; a few have a name. */
  const STREAM_NAMES = {[NO_STREAM]: 'none', '0x0': 'default', '0x1': 'legacy default', '0x2': 'per-thread default'};
  let numbered = 0;
  const streams = about.streams.map((handle) => STREAM_NAMES[handle] ?? String(++numbered));

  function stream(index) {
    return streams[index] ?? '?';
  }

  /* With its handle, where the name is only a number. */
  function streamHandle(index) {
    return /^\d/.test(stream(index)) ? `${stream(index)}, ${about.streams[index]}` : stream(index);
  }

  function thread(index) {
    return BigInt(about.threads[index]).toString();
  }

  /* ---- at a moment ---- */

  function totalAt(moment) {
    if (moment === count) {
      return about.stats.total;
    }
    if (moment > 0) {
      return events.total[moment - 1];
    }
    const change = events.action[0] === ACTION.GROW ? events.size[0]
      : events.action[0] === ACTION.SHRINK ? -events.size[0] : 0;
    return events.total[0] - change;
  }

  function lifeAt(life, moment) {
    return lives.start[life] < moment && lives.end[life] >= moment;
  }

  function rangeAt(range, moment) {
    return range.start < moment && range.end >= moment;
  }

  /* Lives by address. Sorted on first need: "now" does without. */
  function order() {
    if (data.order === null) {
      data.order = new Uint32Array(lives.count);
      for (let i = 0; i < lives.count; i++) {
        data.order[i] = i;
      }
      data.order.sort((a, b) => lives.addr[a] - lives.addr[b]);
    }
    return data.order;
  }

  function blockOfLife(life) {
    return {addr: lives.addr[life], size: lives.size[life], requested: lives.requested[life],
      stream: lives.stream[life], state: STATE.LENT, client: lives.client[life], life};
  }

  /* The blocks of a region from its lent ones: what lies between them is free where memory is
   * mapped. All by address. */
  function fill(region, moment, lent) {
    const filled = [];
    const mapped = region.ranges.filter((range) => rangeAt(range, moment)).sort((a, b) => a.addr - b.addr);
    function gap(from, to, state) {
      if (to > from) {
        filled.push({addr: from, size: to - from, requested: 0, stream: -1, state, client: 0, life: -1});
      }
    }
    let at = region.addr;
    let next = 0;
    for (const range of mapped) {
      gap(at, range.addr, STATE.UNMAPPED);
      at = Math.max(at, range.addr);
      const end = range.addr + range.size;
      for (; next < lent.length && lent[next].addr < end; next++) {
        gap(at, lent[next].addr, STATE.FREE);
        filled.push(lent[next]);
        at = lent[next].addr + lent[next].size;
      }
      gap(at, end, STATE.FREE);
      at = Math.max(at, end);
    }
    gap(at, region.addr + region.size, STATE.UNMAPPED);
    return filled;
  }

  /* [{region, blocks}] by address, as far as there was memory in them. */
  function regionsAt(moment) {
    if (moment === count) {
      return regions.filter((region) => !region.gone)
        .map((region) => ({region, blocks: blocks.slice(region.first, region.first + region.count)}));
    }
    const there = regions.filter((region) => region.ranges.some((range) => rangeAt(range, moment)))
      .sort((a, b) => a.addr - b.addr).map((region) => ({region, lent: []}));
    let at = 0;
    for (const life of order()) {
      if (!lifeAt(life, moment)) {
        continue;
      }
      const addr = lives.addr[life];
      while (at < there.length && there[at].region.addr + there[at].region.size <= addr) {
        at++;
      }
      if (at < there.length && there[at].region.addr <= addr) {
        there[at].lent.push(blockOfLife(life));
      }
    }
    return there.map(({region, lent}) => ({region, blocks: fill(region, moment, lent)}));
  }

  function lentAt(moment) {
    if (moment === count) {
      return blocks.filter((block) => block.state === STATE.LENT);
    }
    const lent = [];
    for (let life = 0; life < lives.count; life++) {
      if (lifeAt(life, moment)) {
        lent.push(blockOfLife(life));
      }
    }
    return lent;
  }

  /* Free memory of some blocks, and how much of it one request cannot have. */
  function room(list) {
    const out = {lent: 0, requested: 0, free: 0, largest: 0, mapped: 0, fragmentation: 0};
    for (const block of list) {
      if (block.state === STATE.LENT) {
        out.lent += block.size;
        out.requested += block.requested;
      } else if (block.state === STATE.FREE || block.state === STATE.KEPT) {
        out.free += block.size;
        out.largest = Math.max(out.largest, block.size);
      }
      out.mapped += block.state === STATE.UNMAPPED ? 0 : block.size;
    }
    out.fragmentation = out.free > 0 ? 1 - out.largest / out.free : 0;
    return out;
  }

  /* The number of events at or before a time. */
  function momentOfTime(time) {
    let low = 0;
    let high = count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (events.time[middle] <= time) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  return {...data, address, client, stream, streamHandle, thread, totalAt, regionsAt, lentAt, room, momentOfTime};
})();
