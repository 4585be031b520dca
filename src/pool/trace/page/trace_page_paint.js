/* trace_page_paint.js - colours, patterns and canvases that are sharp on every screen.
 *
 * Colour alone never tells anything: bands and blocks carry their names where there is room, and
 * every state has a pattern of its own.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Paint = (() => {
  /* Told apart by people with any kind of colour vision; the last is for "all others". */
  const COLOURS = ['#4a7fb0', '#d99a3d', '#4d9a7d', '#b5668b', '#7f73b5', '#58a6b8', '#c4694d', '#8e9a4b', '#8f9499'];
  const OTHERS = COLOURS.length - 1;
  /* Of the first few each its own; then the same again, further from the page's own colour. */
  function colour(at) {
    const round = Math.floor(at / OTHERS);
    const base = COLOURS[at % OTHERS];
    const part = (from) => {
      const value = parseInt(base.slice(from, from + 2), 16);
      const shifted = round % 2 === 1 ? value * 0.7 ** ((round + 1) / 2) : value + (255 - value) * (1 - 0.65 ** (round / 2));
      return Math.round(shifted).toString(16).padStart(2, '0');
    };
    return `#${part(1)}${part(3)}${part(5)}`;
  }

  const dark = matchMedia('(prefers-color-scheme: dark)');
  let theme = null;

  function colours() {
    if (theme === null) {
      const style = getComputedStyle(document.documentElement);
      theme = {};
      for (const name of ['page', 'card', 'ink', 'soft', 'line', 'grid', 'free', 'accent', 'alarm', 'wait']) {
        theme[name] = style.getPropertyValue(`--${name}`).trim();
      }
    }
    return theme;
  }

  function onTheme(redraw) {
    dark.addEventListener('change', () => {
      theme = null;
      redraw();
    });
  }

  /* Fits the canvas's pixels to its box; returns {context, width, height, scale} in CSS pixels. */
  function fit(canvas) {
    const scale = window.devicePixelRatio || 1;
    const box = canvas.getBoundingClientRect();
    const width = Math.max(1, Math.round(box.width * scale));
    const height = Math.max(1, Math.round(box.height * scale));
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    const context = canvas.getContext('2d');
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    return {context, width: width / scale, height: height / scale, scale};
  }

  /* A pattern of 8 by 8 pixels that `draw` fills. */
  function pattern(context, scale, draw) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8 * scale;
    const brush = tile.getContext('2d');
    brush.scale(scale, scale);
    draw(brush);
    const made = context.createPattern(tile, 'repeat');
    made.setTransform(new DOMMatrix().scale(1 / scale));
    return made;
  }

  function slope(brush, colour, width, rising) {
    brush.strokeStyle = colour;
    brush.lineWidth = width;
    brush.beginPath();
    for (const shift of [-8, 0, 8]) {
      brush.moveTo(shift - 1, rising ? 9 : -1);
      brush.lineTo(shift + 9, rising ? -1 : 9);
    }
    brush.stroke();
  }

  /* How each state is filled; LENT is up to whoever the block belongs to. */
  function fills(context, scale) {
    const is = colours();
    return {
      [STATE.FREE]: is.free,
      [STATE.KEPT]: pattern(context, scale, (brush) => {
        brush.fillStyle = is.free;
        brush.fillRect(0, 0, 8, 8);
        brush.fillStyle = is.soft;
        for (const [x, y] of [[2, 2], [6, 6]]) {
          brush.fillRect(x - 0.7, y - 0.7, 1.4, 1.4);
        }
      }),
      [STATE.WAITING]: pattern(context, scale, (brush) => {
        brush.fillStyle = is.free;
        brush.fillRect(0, 0, 8, 8);
        slope(brush, is.wait, 2.6, true);
      }),
      [STATE.UNMAPPED]: pattern(context, scale, (brush) => slope(brush, is.line, 1, false)),
    };
  }

  /* Black or white, whichever reads better on a colour. */
  function inkOn(colour) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return 0.299 * r + 0.587 * g + 0.114 * b > 150 ? '#14181b' : '#ffffff';
  }

  /* The text, cut so that it fits; '' where not even a few letters do. */
  function clip(context, text, width) {
    if (context.measureText(text).width <= width) {
      return text;
    }
    let keep = Math.floor(text.length * width / context.measureText(text).width);
    while (keep > 2 && context.measureText(`${text.slice(0, keep)}…`).width > width) {
      keep--;
    }
    return keep > 2 ? `${text.slice(0, keep)}…` : '';
  }

  /* A small canvas for legends and tables, painted at once. */
  function swatch(width, height, fill) {
    const scale = window.devicePixelRatio || 1;
    const canvas = Text.make('canvas', {'aria-hidden': 'true', width: Math.round(width * scale),
      height: Math.round(height * scale)});
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    fill(context, width, height, scale);
    return canvas;
  }

  function plain(colour, width = 12) {
    return swatch(width, 12, (context, wide, high) => {
      context.fillStyle = colour;
      context.fillRect(0, 0, wide, high);
    });
  }

  const FONT = getComputedStyle(document.body).fontFamily;
  function font(size, weight = 400) {
    return `${weight} ${size}px ${FONT}`;
  }

  return {COLOURS, OTHERS, colour, colours, onTheme, fit, fills, inkOn, clip, swatch, plain, font};
})();
