/* trace_page_strip.js - one region as a strip from its first byte to its last: what lies where, and
 * how it is drawn.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const STATE_WORDS = {
  [STATE.LENT]: 'in use', [STATE.FREE]: 'free', [STATE.KEPT]: 'kept for the next request of its size',
  [STATE.WAITING]: 'freed, a stream may still use it', [STATE.UNMAPPED]: 'addresses without memory',
};

const Strip = (() => {
  const PALE = 8; /* pixels that a block must have for its rounding to be shown */

  /* Where each block begins on the strip, in bytes from 0. Addresses without memory may be a thousand
   * times what has memory: they are drawn no longer than a part of it, so that the rest can be seen. */
  function layOut(blocks) {
    const {mapped} = Model.room(blocks);
    const longest = mapped > 0 ? mapped / 16 : Infinity;
    const starts = new Float64Array(blocks.length + 1);
    blocks.forEach((block, i) => {
      starts[i + 1] = starts[i] + (block.state === STATE.UNMAPPED ? Math.min(block.size, longest) : block.size);
    });
    return starts;
  }

  function indexAt(starts, place) {
    let low = 0;
    let high = starts.length - 2;
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

  /* Its own name where it has one, else that of its colour. */
  function nameOf(block, groups) {
    return block.state !== STATE.LENT ? '' : Labels.name(block.label) || groups.nameOf(block[groups.by]);
  }

  function drawLabel(context, block, {left, right, height}, groups, ink) {
    const from = Math.max(left, 0) + 7;
    const room = Math.min(right, context.canvas.clientWidth) - 7 - from;
    if (room < 26) {
      return;
    }
    const name = nameOf(block, groups);
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
    }
    context.fillStyle = ink;
    context.fillText(text, from, height / 2 + 0.5);
  }

  /* What rounding took, paler. Returns where the colour ends: no words run on from there. */
  function drawRounding(context, block, {left, right, height, gap}) {
    if (block.size <= block.requested || right - left <= PALE) {
      return right;
    }
    const used = left + (right - left) * block.requested / block.size;
    context.fillStyle = Paint.colours().free;
    context.globalAlpha = 0.55;
    context.fillRect(used, 0, right - gap - used, height);
    context.globalAlpha = 1;
    return used;
  }

  function drawBlock(context, block, box, groups, fills, faded) {
    const lent = block.state === STATE.LENT;
    const colour = lent ? groups.colourOf(block[groups.by]) : null;
    context.fillStyle = lent ? colour : fills[block.state];
    context.globalAlpha = faded ? 0.18 : 1;
    context.fillRect(box.left + box.gap, 0, box.right - box.left - 2 * box.gap, box.height);
    context.globalAlpha = 1;
    if (faded) {
      return;
    }
    const right = lent ? drawRounding(context, block, box) : box.right;
    drawLabel(context, block, {...box, right}, groups, lent ? Paint.inkOn(colour) : Paint.colours().soft);
  }

  function drawFrame(context, left, right, top, bottom, colour, wide) {
    context.lineWidth = wide;
    context.strokeStyle = colour;
    context.strokeRect(left + wide / 2, top + wide / 2, Math.max(wide, right - left - wide), bottom - top - wide);
  }

  /* `view`: {from, to, chosen}; `found`: whether a block is one of those looked for, or null. */
  function draw(canvas, blocks, starts, view, groups, found) {
    const {context, width, height, scale} = Paint.fit(canvas);
    const is = Paint.colours();
    const fills = Paint.fills(context, scale);
    const x = (place) => (place - view.from) / (view.to - view.from) * width;
    context.fillStyle = is.free;
    context.fillRect(0, 0, width, height);
    for (let i = indexAt(starts, view.from); i < blocks.length && starts[i] < view.to; i++) {
      const left = x(starts[i]);
      const right = x(starts[i + 1]);
      drawBlock(context, blocks[i], {left, right, height, gap: right - left > 5 ? 0.5 : 0}, groups, fills,
        found !== null && !found(blocks[i]));
    }
    drawFrame(context, 0, width, 0, height, is.line, 1);
    if (view.chosen >= 0) {
      drawFrame(context, x(starts[view.chosen]), x(starts[view.chosen + 1]), 0, height, is.ink, 2);
    }
  }

  return {layOut, indexAt, draw};
})();
