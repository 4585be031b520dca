/* trace_page_regions.js - the strips of all regions, under the pointer and the keys.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

/* One strip. `blocks` follow each other: those of one region, or blocks outside the arena side by
 * side. `found` tells which are looked for. */
function makeStrip(host, label, blocks, groups, found) {
  const canvas = Text.make('canvas', {});
  const strip = Text.make('div', {class: 'strip', tabindex: '0', role: 'img', 'aria-label': label}, canvas);
  const detail = Text.make('div', {class: 'detail', 'aria-live': 'polite'});
  const starts = Strip.layOut(blocks);
  const size = starts[blocks.length];
  const view = {from: 0, to: size, chosen: -1};
  host.append(strip, detail);

  function draw() {
    Strip.draw(canvas, blocks, starts, view, groups, found());
  }

  function show(from, to) {
    const span = Math.min(Math.max(to - from, Math.min(size, 2048)), size);
    view.from = Math.min(Math.max((from + to - span) / 2, 0), size - span);
    view.to = view.from + span;
    draw();
  }

  function zoom(factor, place = null) {
    const chosen = view.chosen < 0 ? (view.from + view.to) / 2 : (starts[view.chosen] + starts[view.chosen + 1]) / 2;
    const centre = place ?? chosen;
    const part = place === null ? 0.5 : (centre - view.from) / (view.to - view.from);
    const span = (view.to - view.from) * factor;
    show(centre - part * span, centre + (1 - part) * span);
  }

  function choose(i) {
    view.chosen = Math.min(blocks.length - 1, Math.max(0, i));
    detail.replaceChildren(...Describe.detail(blocks[view.chosen]));
    const middle = (starts[view.chosen] + starts[view.chosen + 1]) / 2;
    if (middle < view.from || middle > view.to) {
      show(middle - (view.to - view.from) / 2, middle + (view.to - view.from) / 2);
    } else {
      draw();
    }
  }

  /* Whether a lent block begins at the address; chooses it then. */
  function chooseAddress(addr) {
    const i = blocks.findIndex((block) => block.addr === addr && block.state === STATE.LENT);
    if (i >= 0) {
      choose(i);
    }
    return i >= 0;
  }

  const self = {view, blocks, size, show, zoom, choose, showAll: () => show(0, size),
    indexAt: (place) => Strip.indexAt(starts, place),
    placeOf: (event) => {
      const box = canvas.getBoundingClientRect();
      return view.from + (event.clientX - box.left) / box.width * (view.to - view.from);
    }};
  listenStrip(strip, self);
  return {draw, strip, choose: chooseAddress};
}

function listenStrip(strip, self) {
  const {view} = self;
  let drag = null;
  strip.addEventListener('pointerdown', (event) => {
    drag = {at: self.placeOf(event), moved: false};
    strip.setPointerCapture(event.pointerId);
  });
  strip.addEventListener('pointermove', (event) => {
    const place = self.placeOf(event);
    if (drag !== null && view.to - view.from < self.size) {
      drag.moved = drag.moved || Math.abs(place - drag.at) > (view.to - view.from) / 200;
      self.show(view.from + drag.at - place, view.to + drag.at - place);
    }
    const block = self.blocks[self.indexAt(place)];
    Tip.show(event.clientX, event.clientY, Describe.blockTitle(block), Describe.blockRows(block));
  });
  strip.addEventListener('pointerup', (event) => {
    if (drag !== null && !drag.moved) {
      self.choose(self.indexAt(self.placeOf(event)));
    }
    drag = null;
  });
  strip.addEventListener('pointercancel', () => { drag = null; });
  strip.addEventListener('pointerleave', () => Tip.hide());
  strip.addEventListener('dblclick', self.showAll);
  strip.addEventListener('wheel', (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      self.zoom(Math.exp(event.deltaY * 0.004), self.placeOf(event));
    }
  }, {passive: false});
  strip.addEventListener('keydown', (event) => {
    const act = stripKeys(self)[event.key];
    if (act !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      act();
    }
  });
}

function stripKeys(self) {
  const {view} = self;
  const step = (by) => self.choose(view.chosen < 0 ? self.indexAt(view.from) : view.chosen + by);
  return {
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    Home: () => self.choose(0),
    End: () => self.choose(self.blocks.length - 1),
    '+': () => self.zoom(0.5),
    '=': () => self.zoom(0.5),
    '-': () => self.zoom(2),
    0: self.showAll,
  };
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
  let found = null; /* which blocks are looked for */

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
      `${Text.percent(room.mapped > 0 ? room.lent / room.mapped : 0)} in use`];
    const right = room.free > 0
      ? `fragmentation ${room.fragmentation.toFixed(2)}, largest free ${Text.bytes(room.largest)}` : 'nothing free';
    return Text.make('h3', {}, ...parts.filter((part) => part !== '').map((part) => Text.make('span', {}, part)),
      Text.make('span', {class: 'right'}, right));
  }

  function showLast() {
    const [there, groups, toScale] = last;
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
        `${Text.bytes(room.lent)} in use, ${Text.bytes(room.free)} free`, blocks, groups, () => found);
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

  /* `test`: which blocks stand out, or null. */
  function show(there, groups, toScale, test) {
    last = [there, groups, toScale];
    found = test;
    showLast();
  }

  function draw() {
    for (const strip of strips) {
      strip.draw();
    }
  }

  /* From now on only these blocks stand out; null: all. */
  function find(test) {
    found = test;
    draw();
  }

  /* Chooses the block that begins at an address, and brings it into sight. */
  function choose(addr) {
    if (!everything) {
      everything = true;
      showLast();
    }
    const strip = strips.find((one) => one.choose(addr));
    strip?.strip.scrollIntoView({block: 'nearest'});
  }

  more.addEventListener('click', () => {
    everything = true;
    showLast();
  });
  return {show, draw, find, choose};
})();
