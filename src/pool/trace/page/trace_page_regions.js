/* trace_page_regions.js - each region as a strip from its first byte to its last.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const STATE_WORDS = {
  [STATE.LENT]: 'lent', [STATE.FREE]: 'free', [STATE.KEPT]: 'kept for the next request of its size',
  [STATE.WAITING]: 'freed, a stream may still use it', [STATE.UNMAPPED]: 'addresses without memory',
};

/* Addresses without memory may be a thousand times what has memory: they are drawn no longer than
 * this, so that the rest can be seen. */
function longestGap(blocks) {
  const {mapped} = Model.room(blocks);
  return mapped > 0 ? mapped / 16 : Infinity;
}

/* One strip. `blocks` follow each other: those of one region, or blocks outside the arena side by
 * side. */
function makeStrip(host, label, blocks, groups) {
  const canvas = Text.make('canvas', {});
  const strip = Text.make('div', {class: 'strip', tabindex: '0', role: 'img', 'aria-label': label}, canvas);
  const detail = Text.make('p', {class: 'detail', 'aria-live': 'polite'});
  const starts = new Float64Array(blocks.length + 1); /* where each begins on the strip, in bytes from 0 */
  const longest = longestGap(blocks);
  blocks.forEach((block, i) => {
    starts[i + 1] = starts[i] + (block.state === STATE.UNMAPPED ? Math.min(block.size, longest) : block.size);
  });
  const size = starts[blocks.length];
  const view = {from: 0, to: size, chosen: -1, hovered: -1};
  host.append(strip, detail);

  function indexAt(place) {
    let low = 0;
    let high = blocks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= place) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  function drawLabel(context, block, left, right, height, colour) {
    const from = Math.max(left, 0) + 7;
    const room = Math.min(right, context.canvas.clientWidth) - 7 - from;
    if (room < 26) {
      return;
    }
    const name = block.state === STATE.LENT ? groups.nameOf(block[groups.by]) : '';
    context.fillStyle = colour;
    context.font = Paint.font(11.5, name === '' ? 400 : 600);
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    const both = name === '' ? Text.bytes(block.size) : `${name}  ${Text.bytes(block.size)}`;
    const text = context.measureText(both).width <= room ? both : Paint.clip(context, name, room);
    if (text === '') {
      return;
    }
    if (block.state === STATE.KEPT || block.state === STATE.WAITING || block.state === STATE.UNMAPPED) {
      context.fillStyle = Paint.colours().free; /* patterns do not run through words */
      context.fillRect(from - 4, height / 2 - 8, context.measureText(text).width + 8, 16);
      context.fillStyle = colour;
    }
    context.fillText(text, from, height / 2 + 0.5);
  }

  function drawBlock(context, i, x, height, fills) {
    const block = blocks[i];
    const left = x(starts[i]);
    const right = x(starts[i + 1]);
    const lent = block.state === STATE.LENT;
    const colour = lent ? groups.colourOf(block[groups.by]) : null;
    const gap = right - left > 5 ? 0.5 : 0;
    context.fillStyle = lent ? colour : fills[block.state];
    context.fillRect(left + gap, 0, right - left - 2 * gap, height);
    if (lent && block.size > block.requested && right - left > 8) { /* what rounding took */
      const used = left + (right - left) * block.requested / block.size;
      context.fillStyle = Paint.colours().free;
      context.globalAlpha = 0.55;
      context.fillRect(used, 0, right - gap - used, height);
      context.globalAlpha = 1;
    }
    drawLabel(context, block, left, right, height, lent ? Paint.inkOn(colour) : Paint.colours().soft);
  }

  function draw() {
    const {context, width, height, scale} = Paint.fit(canvas);
    const is = Paint.colours();
    const fills = Paint.fills(context, scale);
    const x = (place) => (place - view.from) / (view.to - view.from) * width;
    context.fillStyle = is.free;
    context.fillRect(0, 0, width, height);
    for (let i = indexAt(view.from); i < blocks.length && starts[i] < view.to; i++) {
      drawBlock(context, i, x, height, fills);
    }
    context.lineWidth = 1;
    context.strokeStyle = is.line;
    context.strokeRect(0.5, 0.5, width - 1, height - 1);
    if (view.chosen >= 0) {
      context.lineWidth = 2;
      context.strokeStyle = is.ink;
      const left = x(starts[view.chosen]);
      context.strokeRect(left + 1, 1, Math.max(2, x(starts[view.chosen + 1]) - left - 2), height - 2);
    }
  }

  function show(from, to) {
    const span = Math.min(Math.max(to - from, Math.min(size, 2048)), size);
    view.from = Math.min(Math.max((from + to - span) / 2, 0), size - span);
    view.to = view.from + span;
    draw();
  }

  function placeOf(event) {
    const box = canvas.getBoundingClientRect();
    return view.from + (event.clientX - box.left) / box.width * (view.to - view.from);
  }

  function choose(i) {
    view.chosen = Math.min(blocks.length - 1, Math.max(0, i));
    detail.textContent = Describe.block(blocks[view.chosen]);
    const middle = (starts[view.chosen] + starts[view.chosen + 1]) / 2;
    if (middle < view.from || middle > view.to) {
      show(middle - (view.to - view.from) / 2, middle + (view.to - view.from) / 2);
    } else {
      draw();
    }
  }

  let drag = null;
  strip.addEventListener('pointerdown', (event) => {
    drag = {at: placeOf(event), moved: false};
    strip.setPointerCapture(event.pointerId);
  });
  strip.addEventListener('pointermove', (event) => {
    const place = placeOf(event);
    if (drag !== null && view.to - view.from < size) {
      drag.moved = drag.moved || Math.abs(place - drag.at) > (view.to - view.from) / 200;
      show(view.from + drag.at - place, view.to + drag.at - place);
    }
    const block = blocks[indexAt(place)];
    Tip.show(event.clientX, event.clientY, Describe.blockTitle(block), Describe.blockRows(block));
  });
  strip.addEventListener('pointerup', (event) => {
    if (drag !== null && !drag.moved) {
      choose(indexAt(placeOf(event)));
    }
    drag = null;
  });
  strip.addEventListener('pointercancel', () => { drag = null; });
  strip.addEventListener('pointerleave', () => Tip.hide());
  strip.addEventListener('dblclick', () => show(0, size));
  strip.addEventListener('wheel', (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const place = placeOf(event);
      const factor = Math.exp(event.deltaY * 0.004);
      show(place - (place - view.from) * factor, place + (view.to - place) * factor);
    }
  }, {passive: false});

  function zoom(factor) {
    const middle = view.chosen < 0 ? (view.from + view.to) / 2 : (starts[view.chosen] + starts[view.chosen + 1]) / 2;
    const half = (view.to - view.from) * factor / 2;
    show(middle - half, middle + half);
  }
  const KEYS = {
    ArrowLeft: () => choose(view.chosen < 0 ? indexAt(view.from) : view.chosen - 1),
    ArrowRight: () => choose(view.chosen < 0 ? indexAt(view.from) : view.chosen + 1),
    Home: () => choose(0),
    End: () => choose(blocks.length - 1),
    '+': () => zoom(0.5),
    '=': () => zoom(0.5),
    '-': () => zoom(2),
    0: () => show(0, size),
  };
  strip.addEventListener('keydown', (event) => {
    if (KEYS[event.key] !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });
  return {draw, strip};
}

