/* trace_page_model.js - the data of the page, and what memory looked like after any number of events.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Model = (() => {
  function load() {
    const about = JSON.parse(document.getElementById('about').textContent);
    const count = about.event_count;
    const blocks = Read.blocks(about.block_count);
    const events = Read.events(count);
    const present = about.regions.map(([addr, size, expandable, reserved, first, number]) => ({
      addr, size, expandable: expandable === 1, reserved: reserved === 1, first, count: number, gone: false, ranges: [],
    }));
    const lives = History.livesOf(events, count, blocks);
    const regions = History.addRanges(present, History.rangesOf(events, count, present, blocks, lives), count);
    Labels.spread(about, blocks, lives);
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

  /* Streams are numbered by their first use; a few have a name. */
  const STREAM_NAMES = {[NO_STREAM]: 'none', '0x0': 'default', '0x1': 'legacy default', '0x2': 'per-thread default'};
  let numbered = 0;
  const streams = about.streams.map((handle) => STREAM_NAMES[handle] ?? String(++numbered));

  function stream(index) {
    return streams[index] ?? '?';
  }

  /* "stream 2", "default stream", "no stream". */
  function streamName(index) {
    const name = stream(index);
    return /^\d/.test(name) ? `stream ${name}` : name === 'none' ? 'no stream' : `${name} stream`;
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
      stream: lives.stream[life], state: STATE.LENT, client: lives.client[life], label: lives.label[life],
      kind: lives.kind[life], node: lives.node[life], life};
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

  return {...data, address, client, stream, streamName, streamHandle, thread, totalAt, regionsAt, lentAt, room, momentOfTime};
})();
