/* trace_page_plot.js - draws memory over time: what is lent in bands, what the pool has as a line.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Plot = (() => {
  const MARGIN = {left: 66, right: 14, top: 20, bottom: 24};

  /* Bytes from line to line of the grid: a power of two, at most `lines` lines. */
  function gridStep(most, lines) {
    let step = 1;
    while (most / step > lines) {
      step *= 2;
    }
    return step;
  }

  function timeStep(span, lines) {
    const rough = span / lines;
    const scale = 10 ** Math.floor(Math.log10(rough));
    return scale * ([1, 2, 5, 10].find((factor) => factor * scale >= rough) ?? 10);
  }

  function drawGrid(context, box, view, most, step) {
    const is = Paint.colours();
    context.font = Paint.font(11.5);
    context.lineWidth = 1;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let value = 0; value <= most; value += step) {
      const y = Math.round(box.y(value)) + 0.5;
      context.strokeStyle = value === 0 ? is.line : is.grid;
      context.beginPath();
      context.moveTo(box.left, y);
      context.lineTo(box.right, y);
      context.stroke();
      context.fillStyle = is.soft;
      context.fillText(Text.roundBytes(value), box.left - 9, y);
    }
    context.textAlign = 'center';
    context.textBaseline = 'top';
    const along = Math.max(view.axis === 'time' ? 0 : 1, timeStep(view.to - view.from, Math.max(2, (box.right - box.left) / 120)));
    for (let x = Math.ceil(view.from / along) * along; x <= view.to; x += along) {
      if (x >= 0 && x <= Axis.whole(view).to) {
        const label = Math.abs(x) < along / 2 ? '0' : view.axis === 'time' ? Text.time(x, along) : Text.count(Math.round(x));
        context.fillText(label, Math.min(Math.max(box.x(x), box.left + 14), box.right - 20), box.bottom + 8);
      }
    }
  }

  /* Rectangles under `upper` and over `lower`; columns of equal height in one piece. */
  function drawBand(context, box, lower, upper, colour) {
    const {width} = box.columns;
    context.fillStyle = colour;
    for (let c = 0, next; c < width; c = next) {
      next = c + 1;
      while (next < width && lower[next] === lower[c] && upper[next] === upper[c]) {
        next++;
      }
      const top = box.y(upper[c]);
      const height = box.y(lower[c]) - top;
      if (height > 0) {
        const gap = height > 4 ? 0.8 : 0; /* the card shows between two bands */
        context.fillRect(box.column(c), top + gap, box.column(next) - box.column(c), height - gap);
      }
    }
  }

  /* Writes a band's name where it is thickest, if it fits there. */
  function drawName(context, box, lower, upper, name, colour) {
    let at = 0;
    const {width} = box.columns;
    for (let c = 1; c < width; c++) {
      if (upper[c] - lower[c] > upper[at] - lower[at]) {
        at = c;
      }
    }
    context.font = Paint.font(12, 600);
    const wide = context.measureText(name).width + 12;
    const reach = Math.ceil(wide / 2 / (box.column(1) - box.column(0)));
    const centre = Math.min(Math.max(at, reach), width - 1 - reach);
    if (centre < reach) {
      return;
    }
    let floor = 0;
    let roof = Infinity;
    for (let c = centre - reach; c <= centre + reach; c++) {
      floor = Math.max(floor, lower[c]);
      roof = Math.min(roof, upper[c]);
    }
    if (box.y(floor) - box.y(roof) >= 15) {
      context.fillStyle = Paint.inkOn(colour);
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.fillText(name, box.column(centre), (box.y(floor) + box.y(roof)) / 2);
    }
  }

  function drawBands(context, box, groups) {
    const {columns} = box;
    let lower = new Float64Array(columns.width);
    const drawn = [];
    for (let k = 0; k < groups.names.length; k++) {
      const upper = lower.map((value, c) => value + columns.bands[k][c]);
      drawBand(context, box, lower, upper, groups.colours[k]);
      drawn.push([lower, upper, groups.names[k], groups.colours[k]]);
      lower = upper;
    }
    for (const [below, above, name, colour] of drawn) {
      drawName(context, box, below, above, name, colour);
    }
  }

  function drawLine(context, box, values, colour, width, dashes) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineJoin = 'round';
    context.setLineDash(dashes);
    context.beginPath();
    const {width: last} = box.columns;
    for (let c = 0; c < last; c++) {
      const y = box.y(values[c]);
      if (c === 0) {
        context.moveTo(box.column(0), y);
      } else if (values[c] !== values[c - 1]) {
        context.lineTo(box.column(c), box.y(values[c - 1]));
        context.lineTo(box.column(c), y);
      }
    }
    context.lineTo(box.right, box.y(values[last - 1]));
    context.stroke();
    context.setLineDash([]);
  }

  function triangle(context, x, y, size) {
    context.beginPath();
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y - size);
    context.lineTo(x, y + size * 0.7);
    context.closePath();
    context.fill();
  }

  /* Where on the picture requests ran out of memory, in whole pixels. */
  function failuresIn(box, view) {
    const shown = Model.failures.map((i) => Axis.ofEvent(view, i)).filter((x) => x >= view.from && x <= view.to);
    return new Set(shown.map((x) => Math.round(box.x(x))));
  }

  function drawFailure(context, box, x) {
    context.setLineDash([2, 3]);
    context.beginPath();
    context.moveTo(x + 0.5, box.top);
    context.lineTo(x + 0.5, box.bottom);
    context.stroke();
    context.setLineDash([]);
    triangle(context, x + 0.5, box.top - 5, 5);
  }

  function drawFailures(context, box, view) {
    const places = failuresIn(box, view);
    context.fillStyle = context.strokeStyle = Paint.colours().alarm;
    context.lineWidth = 1;
    for (const x of places) {
      drawFailure(context, box, x);
    }
    if (places.size === 1) {
      const [x] = places;
      const left = x < box.right - 110;
      context.font = Paint.font(11.5, 600);
      context.textAlign = left ? 'left' : 'right';
      context.textBaseline = 'middle';
      context.fillText('out of memory', x + (left ? 10 : -10), box.top - 7);
    }
  }

  /* The part of the canvas that is drawn into, and where things lie in it. */
  function boxOf(fitted, view, most, columns) {
    const left = MARGIN.left;
    const right = fitted.width - MARGIN.right;
    const top = MARGIN.top;
    const bottom = fitted.height - MARGIN.bottom;
    return {left, right, top, bottom, columns,
      x: (x) => left + (x - view.from) / (view.to - view.from) * (right - left),
      y: (value) => bottom - value / most * (bottom - top),
      column: (c) => left + c / columns.width * (right - left)};
  }

  const columnsOf = (fitted) => Math.max(1, Math.round((fitted.width - MARGIN.left - MARGIN.right) * fitted.scale));

  function draw(canvas, view, sums) {
    const fitted = Paint.fit(canvas);
    const {context} = fitted;
    const is = Paint.colours();
    const columns = Columns.gather(view, sums, view.from, view.to, columnsOf(fitted));
    const {limit} = Model.about.stats;
    const near = limit !== null && limit < columns.most * 1.6;
    const step = gridStep(Math.max(near ? limit : 0, columns.most, 1), 6);
    const most = Math.max(columns.most * 1.03, near ? limit * 1.04 : 0, step);
    const box = boxOf(fitted, view, most, columns);
    drawGrid(context, box, view, most, step);
    drawBands(context, box, sums.groups);
    drawLine(context, box, columns.asked, is.ink, 1, [1.5, 2.5]);
    drawLine(context, box, columns.had, is.ink, 1.6, []);
    if (near) {
      drawLine(context, box, new Float64Array(columns.width).fill(limit), is.alarm, 1, [7, 4]);
    }
    drawFailures(context, box, view);
    return columns;
  }

  function upright(context, box, x, colour, wide) {
    context.strokeStyle = colour;
    context.lineWidth = wide;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, box.top - 2);
    context.lineTo(Math.round(x) + 0.5, box.bottom);
    context.stroke();
  }

  /* The moment that is shown, and where the pointer is (null: nowhere). */
  function drawCursor(canvas, view, hover) {
    const fitted = Paint.fit(canvas);
    const {context} = fitted;
    const box = boxOf(fitted, view, 1, {width: 1});
    const is = Paint.colours();
    if (hover !== null) {
      upright(context, box, hover, is.soft, 0.6);
    }
    const x = box.x(Axis.ofMoment(view, view.moment));
    if (x >= box.left - 1 && x <= box.right + 1) {
      upright(context, box, x, is.accent, 2);
      context.fillStyle = is.accent;
      context.beginPath();
      context.arc(Math.round(x) + 0.5, box.bottom, 4.5, 0, 2 * Math.PI);
      context.fill();
    }
  }

  /* All of the trace in little, with a frame around what is shown. `outline`: what was gathered the
   * last time, or null; returns what may be given the next time. */
  function drawOverview(canvas, view, sums, outline) {
    const fitted = Paint.fit(canvas);
    const {context, height, scale} = fitted;
    const is = Paint.colours();
    const all = Axis.whole(view);
    const left = MARGIN.left;
    const right = fitted.width - MARGIN.right;
    const wide = columnsOf(fitted);
    const known = outline !== null && outline.width === wide ? outline : Columns.gather(view, sums, all.from, all.to, wide);
    context.fillStyle = is.soft;
    context.globalAlpha = 0.35;
    for (let c = 0; c < wide; c++) {
      const tall = known.lent[c] / Math.max(known.most, 1) * (height - 4);
      context.fillRect(left + c / scale, height - tall, 1 / scale, tall);
    }
    context.globalAlpha = 1;
    const from = left + (view.from - all.from) / (all.to - all.from) * (right - left);
    const to = left + (view.to - all.from) / (all.to - all.from) * (right - left);
    if (to - from <= right - left - 1) { /* not all of it is shown */
      context.strokeStyle = is.accent;
      context.lineWidth = 1.5;
      context.strokeRect(from + 0.75, 1.5, Math.max(3, to - from - 1.5), height - 3);
    }
    return known;
  }

  /* How far along the picture the pointer is, from 0 to 1 and beyond. */
  function along(canvas, event) {
    const box = canvas.getBoundingClientRect();
    return (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
  }

  return {draw, drawCursor, drawOverview, along};
})();
