/* trace_page_history.js - what was there when: loans of blocks ("lives") and memory had from the
 * device ("ranges"), found by reading the events forwards and backwards.
 *
 * A moment is a number of events, from 0 (before the first that is kept) to all (now). A life is one
 * loan of a block, from the event that lent it to the one that freed it; -1 stands for "before the
 * first event", the number of events for "not yet". A range is the same for memory had from the
 * device.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const History = (() => {
  const COLUMNS = ['addr', 'size', 'requested', 'client', 'stream', 'label'];

  /* Every loan: columns, and for each event the life it begins or ends (-1 for none). */
  function livesOf(events, count, blocks) {
    const most = count + blocks.length;
    const lives = {
      count: 0, of: new Int32Array(count).fill(-1), start: new Int32Array(most), end: new Int32Array(most),
      addr: new Float64Array(most), size: new Float64Array(most), requested: new Float64Array(most),
      client: new Uint8Array(most), stream: new Uint32Array(most), label: new Uint32Array(most), stack: new Int32Array(most),
    };
    const open = new Map();
    function begin(start, source, i) {
      const life = lives.count++;
      lives.start[life] = start;
      lives.end[life] = count;
      for (const column of COLUMNS) {
        lives[column][life] = i === undefined ? source[column] : source[column][i];
      }
      lives.stack[life] = i === undefined || events.action[i] !== ACTION.ALLOC ? -1 : events.stack[i];
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
        lives.label[block.life] = block.label; /* may have been told later what it is */
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

  return {livesOf, rangesOf, addRanges};
})();