/* All strips of a moment. */
const Regions = (() => {
  const SHOWN = 40; /* strips at once, before one asks for more */
  const ALONE = 6;  /* from so many blocks outside the arena on, they share one strip */
  const host = document.getElementById('strips');
  const more = document.getElementById('more-strips');
  let strips = [];
  let everything = false;
  let last = null;

  /* Regions for a strip each, but many single blocks in one. */
  function sort(there) {
    const single = there.filter(({region}) => region.reserved);
    if (single.length < ALONE) {
      return there;
    }
    return [...there.filter(({region}) => !region.reserved),
      {region: null, blocks: single.flatMap(({blocks}) => blocks)}];
  }

  function title(region, size, count, room) {
    const kind = region === null ? `${Text.count(count)} blocks outside the arena`
      : region.expandable ? 'expandable' : region.reserved ? 'outside the arena' : '';
    const parts = [Text.make('strong', {}, Text.bytes(room.mapped)),
      region === null ? '' : Text.make('span', {class: 'addr'}, Model.address(region.addr)),
      kind, room.mapped < size ? `mapped of ${Text.bytes(size)} of addresses` : '',
      `${Text.percent(room.mapped > 0 ? room.lent / room.mapped : 0)} lent`];
    const right = room.free > 0
      ? `fragmentation ${room.fragmentation.toFixed(2)}, largest free ${Text.bytes(room.largest)}` : 'nothing free';
    return Text.make('h3', {}, ...parts.filter((part) => part !== '').map((part) => Text.make('span', {}, part)),
      Text.make('span', {class: 'right'}, right));
  }

  function show(there, groups, toScale) {
    last = [there, groups, toScale];
    const sorted = sort(there);
    const shown = everything ? sorted : sorted.slice(0, SHOWN);
    const rooms = shown.map(({blocks}) => Model.room(blocks));
    const largest = Math.max(...rooms.map((room) => room.mapped), 1);
    host.replaceChildren();
    strips = shown.map(({region, blocks}, i) => {
      const room = rooms[i];
      const size = blocks.reduce((sum, block) => sum + block.size, 0);
      const element = Text.make('div', {class: 'region', 'data-size': size, 'data-lent': room.lent,
        'data-fragmentation': room.fragmentation.toFixed(4)}, title(region, size, blocks.length, room));
      const strip = makeStrip(element, `Region of ${Text.bytes(size)} in ${Text.plural(blocks.length, 'block')}, ` +
        `${Text.bytes(room.lent)} lent, ${Text.bytes(room.free)} free`, blocks, groups);
      if (toScale) {
        strip.strip.style.width = `${Math.max(0.6, 100 * room.mapped / largest)}%`;
      }
      host.append(element);
      return strip;
    });
    if (shown.length === 0) {
      host.append(Text.make('p', {class: 'nothing'}, 'The pool has no memory from the device.'));
    }
    more.hidden = shown.length === sorted.length;
    more.textContent = `Show all ${Text.count(sorted.length)} regions`;
    draw();
  }

  function draw() {
    for (const strip of strips) {
      strip.draw();
    }
  }

  more.addEventListener('click', () => {
    everything = true;
    show(...last);
  });
  return {show, draw};
})();
